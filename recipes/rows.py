#!/usr/bin/env python3
"""Put figures into rows of a table of results; several files are seeds of one system.

    python recipes/rows.py TABLE.tsv CORPUS COLUMN,COLUMN... --row NAME FILE.json ... \
        [--row ...] [--label L] [--beside FILE.json ...] [--timed SPEED.json NAME] \
        [--cells COLUMN=TEXT ...]

A column is a metric of FILE.json, which `wqa evaluate --json` or `wqa ask --json` wrote, or of the
files of --beside; p@N is hit@N where there is no p@N. Other columns are questions and seeds, which
are numbers; cost_reduction, in per cent; METRIC_kept and METRIC_drop, what a row keeps or loses of
the first row's METRIC, in per cent; questions_per_second and speedup, which speed.py measured for
NAME; and those of --cells. What --beside, --timed and --cells give may be absent. --label is the
drop_ratio of the rows to take: a number, "exit N" or "stored". The row's columns for CORPUS are
written anew; other rows and columns stay. Columns ending in _ms are milliseconds.
"""

import argparse
import math
import pathlib

from wqa.data import read_json
from wqa.errors import DataError, OptionError, run_script
from wqa.evaluation.report import read_rows, write_rows
from wqa.evaluation.significance import over_seeds

#: Columns that a row may lack.
OPTIONAL = ("em", "f1", "questions_per_second", "speedup", "params", "epoch_seconds")
OPTIONAL += ("train_seconds",)


def row_of(path, label):
    """Figures of one file's row with a label."""
    content = read_json(path)
    for row in content if isinstance(content, list) else [content]:
        # The rankers of a sequence have their drops, whatever the label; answers have none.
        if row.get("drop_ratio", label) in (label, "stored"):
            return row
    raise DataError(path, f"no row with drop ratio {label}", "what `wqa evaluate --json` writes")


def metric_of(column, row):
    """Name of a column's metric in a row of figures, None if it has none."""
    other = "cost" if column == "cost_reduction" else f"hit{column[1:]}"
    return next((name for name in (column, other) if name in row), None)


def shown(column, mean, deviation):
    """A figure as the tables have it, its deviation behind it where there are seeds."""
    if column == "cost_reduction":
        return f"{100 * (mean - 1):+.0f}"
    if column.endswith("_ms"):
        return f"{mean:.0f}"
    return f"{100 * mean:.2f}" + ("" if math.isnan(deviation) else f" ({100 * deviation:.2f})")


def figures_of(seeds, beside, columns):
    """Figures of quality by column, as text."""
    number = seeds[0].get("questions", seeds[0].get("claims"))
    shown_figures = {"seeds": str(len(seeds)), "questions": str(number)}
    columns = [column for column in columns if column not in shown_figures]
    for rows in (seeds, beside):
        metrics = {column: metric_of(column, rows[0]) for column in columns if rows}
        metrics = {column: metric for column, metric in metrics.items() if metric}
        figures_by_seed = []
        for row in rows:
            figures_by_seed.append({column: row[metric] for column, metric in metrics.items()})
        for column, figures in (over_seeds(figures_by_seed) if metrics else {}).items():
            shown_figures[column] = shown(column, *figures)
    return shown_figures


def speeds_of(path, name):
    """Questions a second and the speedup, as text."""
    [row] = [row for row in read_json(path) if row["ranker"] == name]
    per_second = f"{row['questions_per_second']:.2f}"
    return {"questions_per_second": per_second, "speedup": f"{row['speedup']:.1f}x"}


def share_of(rows, entry, corpus, column):
    """What a row keeps or loses of the first row's figure, as text."""
    metric, _, kind = column.rpartition("_")
    first, own = (float(row[f"{corpus}_{metric}"].split()[0]) for row in (rows[0], entry))
    if not first:
        return "-"
    share = 100 * own / first
    return f"{share if kind == 'kept' else 100 - share:.1f}"


def main(options):
    """Write the rows."""
    rows = read_rows(options.table) if pathlib.Path(options.table).exists() else []
    for name, *files in options.row:
        if not files:
            hint = "train the runs of this row first"
            raise OptionError("--row", name, "figures of a seed or more behind the name", hint)
        write_row(rows, name, files, options)
    write_rows(options.table, rows)


def write_row(rows, name, files, options):
    """Put the figures of a system into its row of a table, a new one if it has none."""
    is_ratio = not options.label.startswith(("exit", "stored"))
    key = (name, options.label if is_ratio else "0")
    entry = next((entry for entry in rows if (entry["row"], entry["drop_ratio"]) == key), None)
    if entry is None:
        entry = {"row": key[0], "drop_ratio": key[1]}
        rows.append(entry)
    columns = options.columns.split(",")
    beside = [row_of(path, options.label) for path in options.beside]
    values = figures_of([row_of(path, options.label) for path in files], beside, columns)
    values.update(speeds_of(*options.timed) if options.timed else {})
    values.update(cell.split("=", 1) for cell in options.cells)
    for column in columns:
        if column.endswith(("_kept", "_drop")):
            values[column] = share_of(rows, entry, options.corpus, column)
        if column not in (*values, *OPTIONAL):
            raise DataError(files[0], f"no {column}", "the figures of one run by `wqa evaluate`")
        entry[f"{options.corpus}_{column}"] = values.get(column, "-")


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("table", "corpus", "columns"):
        parser.add_argument(name)
    parser.add_argument("--row", nargs="+", action="append", required=True)
    parser.add_argument("--label", default="0")
    parser.add_argument("--beside", nargs="*", default=[])
    parser.add_argument("--timed", nargs=2)
    parser.add_argument("--cells", nargs="*", default=[])
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main, arguments())
