#!/usr/bin/env python3
"""Time a ranker on word vectors beside a monolithic one, in turn: ranking, latency and training.

    python recipes/cosinet/speed.py FAST SLOW --test F --train F --filter F --out TABLE.tsv

FAST and SLOW are runs; SLOW is calibrated for int8. Rows are medians over ROUNDS rounds, one more
warming up; a round gives each its turn. A ratio is that to SLOW in its fastest precision, round by
round. Trainings repeat those of the runs: FAST an epoch of all pairs, SLOW UPDATES updates, and
pairs a second are those after the first quarter of the updates. LATENCIES questions of 100
candidates are ranked one by one.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

from wqa.config import read_run_config
from wqa.data import Candidate, Question, filter_questions, read_questions
from wqa.engines.onednn import check_precision
from wqa.errors import PrecisionError, WqaError
from wqa.evaluation import table
from wqa.inference.timing import time_latency
from wqa.io.files import atomic_writer
from wqa.systems.load import load_ranker
from wqa.systems.train import train

ROUNDS = int(os.environ.get("ROUNDS", "5"))
UPDATES = int(os.environ.get("UPDATES", "40"))
LATENCIES = int(os.environ.get("LATENCIES", "200"))
LIST = 100  # candidates of a question whose latency is taken
OWN_OPTIONS = ("loss", "recurrent", "buckets", "exits")


def main(options):
    """Write the table and print it."""
    rows = [*ranking_rows(options), *latency_rows(options), *training_rows(options)]
    with atomic_writer(options.out) as file:
        file.write("\t".join(rows[0]) + "\n")
        for row in rows:
            file.write("\t".join(map(str, row.values())) + "\n")
    print(table(rows))


def precisions(names):
    """Those of some precisions that this processor supports."""
    supported = []
    for name in names:
        try:
            check_precision(name)
        except PrecisionError:
            continue
        supported.append(name)
    return supported


def rows_of(measure, unit, rounds):
    """Rows of one measure from the rates of each round by ranker, FAST first."""
    medians = {name: statistics.median(rates[name] for rates in rounds) for name in rounds[0]}
    fast, *slow = medians
    fastest = max(slow, key=medians.__getitem__)
    ratio = statistics.median(rates[fast] / rates[fastest] for rates in rounds)
    rows = []
    for name, value in medians.items():
        row = {"measure": measure, "ranker": name, "unit": unit, "value": f"{value:.4g}"}
        row["times_the_fastest_monolithic"] = f"{ratio:.1f}" if name == fast else "-"
        rows.append(row)
    return rows


def ranking_rows(options):
    """Candidates a second, from text to ranking."""
    questions = list(read_questions(options.test))
    candidates = sum(len(question.candidates) for question in questions)
    rankers = {"Cosinet, float32": load_ranker(options.fast)}
    for precision in precisions(("int8", "bfloat16", "float32")):
        name = f"monolithic, {precision}"
        rankers[name] = load_ranker(options.slow, precision=precision, long_questions="truncate")
    rounds = []
    for number in range(ROUNDS + 1):
        rates = {}
        for name, ranker in rankers.items():
            begin = time.perf_counter()
            ranked = sum(1 for _ in ranker.rank_all(questions))
            rates[name] = candidates / (time.perf_counter() - begin)
            assert ranked == len(questions)
        if number:  # the first round compiles, and fills the tables of words
            rounds.append(rates)
    return rows_of("ranking", "candidates/s", rounds)


def latency_rows(options):
    """Milliseconds of a question of 100 candidates, from text to ranking."""
    questions = lists_of_texts(list(read_questions(options.test)))
    [row] = time_latency(load_ranker(options.fast), questions, {"0": {}}, LATENCIES)
    rows = []
    for share, key in (("median", "p50_ms"), ("99 %", "p99_ms")):
        row_of_share = {"measure": f"latency of {LIST} candidates, {share}"}
        row_of_share.update(ranker="Cosinet, float32", unit="ms", value=f"{row[key]:.2f}")
        row_of_share["times_the_fastest_monolithic"] = "-"
        rows.append(row_of_share)
    return rows


def lists_of_texts(questions):
    """Questions whose candidates are those of questions in a row, 100 each."""
    texts = [candidate.text for question in questions for candidate in question.candidates]
    lists = []
    for number, question in enumerate(questions):
        part = texts[number * LIST : (number + 1) * LIST]
        if part:
            candidates = tuple(map(Candidate, (part * LIST)[:LIST]))
            lists.append(Question(question.id, question.question, candidates))
    return lists


def training_rows(options):
    """Pairs a second in training, and the seconds of an epoch."""
    questions = filter_questions(read_questions(options.train), options.filter)
    pairs = sum(len(question.candidates) for question in questions)
    trainings = {"Cosinet, float32": (options.fast, "float32", 0)}
    for precision in precisions(("bfloat16", "float32")):
        trainings[f"monolithic, {precision}"] = (options.slow, precision, UPDATES)
    rounds, updates = [], dict.fromkeys(trainings, 0)
    for number in range(ROUNDS + 1):
        rates = {}
        for name, training in trainings.items():
            rates[name], updates[name] = training_speed(options, *training, updates[name])
        if number:
            rounds.append(rates)
    rows = rows_of("training", "pairs/s", rounds)
    for name in trainings:
        seconds = pairs / statistics.median(rates[name] for rates in rounds)
        row = {"measure": f"epoch of {pairs:,} pairs", "ranker": name, "unit": "s"}
        row.update(value=f"{seconds:.3g}", times_the_fastest_monolithic="-")
        rows.append(row)
    return rows


def training_speed(options, run, precision, updates, lines):
    """Pairs a second of a training from a run, with its settings, and its number of updates."""
    stored = read_run_config(pathlib.Path(run) / "config.json")
    config = dataclasses.replace(
        stored.training,
        epochs=1,
        max_updates=updates,
        precision=precision,
        train_filter=options.filter,
        log_every=max(lines // 4, 1),
    )
    own = {name: stored.network[name] for name in OWN_OPTIONS if name in stored.network}
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run"
        with open(os.devnull, "w") as null, contextlib.redirect_stderr(null):
            state = train(
                stored.system,
                options.train,
                str(out),
                init=str(run),
                config=config,
                max_length=stored.max_length,
                **own,
            )
        entries = map(json.loads, (out / "metrics.jsonl").read_text("utf-8").splitlines())
        speeds = [entry["pairs_per_second"] for entry in entries if "pairs_per_second" in entry]
    return statistics.harmonic_mean(speeds[1:4] or speeds), state.update


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("fast", "slow"):
        parser.add_argument(name)
    for name in ("--test", "--train", "--filter", "--out"):
        parser.add_argument(name, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main(arguments())
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
