#!/usr/bin/env python3
"""Draw Figure 2: P@N over N, and quality and speed over the number of interaction layers.

python recipes/dcbert/figure2.py FIGURE2A.tsv FIGURE2B.tsv OUT.png
"""

import io
import sys

from wqa.errors import run_script
from wqa.evaluation.report import read_rows
from wqa.io.files import atomic_writer


def number(text):
    """A figure of a table, without its deviation and unit."""
    return float(text.split()[0].rstrip("x"))


def corpora_of(row, metric):
    """Corpora for which a row has a metric."""
    ending = f"_{metric}"
    return [name[: -len(ending)] for name in row if name.endswith(ending) and row[name] != "-"]


def draw_cutoffs(axes, rows):
    """Draw P@N of each row over N."""
    for row in rows:
        for corpus in corpora_of(row, "p@1"):
            start = f"{corpus}_p@"
            points = []
            for name, value in row.items():
                if name.startswith(start):
                    points.append((int(name[len(start) :]), number(value)))
            points.sort()
            axes.plot(*zip(*points), marker="o", label=f"{row['row']}, {corpus}")
    axes.set_xlabel("N")
    axes.set_ylabel("P@N, %")
    axes.legend()


def draw_layers(axes, rows):
    """Draw exact match over K, and the speedup on an axis of its own."""
    layers = [int(row["row"].rpartition(" ")[2]) for row in rows]
    speed = axes.twinx()
    for corpus in corpora_of(rows[0], "em"):
        matches = [number(row[f"{corpus}_em"]) for row in rows]
        speedups = [number(row[f"{corpus}_speedup"]) for row in rows]
        axes.plot(layers, matches, marker="o", label=f"EM, {corpus}")
        speed.plot(layers, speedups, marker="s", linestyle="--", label=f"speedup, {corpus}")
    axes.set_xticks(layers)
    axes.set_xlabel("K")
    axes.set_ylabel("answer EM, %")
    speed.set_ylabel("speedup")
    # One legend for both axes, in front of all curves.
    speed.legend(handles=[*axes.get_lines(), *speed.get_lines()], loc="upper right")


def main(cutoffs, layers, out):
    """Write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    draw_cutoffs(left, read_rows(cutoffs))
    draw_layers(right, read_rows(layers))
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120, bbox_inches="tight")
    with atomic_writer(out, "wb") as file:
        file.write(picture.getvalue())


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
