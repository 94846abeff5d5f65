"""Messages that are not worth an error: the stream that drops them, and the handler of the log."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any, Callable, ContextManager, Iterable, Iterator, Optional, TextIO, Tuple

from wqa.errors import printable

LOGGER = logging.getLogger(__name__)


def _losses() -> ContextManager[None]:
    """Drop errors of a closed pipe or terminal, a full disk, or a closed file."""
    return contextlib.suppress(OSError, ValueError)


class LossyStream:
    """A stream of text that drops what it cannot write."""

    def __init__(self, stream: Optional[TextIO]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        if self._stream is not None:
            with _losses():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, if that is possible."""
        if self._stream is not None:
            with _losses():
                self._stream.flush()

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        with _losses():
            return self._stream is not None and self._stream.isatty()
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class MessageHandler(logging.Handler):
    """Prints messages on standard error, warnings as notes; those it does not take are dropped.

    A progress bar is cleared first, and drawn again below the message.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        note = "note: " if record.levelno >= logging.WARNING else ""
        bars = sys.modules.get("tqdm")  # whose import takes long
        write: Callable[..., Any] = bars.tqdm.write if bars else print
        if sys.stderr is not None:
            with _losses():
                write(f"{note}{record.getMessage()}", file=sys.stderr)


def note_counts(where: object, counts: Iterable[Tuple[int, str, str]]) -> None:
    """Log what was cut or left out, if anything was: numbers, what is counted, what was done."""
    parts = []
    for count, what, done in counts:
        if count:
            parts.append(f"{count:,} {what}{'s' if count > 1 else ''} {done}")
    if parts:
        start = f"{where}: " if str(where) else ""
        LOGGER.warning(printable(f"{start}{', '.join(parts)}"))


@contextlib.contextmanager
def messages_on_stderr() -> Iterator[None]:
    """Print what the package logs on standard error inside the block, as a command line does."""
    logger = logging.getLogger("wqa")
    earlier, level = list(logger.handlers), logger.level
    others = [handler for handler in earlier if not isinstance(handler, MessageHandler)]
    logger.handlers[:] = [*others, MessageHandler()]
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        logger.handlers[:] = earlier
        logger.setLevel(level)
