"""Signals that end a training after the update in hand."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any, Dict, Iterator

#: Signals that end a training: an interrupt from the keyboard, and a request to terminate.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether a signal has come, and which.

    A handler that raised an exception could lose it: Python swallows an exception in a destructor,
    where MXNet spends much of its time.
    """

    def __init__(self) -> None:
        self.signal = 0

    def note(self, number: int, frame: Any) -> None:
        """Note a signal; the same signal ends the process if it comes again.

        Parameters
        ----------
        number : int
            The signal.
        frame : frame
            Where it came.
        """
        self.signal = number
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Note SIGINT and SIGTERM inside the block, in place of what they do otherwise.

    A signal that is ignored, as SIGINT is in a background job of a script, stays ignored. Outside
    the main thread, where Python takes no handlers, signals do what they did before.

    Yields
    ------
    StopRequest
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
