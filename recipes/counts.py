#!/usr/bin/env python3
"""Counts of the corpora, as a table of a paper has them, from the stats.json that each script of
data_scripts/ writes.

    python recipes/counts.py PAPER RESULTS.tsv DATA

PAPER is cascade (Table 1), mhs (Table 1) or mspp (Table 5). DATA holds asnq/, gpd/, trecqa/ and
wikiqa/; a corpus that is not there has dashes.
"""

import json
import pathlib
import sys

from wqa.errors import DataError, check_choice, run_script
from wqa.evaluation.report import write_rows

SPLITS = ("train", "dev", "test")
#: Columns of each table, with the counts of stats.json.
COLUMNS = {
    "cascade": {
        "questions": "questions",
        "candidates": "candidates_per_question",
        "correct": "correct_per_question",
    },
    "mhs": {"questions": "questions", "pairs": "candidates", "correct": "correct"},
    "mspp": {
        "questions": "questions",
        "candidates": "candidates",
        "candidates_per_question": "candidates_per_question",
    },
}


#: Of each table and corpus: the splits of stats.json, and the questions that it seems to count.
ALL = "train all, dev all, test all"
ANSWERED = "train no-all-negative, dev no-all-negative, test no-all-negative"
COUNTED = {
    "cascade": {
        "asnq": ALL,
        "gpd": ALL,
        "trecqa": "train-all all, dev-40 clean, test clean",
        "wikiqa": ANSWERED,
    },
    "mhs": {"asnq": ALL, "wikiqa": ANSWERED},
    "mspp": {
        "asnq": ALL,
        "wikiqa": "train all, dev clean, test clean",
        "trecqa": "train-all all, dev clean, test clean",
    },
}


def main(paper, table, data):
    """Write the table."""
    check_choice("paper", paper, COUNTED)
    rows = {split: {"row": split, "drop_ratio": "-"} for split in SPLITS}
    for corpus, counted in COUNTED[paper].items():
        path = pathlib.Path(data) / corpus / "stats.json"
        if not path.exists():
            continue
        try:
            stats = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(path, error, "what a script of data_scripts/ writes") from None
        for row, (split, questions) in zip(SPLITS, map(str.split, counted.split(", "))):
            if split in stats:
                for column, name in COLUMNS[paper].items():
                    rows[row][f"{corpus}_{column}"] = str(round(stats[split][questions][name], 1))
    write_rows(table, list(rows.values()))


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
