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


def all_splits(questions):
    """The three splits of a corpus, with the same questions of each."""
    return {split: (split, questions) for split in SPLITS}


#: Of each table, corpus and split: the split of stats.json, and the questions that the table seems
#: to count.
COUNTED = {
    "cascade": {
        "asnq": all_splits("all"),
        "gpd": all_splits("all"),
        "trecqa": {
            "train": ("train-all", "all"),
            "dev": ("dev-40", "clean"),
            "test": ("test", "clean"),
        },
        "wikiqa": all_splits("no-all-negative"),
    },
    "mhs": {"asnq": all_splits("all"), "wikiqa": all_splits("no-all-negative")},
    "mspp": {
        "asnq": all_splits("all"),
        "wikiqa": {"train": ("train", "all"), "dev": ("dev", "clean"), "test": ("test", "clean")},
        "trecqa": {
            "train": ("train-all", "all"),
            "dev": ("dev", "clean"),
            "test": ("test", "clean"),
        },
    },
}


def shown(count):
    """A count, or a mean with one digit behind the point."""
    return str(round(count, 1))


def main(paper, table, data):
    """Write the table."""
    check_choice("paper", paper, COUNTED)
    rows = {split: {"row": split, "drop_ratio": "-"} for split in SPLITS}
    for corpus, splits in COUNTED[paper].items():
        path = pathlib.Path(data) / corpus / "stats.json"
        if not path.exists():
            continue
        try:
            stats = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(path, error, "what a script of data_scripts/ writes") from None
        for row, (split, questions) in splits.items():
            if split in stats:
                counts = stats[split][questions]
                for column, name in COLUMNS[paper].items():
                    rows[row][f"{corpus}_{column}"] = shown(counts[name])
    write_rows(table, list(rows.values()))


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
