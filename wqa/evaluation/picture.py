"""Pictures of metric against relative cost (Soldaini and Moschitti 2020, Figure 2)."""

from __future__ import annotations

import itertools
import os
import pathlib
from typing import Any, Dict, Sequence, Tuple, Union

from wqa.errors import MissingDependency, how_to_install
from wqa.io.files import atomic_writer

Point = Tuple[float, float]  # relative cost, metric; both in [0, 1]
_MARKS = ("^", "D", "o", "s", "v", "P", "X")


def check_matplotlib() -> None:
    """Refuse early where the plotting library is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingDependency(
            "matplotlib",
            "is not installed",
            "the plotting library, for the picture",
            f"{how_to_install('plots')}, or leave the picture out with picture=False",
        ) from None


def draw_costs(
    path: Union[str, os.PathLike[str]],
    points: Sequence[Point],
    front: Sequence[Point],
    marked: Dict[str, Point],
    metric: str,
) -> None:
    """Draw a cloud of configurations, their Pareto front, and some of them by name."""
    check_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(
        *_columns(points), s=9, color="0.7", linewidths=0, label=f"{len(points)} configurations"
    )
    axes.step(*_columns(front), where="post", color="tab:blue", linewidth=1.2, label="Pareto front")
    for (name, point), mark in zip(marked.items(), itertools.cycle(_MARKS)):
        axes.plot(*_columns([point]), mark, markersize=8, markeredgecolor="black", label=name)
    axes.set_xlabel("relative cost per batch, % of the full encoder")
    axes.set_ylabel(metric.upper())
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    save_figure(figure, path)


def save_figure(figure: Any, path: Union[str, os.PathLike[str]]) -> None:
    """Write a figure of Matplotlib in the format of the file's suffix."""
    with atomic_writer(path, "wb") as file:
        figure.savefig(file, format=pathlib.Path(path).suffix[1:] or "png", dpi=150)


def _columns(points: Sequence[Point]) -> Tuple[Sequence[float], Sequence[float]]:
    return [100 * cost for cost, _ in points], [100 * value for _, value in points]
