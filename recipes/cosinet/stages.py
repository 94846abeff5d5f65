#!/usr/bin/env python3
"""Put what a ranker reaches, costs and takes into one row of the table of first stages.

    python recipes/cosinet/stages.py TABLE.tsv ROW CORPUS FIGURES.json SPEED.json RANKER

FIGURES.json is that of `wqa evaluate --json`, SPEED.json that of recipes/dcbert/speed.py, in which
the first ranker is the one that others are measured against. cost is in multiply-adds relative to
the last ranker of a sequence on all candidates: a sequence of one ranker costs 1 but for its drops.
"""

import json
import pathlib
import sys

from wqa.errors import WqaError
from wqa.evaluation.report import read_rows, write_rows


def read_json(path):
    """Content of a file."""
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def kept_by(sequence):
    """What the first ranker of a tuned sequence hands on, and the dev figure of the choice."""
    if "tuned" not in sequence:
        return "-", "-"
    drop = "all"
    if "keep" in sequence:
        drop = f"best {sequence['keep'][0]}"
    elif sequence["drop_ratio"][0]:
        drop = f"all but {sequence['drop_ratio'][0]:g}"
    return drop, f"{100 * sequence['tuned']['metrics']['map']:.2f}"


def main(table, row, corpus, figures, speed, ranker):
    """Write the row."""
    rows = read_rows(table) if pathlib.Path(table).exists() else []
    entry = next((entry for entry in rows if entry["row"] == row), None)
    if entry is None:
        entry = {"row": row, "drop_ratio": "0"}
        rows.append(entry)
    sequence = read_json(ranker)
    reached = read_json(figures)
    timed = {timing["ranker"]: timing for timing in read_json(speed)}
    entry["handed_on"], entry[f"{corpus}_dev_map"] = kept_by(sequence)
    for name in ("map", "mrr", "p@1"):
        entry[f"{corpus}_{name}"] = f"{100 * reached[name]:.2f}"
    entry[f"{corpus}_cost"] = f"{reached['cost']:.3f}"
    entry[f"{corpus}_seconds"] = f"{timed[row]['seconds']:.3f}"
    entry[f"{corpus}_speedup"] = f"{timed[row]['speedup']:.2f}x"
    write_rows(table, rows)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
