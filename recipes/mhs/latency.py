#!/usr/bin/env python3
"""Put the times of `recipes/bench/random_weights.py --json TIMES.json` into Table 5 of the results.

    python recipes/mhs/latency.py TIMES.json TABLE.tsv

latency_avg is the median over the rounds and latency_std the deviation, in milliseconds.
"""

import json
import pathlib
import sys

from wqa.errors import run_script
from wqa.evaluation.report import write_rows

#: Rows of the paper by what it calls the rankers.
ROWS = {
    "albert_12_768_12 pairwise": "albert-base",
    "roberta_12_768_12 pairwise": "roberta-base",
    "electra_12_768_12 pairwise": "electra-base",
    "albert_12_4096_64 pairwise": "albert-xxlarge",
    "roberta_24_1024_16 pairwise": "roberta-large",
    "electra_24_1024_16 pairwise": "electra-large",
    "albert_12_768_12,roberta_12_768_12,electra_12_768_12 pairwise": "ensemble of three base",
    "electra_12_768_12,electra_12_768_12,electra_12_768_12 pairwise": (
        "ensemble of three electra-base"
    ),
    "electra_12_768_12 mhs": "MHS B11_3H1",
}


def main(times, table):
    """Write the table."""
    rows = []
    for row in json.loads(pathlib.Path(times).read_text(encoding="utf-8")):
        entry = {"row": ROWS.get(row["ranker"], row["ranker"]), "drop_ratio": "0"}
        entry["latency_avg"] = f"{1000 * row['seconds']:.1f}"
        entry["latency_std"] = f"{1000 * row['deviation']:.1f}"
        rows.append(entry)
    write_rows(table, rows)


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
