"""Sequential reranking (Soldaini and Moschitti 2020, sections 3.2 and 4.2).

SR_N = R_N o ... o R_1: each ranker scores the candidates that the one before it let through, and
nothing of its computation is shared. The paper's SR is made of independently trained monolithic
rankers of 4, 6, 8, 10 and 12 layers; any rankers do, a cascade and what comes after it as well.
"""

from __future__ import annotations

from typing import Iterable, Iterator, List, NamedTuple, Sequence, Union

import numpy as np

from wqa.data import Question
from wqa.errors import OptionError, shorten
from wqa.inference.cost import Cost
from wqa.inference.ranker import Ranker, Ranking
from wqa.models.cascade import dropped

#: What a ranker drops: a share alpha of its candidates (a float in [0, 1)), or all but its best k
#: (an int from 1).
Drop = Union[int, float]


def check_drops(drop_ratio: Union[Drop, Sequence[Drop]], rankers: int) -> List[Drop]:
    """What each ranker but the last drops.

    Parameters
    ----------
    drop_ratio : float, int, or sequence of them
        Drop ratios, in [0, 1), or numbers k of candidates that go on, whole and from 1; one for
        all, or one a ranker (that of the last may be left out; it has no effect).
    rankers : int
        N.

    Returns
    -------
    list
        N - 1 of them.

    Raises
    ------
    OptionError
        If one is neither, or there are too many or too few.
    """
    drops: List[Drop] = (
        [drop_ratio] * (rankers - 1) if isinstance(drop_ratio, (int, float)) else list(drop_ratio)
    )
    if len(drops) not in (rankers - 1, rankers):
        raise OptionError(
            "drop_ratio", f"{len(drops)} of them", f"one, or one for each of the {rankers} rankers"
        )
    for drop in drops:
        whole = (
            isinstance(drop, int) and not isinstance(drop, bool) and drop >= 0
        )  # the number 0 is a drop ratio too
        if not whole and not (isinstance(drop, float) and 0 <= drop < 1):
            raise OptionError(
                "drop_ratio",
                shorten(drop),
                "a drop ratio from 0 up to, not including, 1, or how many go on",
            )
    return drops[: rankers - 1]


class SequentialRanker(Ranker):
    """Rankers one after another, each on what the one before it let through.

    The ranking puts the last ranker's candidates first, by its order, then those that the one
    before it dropped, by that one's order, and so on back. ``scores`` and ``exits`` are those of
    the last ranker that scored a candidate; ``exit_scores`` has a row a ranker.

    Parameters
    ----------
    rankers : sequence of Ranker
        R_1, ..., R_N, in the order in which they run.
    drop_ratio : float, int, or sequence of them
        Drop ratios, or numbers k of candidates that go on, as `check_drops` takes them.
    flight_candidates : int
        Candidates of the questions that are ranked together; a question is never divided.
    """

    def __init__(
        self,
        rankers: Sequence[Ranker],
        drop_ratio: Union[Drop, Sequence[Drop]] = 0.0,
        flight_candidates: int = 4096,
    ) -> None:
        if not rankers:
            raise OptionError("rankers", "none", "at least one")
        self.rankers = list(rankers)
        self.drop_ratio = drop_ratio
        self._flight_candidates = flight_candidates

    @property
    def layer_work(self) -> int:
        return self.rankers[-1].layer_work

    @property
    def drop_ratio(self) -> List[Drop]:
        """Drop ratio or k of each ranker but the last; may be set anew between rankings."""
        return self._drops

    @drop_ratio.setter
    def drop_ratio(self, drop_ratio: Union[Drop, Sequence[Drop]]) -> None:
        self._drops = check_drops(drop_ratio, len(self.rankers))

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        flight: List[Question] = []
        size = 0
        for question in questions:
            if flight and size + len(question.candidates) > self._flight_candidates:
                yield from self._rank_flight(flight)
                flight, size = [], 0
            flight.append(question)
            size += len(question.candidates)
        yield from self._rank_flight(flight)

    def _rank_flight(self, flight: List[Question]) -> List[Ranking]:
        states = [_State(question, len(self.rankers)) for question in flight]
        for place, ranker in enumerate(self.rankers):
            running = [state for state in states if len(state.alive)]
            for state, ranking in zip(
                running, ranker.rank_all([state.left() for state in running])
            ):
                state.take(place, ranking, self._drops[place] if place < len(self._drops) else 0)
        return [state.ranking([ranker.layer_work for ranker in self.rankers]) for state in states]


class _Stage(NamedTuple):
    """What one ranker did for a question."""

    place: int
    cost: Cost
    candidates: int  # that were not blank


class _State:
    """One question on its way through the rankers."""

    def __init__(self, question: Question, rankers: int) -> None:
        count = len(question.candidates)
        self._question, self.alive = question, np.arange(count)
        self._tail: List[np.ndarray] = []  # dropped candidates, those dropped last in front
        self._head = np.arange(0)
        self._scores, self._exits = np.full(count, -np.inf), np.zeros(count, dtype=int)
        self._truncated, self._blank = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        self._exit_scores = np.full((rankers, count), np.nan)
        self._stages: List[_Stage] = []

    def left(self) -> Question:
        """The question with the candidates that are left, in their original order."""
        return self._question._replace(
            candidates=tuple(self._question.candidates[index] for index in self.alive)
        )

    def take(self, place: int, ranking: Ranking, drop: Drop) -> None:
        """Note a ranker's scores, and let its best candidates through."""
        order, blank = self.alive[ranking.order], ranking.blank
        self._scores[self.alive], self._exits[self.alive] = ranking.scores, ranking.exits
        self._truncated[self.alive] |= ranking.truncated
        self._blank[self.alive[blank]] = True
        self._exit_scores[place, self.alive] = np.where(blank, np.nan, ranking.scores)
        count = int((~blank).sum())
        self._stages.append(_Stage(place, ranking.cost, count))
        if isinstance(drop, float):
            kept = count - dropped(drop, count)
        else:
            kept = min(drop, count) if drop else count
        self._tail.insert(0, order[kept:])
        self._head, self.alive = order[:kept], np.sort(order[:kept])

    def ranking(self, work: Sequence[int]) -> Ranking:
        """The ranking, once every ranker has run."""
        return Ranking(
            order=np.concatenate([self._head, *self._tail]),
            scores=self._scores,
            exits=self._exits,
            truncated=self._truncated,
            blank=self._blank,
            cost=self._cost(work),
            exit_scores=self._exit_scores,
        )

    def _cost(self, work: Sequence[int]) -> Cost:
        """Costs of all rankers, in layers of the last one's encoder, over that encoder on every
        candidate."""
        first, last = self._stages[0], self._stages[-1]
        if not first.candidates:
            return Cost(0.0, 0, 0, 0, 0, 0)
        depth = (
            last.cost.full_candidate_layers / last.candidates
        )  # layers of the last ranker's full encoder
        full = depth * first.candidates
        tokens = next(
            (
                stage.cost.full_token_layers
                / (stage.cost.full_candidate_layers / stage.candidates)
                * first.candidates
                / stage.candidates
                for stage in self._stages
                if stage.cost.full_token_layers
            ),
            0.0,
        )
        weights = [
            work[stage.place] / work[-1] if work[stage.place] and work[-1] else 1.0
            for stage in self._stages
        ]
        sums = [
            sum(weight * getattr(stage.cost, name) for weight, stage in zip(weights, self._stages))
            for name in ("candidate_layers", "token_layers", "padded_token_layers")
        ]
        planned = sum(
            weight * stage.cost.paper * stage.cost.full_candidate_layers
            for weight, stage in zip(weights, self._stages)
        )
        return Cost(
            planned / full if full else 0.0, sums[0], full, sums[1], sums[2], depth * tokens
        )
