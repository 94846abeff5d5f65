"""Choosing drop ratios, and where exits stand (Soldaini and Moschitti 2020, section 5.5): grids,
the Pareto front, a pick."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Dict, List, Optional, Sequence, Tuple

from wqa.errors import OptionError, shorten

#: The grid of section 5.5.
GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
#: Metrics of a configuration, as `wqa.evaluation` computes them.
METRICS = ("map", "mrr", "p@1", "ndcg@10")


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Drop ratios and what they would give on the questions that were scored.

    ``cost`` counts layers x candidates as they would run, whole candidates dropped; ``paper_cost``
    is `wqa.inference.relative_cost` of the ratios, the x-axis of Figure 2.
    """

    ratios: Tuple[float, ...]  # one an exit, the last 0
    cost: float
    paper_cost: float
    metrics: Dict[str, float]


def check_grid(grid: Sequence[float]) -> Tuple[float, ...]:
    """Check the ratios of a grid.

    Parameters
    ----------
    grid : sequence of float

    Returns
    -------
    tuple of float
        Each once, ascending.

    Raises
    ------
    OptionError
        If there is none, or one lies outside [0, 1).
    """
    for ratio in grid:
        if not isinstance(ratio, (int, float)) or not 0 <= ratio < 1:
            raise OptionError(
                "--grid", shorten(ratio), "drop ratios from 0 up to, not including, 1"
            )
    if not grid:
        raise OptionError("--grid", "nothing", "at least one drop ratio")
    return tuple(sorted({float(ratio) for ratio in grid}))


def full_grid(grid: Sequence[float], exits: int) -> List[Tuple[float, ...]]:
    """All configurations of a grid: a ratio for each exit but the last.

    Parameters
    ----------
    grid : sequence of float
    exits : int
        N.

    Returns
    -------
    list of tuple of float
        ``len(grid) ** (exits - 1)`` tuples of N - 1 ratios.
    """
    return list(itertools.product(check_grid(grid), repeat=exits - 1))


def placements(grid: Sequence[float], exits: int, used: int) -> List[Tuple[float, ...]]:
    """Configurations that use some of a run's exits: the last, and ``used - 1`` of those before it,
    with one ratio.

    An exit that is not used drops nothing, so a ratio of 0 stands for it.

    Parameters
    ----------
    grid : sequence of float
    exits : int
        N, those that the run was trained with.
    used : int
        How many to use, 1 to N.

    Returns
    -------
    list of tuple of float
        Tuples of N - 1 ratios.

    Raises
    ------
    OptionError
        If ``used`` does not fit.
    """
    if not 1 <= used <= exits:
        raise OptionError(
            "--place-exits", used, f"a whole number from 1 to {exits}, the exits of the run"
        )
    ratios = [ratio for ratio in check_grid(grid) if ratio > 0] or [0.0]
    return [
        tuple(ratio if place in places else 0.0 for place in range(exits - 1))
        for ratio in ratios
        for places in itertools.combinations(range(exits - 1), used - 1)
    ]


def pareto_front(
    configurations: Sequence[Configuration], metric: str = "map"
) -> List[Configuration]:
    """Configurations that no other one beats: none costs no more and is better, or costs less and
    is as good.

    Parameters
    ----------
    configurations : sequence of Configuration
    metric : str

    Returns
    -------
    list of Configuration
        By ascending cost.
    """
    front: List[Configuration] = []
    for found in sorted(
        configurations,
        key=lambda found: (found.cost, -found.metrics[metric], found.paper_cost, found.ratios),
    ):
        if not front or found.metrics[metric] > front[-1].metrics[metric]:
            front.append(found)
    return front


def pick(
    configurations: Sequence[Configuration],
    metric: str = "map",
    max_cost: Optional[float] = None,
    least: Optional[float] = None,
) -> Configuration:
    """Pick a configuration of the Pareto front.

    Parameters
    ----------
    configurations : sequence of Configuration
    metric : str
    max_cost : float, optional
        The best by ``metric`` that costs at most this.
    least : float, optional
        The cheapest whose ``metric`` is at least this.

    Returns
    -------
    Configuration

    Raises
    ------
    OptionError
        If none qualifies, or not just one of the two limits is given.
    """
    if (max_cost is None) == (least is None):
        raise OptionError(
            "--max-cost and --min-map", "both" if least is not None else "neither", "one of the two"
        )
    front = pareto_front(configurations, metric)
    if max_cost is not None:
        fits = [found for found in front if found.cost <= max_cost]
        if not fits:
            raise OptionError(
                "--max-cost",
                max_cost,
                f"at least {front[0].cost:.4f}, the cheapest configuration's",
            )
        return fits[-1]
    fits = [found for found in front if found.metrics[metric] >= least]  # type: ignore[operator]
    if not fits:
        raise OptionError(
            f"--min-{metric}",
            least,
            f"at most {front[-1].metrics[metric]:.4f}, the best configuration's",
        )
    return fits[0]


def as_row(found: Configuration, exits: Sequence[int]) -> Dict[str, Any]:
    """A configuration as one flat row.

    Parameters
    ----------
    found : Configuration
    exits : sequence of int

    Returns
    -------
    dict
        The ratio of each exit but the last, the costs and the metrics.
    """
    return {
        **{f"exit_{layer}": ratio for layer, ratio in zip(exits[:-1], found.ratios)},
        "cost": found.cost,
        "paper_cost": found.paper_cost,
        **found.metrics,
    }
