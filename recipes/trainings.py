#!/usr/bin/env python3
"""Summarize the logs of trainings, ``NAME.metrics.jsonl``, in a row each of ``trainings.tsv``.

    python recipes/trainings.py recipes/cascade/logs

Rows of trainings whose logs are no longer there stay as they are. The loss is that of the last
entry; the dev figures are those of the evaluation with the greatest first figure.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Dict, List

from wqa.io.files import atomic_writer

COLUMNS = ("training", "updates", "epochs", "loss", "dev_questions", "dev", "at_update")
END = ".metrics.jsonl"


def summarize(path: pathlib.Path) -> List[str]:
    """Row of a training, by its log."""
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    trained = [entry for entry in entries if "loss" in entry]
    row = [path.name[: -len(END)], str(entries[-1]["update"]), "", "", "", "", ""]
    if trained:
        row[2:4] = f"{trained[-1].get('epoch', 0):.2f}", f"{trained[-1]['loss']:.4f}"
    evaluated = [entry for entry in entries if entry.get("dev")]
    if evaluated:
        best = max(evaluated, key=_first_figure)
        figures = dict(best["dev"])
        row[4] = str(figures.pop("questions", ""))
        row[5] = " ".join(f"{name}={value:.4f}" for name, value in figures.items())
        row[6] = str(best["update"])
    return row


def _first_figure(entry: dict) -> float:
    """The figure that decides, which stands behind the counts."""
    return next(
        value for name, value in entry["dev"].items() if name not in ("questions", "examples")
    )


def main(logs: pathlib.Path) -> None:
    """Write the table."""
    table = logs / "trainings.tsv"
    rows: Dict[str, List[str]] = {}
    if table.exists():
        lines = table.read_text(encoding="utf-8").splitlines()[1:]
        rows = {line.split("\t")[0]: line.split("\t") for line in lines}
    for path in sorted(logs.glob(f"*{END}")):
        row = summarize(path)
        rows[row[0]] = row
    with atomic_writer(table) as file:
        for row in (COLUMNS, *(rows[name] for name in sorted(rows))):
            file.write("\t".join(row) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
