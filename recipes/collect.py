#!/usr/bin/env python3
"""Put figures that `wqa evaluate --json` wrote into one row of a table of results; several files
are seeds of one system.

    python recipes/collect.py RESULTS.tsv ROW LABEL CORPUS FILE.json ...

LABEL is the drop_ratio of the rows to take: a number, "exit N", "stored". The row's columns for
CORPUS are written anew, and a cost_reduction in per cent beside them; other rows and columns stay.
"""

import json
import math
import pathlib
import sys

from wqa.errors import DataError, WqaError
from wqa.evaluation.report import read_rows, write_rows
from wqa.evaluation.significance import over_seeds

METRICS = ("map", "mrr", "p@1", "ndcg@10")


def figures_of(path, label):
    """Figures of one file's row with a label."""
    found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    for row in found if isinstance(found, list) else [found]:
        if row["drop_ratio"] == label:
            return {name: row[name] for name in ("questions", *METRICS, "cost")}
    raise DataError(
        path, f"no row with drop ratio {label}", "what `wqa evaluate --json` writes with it"
    )


def shown(mean, deviation):
    """A figure in per cent, its deviation behind it where there are seeds."""
    return f"{100 * mean:.2f}" + ("" if math.isnan(deviation) else f" ({100 * deviation:.2f})")


def main(table, row, label, corpus, *files):
    """Write the row."""
    rows = read_rows(table) if pathlib.Path(table).exists() else []
    key = (row, "0" if label.startswith("exit") or label == "stored" else label)
    entry = next((entry for entry in rows if (entry["row"], entry["drop_ratio"]) == key), None)
    if entry is None:
        entry = {"row": key[0], "drop_ratio": key[1]}
        rows.append(entry)
    figures = over_seeds([figures_of(file, label) for file in files])
    entry.update({f"{corpus}_{name}": shown(*figures[name]) for name in METRICS})
    entry[f"{corpus}_seeds"] = str(len(files))
    entry[f"{corpus}_cost_reduction"] = f"{100 * (figures['cost'][0] - 1):+.0f}"
    write_rows(table, rows)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
