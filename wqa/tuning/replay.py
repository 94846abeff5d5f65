"""Stored scores of questions, replayed at any drops.

All candidates are scored at all exits of a cascade, or by all rankers of a sequence, once. What a
configuration drops is evaluated from these scores.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.errors import DataError, shorten
from wqa.evaluation import METRICS, by_document_id
from wqa.evaluation.rankers import cost_before_stages, rank_questions
from wqa.inference.dropping import Cost, drop_ratios, dropped, relative_cost
from wqa.inference.ranker import Capabilities, Ranker
from wqa.inference.ranking import Ranking
from wqa.tuning.configurations import Configuration

#: Configurations with the order of the candidates of each question, and the layers that run.
_Evaluated = Iterator[Tuple[Tuple[float, ...], np.ndarray, float]]


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
        self.exits, self.num_layers = tuple(exits), num_layers
        self._cost_before = cost_before
        # Layers from the exit before to each exit.
        self._depths = np.array(stage_layers or np.diff([0, *self.exits]))
        shape = len(questions), max(len(question.candidates) for question in questions)
        self._scores = np.full((len(self.exits), *shape), -np.inf)
        self._labels = np.zeros(shape, dtype=np.int8)
        #: Candidates of every question that are scored: all but the blank ones.
        self._counts = np.array([np.count_nonzero(~ranking.blank) for ranking in rankings])
        for row, (ranking, question) in enumerate(zip(rankings, questions)):
            where, count = f"question {shorten(question.id)}", len(question.candidates)
            if None in question.labels:
                raise DataError(where, "a candidate has no label", "a label, 0 or 1, on each")
            if np.isnan(ranking.exit_scores[:, ~ranking.blank]).any():
                problem = "a candidate has no score at an exit"
                raise DataError(where, problem, "rankings that drop nothing")
            self._scores[:, row, :count] = np.nan_to_num(ranking.exit_scores, nan=-np.inf)
            self._labels[row, :count] = question.labels

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
        # Candidates in their original order, blank ones and the padding of shorter questions last.
        order = np.argsort(np.isneginf(self._scores[0]), axis=1, kind="stable")
        evaluated = {}
        for ratios, ranked, layers in self._walk(sorted(set(checked)), 0, order, self._counts, 0.0):
            cost = self._cost_before + (float(layers / full) if full else 0.0)
            depths = self._depths.tolist()
            paper = relative_cost(self.exits, ratios, self.num_layers, stage_layers=depths)
            metrics = rank_metrics(np.take_along_axis(self._labels, ranked, axis=1))
            evaluated[ratios] = Configuration(ratios, cost, paper, metrics)
        return [evaluated[ratios] for ratios in checked]

    def _walk(
        self,
        configurations: List[Tuple[float, ...]],
        exit: int,
        order: np.ndarray,
        counts: np.ndarray,
        layers: float,
    ) -> _Evaluated:
        """Evaluate configurations that are equal up to an exit, so that it sorts once for all.

        They are sorted, so that those with the same ratio at the exit are neighbours. The first
        ``counts`` of the (Q, W) ``order`` reach the exit; the ranks of the others are final.
        """
        layers += float(self._depths[exit] * counts.sum())
        order = self._ranked(exit, order, counts)
        if exit == len(self.exits) - 1:
            yield configurations[0], order, layers
            return
        for ratio, group in itertools.groupby(configurations, key=operator.itemgetter(exit)):
            sizes, indices = np.unique(counts, return_inverse=True)
            kept = np.array([size - dropped(ratio, int(size)) for size in sizes])[indices]
            yield from self._walk(list(group), exit + 1, order, kept, layers)

    def _ranked(self, exit: int, order: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """The order with those that reach an exit best first; ties break by the original order."""
        width = int(counts.max(initial=0))
        columns, first = np.arange(width), order[:, :width]
        inside = columns < counts[:, None]
        scores = np.take_along_axis(self._scores[exit], first, axis=1)
        keys = np.where(inside, first, order.shape[1] + columns)
        best_first = np.lexsort((keys, np.where(inside, -scores, np.inf)), axis=1)
        ranked = np.take_along_axis(first, best_first, axis=1)
        return np.concatenate([ranked, order[:, width:]], axis=1)


def rank_metrics(labels: np.ndarray) -> Dict[str, float]:
    """Means of the metrics over the questions, from the (Q, W) labels in rank order."""
    ranks = np.arange(1, labels.shape[1] + 1)
    positives = labels.sum(axis=1, dtype=int)
    answered = np.maximum(positives, 1)
    precisions = (labels * np.cumsum(labels, axis=1) / ranks).sum(axis=1)
    first = labels.argmax(axis=1) + 1
    discounts = 1 / np.log2(np.arange(2, 12))
    gains = (labels[:, :10] * discounts[: labels.shape[1]]).sum(axis=1)
    values = {
        "map": precisions / answered,
        "mrr": np.where(positives > 0, 1 / first, 0.0),
        "p@1": labels[:, 0],
        "ndcg@10": gains / np.cumsum(discounts)[np.minimum(answered, 10) - 1],
    }
    return {name: float(values[name].mean()) for name in METRICS}


#: A question and the document ids of its candidates.
_Key = Tuple[str, Tuple[str, ...]]


class ReplayedRanker(Ranker):
    """A ranker that scores questions once, and replays the scores for some of their candidates.

    Where the score of a candidate depends on the others, as in a ranker that reads them together or
    drops some of them, parts are ranked anew, each part once.
    """

    def __init__(self, ranker: Ranker, questions: Sequence[Question]) -> None:
        self._ranker = ranker
        self._replays = not depends_on_others(ranker)
        self._questions = {question.id: question for question in questions}
        self._rankings: Dict[_Key, Ranking] = {}

    @property
    def capabilities(self) -> Capabilities:
        """Those of the ranker."""
        return self._ranker.capabilities

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        group = list(questions)
        whole = [self._questions[question.id] if self._replays else question for question in group]
        missing = [question for question in whole if _key_of(question) not in self._rankings]
        for question, ranking in zip(missing, self._ranker.rank_all(missing)):
            self._rankings[_key_of(question)] = ranking
        for question in group:
            key = _key_of(question)
            if key not in self._rankings:
                self._rankings[key] = self._part(question)
            yield self._rankings[key]

    def _part(self, question: Question) -> Ranking:
        """Ranking of some candidates of a question whose ranking is known."""
        whole = self._questions[question.id]
        index = {key: number for number, key in enumerate(whole.document_ids)}
        part = np.array([index[key] for key in question.document_ids], dtype=int)
        ranking = self._rankings[_key_of(whole)]
        scored = np.count_nonzero(~ranking.blank)
        blank = ranking.blank[part]
        share = np.count_nonzero(~blank) / scored if scored else 0.0
        scores = ranking.scores[part]
        return Ranking(
            order=np.argsort(-scores, kind="stable"),
            scores=scores,
            exits=ranking.exits[part],
            truncated=ranking.truncated[part],
            blank=blank,
            # Each candidate counts alike.
            cost=Cost(ranking.cost.paper, *(share * part for part in ranking.cost[1:])),
            exit_scores=ranking.exit_scores[:, part],
            probabilities=ranking.probabilities[part],
            threshold=ranking.threshold,
        )


def depends_on_others(ranker: Ranker) -> bool:
    """Whether a ranker's score of a candidate depends on the others of its question."""
    capabilities = ranker.capabilities
    own = capabilities.joint or any(drop.discards for drop in ranker.drops)
    return own or any(map(depends_on_others, capabilities.rankers))


def _key_of(question: Question) -> _Key:
    return question.id, question.document_ids
