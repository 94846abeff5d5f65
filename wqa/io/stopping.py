"""Signals that stop a command after its current step, so that it can be continued."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any, Dict, Iterator

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
