#!/usr/bin/env python3
"""Print what a pre-training reached on held-out documents, beside chance.

    python recipes/mspp/pretraining.py RUN

RUN is a run of `wqa train mspp_pretraining` with --dev. A row has the figures of the first, the
best or the last evaluation; the best is that whose parameters are kept. Chance is a random order of
the candidates for p@1, and always saying no for the accuracies.
"""

import json
import pathlib
import sys

from wqa.config import read_run_config
from wqa.errors import DataError, WqaError
from wqa.evaluation import table


def evaluations_of(path):
    """Evaluations of a training: the number of the update, and the figures."""
    lines = path.read_text(encoding="utf-8").splitlines()
    entries = [entry for entry in map(json.loads, lines) if "dev" in entry]
    if not entries:
        raise DataError(path, "no evaluation", "a training with --dev")
    return entries


def chance_of(names, candidates):
    """Figures that need no model."""
    chance = {"p@1": 1 / candidates, "accuracy": 1 - 1 / candidates, "accuracy_positive": 0.0}
    for name in names:
        if name.startswith("accuracy_"):
            chance.setdefault(name, 1.0)
    return {name: chance.get(name) for name in names}


def main(run):
    """Print the table."""
    folder = pathlib.Path(run)
    entries = evaluations_of(folder / "metrics.jsonl")
    best = max(entries, key=lambda entry: entry["dev"]["p@1"])
    names = [name for name in entries[0]["dev"] if name != "examples"]
    candidates = read_run_config(folder / "config.json").network["k"]
    rows = [{"evaluation": "chance", "update": None, **chance_of(names, candidates)}]
    for title, entry in (("first", entries[0]), ("best", best), ("last", entries[-1])):
        figures = {name: entry["dev"][name] for name in names}
        rows.append({"evaluation": title, "update": str(entry["update"]), **figures})
    print(f"{entries[0]['dev']['examples']:.0f} examples of held-out documents")
    print(table(rows))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
