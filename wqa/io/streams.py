"""Messages that are not worth an error: the stream that drops them, and the handler of the log."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any, Callable, Iterator, Optional, TextIO


class LossyStream:
    """A stream of text that drops what it cannot write."""

    def __init__(self, stream: Optional[TextIO]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            if self._stream is not None:
                self._stream.write(text)
        except (OSError, ValueError):  # a closed pipe or terminal, a full disk, a closed file
            pass
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, if that is possible."""
        try:
            if self._stream is not None:
                self._stream.flush()
        except (OSError, ValueError):
            pass

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        try:
            return self._stream is not None and self._stream.isatty()
        except (OSError, ValueError):
            return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class MessageHandler(logging.Handler):
    """Prints messages on standard error, warnings as notes; those it does not take are dropped.

    A progress bar is cleared first, and drawn again below the message.
    """

    def __init__(self, reword: Callable[[str], str] = str) -> None:
        super().__init__()
        self.reword = reword

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        text = self.reword(record.getMessage())
        if record.levelno >= logging.WARNING:
            text = f"note: {text}"
        if sys.stderr is None:
            return
        with contextlib.suppress(OSError, ValueError):  # a closed pipe or terminal, a full disk
            if "tqdm" in sys.modules:
                sys.modules["tqdm"].tqdm.write(text, file=sys.stderr)
            else:
                print(text, file=sys.stderr)


@contextlib.contextmanager
def messages_on_stderr() -> Iterator[MessageHandler]:
    """Print what the package logs on standard error inside the block, as a command line does."""
    logger, handler = logging.getLogger("wqa"), MessageHandler()
    earlier, level = list(logger.handlers), logger.level
    for other in earlier:
        if isinstance(other, MessageHandler):
            logger.removeHandler(other)
    logger.addHandler(handler)
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield handler
    finally:
        logger.handlers[:] = earlier
        logger.setLevel(level)
