#!/usr/bin/env python3
"""Put the figures of a ranker into one row of a table of results; several files are seeds of it.

    python recipes/cosinet/row.py TABLE.tsv ROW CORPUS COLUMN,COLUMN... --figures FILE.json ... \
        [--runs RUN ... --train QUESTIONS.jsonl --filter F]

COLUMNS are metrics of `wqa evaluate --json`, params, the number of parameters that are trained,
epoch_seconds, the time of an epoch by the speeds in metrics.jsonl, and train_seconds, that of all
epochs. The row's columns for CORPUS are written anew; other rows and columns stay.
"""

import argparse
import json
import math
import pathlib
import sys

from wqa.config import read_run_config
from wqa.data import filter_questions, read_questions
from wqa.errors import DataError, WqaError
from wqa.evaluation.report import read_rows, write_rows
from wqa.evaluation.significance import over_seeds

TIMES = ("epoch_seconds", "train_seconds")


def read_json(path):
    """Content of a file."""
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def shown(mean, deviation):
    """A figure in per cent, its deviation behind it where there are seeds."""
    return f"{100 * mean:.2f}" + ("" if math.isnan(deviation) else f" ({100 * deviation:.2f})")


def trained_parameters(run):
    """Number of parameters that a training changes."""
    from wqa.systems.load import load_ranker

    parameters = load_ranker(run).network.collect_params().values()
    return sum(math.prod(each.shape) for each in parameters if each.grad_req != "null")


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


def times_of(options):
    """Seconds of an epoch and of a training, means over the runs."""
    questions = filter_questions(read_questions(options.train), options.filter)
    pairs = sum(len(question.candidates) for question in questions)
    seconds = sum(pairs / speed_of(run) for run in options.runs) / len(options.runs)
    epochs = read_run_config(pathlib.Path(options.runs[0]) / "config.json").training.epochs
    return {"epoch_seconds": f"{seconds:.3g}", "train_seconds": f"{epochs * seconds:.3g}"}


def main(options):
    """Write the row."""
    rows = read_rows(options.table) if pathlib.Path(options.table).exists() else []
    entry = next((entry for entry in rows if entry["row"] == options.row), None)
    if entry is None:
        entry = {"row": options.row, "drop_ratio": "0"}
        rows.append(entry)
    columns = options.columns.split(",")
    metrics = [name for name in columns if name not in ("params", *TIMES)]
    figures = over_seeds(
        [{name: read_json(path)[name] for name in metrics} for path in options.figures]
    )
    values = {name: shown(*figures[name]) for name in metrics}
    if options.runs:
        values.update(times_of(options))
        values["params"] = f"{trained_parameters(options.runs[0]):,}"
    for column in columns:
        entry[f"{options.corpus}_{column}"] = values.get(column, "-")
    entry[f"{options.corpus}_seeds"] = str(len(options.figures))
    write_rows(options.table, rows)


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("table", "row", "corpus", "columns"):
        parser.add_argument(name)
    parser.add_argument("--figures", nargs="+", required=True)
    parser.add_argument("--runs", nargs="*", default=[])
    parser.add_argument("--train")
    parser.add_argument("--filter", default="all")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main(arguments())
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
