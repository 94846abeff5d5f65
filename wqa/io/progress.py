"""A bar of progress on standard error.

Signals that stop a command after its current step, so that it can be continued.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import Any, Dict, Iterable, Iterator, Optional, TypeVar

from tqdm import tqdm

from wqa.errors import printable

Item = TypeVar("Item")


#: Share of the items, and seconds with some items, after which the time that is left is shown.
_SHARE, _SECONDS, _SOME = 0.05, 60, 10


class Bar(tqdm):
    """Bar that shows no time that is left until enough is done to estimate it.

    Rankers read ahead and compile kernels, so the first items may come late and together. The speed
    is the mean since the start.
    """

    def refresh(self, *arguments: Any, **keywords: Any) -> Any:
        """Draw the bar again, such as below a message, if it has been drawn at all."""
        if self._time() < self.start_t + self.delay:
            return None
        self.last_print_t = self._time()  # else tqdm would not end the line of the bar
        return super().refresh(*arguments, **keywords)

    @property
    def format_dict(self) -> Dict[str, Any]:
        """What the line of the bar is made of; tqdm shows a question mark for a rate of 0."""
        values = super().format_dict
        done, total = self.n - self.initial, self.total or 0
        is_known = done >= _SHARE * (total - self.initial)
        is_known |= done >= _SOME and values["elapsed"] >= _SECONDS
        return {**values, "rate": None if is_known else 0.0}


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
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    earlier: Dict[int, Any] = {}
    for signum in SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:
            earlier[signum] = signal.signal(signum, request.note)
    try:
        yield request
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
