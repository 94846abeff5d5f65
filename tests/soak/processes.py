"""Commands as children of a worker that has imported the package but computed nothing.

MXNet stops its threads before a fork and starts them again after it, so such a child is sound, and
it starts in some milliseconds where an import takes seconds.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import traceback

#: Seconds after which a command hangs.
LIMIT = 60

#: System calls by which commands write.
WRITING = (
    "openat,creat,write,pwrite64,writev,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,"
    "mkdirat,fsync,fdatasync,ftruncate,link,linkat,copy_file_range,sendfile,chmod,fchmod,symlink"
)


def can_trace():
    """Whether strace is installed and may attach to a process of this user."""
    if not shutil.which("strace"):
        return False
    child = Child(lambda: 0, os.devnull, waits=True)
    try:
        tracer = Tracer(child, os.devnull, [])
        child.release()
        return child.wait() == 0 and tracer.wait()
    except OSError:
        return False
    finally:
        child.kill()


class Child:
    """A forked child that calls a function and exits with its result.

    Parameters
    ----------
    work : callable
        Called without arguments in the child; returns the exit status.
    output : str or path-like
        File of the child's standard output and error.
    waits : bool
        Let the child wait for `release` before it begins.
    """

    def __init__(self, work, output, waits=False):
        self._status = None
        self._gate = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            self._run(work, output)
        os.close(self._gate[0])
        if not waits:
            self.release()

    def _run(self, work, output):
        code = 1
        try:
            os.close(self._gate[1])
            descriptor = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
            for target in (1, 2):
                os.dup2(descriptor, target)
            os.read(self._gate[0], 1)
            code = work() or 0
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def release(self):
        """Let the child begin."""
        if self._gate[1] is not None:
            os.close(self._gate[1])
            self._gate = (self._gate[0], None)

    def wait(self, seconds=LIMIT):
        """Wait for the end.

        Parameters
        ----------
        seconds : float
            Time to wait.

        Returns
        -------
        int or None
            Exit status, minus the number of a signal; None if the child still runs.
        """
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
        self.release()
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


class Tracer:
    """strace on a child that waits.

    Parameters
    ----------
    child : Child
        The child.
    trace : path-like
        File that receives a line for each system call that writes.
    options : list of str
        Further options of strace, such as an injection.

    Raises
    ------
    OSError
        If strace cannot attach.
    """

    def __init__(self, child, trace, options):
        command = ["strace", "-f", "-y", "-e", f"trace={WRITING}", "-e", "signal=none", *options]
        self._process = subprocess.Popen(
            [*command, "-o", str(trace), "-p", str(child.pid)],
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self._process.stderr.readline()
        if "attached" not in line:
            self._process.kill()
            self._process.wait()
            raise OSError(f"strace does not attach: {line}")

    def wait(self):
        """Wait for strace, which ends with the child; False if it failed."""
        self._process.stderr.read()
        return self._process.wait() in (0, 128 + signal.SIGKILL, -signal.SIGKILL)
