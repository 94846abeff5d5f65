"""What configurations of drop ratios would give, from the scores of every candidate at every exit.

The configurations are walked as a tree, an exit a level, so that the questions are sorted once for
each way to arrive at an exit. What an exit drops has its final ranks at once, as the ranks above it
belong to the survivors; so each exit adds its share of every metric when it is passed, and a leaf
only adds its own.
"""

from __future__ import annotations

import itertools
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.errors import DataError, shorten
from wqa.inference.cost import relative_cost
from wqa.inference.ranker import Ranking
from wqa.inference.tuning import METRICS, Configuration
from wqa.models.cascade import drop_ratios, dropped


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

    def __init__(
        self,
        rankings: Sequence[Ranking],
        questions: Sequence[Question],
        exits: Sequence[int],
        num_layers: int,
    ) -> None:
        if not questions:
            raise DataError("--data", "no question is left", "at least one", "check --filter")
        self.exits, self.num_layers = tuple(exits), num_layers
        width = max(len(question.candidates) for question in questions)
        shape = (len(questions), width)
        self._scores = np.full((len(self.exits), *shape), -np.inf)
        self._labels = np.zeros(shape, dtype=np.int8)
        self._counts = np.zeros(
            len(questions), dtype=int
        )  # candidates that are scored, blank ones left out
        self._sizes = np.array([len(question.candidates) for question in questions])
        for row, (ranking, question) in enumerate(zip(rankings, questions)):
            if None in question.labels:
                raise DataError(
                    f"question {shorten(question.id)}",
                    "a candidate has no label",
                    "a label, 0 or 1, on each",
                )
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
        for ratios, gains, layers in self._walk(
            sorted(set(checked)), 0, self._order, self._counts, nothing, 0.0
        ):
            found[ratios] = Configuration(
                ratios,
                float(layers / full) if full else 0.0,
                relative_cost(self.exits, ratios, self.num_layers),
                self._metrics(gains),
            )
        return [found[ratios] for ratios in checked]

    def _walk(
        self,
        configurations: List[Tuple[float, ...]],
        place: int,
        alive: np.ndarray,
        counts: np.ndarray,
        gains: _Gains,
        layers: float,
    ) -> Iterator[Tuple[Tuple[float, ...], _Gains, float]]:
        """Go through an exit; ``alive`` holds candidates by index, those that are left in the first
        ``counts`` columns."""
        width = max(int(counts.max(initial=0)), 1)
        last = place == len(self.exits) - 1
        layers += float(
            (self.exits[place] - (self.exits[place - 1] if place else 0)) * counts.sum()
        )
        columns, alive = np.arange(width), alive[:, :width]
        scores = np.where(
            columns < counts[:, None],
            np.take_along_axis(self._scores[place], alive, axis=1),
            -np.inf,
        )
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
        values = {
            "map": gains.precisions / answered,
            "mrr": np.where(gains.first > 0, 1 / np.maximum(gains.first, 1), 0.0),
            "p@1": (gains.first == 1).astype(float),
            "ndcg@10": gains.dcg / best,
        }
        return {name: float(values[name].mean()) for name in METRICS}

    def _with_blanks(self, gains: _Gains) -> _Gains:
        """Blank candidates stand last, in their original order; a correct one among them counts at
        its rank."""
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

    def add(
        self,
        labels: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
        above: Optional[np.ndarray] = None,
    ) -> _Gains:
        """Settle the ranks from ``start`` up to, not including, ``end``, both counted from 0.

        ``labels`` are in rank order from 0; ``above`` counts the correct candidates that rank
        higher than ``labels`` shows.
        """
        columns = np.arange(labels.shape[1])
        settled = labels * ((columns >= start[:, None]) & (columns < end[:, None]))
        found = np.cumsum(labels, axis=1) + (0 if above is None else above[:, None])
        precisions = (settled * found / (columns + 1)).sum(axis=1)
        dcg = (settled[:, :10] / np.log2(columns[:10] + 2)).sum(axis=1)
        any_here = settled.any(axis=1)
        first = np.where(any_here, settled.argmax(axis=1) + 1, self.first)
        # Exits settle from the last rank up, so what comes later ranks higher; blank candidates
        # alone come after.
        first = first if above is None else np.where(self.first > 0, self.first, first)
        return _Gains(self.precisions + precisions, self.dcg + dcg, first)
