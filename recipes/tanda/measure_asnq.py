#!/usr/bin/env python3
"""Time and peak memory of preparing ASNQ, on a synthetic corpus in its format, and the speed of
reading the store.

    python recipes/tanda/measure_asnq.py FOLDER [PAIRS ...] | tee recipes/tanda/logs/asnq_rate.txt

FOLDER takes some 400 MB a million pairs. Reading goes through batches of 2,000 padded tokens in the
order of an epoch, the plan of the epoch left out; its memory includes the mapped pages of the
store, which the system can take back at any time.
"""

import os
import pathlib
import subprocess
import sys
import time

FULL = 23_662_238  # 57,242 questions of 413.3 candidates and 2,672 of some 402, Table 1
HERE = pathlib.Path(__file__).resolve().parent


def measured(*command):
    """Seconds and peak memory, in MiB, of a command."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *map(str, command)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {command}")
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def read(store, shuffle):
    """Read batches for five seconds, in a process of its own."""
    from wqa.io.encoder_directories import locate_encoder
    from wqa.text import PairInputs, PairStore, load_tokenizer
    from wqa.training.pairs import StoredPairs
    from wqa.training.schedules import order_of_epoch

    pairs = StoredPairs(
        PairStore(store), PairInputs(load_tokenizer(locate_encoder("minilm"))), shuffle=shuffle
    )
    begin = time.perf_counter()
    plan = pairs.plan(2000, order_of_epoch(0, 0))
    planned, begin, seen = time.perf_counter() - begin, time.perf_counter(), 0
    for batch in plan:
        pairs.batch(batch)
        seen += len(batch)
        if time.perf_counter() - begin > 5:
            break
    print(f"{seen / (time.perf_counter() - begin):.0f} {planned:.2f}")


def main(folder, sizes):
    """Measure every size."""
    print(
        f"{'pairs':>10}  {'step':20} {'seconds':>8} {'pairs/s':>9} {'peak MiB':>9} "
        f"{'full corpus':>12}"
    )
    for pairs in sizes:
        place = folder / str(pairs)
        measured(HERE / "synthetic_asnq.py", place, pairs)
        script = HERE.parents[1] / "data_scripts" / "asnq.py"
        steps = (
            ("convert", (script, "--archive", place, "--splits", place, "--out", place)),
            (
                "tokenize",
                (
                    "-m",
                    "wqa",
                    "tokenize",
                    "--encoder",
                    "minilm",
                    "--data",
                    place / "train.jsonl",
                    "--out",
                    place / "train.store",
                ),
            ),
        )
        for name, command in steps:
            seconds, memory = measured(*command)
            hours = FULL / (pairs / seconds) / 3600
            print(
                f"{pairs:10,}  {name:20} {seconds:8.1f} {pairs / seconds:9,.0f} {memory:9.0f} "
                f"{hours:10.2f} h",
                flush=True,
            )
        for shuffle in ("pair", "question"):
            done = subprocess.run(
                [sys.executable, __file__, "--read", place / "train.store", shuffle],
                check=True,
                capture_output=True,
                text=True,
            )
            speed, planned = done.stdout.split()
            print(
                f"{pairs:10,}  read by {shuffle:12} {'':8} {int(speed):9,}   (an epoch's "
                f"plan: {planned} s)",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1] == "--read":
        read(pathlib.Path(sys.argv[2]), sys.argv[3])
    else:
        main(
            pathlib.Path(sys.argv[1]), [int(size) for size in sys.argv[2:]] or [250_000, 1_000_000]
        )
