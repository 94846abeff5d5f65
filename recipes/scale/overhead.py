#!/usr/bin/env python3
"""CPU time of scoring in shards and on a local Ray cluster, beside that of one process.

    python recipes/scale/overhead.py RUN DATA [--ways shards,ray] [--workers 2] [--turns 3]

Every way scores the same partitions on one thread each, in turns, and its scores are compared to
the byte. CPU time is that of the command and of all processes that it starts, Ray's own among them,
sampled from /proc; it includes their start, the reading of the corpus and the merge. DATA should
take one process some minutes: the start of Ray and of its workers takes some seconds of CPU.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

#: Seconds between two samples.
PAUSE = 0.1
TICKS = os.sysconf("SC_CLK_TCK")


def processes():
    """Parent and CPU seconds of every process, by its number and the time of its start."""
    known = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        seconds = (int(fields[11]) + int(fields[12])) / TICKS
        known[int(entry.name), fields[19]] = (int(fields[1]), seconds)
    return known


def cpu_seconds(command):
    """CPU time of a command and of all that it starts, and the time by the clock.

    Parameters
    ----------
    command : list of str
        The command.

    Returns
    -------
    tuple of float
    """
    begin = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # A pipe that nobody reads would stop a command that prints much.
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )
        seconds = {}
        while process.poll() is None:
            known = processes()
            family = {process.pid} | {number for number, _ in seconds}
            grows = True
            while grows:
                below = {number for (number, _), (parent, _) in known.items() if parent in family}
                grows = not below <= family
                family |= below
            for key, (_, spent) in known.items():
                if key[0] in family:
                    seconds[key] = spent
            time.sleep(PAUSE)
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"failed: {' '.join(command)}\n{errors.read()}")
    return sum(seconds.values()), time.perf_counter() - begin


def contents(folder):
    """Bytes of the arrays of a folder of scores."""
    return [(folder / name).read_bytes() for name in ("keys.bin", "scores.bin")]


def ways(options, score):
    """Commands of each way, by its name; they are run one after another."""
    known = {"one process": [[]]}
    if "shards" in options.ways.split(","):
        shards = range(1, options.workers + 1)
        known["shards"] = [["--shard", f"{shard}/{options.workers}"] for shard in shards]
    if "ray" in options.ways.split(","):
        known["ray"] = [["--cluster", f"local:{options.workers}"]]
    return {name: [score + extra for extra in commands] for name, commands in known.items()}


def main():
    """Measure every way in turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("data")
    parser.add_argument("--ways", default="shards,ray")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--partition-tokens", default="65536")
    options = parser.parse_args()
    score = [sys.executable, "-m", "wqa", "score", options.run, "--data", options.data]
    score += ["--threads", "1", "--partition-tokens", options.partition_tokens]
    measured = {}
    for _ in range(options.turns):
        first = None
        for name, commands in ways(options, score).items():
            with tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / "scores"
                times = [cpu_seconds([*command, "--out", str(out)]) for command in commands]
                first = first or contents(out)
                if contents(out) != first:
                    raise SystemExit(f"{name}: other bytes than one process")
            measured.setdefault(name, []).append([sum(column) for column in zip(*times)])
    one = statistics.median(cpu for cpu, _ in measured["one process"])
    print(f"{'':12}  {'CPU seconds':>12}  {'seconds':>9}  {'overhead':>9}")
    for name, times in measured.items():
        cpu = statistics.median(row[0] for row in times)
        clock = statistics.median(row[1] for row in times)
        print(f"{name:12}  {cpu:12.2f}  {clock:9.2f}  {100 * (cpu / one - 1):+8.1f} %")


if __name__ == "__main__":
    main()
