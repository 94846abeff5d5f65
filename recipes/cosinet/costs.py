#!/usr/bin/env python3
"""Print what the trainings of a system cost, as cells of `recipes/rows.py`; runs differ by seed.

    python recipes/cosinet/costs.py QUESTIONS.jsonl FILTER RUN ...

params is the number of parameters that are trained, epoch_seconds the time of an epoch of the
questions by the speeds in metrics.jsonl, and train_seconds that of all epochs.
"""

import json
import math
import pathlib
import sys

from wqa.config import read_run_config
from wqa.data import filter_questions, read_questions
from wqa.errors import DataError, run_script
from wqa.systems.load import load_ranker


def speed_of(run):
    """Pairs a second over a whole training."""
    updates = seconds = before = 0
    path = pathlib.Path(run) / "metrics.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry.get("pairs_per_second"):
            updates += entry["update"] - before
            seconds += (entry["update"] - before) / entry["pairs_per_second"]
            before = entry["update"]
    if not seconds:
        raise DataError(path, "no speed", "the lines that `wqa train` writes")
    return updates / seconds


def main(data, kept, *runs):
    """Print the cells."""
    parameters = load_ranker(runs[0]).network.collect_params().values()
    trained = sum(math.prod(each.shape) for each in parameters if each.grad_req != "null")
    questions = filter_questions(read_questions(data), kept)
    pairs = sum(len(question.candidates) for question in questions)
    seconds = sum(pairs / speed_of(run) for run in runs) / len(runs)
    epochs = read_run_config(pathlib.Path(runs[0]) / "config.json").training.epochs
    print(f"params={trained:,}")
    print(f"epoch_seconds={seconds:.3g}")
    print(f"train_seconds={epochs * seconds:.3g}")


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
