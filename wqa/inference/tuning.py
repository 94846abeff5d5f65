"""Choosing drop ratios, and where exits stand, from one scoring (Soldaini and Moschitti 2020, section 5.5).

Every candidate is scored at every exit once. What a configuration of drop ratios would do follows from those scores: the
configurations are walked as a tree, an exit a level, so that the questions are sorted once for each way to arrive at an exit.
What an exit drops has its final ranks at once, as the ranks above it belong to the survivors; so each exit adds its share of
every metric when it is passed, and a leaf only adds its own.
"""
from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.errors import DataError, OptionError, shorten
from wqa.inference.cost import relative_cost
from wqa.inference.ranker import Ranking
from wqa.models.cascade import drop_ratios, dropped

#: The grid of section 5.5.
GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
#: Metrics of a configuration, as `wqa.evaluation` computes them.
METRICS = ("map", "mrr", "p@1", "ndcg@10")


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Drop ratios and what they would give on the questions that were scored.

    ``cost`` counts layers x candidates as they would run, whole candidates dropped; ``paper_cost`` is
    `wqa.inference.relative_cost` of the ratios, the x-axis of Figure 2.
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
            raise OptionError("--grid", shorten(ratio), "drop ratios from 0 up to, not including, 1")
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
    """Configurations that use some of a run's exits: the last, and ``used - 1`` of those before it, with one ratio.

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
        raise OptionError("--place-exits", used, f"a whole number from 1 to {exits}, the exits of the run")
    ratios = [ratio for ratio in check_grid(grid) if ratio > 0] or [0.0]
    return [tuple(ratio if place in places else 0.0 for place in range(exits - 1)) for ratio in ratios
            for places in itertools.combinations(range(exits - 1), used - 1)]


class ScoredQuestions:
    """Questions with the scores of every candidate at every exit.

    Parameters
    ----------
    rankings : iterable of Ranking
        Of a cascade at drop ratio 0.
    questions : sequence of Question
        Labelled; those that count.
    exits : sequence of int
        rho(1), ..., rho(N).
    num_layers : int
        Layers of the encoder.

    Raises
    ------
    DataError
        If there is no question, or a candidate has no label.
    """

    def __init__(self, rankings: Sequence[Ranking], questions: Sequence[Question], exits: Sequence[int],
                 num_layers: int) -> None:
        if not questions:
            raise DataError("--data", "no question is left", "at least one", "check --filter")
        self.exits, self.num_layers = tuple(exits), num_layers
        width = max(len(question.candidates) for question in questions)
        shape = (len(questions), width)
        self._scores = np.full((len(self.exits), *shape), -np.inf)
        self._labels = np.zeros(shape, dtype=np.int8)
        self._counts = np.zeros(len(questions), dtype=int)  # candidates that are scored, blank ones left out
        self._sizes = np.array([len(question.candidates) for question in questions])
        for row, (ranking, question) in enumerate(zip(rankings, questions)):
            if None in question.labels:
                raise DataError(f"question {shorten(question.id)}", "a candidate has no label", "a label, 0 or 1, on each")
            k = len(question.candidates)
            self._scores[:, row, :k] = np.nan_to_num(ranking.exit_scores, nan=-np.inf)
            self._labels[row, :k] = question.labels
            self._counts[row] = int((~ranking.blank).sum())
        self._positives = self._labels.sum(axis=1).astype(int)
        # Candidates in their original order, blank ones and the padding of shorter questions last.
        self._order = np.argsort(np.isneginf(self._scores[0]), axis=1, kind="stable")

    def evaluate(self, configurations: Sequence[Sequence[float]]) -> List[Configuration]:
        """Evaluate configurations of drop ratios.

        Parameters
        ----------
        configurations : sequence of sequence of float
            N - 1 ratios each, or N, of which the last has no effect.

        Returns
        -------
        list of Configuration
            In the order given; the metrics are those of a ranking at these ratios.
        """
        checked = [tuple(drop_ratios(ratios, len(self.exits))) for ratios in configurations]
        found: Dict[Tuple[float, ...], Configuration] = {}
        full, nothing = self.num_layers * self._counts.sum(), _Gains.zero(len(self._counts))
        for ratios, gains, layers in self._walk(sorted(set(checked)), 0, self._order, self._counts, nothing, 0.0):
            found[ratios] = Configuration(ratios, float(layers / full) if full else 0.0,
                                          relative_cost(self.exits, ratios, self.num_layers), self._metrics(gains))
        return [found[ratios] for ratios in checked]

    def _walk(self, configurations: List[Tuple[float, ...]], place: int, alive: np.ndarray, counts: np.ndarray,
              gains: _Gains, layers: float) -> Iterator[Tuple[Tuple[float, ...], _Gains, float]]:
        """Go through an exit; ``alive`` holds candidates by index, those that are left in the first ``counts`` columns."""
        width = max(int(counts.max(initial=0)), 1)
        last = place == len(self.exits) - 1
        layers += float((self.exits[place] - (self.exits[place - 1] if place else 0)) * counts.sum())
        columns, alive = np.arange(width), alive[:, :width]
        scores = np.where(columns < counts[:, None], np.take_along_axis(self._scores[place], alive, axis=1), -np.inf)
        ranked = np.take_along_axis(alive, np.argsort(-scores, axis=1, kind="stable"), axis=1)
        labels = np.take_along_axis(self._labels, ranked, axis=1) * (columns < counts[:, None])
        for ratio, group in itertools.groupby(configurations, key=lambda ratios: ratios[place]):
            below_here = list(group)
            if last:
                yield below_here[0], gains.add(labels, np.zeros_like(counts), counts), layers
            else:
                sizes, places = np.unique(counts, return_inverse=True)
                kept = np.array([size - dropped(ratio, int(size)) for size in sizes])[places]
                passed = gains.add(labels, kept, counts)
                # Back in the original order, so that ties break as they do while ranking.
                survivors = np.where(columns < kept[:, None], ranked, self._labels.shape[1])
                survivors = np.minimum(np.sort(survivors, axis=1), self._labels.shape[1] - 1)
                yield from self._walk(below_here, place + 1, survivors, kept, passed, layers)

    def _metrics(self, gains: _Gains) -> Dict[str, float]:
        positives, blank = self._positives, self._sizes - self._counts
        answered = np.maximum(positives, 1)
        gains = self._with_blanks(gains) if blank.any() else gains
        best = np.cumsum(1 / np.log2(np.arange(2, 12)))[np.minimum(answered, 10) - 1]
        values = {"map": gains.precisions / answered, "mrr": np.where(gains.first > 0, 1 / np.maximum(gains.first, 1), 0.0),
                  "p@1": (gains.first == 1).astype(float), "ndcg@10": gains.dcg / best}
        return {name: float(values[name].mean()) for name in METRICS}

    def _with_blanks(self, gains: _Gains) -> _Gains:
        """Blank candidates stand last, in their original order; a correct one among them counts at its rank."""
        columns = np.arange(self._labels.shape[1])
        inside = (columns >= self._counts[:, None]) & (columns < self._sizes[:, None])
        labels = np.take_along_axis(self._labels, self._order, axis=1) * inside
        return gains.add(labels, self._counts, self._sizes, self._positives - labels.sum(axis=1))


class _Gains:
    """What the ranks that are settled so far add to each metric, one entry a question."""

    def __init__(self, precisions: np.ndarray, dcg: np.ndarray, first: np.ndarray) -> None:
        self.precisions, self.dcg = precisions, dcg
        self.first = first  # rank of the best correct candidate, from 1; 0: none yet

    @classmethod
    def zero(cls, questions: int) -> _Gains:
        return cls(np.zeros(questions), np.zeros(questions), np.zeros(questions, dtype=int))

    def add(self, labels: np.ndarray, start: np.ndarray, end: np.ndarray, above: Optional[np.ndarray] = None) -> _Gains:
        """Settle the ranks from ``start`` up to, not including, ``end``, both counted from 0.

        ``labels`` are in rank order from 0; ``above`` counts the correct candidates that rank higher than ``labels`` shows.
        """
        columns = np.arange(labels.shape[1])
        settled = labels * ((columns >= start[:, None]) & (columns < end[:, None]))
        found = np.cumsum(labels, axis=1) + (0 if above is None else above[:, None])
        precisions = (settled * found / (columns + 1)).sum(axis=1)
        dcg = (settled[:, :10] / np.log2(columns[:10] + 2)).sum(axis=1)
        any_here = settled.any(axis=1)
        first = np.where(any_here, settled.argmax(axis=1) + 1, self.first)
        # Exits settle from the last rank up, so what comes later ranks higher; blank candidates alone come after.
        first = first if above is None else np.where(self.first > 0, self.first, first)
        return _Gains(self.precisions + precisions, self.dcg + dcg, first)


def pareto_front(configurations: Sequence[Configuration], metric: str = "map") -> List[Configuration]:
    """Configurations that no other one beats: none costs no more and is better, or costs less and is as good.

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
    for found in sorted(configurations, key=lambda found: (found.cost, -found.metrics[metric], found.paper_cost, found.ratios)):
        if not front or found.metrics[metric] > front[-1].metrics[metric]:
            front.append(found)
    return front


def pick(configurations: Sequence[Configuration], metric: str = "map", max_cost: Optional[float] = None,
         least: Optional[float] = None) -> Configuration:
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
        raise OptionError("--max-cost and --min-map", "both" if least is not None else "neither", "one of the two")
    front = pareto_front(configurations, metric)
    if max_cost is not None:
        fits = [found for found in front if found.cost <= max_cost]
        if not fits:
            raise OptionError("--max-cost", max_cost, f"at least {front[0].cost:.4f}, the cheapest configuration's")
        return fits[-1]
    fits = [found for found in front if found.metrics[metric] >= least]  # type: ignore[operator]
    if not fits:
        raise OptionError(f"--min-{metric}", least, f"at most {front[-1].metrics[metric]:.4f}, the best configuration's")
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
    return {**{f"exit_{layer}": ratio for layer, ratio in zip(exits[:-1], found.ratios)}, "cost": found.cost,
            "paper_cost": found.paper_cost, **found.metrics}
