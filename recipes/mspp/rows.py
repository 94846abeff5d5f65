#!/usr/bin/env python3
"""Put the figures of systems into the rows of a table of results; several files are seeds of one.

    python recipes/mspp/rows.py TABLE.tsv CORPUS METRIC,METRIC... \
        --row NAME FIGURES.json ... [--row ...]

FIGURES.json is what `wqa evaluate --json` writes, of questions or of claims. The columns of a row
for CORPUS are written anew; other rows and columns stay.
"""

import argparse
import json
import math
import pathlib
import sys

from wqa.errors import DataError, WqaError
from wqa.evaluation.report import read_rows, write_rows
from wqa.evaluation.significance import over_seeds


def figures_of(path, metrics):
    """Figures of one file, and the number of questions."""
    figures = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    if "claims" in figures:
        figures["questions"] = figures["claims"]
    for name in metrics:
        if name not in figures:
            raise DataError(path, f"no {name}", "the figures of one run by `wqa evaluate`")
    return {name: figures[name] for name in ("questions", *metrics)}


def shown(mean, deviation):
    """A figure in per cent, its deviation behind it where there are seeds."""
    return f"{100 * mean:.2f}" + ("" if math.isnan(deviation) else f" ({100 * deviation:.2f})")


def main(options):
    """Write the rows."""
    rows = read_rows(options.table) if pathlib.Path(options.table).exists() else []
    metrics = options.metrics.split(",")
    for name, *paths in options.row:
        entry = next((entry for entry in rows if entry["row"] == name), None)
        if entry is None:
            entry = {"row": name, "drop_ratio": "0"}
            rows.append(entry)
        seeds = [figures_of(path, metrics) for path in paths]
        figures = over_seeds(seeds)
        for metric in metrics:
            entry[f"{options.corpus}_{metric}"] = shown(*figures[metric])
        entry[f"{options.corpus}_questions"] = str(seeds[0]["questions"])
        entry[f"{options.corpus}_seeds"] = str(len(paths))
    write_rows(options.table, rows)


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("table", "corpus", "metrics"):
        parser.add_argument(name)
    parser.add_argument("--row", nargs="+", action="append", required=True)
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main(arguments())
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
