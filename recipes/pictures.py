#!/usr/bin/env python3
"""Draw Figure 2 of Soldaini and Moschitti 2020: metric against cost of all that `wqa tune` tried.

python recipes/pictures.py TUNE_FOLDER METRIC OUT.png
"""

import pathlib
import sys

from matplotlib.figure import Figure

from wqa.evaluation.report import read_rows
from wqa.io.files import atomic_writer


def points_of(rows, metric):
    """Costs and values of rows, in per cent."""
    pairs = [(100 * float(row["cost"]), 100 * float(row[metric])) for row in rows]
    return tuple(zip(*pairs))


def main(folder, metric, out):
    """Write the picture."""
    folder = pathlib.Path(folder)
    rows = read_rows(folder / "configurations.tsv", ("cost", metric))
    front = read_rows(folder / "pareto.tsv", ("cost", metric))
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(*points_of(rows, metric), s=9, color="0.7", label=f"{len(rows)} configurations")
    axes.step(*points_of(front, metric), where="post", color="tab:blue", label="Pareto front")
    exits = [name for name in rows[0] if name.startswith("exit_")]
    for ratio, mark in (("0.3", "^"), ("0.4", "D"), ("0.5", "o")):
        marked = [row for row in rows if {row[name] for name in exits} == {ratio}]
        if marked:
            label = f"drop ratio {ratio}"
            axes.plot(*points_of(marked, metric), mark, markeredgecolor="black", label=label)
    axes.set_xlabel("relative cost per batch, % of the full encoder")
    axes.set_ylabel(metric.upper())
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    with atomic_writer(out, "wb") as file:
        figure.savefig(file, format=pathlib.Path(out).suffix[1:], dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
