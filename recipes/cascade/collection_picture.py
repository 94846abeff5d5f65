#!/usr/bin/env python3
"""Draw the first answer's quality beside the time of a question, for each number of documents.

    python recipes/cascade/collection_picture.py QUALITY.tsv TIMES.tsv OUT.png

QUALITY.tsv and TIMES.tsv are those of recipes/cascade/collection.sh.
"""

import pathlib
import sys

from wqa.errors import WqaError
from wqa.evaluation.picture import check_matplotlib
from wqa.evaluation.report import read_rows
from wqa.io.files import atomic_writer


def title_of(ranker):
    """Row of the table of quality, or how it begins, for a ranker of the times."""
    if ranker == "bm25":
        return "BM25"
    path = pathlib.Path(ranker)
    if path.suffix == ".json":
        return "sequence"
    return {"tanda": "monolithic", "cascade": "cascade"}[path.parent.name]


def points_of(quality, times, top):
    """Points (seconds, P@1, drop ratio) of each ranker behind so many documents."""
    points = {}
    for row in times:
        if row["documents"] != top:
            continue
        name = title_of(row["ranker"])
        ratio = "0" if row["drop_ratio"] == "-" else row["drop_ratio"]
        for figures in quality:
            if figures["row"].startswith(name) and figures["drop_ratio"] == ratio:
                value = float(figures[f"wikiqa_{top}_p@1"])
                points.setdefault(figures["row"], []).append((float(row["seconds"]), value, ratio))
    return points


def main(quality, times, out):
    """Draw the picture."""
    check_matplotlib()
    from matplotlib.figure import Figure

    rows, timed = read_rows(quality), read_rows(times, ("ranker", "documents", "drop_ratio"))
    tops = list(dict.fromkeys(row["documents"] for row in timed))
    figure = Figure(figsize=(3.2 * len(tops), 3.6), layout="constrained")
    panels = figure.subplots(1, len(tops), sharey=True, squeeze=False)[0]
    for axes, top in zip(panels, tops):
        for name, points in points_of(rows, timed, top).items():
            seconds, values, ratios = zip(*sorted(points))
            axes.plot(seconds, values, marker="o", markersize=4, label=name)
            for point in zip(ratios, seconds, values):
                if len(points) > 1:
                    axes.annotate(
                        point[0], point[1:], fontsize=7, xytext=(3, 3), textcoords="offset points"
                    )
        sentences = next(row["sentences"] for row in timed if row["documents"] == top)
        axes.set_title(f"{top} documents, {sentences} sentences", fontsize=9)
        axes.set_xlabel("seconds a question")
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("P@1, % of the questions")
    panels[-1].legend(fontsize=8)
    with atomic_writer(out, "wb") as file:
        figure.savefig(file, format="png", dpi=150)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
