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

    Extension modules print or replace the exception. Such a command has nothing to undo, nor has
    the loading of a ranker, which imports MXNet where it loads a run. Another module of the library
    may hold a lock or a temporary file while it imports, so that there the exception is raised. A
    second signal ends the process.
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
    """Whether a frame runs code of this module, of `wqa.cli`, or of the loading of rankers."""
    name = frame.f_globals.get("__name__", "")
    is_ours = frame.f_globals is globals() or f"{name}.".startswith("wqa.cli.")
    return is_ours or name == "wqa.systems.load"


if __name__ == "__main__":
    sys.exit(main())
