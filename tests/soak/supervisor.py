"""The parent of the workers: it starts them, reads their reports, and watches time and memory."""

import collections
import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import time

from soak.worker import attack_type, keep

RUN = pathlib.Path(__file__).parent / "run.py"
#: Seconds in which a worker starts, on a machine that is busy.
START = 120
#: Tries of different slices have different numbers, this far apart.
SLICE = 1_000_000


class Tally:
    """What became of the tries of one attack."""

    def __init__(self, name):
        kind = attack_type(name)
        self.name, self.unit, self.doc = name, kind.unit, kind.__doc__
        self.tries = self.units = self.slices = 0
        self.seconds = 0.0
        #: Number of the try, text and folder of each fault.
        self.faults = []
        self.unavailable = collections.Counter()


class Slice:
    """A worker for some time of one attack.

    Parameters
    ----------
    tally : Tally
        Receives the counts.
    seconds : float or None
        Time of the slice, from the worker's first try on.
    tries : int or None
        Greatest number of tries.
    first : int
        Number of the first try of the attack's first slice.
    seed : int
        Seed of the run.
    places : dict of str to pathlib.Path
        Folders: ``material``, ``work`` and ``faults``.
    """

    def __init__(self, tally, seconds, tries, first, seed, places):
        self.tally = tally
        self._seconds, self._tries, self._seed, self._places = seconds, tries, seed, places
        self._kind = attack_type(tally.name)
        self._folder = places["work"] / f"{tally.name}-{tally.slices}"
        self._next = first + tally.slices * SLICE
        tally.slices += 1
        self._since = self._begin = time.monotonic()
        self._current = None
        self._buffer = b""
        self._start()

    def _start(self):
        self._folder.mkdir(parents=True)
        options = {
            "attack": self.tally.name,
            "seed": self._seed,
            "first": self._next,
            "tries": self._tries,
            "seconds": self._seconds,
            "material": str(self._places["material"]),
            "folder": str(self._folder),
            "faults": str(self._places["faults"]),
        }
        environment = dict(os.environ)
        if self._kind.threads:
            environment["OMP_NUM_THREADS"] = str(self._kind.threads)
        self._process = subprocess.Popen(
            [sys.executable, str(RUN), "--worker", json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
        os.set_blocking(self._process.stdout.fileno(), False)
        self._since, self._current = time.monotonic(), None

    def fileno(self):
        """Descriptor of the reports, for `select`."""
        return self._process.stdout.fileno()

    def poll(self):
        """Read reports and watch the process; False once the slice is over."""
        raw = self._process.stdout.read()
        if raw:
            *lines, self._buffer = (self._buffer + raw).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
        reason = self._excess()
        if raw != b"" and not reason:
            return True
        if not reason and self._process.wait() == 0:
            self.close()
            return False
        return self._fell(reason or f"the process ended by {_status(self._process.returncode)}")

    def _take(self, report):
        tally, kind = self.tally, report["kind"]
        self._since = time.monotonic()
        if kind == "unavailable":
            tally.unavailable[report["text"]] += 1
            return
        number = report["number"]
        self._next = number + 1
        if kind == "try":
            self._current = number
            return
        self._current = None
        tally.tries += 1
        if kind == "done":
            tally.units += report["units"]
        else:
            self._fault(number, report["text"], report["folder"])

    def _fault(self, number, text, folder):
        self.tally.faults.append((number, text, folder))
        first = (text.strip() or "no message").splitlines()[0]
        print(f"fault: {self.tally.name} {number}: {first}; {folder}", flush=True)

    def _excess(self):
        """Why the worker must end, empty if it may go on."""
        limit = START if self._current is None else self._kind.limit
        if time.monotonic() - self._since > limit:
            return f"hangs: no report for {limit} seconds"
        size = sum(map(_resident, [self._process.pid, *_children(self._process.pid)]))
        if size > self._kind.memory:
            return f"takes {size >> 20} MB of memory"
        return ""

    def _fell(self, reason):
        """Note a fault of the worker itself, and go on with the next try."""
        self.stop()
        number = self._next - 1 if self._current is None else self._current
        tally, folder = self.tally, self._folder
        kept = keep(tally.name, number, self._seed, reason, folder, self._places["faults"])
        self._fault(number, reason, kept)
        tally.tries += 1
        left = None
        if self._seconds is not None:
            left = self._seconds - (time.monotonic() - self._begin)
        if self._tries is not None or left is None or left < 5:
            self.close()
            return False
        self._seconds, self._buffer = left, b""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._start()
        return True

    def stop(self):
        """End the worker and the processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self):
        """End the slice: its worker, its time and its folder."""
        self.stop()
        self.tally.seconds += time.monotonic() - self._begin
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.with_suffix(".txt").unlink(missing_ok=True)


def run_slices(slices, processes, is_ended=lambda: False):
    """Run slices, several at a time.

    Parameters
    ----------
    slices : iterable of callable
        Each starts a slice and returns it. A slice begins when a process is free.
    processes : int
        Number of workers at a time.
    is_ended : callable
        Called without arguments; the workers are killed once it is true.
    """
    waiting, running = iter(slices), []
    try:
        while not is_ended():
            while len(running) < processes:
                start = next(waiting, None)
                if start is None:
                    break
                running.append(start())
            if not running:
                return
            select.select(running, [], [], 0.2)
            running = [part for part in running if part.poll()]
    finally:
        for part in running:
            part.close()


def _status(code):
    return signal.Signals(-code).name if code < 0 else f"exit {code}"


def _children(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def _resident(pid):
    """Bytes of a process in memory."""
    try:
        pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
