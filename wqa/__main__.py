"""The console script `wqa`, and `python -m wqa`."""

import os
import signal
import sys

#: Exit status after an interrupt: 128 plus the number of SIGINT.
INTERRUPTED = 130


def main() -> int:
    """Run the command line, in which an interrupt at any moment is one line.

    Returns
    -------
    int
        Exit status of the process.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from wqa.cli.process import run_process

        return run_process()
    except KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        return INTERRUPTED


def _interrupt(number, frame):  # noqa: ANN001, ANN202 - as `signal.signal` takes it
    """Raise KeyboardInterrupt, or end at once during an import; a second signal ends the process.

    An import has nothing to undo, and extension modules print or replace the exception.
    """
    signal.signal(number, signal.SIG_DFL)
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            os.write(2, b"interrupted\n")
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
