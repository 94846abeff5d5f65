"""Configurations of drops: grids, Pareto front, choice of a configuration, tables and a picture.

Soldaini and Moschitti 2020, section 5.5.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from wqa.data.formats import data_digest
from wqa.errors import OptionError, shorten
from wqa.evaluation.picture import draw_costs
from wqa.evaluation.report import write_rows
from wqa.io.files import PathLike
from wqa.text import PreparedQuestions

#: The grid of section 5.5.
GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What each stage drops, and its cost and metrics on the scored questions.

    Attributes
    ----------
    ratios : tuple of float
        Drop ratio of each exit, or of each ranker of a sequence; that of the last is 0.
    cost : float
        Layers x candidates that run, with whole candidates dropped, over those of the full
        encoder; texts that are encoded by themselves count too. Of a sequence, the multiply-adds of
        all rankers over those of the last one on every candidate.
    paper_cost : float
        `wqa.inference.relative_cost` of the ratios, the x-axis of Figure 2. Of a sequence,
        ``Cost.paper``.
    metrics : dict of str to float
        Means over the questions, in [0, 1].
    keep : tuple of int
        Number of candidates that each ranker of a sequence but the last keeps, 0 where its ratio
        says what it drops; empty for exits.
    """

    ratios: Tuple[float, ...]
    cost: float
    paper_cost: float
    metrics: Dict[str, float]
    keep: Tuple[int, ...] = ()

    @property
    def discards(self) -> bool:
        """Whether a candidate can be dropped."""
        return any(self.ratios) or any(self.keep)

    def stored(self) -> Dict[str, List]:
        """Fields of a sequence's file, and keywords of ``set_drops``, that set these drops."""
        if not self.keep:
            return {"drop_ratio": list(self.ratios)}
        ratios: List[Optional[float]] = []
        for ratio, number in zip(self.ratios, self.keep):
            ratios.append(None if number else ratio)
        fields: Dict[str, List] = {"drop_ratio": ratios}
        fields["keep"] = [number or None for number in self.keep]
        return {name: values for name, values in fields.items() if values.count(None) < len(values)}


def check_grid(grid: Sequence[float]) -> Tuple[float, ...]:
    """Check the ratios of a grid."""
    for ratio in grid:
        if not 0 <= ratio < 1:
            raise OptionError("grid", shorten(ratio), "drop ratios from 0 up to, not including, 1")
    if not grid:
        raise OptionError("grid", "nothing", "at least one drop ratio")
    ratios = {float(ratio) for ratio in grid}
    return tuple(sorted(ratios))


def full_grid(grid: Sequence[float], exits: int) -> List[Tuple[float, ...]]:
    """All configurations of a grid: a ratio for each exit but the last.

    Parameters
    ----------
    grid : sequence of float
        Drop ratios that an exit may have, in [0, 1).
    exits : int
        N, the number of exits.

    Returns
    -------
    list of tuple of float
        ``len(grid) ** (exits - 1)`` tuples of N - 1 ratios.

    Raises
    ------
    OptionError
        If the grid is empty, or a ratio lies outside [0, 1).
    """
    ratios = check_grid(grid)
    return list(itertools.product(ratios, repeat=exits - 1))


def placements(grid: Sequence[float], exits: int, place_exits: int) -> List[Tuple[float, ...]]:
    """Configurations that use some of the exits, with one ratio for those before the last.

    The last exit is always used. An exit that is not used drops nothing and has a ratio of 0.

    Parameters
    ----------
    grid : sequence of float
        Drop ratios that a configuration may have, in [0, 1).
    exits : int
        N, the number of exits that the run was trained with.
    place_exits : int
        Number of exits to use, from 1 to N.

    Returns
    -------
    list of tuple of float
        Tuples of N - 1 ratios.

    Raises
    ------
    OptionError
        If the grid or the number of exits does not fit.
    """
    if not 1 <= place_exits <= exits:
        raise OptionError(
            "place_exits", place_exits, f"a whole number from 1 to {exits}, the exits of the run"
        )
    ratios = [ratio for ratio in check_grid(grid) if ratio > 0]
    before_last = exits - 1
    configurations = []
    for ratio in ratios or [0.0]:
        for used in itertools.combinations(range(before_last), place_exits - 1):
            configuration = [0.0] * before_last
            for index in used:
                configuration[index] = ratio
            configurations.append(tuple(configuration))
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
        drops = configuration.ratios, configuration.keep
        return configuration.cost, -value, configuration.paper_cost, drops

    front: List[Configuration] = []
    for configuration in sorted(configurations, key=by_cost):
        if not front or configuration.metrics[metric] > front[-1].metrics[metric]:
            front.append(configuration)
    return front


def check_limits(limits: Mapping[str, Optional[float]], most: int = 1) -> Dict[str, float]:
    """Check the limits by which a configuration is picked."""
    given = {name: value for name, value in limits.items() if value is not None}
    if len(given) > most:
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
        If no configuration qualifies, not exactly one limit is given, or it is no finite number
        from 0.
    """
    limits = {"max_cost": max_cost, "min_metric": min_metric, "max_loss": max_loss}
    if not check_limits(limits):
        raise OptionError(" and ".join(limits), "none", "one of them")
    front = pareto_front(configurations, metric)
    if max_cost is not None:
        fits = [configuration for configuration in front if configuration.cost <= max_cost]
        if not fits:
            cheapest = f"at least {front[0].cost:.4f}, the cheapest configuration's"
            raise OptionError("max_cost", max_cost, cheapest)
        return fits[-1]
    if max_loss is not None:
        full = [configuration for configuration in configurations if not configuration.discards]
        if not full:
            nothing = "a configuration that drops nothing beside the others"
            raise OptionError("max_loss", max_loss, nothing)
        # The same figures summed in another order may differ in the last bits.
        min_metric = full[0].metrics[metric] - max_loss - 1e-12
    assert min_metric is not None
    for configuration in front:
        if configuration.metrics[metric] >= min_metric:
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


def as_row(configuration: Configuration, columns: Sequence[str]) -> Dict[str, Any]:
    """A configuration as one flat row."""
    row: Dict[str, Any] = {}
    for index, column in enumerate(columns):
        row[column] = _drop(configuration, column, index)
    row["cost"] = configuration.cost
    row["paper_cost"] = configuration.paper_cost
    return {**row, **configuration.metrics}


def _drop(configuration: Configuration, column: str, index: int) -> Union[str, float]:
    """What a column of `as_row` holds."""
    kind, _, number = column.rpartition("_")
    if kind == "exit":
        return configuration.ratios[index]
    stage = int(number) - 1
    ratio, keep = configuration.ratios[stage], configuration.keep[stage]
    if kind == "drop_ratio":
        return "-" if keep else ratio
    return keep or ("-" if ratio else "all")


def write_front(
    folder: pathlib.Path,
    configurations: Sequence[Configuration],
    metric: str,
    columns: Sequence[str],
    marked: Optional[Mapping[str, Configuration]] = None,
) -> List[Configuration]:
    """Write ``configurations.tsv``, ``pareto.tsv`` and, with marks, ``figure.png``; the front."""

    def point(configuration: Configuration) -> Tuple[float, float]:
        return configuration.cost, configuration.metrics[metric]

    front = pareto_front(configurations, metric)
    for name, shown in (("configurations", configurations), ("pareto", front)):
        rows = []
        for configuration in shown:
            row = as_row(configuration, columns)
            for column, value in row.items():
                row[column] = value if isinstance(value, str) else f"{value:.6g}"
            rows.append(row)
        write_rows(folder / f"{name}.tsv", rows)
    if marked is not None:
        draw_costs(
            folder / "figure.png",
            [point(configuration) for configuration in configurations],
            [point(configuration) for configuration in front],
            {name: point(configuration) for name, configuration in marked.items()},
            metric,
        )
    return front
