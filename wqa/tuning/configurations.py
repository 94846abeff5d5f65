"""Configurations of drops: grids, Pareto front, choice of a configuration, tables.

Soldaini and Moschitti 2020, section 5.5.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

from wqa.data.formats import data_digest
from wqa.errors import OptionError
from wqa.inference.dropping import Drop
from wqa.io.files import PathLike
from wqa.text import PreparedQuestions

#: The grid of section 5.5.
GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
#: Numbers of candidates that a ranker of a sequence may keep, by default.
KEEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)
#: What each stage but the last drops.
Drops = Tuple[Drop, ...]


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What each stage drops, and its cost and metrics on the scored questions.

    Attributes
    ----------
    drops : tuple of Drop
        What each exit, or each ranker of a sequence, drops; the last one drops nothing and has no
        entry.
    cost : float
        Layers x candidates that run, with whole candidates dropped, over those of the full
        encoder; texts that are encoded by themselves count too. Of a sequence, the multiply-adds of
        all rankers over those of the last one on every candidate.
    paper_cost : float
        `wqa.inference.relative_cost` of the ratios, the x-axis of Figure 2. Of a sequence,
        ``Cost.paper``.
    metrics : dict of str to float
        Means over the questions, in [0, 1].
    """

    drops: Drops
    cost: float
    paper_cost: float
    metrics: Dict[str, float]

    @property
    def discards(self) -> bool:
        """Whether a candidate can be dropped."""
        return any(drop.discards for drop in self.drops)

    def stored(self) -> Dict[str, List]:
        """Fields of a sequence's file that set these drops."""
        if not any(drop.keep for drop in self.drops):
            return {"drop_ratio": [drop.ratio for drop in self.drops]}
        fields: Dict[str, List] = {"keep": [drop.keep or None for drop in self.drops]}
        if None in fields["keep"]:
            ratios = [None if drop.keep else drop.ratio for drop in self.drops]
            fields = {"drop_ratio": ratios, **fields}
        return fields

    def row(self, columns: Sequence[str]) -> Dict[str, Any]:
        """The configuration as one flat row, its drops under the names of columns."""
        row: Dict[str, Any] = {}
        per_stage = len(columns) // len(self.drops)
        for index, column in enumerate(columns):
            drop = self.drops[index // per_stage]
            value: Any = drop.ratio
            if column.startswith("keep"):
                value = drop.keep or ("-" if drop.ratio else "all")
            elif drop.keep:
                value = "-"
            row[column] = value
        return {**row, "cost": self.cost, "paper_cost": self.paper_cost, **self.metrics}


def full_grid(choices: Sequence[Drop], stages: int) -> List[Drops]:
    """All configurations of a grid: one of the choices for each stage but the last."""
    return list(itertools.product(choices, repeat=stages - 1))


def placements(choices: Sequence[Drop], exits: int, place_exits: int) -> List[Drops]:
    """Configurations that use some of the exits, with one drop for those before the last.

    The last exit is always used. An exit that is not used drops nothing.

    Parameters
    ----------
    choices : sequence of Drop
        Drops that a configuration may have.
    exits : int
        N, the number of exits that the run was trained with.
    place_exits : int
        Number of exits to use, from 1 to N.

    Returns
    -------
    list of tuple of Drop

    Raises
    ------
    OptionError
        If the number of exits does not fit.
    """
    if not 1 <= place_exits <= exits:
        expected = f"a whole number from 1 to {exits}, the exits of the run"
        raise OptionError("place_exits", place_exits, expected)
    configurations = []
    for drop in [drop for drop in choices if drop.discards] or [Drop()]:
        for used in itertools.combinations(range(exits - 1), place_exits - 1):
            drops = [drop if index in used else Drop() for index in range(exits - 1)]
            configurations.append(tuple(drops))
    return configurations


def pareto_front(
    configurations: Sequence[Configuration], metric: str = "map"
) -> List[Configuration]:
    """Configurations that no other configuration beats.

    One configuration beats another if it costs no more and is better, or costs less and is as
    good.

    Parameters
    ----------
    configurations : sequence of Configuration
        Configurations of the grid.
    metric : str
        Name of the metric by which they are compared.

    Returns
    -------
    list of Configuration
        The Pareto front, by ascending cost.
    """

    def by_cost(configuration: Configuration) -> Tuple:
        value = configuration.metrics[metric]
        return configuration.cost, -value, configuration.paper_cost, configuration.drops

    front: List[Configuration] = []
    for configuration in sorted(configurations, key=by_cost):
        if not front or configuration.metrics[metric] > front[-1].metrics[metric]:
            front.append(configuration)
    return front


def check_limits(**limits: Optional[float]) -> Dict[str, float]:
    """Check the limits by which a configuration is picked."""
    given = {name: value for name, value in limits.items() if value is not None}
    if len(given) > 1:
        raise OptionError(" and ".join(given), "together", "one of them")
    for name, value in given.items():
        if not 0 <= value < math.inf:
            raise OptionError(name, value, "a number from 0")
    return given


def pick(
    configurations: Sequence[Configuration],
    metric: str = "map",
    max_cost: Optional[float] = None,
    min_metric: Optional[float] = None,
    max_loss: Optional[float] = None,
) -> Configuration:
    """Pick a configuration of the Pareto front.

    Parameters
    ----------
    configurations, metric
        As `pareto_front` takes them.
    max_cost : float, optional
        Greatest cost; the best configuration up to it is picked.
    min_metric : float, optional
        Least metric; the cheapest configuration from it on is picked.
    max_loss : float, optional
        Greatest loss of the metric beside the configuration that drops nothing, which is one of the
        configurations; the cheapest that loses no more is picked.

    Returns
    -------
    Configuration
        Picked configuration.

    Raises
    ------
    OptionError
        If no configuration qualifies, or a limit is no finite number from 0.
    """
    front = pareto_front(configurations, metric)
    if max_cost is not None:
        fits = [configuration for configuration in front if configuration.cost <= max_cost]
        if not fits:
            cheapest = f"at least {front[0].cost:.4f}, the cheapest configuration's"
            raise OptionError("max_cost", max_cost, cheapest)
        return fits[-1]
    if max_loss is not None:
        full = [row for row in configurations if not row.discards][0]
        # The same figures summed in another order may differ in the last bits.
        min_metric = full.metrics[metric] - max_loss - 1e-12
    for configuration in front:
        if configuration.metrics[metric] >= (min_metric or 0.0):
            return configuration
    best = front[-1].metrics[metric]
    raise OptionError("min_metric", min_metric, f"at most {best:.4f}, the best configuration's")


def tuning_record(
    choice: Dict[str, Any], data: PathLike, filter: str, prepared: PreparedQuestions
) -> Dict[str, Any]:
    """What a choice was made by, as files of tuned settings record it."""
    return {
        "chosen_by": choice,
        "data_sha256": data_digest(data),
        "filter": filter,
        "questions": len(prepared.questions),
        **prepared.counts,
    }
