"""Progress, messages and streams of a command, and the signals that stop it after a step."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from typing import Any, Dict, Iterable, Iterator, Optional, Tuple, TypeVar

from tqdm import tqdm

from wqa.errors import counted, printable

LOGGER = logging.getLogger(__name__)
Item = TypeVar("Item")


#: Errors of a closed pipe or terminal, a full disk, or a closed file.
_LOSSES = (OSError, ValueError)


class LossyStream:
    """A stream of text that drops what it cannot write."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream or open(os.devnull, "w")  # noqa: SIM115 - None is a closed stream

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        with contextlib.suppress(*_LOSSES):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, if that is possible."""
        with contextlib.suppress(*_LOSSES):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class MessageHandler(logging.Handler):
    """Prints messages on standard error, warnings as notes; those it does not take are dropped.

    A progress bar is cleared first, and drawn again below the message.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        note = "note: " if record.levelno >= logging.WARNING else ""
        if sys.stderr is not None:
            with contextlib.suppress(*_LOSSES):
                tqdm.write(f"{note}{record.getMessage()}", file=sys.stderr)


def note_counts(where: object, counts: Iterable[Tuple[int, str, str]]) -> None:
    """Log what was cut or left out, if anything was: numbers, what is counted, what was done."""
    parts = [f"{counted(count, what)} {done}" for count, what, done in counts if count]
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


class Bar(tqdm):
    """Bar that a message does not draw before it is due, and that ends its line once drawn."""

    def refresh(self, *arguments: Any, **keywords: Any) -> Any:
        """Draw the bar again."""
        if self._time() < self.start_t + self.delay:
            return None
        self.last_print_t = self._time()
        return super().refresh(*arguments, **keywords)


def progress_bar(
    total: Optional[int], title: str, unit: str, progress: bool, **options: Any
) -> Any:
    """Make a bar on standard error that its caller updates, and that stays when it is done."""
    return Bar(
        total=total,
        desc=printable(title),
        unit=unit,
        delay=1,
        disable=not progress,
        # The least time between two states of the bar is longer in a file than on a terminal.
        mininterval=0.5 if sys.stderr.isatty() else 20,
        file=sys.stderr,
        **options,
    )


def with_bar(
    items: Iterable[Item],
    total: Optional[int],
    title: str,
    progress: bool = False,
    unit: str = "question",
) -> Iterable[Item]:
    """Show a bar on standard error while items are computed."""
    return progress_bar(total, title, unit, progress, iterable=items, leave=False)


#: Signals that stop a command: an interrupt from the keyboard, and a request to terminate.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """The signal that has arrived, or 0.

    The handler raises no exception. Python discards exceptions in destructors, in which MXNet
    spends much of its time.
    """

    def __init__(self) -> None:
        self.signal = 0

    def note(self, number: int, frame: Any) -> None:
        """Handle a signal; a second signal of this kind ends the process."""
        self.signal = number
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Handle SIGINT and SIGTERM by a `StopRequest` inside the ``with`` block.

    An ignored signal, such as SIGINT in a background job of a script, stays ignored. Outside the
    main thread Python takes no handlers, and signals are handled as before.
    """
    request = StopRequest()
    earlier: Dict[int, Any] = {}
    is_main = threading.current_thread() is threading.main_thread()
    for signum in SIGNALS if is_main else ():
        if signal.getsignal(signum) != signal.SIG_IGN:
            earlier[signum] = signal.signal(signum, request.note)
    try:
        yield request
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
