"""Evaluates configurations of drop ratios from the scores of all candidates at all exits.

The configurations form a tree with one level for each exit. A walk of the tree sorts the candidates
once for each path to an exit. Candidates that an exit drops have their final ranks, as the ranks
above belong to the survivors. So each exit adds its part of each metric when the walk passes it.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.errors import DataError, shorten
from wqa.evaluation import METRICS, by_document_id
from wqa.evaluation.rankers import cost_before_stages, rank_questions
from wqa.inference.dropping import drop_ratios, dropped, relative_cost
from wqa.inference.ranking import Ranking
from wqa.tuning.configurations import Configuration


def score_questions(
    ranker: Any, questions: Sequence[Question], progress: bool = False
) -> ScoredQuestions:
    """Score every candidate at every exit.

    Parameters
    ----------
    ranker : Ranker
        A ranker with exits, which drops nothing afterwards.
    questions : sequence of Question
        Labelled questions, all of which count. Candidates with equal scores are ordered as
        `wqa.evaluation.evaluate_ranker` orders them.
    progress : bool
        Show a bar on standard error while scoring.

    Returns
    -------
    ScoredQuestions
        The scores, from which configurations are evaluated.

    Raises
    ------
    DataError
        If there is no question, or a candidate has no label.
    """
    questions = by_document_id(questions)
    ranker.set_drops()
    rankings = rank_questions(ranker, questions, "scoring", progress)
    capabilities = ranker.capabilities
    return ScoredQuestions(
        rankings,
        questions,
        capabilities.exits,
        capabilities.num_layers,
        capabilities.stage_layers,
        cost_before_stages(rankings, capabilities)["cost"],
    )


class ScoredQuestions:
    """Questions with the scores of every candidate at every exit.

    Parameters
    ----------
    rankings : sequence of Ranking
        Rankings of a cascade that drops nothing.
    questions : sequence of Question
        Labelled questions, all of which count.
    exits : sequence of int
        rho(1), ..., rho(N), the layers of the exits.
    num_layers : int
        Layers of the full encoder.
    stage_layers : sequence of float, optional
        Number of layers that each stage runs, by default those between the exits.
    cost_before : float
        Cost of what runs before the first stage, over that of the full encoder.

    Raises
    ------
    DataError
        If there is no question, or a candidate with text has no label, or no score at an exit.
    """

    def __init__(
        self,
        rankings: Sequence[Ranking],
        questions: Sequence[Question],
        exits: Sequence[int],
        num_layers: int,
        stage_layers: Sequence[float] = (),
        cost_before: float = 0.0,
    ) -> None:
        if not questions:
            raise DataError("questions", "no question is left", "at least one")
        self.exits = tuple(exits)
        self.num_layers = num_layers
        self._cost_before = cost_before
        self._depths = np.diff([0, *self.exits])  # layers from the exit before to each exit
        if stage_layers:
            self._depths = np.array(stage_layers)
        self._sizes = np.array([len(question.candidates) for question in questions])
        count = len(questions)
        width = int(self._sizes.max())
        self._scores = np.full((len(self.exits), count, width), -np.inf)
        self._labels = np.zeros((count, width), dtype=np.int8)
        #: Candidates of every question that are scored: all but the blank ones.
        self._counts = np.zeros(count, dtype=int)
        for row, (ranking, question) in enumerate(zip(rankings, questions)):
            self._fill(row, ranking, question)
        self._positives = self._labels.sum(axis=1).astype(int)
        # Candidates in their original order, blank ones and the padding of shorter questions last.
        self._order = np.argsort(np.isneginf(self._scores[0]), axis=1, kind="stable")

    def _fill(self, row: int, ranking: Ranking, question: Question) -> None:
        if None in question.labels:
            raise DataError(
                f"question {shorten(question.id)}",
                "a candidate has no label",
                "a label, 0 or 1, on each",
            )
        if np.isnan(ranking.exit_scores[:, ~ranking.blank]).any():
            raise DataError(
                f"question {shorten(question.id)}",
                "a candidate has no score at an exit",
                "rankings that drop nothing",
            )
        count = len(question.candidates)
        self._scores[:, row, :count] = np.nan_to_num(ranking.exit_scores, nan=-np.inf)
        self._labels[row, :count] = question.labels
        self._counts[row] = np.count_nonzero(~ranking.blank)

    def evaluate(self, configurations: Sequence[Sequence[float]]) -> List[Configuration]:
        """Evaluate configurations of drop ratios.

        Parameters
        ----------
        configurations : sequence of sequence of float
            Ratios of a configuration: N - 1, or N, of which the last has no effect.

        Returns
        -------
        list of Configuration
            Cost and metrics of each configuration, in order.
        """
        checked = [tuple(drop_ratios(ratios, len(self.exits))) for ratios in configurations]
        full = self.num_layers * self._counts.sum()
        nothing = _Gains.zero(len(self._counts))
        start = _Node(0, self._order, self._counts, nothing, 0.0)
        evaluated: Dict[Tuple[float, ...], Configuration] = {}
        for ratios, gains, layers in self._walk(sorted(set(checked)), start):
            cost = float(layers / full) if full else 0.0
            cost += self._cost_before
            paper_cost = relative_cost(
                self.exits, ratios, self.num_layers, stage_layers=self._depths.tolist()
            )
            metrics = self._metrics(gains)
            evaluated[ratios] = Configuration(ratios, cost, paper_cost, metrics)
        return [evaluated[ratios] for ratios in checked]

    def _walk(
        self, configurations: List[Tuple[float, ...]], node: _Node
    ) -> Iterator[Tuple[Tuple[float, ...], _Gains, float]]:
        """Evaluate configurations that are equal up to an exit.

        They are sorted, so that those with the same ratio at the exit are neighbours.
        """
        layers = node.layers + float(self._depths[node.exit] * node.counts.sum())
        ranked, labels = self._ranked(node)
        by_ratio = itertools.groupby(configurations, key=operator.itemgetter(node.exit))
        for ratio, group in by_ratio:
            members = list(group)
            if node.exit == len(self.exits) - 1:
                nothing = np.zeros_like(node.counts)
                gains = node.gains.add(labels, nothing, node.counts)
                yield members[0], gains, layers
            else:
                kept = _kept(ratio, node.counts)
                gains = node.gains.add(labels, kept, node.counts)
                survivors = self._survivors(ranked, kept)
                following = _Node(node.exit + 1, survivors, kept, gains, layers)
                yield from self._walk(members, following)

    def _ranked(self, node: _Node) -> Tuple[np.ndarray, np.ndarray]:
        """Candidates that reach an exit, best first, and their labels; (Q, width) each."""
        width = max(int(node.counts.max(initial=0)), 1)
        alive = node.alive[:, :width]
        inside = np.arange(width) < node.counts[:, None]
        scores = np.take_along_axis(self._scores[node.exit], alive, axis=1)
        scores = np.where(inside, scores, -np.inf)
        best_first = np.argsort(-scores, axis=1, kind="stable")
        ranked = np.take_along_axis(alive, best_first, axis=1)
        labels = np.take_along_axis(self._labels, ranked, axis=1)
        return ranked, labels * inside

    def _survivors(self, ranked: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Kept candidates of each question in the original order, by which ties break."""
        width = self._labels.shape[1]
        inside = np.arange(ranked.shape[1]) < kept[:, None]
        survivors = np.sort(np.where(inside, ranked, width), axis=1)
        return np.minimum(survivors, width - 1)

    def _metrics(self, gains: _Gains) -> Dict[str, float]:
        if (self._sizes > self._counts).any():
            gains = self._with_blanks(gains)
        answered = np.maximum(self._positives, 1)
        first = np.maximum(gains.first, 1)
        ideal = np.cumsum(1 / np.log2(np.arange(2, 12)))
        best = ideal[np.minimum(answered, 10) - 1]
        values = {
            "map": gains.precisions / answered,
            "mrr": np.where(gains.first > 0, 1 / first, 0.0),
            "p@1": (gains.first == 1).astype(float),
            "ndcg@10": gains.dcg / best,
        }
        return {name: float(values[name].mean()) for name in METRICS}

    def _with_blanks(self, gains: _Gains) -> _Gains:
        """Add blank candidates, which come last in their original order."""
        columns = np.arange(self._labels.shape[1])
        inside = _between(columns, self._counts, self._sizes)
        labels = np.take_along_axis(self._labels, self._order, axis=1) * inside
        above = self._positives - labels.sum(axis=1)
        return gains.add(labels, self._counts, self._sizes, above)


def _between(columns: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """(Q, width) mask of the columns from ``start`` to ``end`` (excluded) of each question."""
    return (columns >= start[:, None]) & (columns < end[:, None])


def _kept(ratio: float, counts: np.ndarray) -> np.ndarray:
    """Number of candidates of each question that an exit keeps."""
    sizes, indices = np.unique(counts, return_inverse=True)
    kept = [size - dropped(ratio, int(size)) for size in sizes]
    return np.array(kept)[indices]


class _Node(NamedTuple):
    """Questions as they arrive at an exit of some configurations."""

    exit: int  # index of the exit
    alive: np.ndarray  # (Q, width) candidate indices; remaining candidates come first
    counts: np.ndarray  # (Q,) number of remaining candidates
    gains: _Gains
    layers: float  # layers x candidates that ran below the exit before this one


class _Gains(NamedTuple):
    """Parts of the metrics of each question, from the ranks that are final so far."""

    precisions: np.ndarray  # (Q,) sum of the precisions at correct candidates
    dcg: np.ndarray  # (Q,) discounted cumulative gain of the first ten ranks
    first: np.ndarray  # (Q,) rank of the best correct candidate, from 1; 0: none yet

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
        """Add the ranks from ``start`` to ``end`` (excluded), counted from 0.

        ``labels`` are in rank order; ``above`` is the number of correct candidates that are not in
        ``labels`` and rank higher.
        """
        columns = np.arange(labels.shape[1])
        settled = labels * _between(columns, start, end)
        correct = np.cumsum(labels, axis=1)
        if above is not None:
            correct = correct + above[:, None]
        precisions = (settled * correct / (columns + 1)).sum(axis=1)
        discounts = np.log2(columns[:10] + 2)
        dcg = (settled[:, :10] / discounts).sum(axis=1)
        best = settled.argmax(axis=1) + 1
        first = np.where(settled.any(axis=1), best, self.first)
        if above is not None:
            # A later exit adds higher ranks. Blank candidates rank below all others.
            first = np.where(self.first > 0, self.first, first)
        return _Gains(self.precisions + precisions, self.dcg + dcg, first)
