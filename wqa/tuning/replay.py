"""Stored scores of questions, replayed at any drops.

All candidates are scored once, at all exits of a cascade or by all rankers of a sequence. What a
configuration of drops ranks and costs follows from these scores, for all questions at a time.
Shapes: Q questions of up to W candidates.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.data.formats import data_digest
from wqa.evaluation import METRICS, by_document_id
from wqa.evaluation.rankers import cost_before_stages, rank_questions
from wqa.inference.dropping import Drop, relative_cost
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking
from wqa.io.files import PathLike
from wqa.text import PreparedQuestions

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

    def row(self, columns: Sequence[str]) -> Dict[str, Any]:
        """The configuration as one flat row, its drops under the names of columns."""
        row: Dict[str, Any] = {}
        for column, drop in zip(columns, self.drops):
            row[column] = drop.ratio
            if column.startswith("keep"):
                row[column] = drop.keep or "all"
        return {**row, "cost": self.cost, "paper_cost": self.paper_cost, **self.metrics}


class _Stage(NamedTuple):
    """What an exit or a ranker computes. Costs are multiply-adds a candidate."""

    ranks: np.ndarray  # (Q, W) by candidate, from 0; W and more for a blank one
    work: np.ndarray  # (Q,)
    full_work: np.ndarray  # (Q,), that of the full network
    paper_work: np.ndarray  # (Q,), as the drop ratios let it expect


class _State(NamedTuple):
    """Rankings between two stages."""

    order: np.ndarray  # (Q, W) candidate indices; those behind `counts` have their final rank
    counts: np.ndarray  # (Q,) candidates that are left
    blank: np.ndarray  # (Q, W) by candidate, whether a stage found it blank; and padding
    candidates: np.ndarray  # (Q,) candidates that are not blank to the first stage
    full_work: np.ndarray  # (Q,), of the last stage that read a candidate
    work: float = 0.0
    paper_work: float = 0.0


class ScoredQuestions:
    """Questions with the scores of every candidate at every stage of a ranker.

    Parameters
    ----------
    ranker : Ranker
        A ranker with exits, or a sequence of rankers. It drops nothing afterwards.
    questions : sequence of Question
        Labelled questions, all of which count. Candidates with equal scores are ordered as
        `wqa.evaluation.evaluate_ranker` orders them.
    progress : bool
        Show bars on standard error while scoring.
    """

    def __init__(
        self, ranker: Ranker, questions: Sequence[Question], progress: bool = False
    ) -> None:
        self._questions = by_document_id(questions)
        self._counts = np.array([len(question.candidates) for question in questions])
        self._labels = padded([question.labels for question in self._questions], 0)
        self._capabilities = ranker.capabilities
        ranker.set_drops()
        #: Makes each stage, from the order and the number of the candidates that reach it.
        self._stages: List[Callable[[np.ndarray, np.ndarray], _Stage]] = []
        if not self._capabilities.rankers:
            rankings = rank_questions(ranker, self._questions, "scoring", progress)
            self._stages = list(map(_always, self._exits(rankings)))
        for inner in self._capabilities.rankers:
            if depends_on_others(inner):
                self._stages.append(_Anew(inner, self._questions))
            else:
                rankings = rank_questions(inner, self._questions, "scoring", progress)
                self._stages.append(_always(_stage_of(rankings, self._labels.shape[1])))

    def _exits(self, rankings: Sequence[Ranking]) -> Iterator[_Stage]:
        """The exits of a cascade as stages."""
        capabilities, ones = self._capabilities, np.ones(len(rankings))
        full = capabilities.num_layers
        # Texts that are encoded by themselves come before the first stage.
        before = cost_before_stages(rankings, capabilities)["cost"] * full
        for index, layers in enumerate(capabilities.stage_layers):
            orders = [ranking.order_at(index) for ranking in rankings]
            ranks = _ranks_of(orders, rankings, self._labels.shape[1])
            yield _Stage(ranks, (layers + before) * ones, full * ones, 0 * ones)
            before = 0.0

    def evaluate(self, configurations: Sequence[Drops]) -> List[Configuration]:
        """Evaluate configurations.

        Parameters
        ----------
        configurations : sequence of tuple of Drop
            What each stage but the last drops.

        Returns
        -------
        list of Configuration
            Cost and metrics of each configuration, in order.
        """
        shape, none = self._labels.shape, np.zeros(len(self._questions), dtype=int)
        order = np.broadcast_to(np.arange(shape[1]), shape)
        is_padding = order >= self._counts[:, None]
        state = _State(order, self._counts, is_padding, none, none)
        evaluated = dict(self._walk(sorted(set(configurations)), 0, state))
        return [evaluated[drops] for drops in configurations]

    def _walk(
        self, configurations: List[Drops], index: int, state: _State
    ) -> Iterator[Tuple[Drops, Configuration]]:
        """Evaluate configurations that are equal up to a stage, so that it sorts once for all.

        They are sorted, so that those with the same drop at the stage are neighbours.
        """
        state, scored = _ranked(self._stages[index](state.order, state.counts), state)
        if index == 0:
            state = state._replace(candidates=scored)
        if index == len(self._stages) - 1:
            yield configurations[0], self._configuration(configurations[0], state)
            return
        for drop, group in itertools.groupby(configurations, key=operator.itemgetter(index)):
            sizes, inverse = np.unique(scored, return_inverse=True)
            kept = np.array([drop.kept(int(size)) for size in sizes])[inverse]
            yield from self._walk(list(group), index + 1, state._replace(counts=kept))

    def _configuration(self, drops: Drops, state: _State) -> Configuration:
        # What only a later ranker finds blank is behind that ranker's drops until here.
        is_blank = np.take_along_axis(state.blank, state.order, axis=1)
        last = np.argsort(is_blank, axis=1, kind="stable")
        order = np.take_along_axis(state.order, last, axis=1)
        full = float((state.full_work * state.candidates).sum())
        cost = state.work / full if full else 0.0
        paper = state.paper_work / full if full else 0.0
        if self._capabilities.exits:
            ratios = [drop.ratio for drop in drops] + [0.0]
            exits, layers = self._capabilities.exits, self._capabilities.num_layers
            depths = self._capabilities.stage_layers
            paper = relative_cost(exits, ratios, layers, stage_layers=depths)
        metrics = mean_metrics(np.take_along_axis(self._labels, order, axis=1))
        return Configuration(drops, cost, paper, metrics)


def _ranked(stage: _Stage, state: _State) -> Tuple[_State, np.ndarray]:
    """Rank the candidates that are left; also (Q,) how many of them are not blank."""
    width, most = int(state.counts.max(initial=0)), state.order.shape[1]
    left, columns = state.order[:, :width], np.arange(width)
    is_left = columns < state.counts[:, None]
    ranks = np.take_along_axis(stage.ranks, left, axis=1)
    best_first = np.argsort(np.where(is_left, ranks, 2 * most + columns), axis=1)
    order = np.concatenate(
        [np.take_along_axis(left, best_first, axis=1), state.order[:, width:]], axis=1
    )
    is_blank = is_left & (ranks >= most) | np.take_along_axis(state.blank, left, axis=1)
    blank = state.blank.copy()
    np.put_along_axis(blank, left, is_blank, axis=1)
    scored = np.count_nonzero(is_left & (ranks < most), axis=1)
    state = state._replace(
        order=order,
        blank=blank,
        full_work=np.where(scored, stage.full_work, state.full_work),
        work=state.work + float((scored * stage.work).sum()),
        paper_work=state.paper_work + float((scored * stage.paper_work).sum()),
    )
    return state, scored


def padded(rows: Sequence[Any], fill: float) -> np.ndarray:
    """Rows of several lengths as one array."""
    array = np.full((len(rows), max(map(len, rows))), fill)
    for number, row in enumerate(rows):
        array[number, : len(row)] = row
    return array


def _ranks_of(orders: Sequence[np.ndarray], rankings: Sequence[Ranking], width: int) -> np.ndarray:
    """The rank of each candidate, (Q, W)."""
    ranks = np.zeros((len(orders), width), dtype=int)
    for number, (order, ranking) in enumerate(zip(orders, rankings)):
        ranks[number, order] = np.arange(len(order)) + width * ranking.blank[order]
    return ranks


def _stage_of(rankings: Sequence[Ranking], width: int) -> _Stage:
    """A ranker as a stage."""
    works = []
    for ranking in rankings:
        cost, scored = ranking.cost, np.count_nonzero(~ranking.blank)
        paper = cost.paper * cost.full_candidate_work
        work = np.array([cost.candidate_work, cost.full_candidate_work, paper])
        works.append(work / max(scored, 1))  # each candidate counts alike
    orders = [ranking.order for ranking in rankings]
    return _Stage(_ranks_of(orders, rankings, width), *np.array(works).T)


def _always(stage: _Stage) -> Callable[[np.ndarray, np.ndarray], _Stage]:
    return lambda order, counts: stage


class _Anew:
    """A ranker whose scores depend on the other candidates, and which ranks each part of them."""

    def __init__(self, ranker: Ranker, questions: Sequence[Question]) -> None:
        self._ranker, self._questions = ranker, questions
        self._rankings: Dict[Tuple[int, Tuple[int, ...]], Ranking] = {}

    def __call__(self, order: np.ndarray, counts: np.ndarray) -> _Stage:
        parts = {}
        for number in np.flatnonzero(counts).tolist():
            left = tuple(sorted(order[number, : counts[number]].tolist()))
            question = self._questions[number]
            candidates = tuple(question.candidates[index] for index in left)
            parts[number, left] = question._replace(candidates=candidates)
        missing = [key for key in parts if key not in self._rankings]
        rankings = self._ranker.rank_all([parts[key] for key in missing])
        self._rankings.update(zip(missing, rankings))
        width = order.shape[1]
        ranks = np.zeros(order.shape, dtype=int)
        works = np.zeros((3, len(counts)))
        for number, left in parts:
            stage = _stage_of([self._rankings[number, left]], width)
            ranks[number, left] = stage.ranks[0, : len(left)]
            works[:, number] = np.concatenate(stage[1:])
        return _Stage(ranks, *works)


def depends_on_others(ranker: Ranker) -> bool:
    """Whether a ranker's score of a candidate depends on the others of its question."""
    return any(
        inner.capabilities.joint or any(drop.discards for drop in inner.drops)
        for inner in ranker.with_inner()
    )


def mean_metrics(labels: np.ndarray) -> Dict[str, float]:
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
