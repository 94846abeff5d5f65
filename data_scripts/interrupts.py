"""Ctrl-C while a script still imports its libraries ends it with one line, not with a traceback.

Each script imports this module before any other of the repository.
"""

import os
import sys

INTERRUPTED = 130


def _report(kind, error, trace):
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(INTERRUPTED)


if os.path.dirname(os.path.realpath(sys.argv[0])) == os.path.dirname(os.path.realpath(__file__)):
    sys.excepthook = _report  # the process runs a script, and does not import one
