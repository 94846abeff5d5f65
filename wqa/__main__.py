"""The console script `wqa`, and `python -m wqa`."""

import os
import signal
import sys

#: Exit status after an interrupt: 128 plus the number of SIGINT.
INTERRUPTED = 130


def main() -> int:
    """Run the command line, in which an interrupt at any moment is one line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from wqa.cli.process import run_process

        return run_process()
    except KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        return INTERRUPTED


def _interrupt(number, frame):  # noqa: ANN001, ANN202 - as `signal.signal` takes it
    """Raise KeyboardInterrupt, or end at once while a command still imports what it needs.

    Extension modules print or replace the exception, and such a command has nothing to undo. A
    module of the library that imports another may hold a lock or a temporary file, so that there
    the exception is raised. A second signal ends the process.
    """
    signal.signal(number, signal.SIG_DFL)
    importer = None
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            importer = frame.f_back
        frame = frame.f_back
    if importer is not None and _is_command_line(importer):
        os.write(2, b"interrupted\n")
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt


def _is_command_line(frame):  # noqa: ANN001, ANN202
    """Whether a frame runs code of this module or of `wqa.cli`, not of the library."""
    name = frame.f_globals.get("__name__", "")
    return frame.f_globals is globals() or f"{name}.".startswith("wqa.cli.")


if __name__ == "__main__":
    sys.exit(main())
