"""Sequential reranking (Soldaini and Moschitti 2020, sections 3.2 and 4.2).

SR_N = R_N o ... o R_1: each ranker scores the candidates that the ranker before it kept. The
rankers share no computation. The paper's SR consists of independently trained monolithic rankers of
4, 6, 8, 10 and 12 layers. Here rankers of any systems can be in sequence.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.errors import OptionError, WqaError
from wqa.inference.dropping import FREE, Cost, Drop, DropRatio, Keep, combined
from wqa.inference.ranker import Capabilities, GroupRanker, Ranker
from wqa.inference.ranking import Ranking, check_candidates


class SequentialRanker(GroupRanker):
    """Rankers in sequence, each of which ranks the candidates that the one before it kept.

    The ranking begins with the candidates of the last ranker, in its order. The candidates that the
    ranker before it dropped follow in that ranker's order, and so on. ``scores``,
    ``probabilities`` and ``exits`` are those of the last ranker that scored a candidate;
    ``exit_scores`` has one row a ranker. The threshold is the last ranker's, which scores the first
    candidate.

    A ranker gets the candidates that are left in the order in which they came, never in that of the
    ranker before it, and with their ranks among all candidates. So a ranker that reads the order
    reads the original one, with gaps.

    Parameters
    ----------
    rankers : sequence of Ranker
        R_1, ..., R_N, in the order in which they run.
    drop_ratio : float, or sequence of float or None, optional
        alpha, the share of candidates that a ranker drops: one for all rankers but the last, or one
        a ranker, None for a ranker that keeps k.
    keep : int, or sequence of int or None, optional
        k, the number of candidates that a ranker keeps: one for all rankers but the last, or one a
        ranker, None for a ranker with a drop ratio.

    Raises
    ------
    OptionError
        If there is no ranker, or the drops do not fit the rankers.
    """

    def __init__(
        self, rankers: Sequence[Ranker], drop_ratio: DropRatio = None, keep: Keep = None
    ) -> None:
        if not rankers:
            raise OptionError("rankers", "none", "at least one")
        self.rankers = list(rankers)
        # The last ranker scores the first candidates.
        self.calibration, self.ties = self.rankers[-1].calibration, self.rankers[-1].ties
        self.set_drops(drop_ratio, keep)

    @property
    def capabilities(self) -> Capabilities:
        """The rankers, as stages."""
        layers = self.rankers[-1].capabilities.num_layers
        return Capabilities("sequence", len(self.rankers), (), layers, tuple(self.rankers))

    def _encode(self, question: Question) -> Tuple[_State, int]:
        return _State(question, len(self.rankers)), len(question.candidates)

    def _rank_group(self, group: Sequence[_State]) -> Iterator[Ranking]:
        states, failure = list(group), None
        for index, (ranker, drop) in enumerate(zip(self.rankers, self.drops)):
            running = [state for state in states if len(state.surviving)]
            rankings, ranked = ranker.rank_all([state.left() for state in running]), 0
            try:
                for state, ranking in zip(running, rankings):
                    state.update(index, ranking, drop)
                    ranked += 1
            except WqaError as error:  # the questions before this one are ranked to the end
                failure, states = error, states[: states.index(running[ranked])]
        yield from (state.ranking(self.threshold) for state in states)
        if failure:
            raise failure


#: What a candidate has from the last ranker that scored it, with its type. What that ranker dropped
#: at an exit of its own it may yet hand on.
OF_LAST = {"scores": float, "exits": int, "blank": bool, "dropped": bool, "probabilities": float}


class _State:
    """One question on its way through the rankers."""

    def __init__(self, question: Question, rankers: int) -> None:
        check_candidates(question)
        count = len(question.candidates)
        # Candidates keep their ranks where some of them are left out.
        pairs = zip(question.candidates, question.ranks)
        candidates = tuple(candidate._replace(rank=rank) for candidate, rank in pairs)
        self._question = question._replace(candidates=candidates)
        self.surviving = np.arange(count)
        self._order = np.arange(count)  # the surviving candidates, then the dropped, latest first
        self._of_last: Dict[str, Any] = {name: np.zeros(count, of) for name, of in OF_LAST.items()}
        self._truncated = np.zeros(count, dtype=bool)
        self._exit_scores = np.full((rankers, count), np.nan)
        self._costs: List[Cost] = []  # of each ranker
        self._counts: List[int] = []  # of the candidates of each ranker that are not blank

    def left(self) -> Question:
        """The question with the remaining candidates, in the order in which they came."""
        left = tuple(self._question.candidates[index] for index in self.surviving)
        return self._question._replace(candidates=left)

    def update(self, index: int, ranking: Ranking, drop: Drop) -> None:
        """Record the scores of a ranker, and drop candidates."""
        order, blank = self.surviving[ranking.order], ranking.blank
        for name, values in self._of_last.items():
            values[self.surviving] = getattr(ranking, name)
        self._truncated[self.surviving] |= ranking.truncated
        self._exit_scores[index, self.surviving] = np.where(blank, np.nan, ranking.scores)
        count = int((~blank).sum())
        self._costs.append(ranking.cost)
        self._counts.append(count)
        kept = drop.kept(count, ranking.relevance[~blank] if drop.below else None)
        self._of_last["dropped"][order[kept:]] = True
        self._order[: len(order)] = order
        self.surviving = np.sort(order[:kept])

    def ranking(self, threshold: Optional[float]) -> Ranking:
        """The ranking after the last ranker."""
        order, blank = self._order, self._of_last["blank"]
        self._of_last["dropped"] &= ~blank
        return Ranking(
            # What only a later ranker finds blank is behind that ranker's drops until here.
            order=order[np.argsort(blank[order], kind="stable")],
            truncated=self._truncated,
            cost=self._cost(),
            exit_scores=self._exit_scores,
            threshold=threshold,
            **self._of_last,
        )

    def _cost(self) -> Cost:
        """Multiply-adds of all rankers, beside those of the last ranker's full network."""
        if not self._counts[0]:
            return FREE
        # A later ranker may find blank all that an earlier one hands on.
        last = np.flatnonzero(self._counts)[-1]
        work = self._costs[last].full_candidate_work / self._counts[last]  # full network, one token
        tokens = 0.0  # of all candidates, estimated from the first ranker that counts tokens
        for cost in self._costs[::-1]:
            if cost.full_candidate_work:
                tokens = cost.full_multiply_adds / cost.full_candidate_work * self._counts[0]
        return combined(self._costs, work * self._counts[0], work * tokens)
