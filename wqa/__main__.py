"""The console script `wqa`, and `python -m wqa`."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from typing import Any, List


def main() -> int:
    """Run the command line in a process of its own, whatever its streams are."""
    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass  # a file that is opened later would take the number of a closed stream
    interrupts: List[int] = []

    def interrupt(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process
        interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        status = _run()
    except BaseException as error:  # C code of modules that are imported replaces an interrupt
        if not interrupts and not isinstance(error, KeyboardInterrupt):
            raise
        os.write(2, b"interrupted\n")
        os._exit(130)
    if interrupts:
        os._exit(130)
    try:
        sys.stdout.flush()
    except OSError:  # the interpreter would fail once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # The interpreter's last collection of garbage would visit all objects of MXNet, for 0.15 s.
    gc.freeze()
    return status


def _run() -> int:
    from wqa import cli
    from wqa.io.progress import LossyStream

    sys.stderr = LossyStream(sys.stderr)
    if sys.stdout is None:
        sys.stdout = sys.stderr
        print("error: standard output: it is closed")
        return cli.FAILED
    # Buffered, as Python's -u loses what is written in part.
    raw = io.BufferedWriter(io.FileIO(1, "w", closefd=False))
    encoding, is_terminal = sys.stdout.encoding, sys.stdout.isatty()
    sys.stdout = io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=is_terminal)
    try:
        return cli.main()
    except SystemExit as end:  # argparse, after --help
        return int(end.code or 0)


if __name__ == "__main__":
    sys.exit(main())
