#!/usr/bin/env python3
"""Choose alpha and tau of a student by the best dev MAP of the runs of a grid.

    python recipes/mhs/choose.py FOLDER

FOLDER holds a run alpha_A_tau_T for each point of the grid. The table grid.tsv and the chosen pair,
chosen.txt, are written there. Among equal figures the first point in the order of the names is
chosen.
"""

import json
import pathlib
import re
import sys

from wqa.errors import run_script
from wqa.evaluation.report import write_rows
from wqa.io.files import atomic_writer


def main(folder):
    """Write the table and the choice."""
    folder = pathlib.Path(folder)
    points, rows = [], []
    for run in sorted(path.parent for path in folder.glob("alpha_*_tau_*/model.params")):
        alpha, tau = re.fullmatch(r"alpha_(.+)_tau_(.+)", run.name).groups()
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        figure = max(entry["dev"]["map"] for entry in map(json.loads, lines) if "dev" in entry)
        points.append((figure, alpha, tau))
        rows.append({"alpha": alpha, "tau": tau, "dev_map": f"{100 * figure:.2f}"})
    write_rows(folder / "grid.tsv", rows)
    figure, alpha, tau = max(points, key=lambda point: point[0])
    with atomic_writer(folder / "chosen.txt") as file:
        file.write(f"{alpha} {tau}\n")
    print(f"{folder}: alpha {alpha}, tau {tau}, dev MAP {100 * figure:.2f}")


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
