#!/usr/bin/env python3
"""Table 1 (Soldaini and Moschitti 2020) from the stats.json that each script of data_scripts/
writes.

    python recipes/cascade/table1.py RESULTS.tsv DATA

DATA holds asnq/, gpd/, trecqa/ and wikiqa/; a corpus that is not there has dashes.
"""

import json
import pathlib
import sys

from wqa.errors import DataError
from wqa.evaluation.report import write_rows

#: Of each corpus and split: the split of stats.json, and the questions that the table seems to
#: count.
COUNTED = {
    "asnq": {split: (split, "all") for split in ("train", "dev", "test")},
    "gpd": {split: (split, "all") for split in ("train", "dev", "test")},
    "trecqa": {
        "train": ("train-all", "all"),
        "dev": ("dev-40", "clean"),
        "test": ("test", "clean"),
    },
    "wikiqa": {split: (split, "no-all-negative") for split in ("train", "dev", "test")},
}


def main(table, data):
    """Write the table."""
    rows = {split: {"row": split, "drop_ratio": "-"} for split in ("train", "dev", "test")}
    for corpus, splits in COUNTED.items():
        path = pathlib.Path(data) / corpus / "stats.json"
        if not path.exists():
            continue
        try:
            stats = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SystemExit(
                f"error: {DataError(path, error, 'what a script of data_scripts/ writes')}"
            ) from None
        for row, (split, filter_) in splits.items():
            if split in stats:
                counts = stats[split][filter_]
                rows[row].update(
                    {
                        f"{corpus}_questions": str(counts["questions"]),
                        f"{corpus}_candidates": str(round(counts["candidates_per_question"], 1)),
                        f"{corpus}_correct": str(round(counts["correct_per_question"], 1)),
                    }
                )
    write_rows(table, list(rows.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
