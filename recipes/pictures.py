#!/usr/bin/env python3
"""Draw the pictures of the cascade: quality against cost, or against time.

python recipes/pictures.py tuned TUNE_FOLDER OUT.png    all that `wqa tune` tried: Figure 2 of
                                                        Soldaini and Moschitti 2020
python recipes/pictures.py times TABLE.tsv OUT.png      what quality_time.sh measured
"""

import pathlib
import sys

from matplotlib.figure import Figure

from wqa.evaluation.report import read_rows
from wqa.io.files import atomic_writer


def points_of(rows):
    """Costs and MAP of rows, in per cent."""
    pairs = [(100 * float(row["cost"]), 100 * float(row["map"])) for row in rows]
    return tuple(zip(*pairs))


def draw_tuned(axes, folder):
    """Draw MAP against cost of all drop ratios, and the front of the best."""
    folder = pathlib.Path(folder)
    rows = read_rows(folder / "configurations.tsv", ("cost", "map"))
    front = read_rows(folder / "pareto.tsv", ("cost", "map"))
    axes.scatter(*points_of(rows), s=9, color="0.7", label=f"{len(rows)} configurations")
    axes.step(*points_of(front), where="post", color="tab:blue", label="Pareto front")
    exits = [name for name in rows[0] if name.startswith("exit_")]
    for ratio, mark in (("0.3", "^"), ("0.4", "D"), ("0.5", "o")):
        marked = [row for row in rows if {row[name] for name in exits} == {ratio}]
        if marked:
            label = f"drop ratio {ratio}"
            axes.plot(*points_of(marked), mark, markeredgecolor="black", label=label)
    axes.set_xlabel("relative cost per batch, % of the full encoder")


def draw_times(axes, table):
    """Draw MAP against milliseconds: a line for each system, a point for each depth or ratio."""
    systems = {}
    for row in read_rows(table):
        system, _, depth = row["row"].partition(", ")
        point = (float(row["wikiqa_p50_ms"]), float(row["wikiqa_map"].split()[0]))
        systems.setdefault(system, []).append((point, depth or row["drop_ratio"]))
    for system, points in systems.items():
        style, below = ("o-", -11) if "cascade" in system else ("s--", 6)
        axes.plot(*zip(*sorted(point for point, _ in points)), style, label=system)
        for point, label in points:
            axes.annotate(label, point, (0, below), textcoords="offset points", ha="center", size=7)
    axes.set_xlabel("milliseconds of a question, int8")


def main(kind, source, out):
    """Write the picture."""
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    {"tuned": draw_tuned, "times": draw_times}[kind](axes, source)
    axes.set_ylabel("MAP")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    with atomic_writer(out, "wb") as file:
        figure.savefig(file, format=pathlib.Path(out).suffix[1:], dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
