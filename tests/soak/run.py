#!/usr/bin/env python3
"""Attack the package for an hour and print a table: attack, tries, faults.

    make soak
    make soak SOAK='--minutes 10 --seed 7 --only kills --only damage'
    python tests/soak/run.py --only damage --seed 7 --first 1234 --tries 1

A fault leaves a folder in build/soak, with the command that repeats it, the damaged file and the
output. The exit status is 1 if there is a fault, 130 after Ctrl-C. --page writes the table as a
page of the documentation. --tries leaves the folders of earlier faults.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / name) for name in ("", "tests", "data_scripts", "recipes")]

from soak import report  # noqa: E402
from soak.supervisor import Slice, Tally, run_slices  # noqa: E402
from soak.worker import ATTACKS, Worker, attack_type  # noqa: E402

#: Minutes of one round, in which every attack has its share.
ROUND = 10
#: Seconds in which the material is written, on a machine that is busy.
PREPARING = 600


def main(arguments=None):
    """Run the command line."""
    options = parse(arguments)
    if options.worker:
        Worker(json.loads(options.worker)).run()
        return 0
    if options.prepare:
        from soak.material import prepare

        prepare(options.prepare)
        return 0
    os.nice(5)
    begin = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    names = options.only or list(ATTACKS)
    tallies = {name: Tally(name) for name in names}
    if not options.tries:  # which repeats a fault that is kept
        for name in names:
            for old in options.faults.glob(f"{name}-*"):
                shutil.rmtree(old)
    with tempfile.TemporaryDirectory(prefix="wqa-soak-") as temporary:
        work = pathlib.Path(temporary)
        material = options.material or work / "material"
        places = {"material": material, "work": work, "faults": options.faults}
        if not material.exists() and not prepare_material(material, work, options.faults):
            return 1
        before = digests(material)
        with ending() as signals:
            run_slices(slices(tallies, options, places), options.processes, lambda: signals)
        changed = sorted({path for path, _ in before.items() ^ digests(material).items()})
    lines = report.table(tallies.values())
    print("\n".join(lines))
    for name in changed:
        print(f"fault: {name}, which all attacks share, has changed")
    print(report.summary(tallies.values(), len(changed)))
    if signals:
        print("interrupted", file=sys.stderr)
        return 128 + signals[0]
    if options.page and not changed:
        minutes = (time.monotonic() - begin) / 60
        shown = (tallies.values(), minutes, options.seed, options.processes)
        report.write_page(options.page, *shown)
    return int(bool(changed) or any(tally.faults for tally in tallies.values()))


def prepare_material(material, work, faults):
    """Write what the attacks share; False, with the end of its output, if that fails."""
    # Not in this process, which must not have threads when workers start.
    command = [sys.executable, __file__, "--prepare", str(material)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    printed = work / "prepare.txt"
    try:
        with open(printed, "w", encoding="utf-8") as output:
            streams = {"stdout": output, "stderr": output, "env": environment}
            subprocess.run(command, check=True, timeout=PREPARING, **streams)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        faults.mkdir(parents=True, exist_ok=True)
        kept = faults / "prepare.txt"
        shutil.copyfile(printed, kept)
        lines = printed.read_text(encoding="utf-8", errors="replace").splitlines()
        print(*lines[-10:], f"the material cannot be written: {error}; {kept}", sep="\n")
        return False
    return True


@contextlib.contextmanager
def ending():
    """List that receives the numbers of Ctrl-C and SIGTERM, instead of an exception."""
    # An exception could come between the start of a worker and its entry among those that run.
    signals = []
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, lambda number, _: signals.append(number))
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def digests(folder):
    """SHA-256 of all files below a folder, by their paths."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = hashlib.sha256(path.read_bytes()).digest()
    return files


def slices(tallies, options, places):
    """Yield functions that start the slices: in every round each attack has its share."""
    common = {"first": options.first, "seed": options.seed, "places": places}
    if options.tries:
        for tally in tallies.values():
            yield functools.partial(Slice, tally, None, options.tries, **common)
        return
    rounds = max(1, round(options.minutes / ROUND))
    total = sum(attack_type(name).weight for name in tallies)
    seconds = 60 * options.minutes * options.processes / rounds / total
    for _ in range(rounds):
        for name, tally in tallies.items():
            share = seconds * attack_type(name).weight
            parts = max(1, round(share / 120))
            for _ in range(parts):
                yield functools.partial(Slice, tally, share / parts, None, **common)


def parse(arguments):
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60, help="length (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("--only", action="append", choices=list(ATTACKS), help="these attacks only")
    parser.add_argument("--tries", type=int, help="tries of each attack, instead of --minutes")
    parser.add_argument("--first", type=int, default=0, help="number of the first try")
    parser.add_argument("--processes", type=int, default=2, help="workers at a time (default: 2)")
    parser.add_argument(
        "--faults", type=pathlib.Path, default=ROOT / "build" / "soak", help="folder of the faults"
    )
    parser.add_argument("--page", type=pathlib.Path, help="Markdown page to write")
    parser.add_argument(
        "--material",
        type=pathlib.Path,
        help="folder of the material, which is kept; written if new",
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--prepare", type=pathlib.Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
