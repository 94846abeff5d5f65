#!/usr/bin/env python3
"""Attack the package for an hour and print, for every attack, its tries and faults.

    make soak
    make soak SOAK='--minutes 10 --seed 7 --only kills'
    python tests/soak/run.py --only interrupts --seed 7 --first 1234 --tries 1

A try has a fault if the package crashes, hangs, raises an error that is not one of `wqa.errors`, or
gives another result than without the attack. A fault leaves a folder in build/soak, with the
command that repeats it, the files and the output. The exit status is 1 if there is a fault,
or that of a signal.
"""

import argparse
import collections
import contextlib
import faulthandler
import importlib
import itertools
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / name) for name in ("", "tests", "data_scripts", "recipes")]

from soak.attack import Fault  # noqa: E402

#: The attacks: each is a class of the module of its name.
ATTACKS = ("kills", "interrupts")
#: Seconds of a worker at most, and the distance of the numbers of two workers' tries.
SLICE, APART = 120, 1_000_000
#: Bytes that a worker may allocate.
MEMORY = 12 << 30


def main(arguments=None):
    """Run the command line."""
    options = parse(arguments)
    if options.worker:
        return work(json.loads(options.worker))
    if options.prepare:
        from soak.material import prepare

        return prepare(options.prepare)
    os.nice(5)
    with tempfile.TemporaryDirectory(prefix="wqa-soak-") as folder:
        material = options.material or pathlib.Path(folder, "material")
        if not material.exists():  # not written here: workers start without threads
            command = [sys.executable, __file__, "--prepare", str(material)]
            subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        signals, tallies = attack(options, material, pathlib.Path(folder))
    print("attack      tries  faults")
    for name, tally in tallies.items():
        print(f"{name:10} {tally['tries']:6,} {tally['faults']:7}")
    if signals:
        return 128 + signals[0]
    faults = sum(tally["faults"] for tally in tallies.values())
    idle = [name for name, tally in tallies.items() if not tally["tries"]]
    print(f"{faults} faults", *(f"no try of {name}" for name in idle), sep="\n")
    return int(faults > 0 or bool(idle))


def attack(options, material, folder):
    """Run all workers, several at a time; returns signals that ended them, and the counts."""
    tallies = {name: collections.Counter() for name in options.only or ATTACKS}
    waiting, running = collections.deque(slices(tallies, options)), []
    signals = []
    for number in (signal.SIGINT, signal.SIGTERM):
        # An exception could come between the start of a worker and its entry among those that run.
        signal.signal(number, lambda number, _: signals.append(number))
    common = {"seed": options.seed, "material": str(material), "faults": str(options.faults)}
    try:
        while (waiting or running) and not signals:
            while waiting and len(running) < options.processes:
                running.append(Worker({**waiting.popleft(), **common}, folder))
            time.sleep(0.1)
            for worker in [worker for worker in running if worker.process.poll() is not None]:
                running.remove(worker)
                rest = worker.finish(tallies[worker.options["attack"]])
                if rest:
                    waiting.appendleft(rest)
    finally:
        for worker in running:
            worker.stop()
    return signals, tallies


def slices(names, options):
    """Options of the workers: every attack has its share of the time."""
    total = sum(attack_type(name).weight for name in names)
    for name in names:
        seconds = 60 * options.minutes * options.processes * attack_type(name).weight / total
        parts = 1 if options.tries else max(1, round(seconds / SLICE))
        for index in range(parts):
            first = options.first + index * APART
            left = None if options.tries else seconds / parts
            yield {"attack": name, "first": first, "tries": options.tries, "seconds": left}


class Worker:
    """A process that makes tries of one attack, and writes a line before and after each."""

    def __init__(self, options, folder):
        self.options, self._begin = options, time.monotonic()
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix=options["attack"], dir=folder))
        threads = attack_type(options["attack"]).threads
        environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
        with open(self._folder.with_suffix(".txt"), "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--worker"]
                + [json.dumps({**options, "folder": str(self._folder)})],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=environment,
            )

    def stop(self):
        """End the process and those that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def finish(self, tally):
        """Count the tries; returns options of a worker that goes on after a try that ended it."""
        self.stop()
        reports = []
        with contextlib.suppress(OSError):
            text = self._folder.with_suffix(".jsonl").read_text(encoding="utf-8")
            reports = [json.loads(line) for line in text.splitlines()]
        for report in reports:
            tally["tries"] += report.get("units", 0)
            tally["faults"] += "fault" in report
        rest = None
        if self.process.returncode:
            number = reports[-1]["number"] if reports else self.options["first"]
            keep(self.options, number, f"ended by {self.process.returncode}", self._folder)
            tally["faults"] += 1
            seconds = (self.options["seconds"] or 0) + self._begin - time.monotonic()
            if seconds > 5:
                rest = {**self.options, "first": number + 1, "seconds": seconds}
        shutil.rmtree(self._folder)
        return rest


def work(options):
    """Make tries until the time or their number is up."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    name, first, folder = options["attack"], options["first"], pathlib.Path(options["folder"])
    kind = attack_type(name)
    with open(folder.with_suffix(".jsonl"), "w", encoding="utf-8", buffering=1) as reports:
        subject = kind(pathlib.Path(options["material"]), folder)
        end = time.monotonic() + (options["seconds"] or 1e9)
        for number in itertools.count(first):
            if number - first == options["tries"] or time.monotonic() >= end:
                break
            reports.write(json.dumps({"number": number}) + "\n")
            os.truncate(1, 0)
            faulthandler.dump_traceback_later(kind.limit, exit=True)
            try:
                units = subject.attempt(random.Random(f"{options['seed']} {name} {number}"))
                report = {"number": number, "units": units}
            except BaseException as error:
                text = traceback.format_exc() if not isinstance(error, Fault) else str(error)
                keep(options, number, text, folder)
                report = {"number": number, "units": 1, "fault": text}
            faulthandler.cancel_dump_traceback_later()
            reports.write(json.dumps(report) + "\n")
    return 0


def keep(options, number, reason, folder):
    """Keep what is needed to repeat a try; earlier faults of that number stay."""
    name = options["attack"]
    faults = pathlib.Path(options["faults"])
    faults.mkdir(parents=True, exist_ok=True)
    target = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-{number:06}-", dir=faults))
    command = f"make soak SOAK='--only {name} --seed {options['seed']} --first {number} --tries 1'"
    (target / "fault.txt").write_text(f"{command}\n\n{reason}\n", encoding="utf-8")
    shutil.copytree(folder, target / "folder", symlinks=True)
    shutil.copyfile(folder.with_suffix(".txt"), target / "output.txt")


def attack_type(name):
    """Class of an attack."""
    return getattr(importlib.import_module(f"soak.{name}"), name.capitalize())


def parse(arguments):
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60, help="length (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("--only", action="append", choices=ATTACKS, help="these attacks only")
    parser.add_argument("--tries", type=int, help="tries of each attack, instead of --minutes")
    parser.add_argument("--first", type=int, default=0, help="number of the first try")
    parser.add_argument("--processes", type=int, default=2, help="workers at a time (default: 2)")
    parser.add_argument("--faults", type=pathlib.Path, default=ROOT / "build" / "soak")
    parser.add_argument("--material", type=pathlib.Path, help="what is attacked; written if new")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--prepare", type=pathlib.Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
