"""The process of a command: its streams, its interrupts, its exit status.

`wqa.cli.main` is a function that a test or a notebook can call. What it cannot do without an effect
on the whole process is here:

- A character that the encoding of standard output lacks is escaped.
- Output that cannot be written is an error. Messages and progress bars that cannot be written are
  dropped, so that a training outlives the terminal that started it.
- The streams are flushed before the interpreter does it, as it prints a traceback on failure.
- An interrupt ends the process with one line, whatever runs at that moment.
- An error that is no `WqaError` is a bug. Its traceback goes to a file.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import tempfile
import threading
import traceback
from typing import Any, Optional, TextIO

from wqa.cli import BROKEN_PIPE, FAILED, OUT_OF_MEMORY, run_command
from wqa.errors import StorageError, WqaError
from wqa.io.streams import LossyStream

#: Exit status after an unexpected exception, EX_SOFTWARE of sysexits.h.
BUG = 70
#: What MXNet says where it cannot allocate memory, or start a thread.
_ALLOCATIONS = ("bad_alloc", "llocate CPU Memory", "Resource temporarily unavailable")
#: Shows the traceback of an unexpected exception on standard error, where it is set.
TRACEBACK = "WQA_TRACEBACK"


class _Output(io.FileIO):
    """Standard output, whose failures have a type."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StorageError(
                "standard output",
                f"could not be written ({error.strerror})",
                mend="free space or redirect it to another file",
            ) from None


def run_process() -> int:
    """Run the command line of this process."""
    sys.unraisablehook = _repeat_interrupt
    problem = _open_streams()
    if problem:
        return _fail(problem)
    try:
        status = run_command()
    except SystemExit as end:  # argparse, after --help
        status = int(end.code or 0)
    except Exception as error:
        if _is_allocation(error):
            _flush(_fail(OUT_OF_MEMORY))
            os._exit(FAILED)  # MXNet would fail once more, or wait for threads that never began
        status = _report_bug(error)
    status = _flush(status)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to undo
    # The interpreter's last collection of garbage would visit all objects of MXNet, for 0.15 s.
    gc.freeze()
    return status


def _open_streams() -> Optional[WqaError]:
    """Replace the output streams of the process; the error of a standard output that is closed."""
    # A file that is opened later must not take the number of a closed stream.
    handle = os.open(os.devnull, os.O_RDWR)
    while handle <= 2:
        handle = os.open(os.devnull, os.O_RDWR)
    os.close(handle)
    messages: Any = LossyStream(_stream(io.FileIO(2, "wb", closefd=False), sys.stderr))
    sys.stderr = messages
    if sys.stdout is None:
        return StorageError(
            "standard output",
            "it is closed",
            "an open file",
            "redirect it to /dev/null if the output is not needed",
        )
    sys.stdout = _stream(_Output(1, "wb", closefd=False), sys.stdout)
    return None


def _stream(raw: io.FileIO, earlier: Optional[TextIO]) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(earlier, "encoding", "utf-8"),
        errors="backslashreplace",
        line_buffering=raw.fileno() == 2 or raw.isatty(),
        write_through=getattr(earlier, "write_through", False),
    )


def _flush(status: int) -> int:
    """Write what standard output still holds; the exit status."""
    problem = None
    try:
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        status = status or BROKEN_PIPE
    except WqaError as error:
        problem = error
    # The interpreter writes the rest at its end.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    if problem and not status:
        return _fail(problem)
    return status


def _fail(error: WqaError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return FAILED


def _repeat_interrupt(unraisable: Any) -> None:
    """Repeat an interrupt that came where Python drops exceptions, such as in ``__del__``."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()


def _is_allocation(error: Exception) -> bool:
    """Whether Python or MXNet could not allocate memory; MXNet has one type for all errors.

    A thread that cannot be started lacks the memory of its stack.
    """
    if type(error).__name__ != "MXNetError":
        return isinstance(error, MemoryError) or "can't start new thread" in str(error)
    return any(reason in str(error) for reason in _ALLOCATIONS)


def _report_bug(error: Exception) -> int:
    """Print an unexpected exception in one line, and write its traceback to a file."""
    text = traceback.format_exc()
    if os.environ.get(TRACEBACK):
        sys.stderr.write(text)
        return BUG
    try:
        handle, path = tempfile.mkstemp(prefix="wqa_traceback_", suffix=".txt")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        report = f"report it with the traceback in {path}"
    except OSError:
        report = f"set {TRACEBACK}=1 to see the traceback, and report it"
    reason = str(error).strip().partition("\n")[0]
    if len(reason) > 200:
        reason = reason[:197] + "..."
    name = type(error).__name__
    _fail(WqaError("internal error", f"{name}: {reason}", mend=f"this is a bug in wqa: {report}"))
    return BUG
