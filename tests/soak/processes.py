"""Commands as children of a worker that has imported the package but computed nothing.

MXNet stops its threads before a fork and starts them again after it, so such a child is sound, and
it starts in some milliseconds where an import takes seconds.
"""

import os
import signal
import sys
import time
import traceback

#: Seconds after which a command hangs.
LIMIT = 60


class Child:
    """A forked child that calls a function and exits with its result.

    Parameters
    ----------
    work : callable
        Called without arguments in the child; returns the exit status.
    output : str or path-like
        File of the child's standard output and error.
    """

    def __init__(self, work, output):
        self._status = None
        self.pid = os.fork()
        if not self.pid:
            self._run(work, output)

    @staticmethod
    def _run(work, output):
        code = 1
        try:
            descriptor = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
            for target in (1, 2):
                os.dup2(descriptor, target)
            code = work() or 0
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def wait(self, seconds=LIMIT):
        """Exit status, minus the number of a signal; None if the child still runs after a time."""
        end = time.monotonic() + seconds
        while self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.WEXITSTATUS(status)
                if os.WIFSIGNALED(status):
                    self._status = -os.WTERMSIG(status)
            elif time.monotonic() > end:
                return None
            else:
                time.sleep(0.002)
        return self._status

    def kill(self):
        """Kill the child, if it runs, and wait for its end."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
