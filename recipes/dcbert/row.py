#!/usr/bin/env python3
"""Put the figures of a ranker into one row of a table of results; several files are seeds of it.

    python recipes/dcbert/row.py TABLE.tsv ROW CORPUS COLUMN,COLUMN... --ranked FILE.json ... \
        [--label L] [--answered FILE.json ...] [--speed SPEED.json --timed NAME]

COLUMNS are p@N (hit@N of `wqa evaluate`: the share of questions with an answer among the first N),
other metrics of `wqa evaluate --json`, cost_reduction, and of `wqa ask --reader --json` em and f1.
questions_per_second and speedup are those that speed.py measured for NAME, speedups over the first
ranker that it timed. em_drop, what a row loses of the first row's em, and METRIC_kept, what it
keeps of its METRIC, are in per cent of the first row's. --label is the drop_ratio of the row to
take. The row's columns for CORPUS are written anew; other rows and columns stay.
"""

import argparse
import json
import math
import pathlib
import re
import sys

from wqa.errors import DataError, WqaError
from wqa.evaluation.report import read_rows, write_rows
from wqa.evaluation.significance import over_seeds

READ = ("em", "f1")
SPEEDS = ("questions_per_second", "speedup")


def read_json(path):
    """Content of a file."""
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def ranked_figures(path, label, metrics):
    """Metrics of one file that `wqa evaluate --json` wrote."""
    rows = read_json(path)
    for row in rows if isinstance(rows, list) else [rows]:
        if row.get("drop_ratio", "0") == label:
            return {name: row[metrics[name]] for name in metrics}
    raise DataError(path, f"no row with drop ratio {label}", "what `wqa evaluate --json` writes")


def metric_of(column):
    """What `wqa evaluate` calls the paper's figure."""
    if re.fullmatch(r"p@\d+", column):
        return f"hit{column[1:]}"
    return {"cost_reduction": "cost"}.get(column, column)


def shown(column, mean, deviation):
    """A figure as the tables have it, its deviation behind it where there are seeds."""
    if column == "cost_reduction":
        return f"{100 * (mean - 1):+.0f}"
    return f"{100 * mean:.2f}" + ("" if math.isnan(deviation) else f" ({100 * deviation:.2f})")


def figures_of(options, columns):
    """Figures of quality by column."""
    metrics = {column: metric_of(column) for column in columns if column not in READ}
    ranked = [ranked_figures(path, options.label, metrics) for path in options.ranked]
    figures = over_seeds(ranked)
    if options.answered:
        read = [read_json(path) for path in options.answered]
        figures.update(over_seeds([{name: row[name] for name in READ} for row in read]))
    return {column: shown(column, *figures[column]) for column in columns if column in figures}


def speeds_of(options):
    """Questions a second and the speedup, as text."""
    speeds = {row["ranker"]: row for row in read_json(options.speed)}
    row = speeds[options.timed]
    per_second = row["questions_per_second"]
    return {"questions_per_second": f"{per_second:.2f}", "speedup": f"{row['speedup']:.1f}x"}


def share_of(rows, entry, column):
    """A row's figure in per cent of the first row's; None where that is 0."""
    first, own = (float(row[column].split()[0]) for row in (rows[0], entry))
    return 100 * own / first if first else None


def main(options):
    """Write the row."""
    rows = read_rows(options.table) if pathlib.Path(options.table).exists() else []
    key = (options.row, options.label)
    entry = next((entry for entry in rows if (entry["row"], entry["drop_ratio"]) == key), None)
    if entry is None:
        entry = {"row": options.row, "drop_ratio": options.label}
        rows.append(entry)
    columns = options.columns.split(",")
    shares = [name for name in columns if name.endswith(("_drop", "_kept"))]
    speeds = speeds_of(options) if options.speed else {}
    quality = [name for name in columns if name not in (*speeds, *SPEEDS, *shares)]
    values = {**figures_of(options, quality), **speeds}
    for column in columns:
        if column in shares:
            metric, _, kind = column.rpartition("_")
            share = share_of(rows, entry, f"{options.corpus}_{metric}")
            values[column] = share_shown(share, kind)
        entry[f"{options.corpus}_{column}"] = values.get(column, "-")
    entry[f"{options.corpus}_seeds"] = str(len(options.ranked))
    write_rows(options.table, rows)


def share_shown(share, kind):
    """What is kept of the first row's figure, or lost, as text."""
    if share is None:
        return "-"
    return f"{share if kind == 'kept' else 100 - share:.1f}"


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("table", "row", "corpus", "columns"):
        parser.add_argument(name)
    parser.add_argument("--ranked", nargs="+", required=True)
    parser.add_argument("--label", default="0")
    parser.add_argument("--answered", nargs="*", default=[])
    parser.add_argument("--speed")
    parser.add_argument("--timed")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main(arguments())
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
