"""The contract of every system: a question and its candidates in, a `Ranking` out."""

from __future__ import annotations

import dataclasses
from typing import Iterable, Iterator, Sequence

import numpy as np

from wqa.data import Candidate, Question
from wqa.inference.cost import Cost


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Candidates of one question, ranked. Arrays are by candidate index, but for ``order``.

    Attributes
    ----------
    order : numpy.ndarray
        (k,) candidate indices, best first; each occurs once.
    scores : numpy.ndarray
        (k,) log-odds of being an answer; minus infinity for a blank candidate.
    exits : numpy.ndarray
        (k,) layer at which each candidate was last scored; 0 for a blank one.
    truncated : numpy.ndarray
        (k,) whether the candidate lost tokens to the length limit.
    blank : numpy.ndarray
        (k,) whether the candidate has no text; such candidates come last.
    cost : Cost
    exit_scores : numpy.ndarray
        (N, k) score at each exit, NaN where the candidate was not scored there.
    """

    order: np.ndarray
    scores: np.ndarray
    exits: np.ndarray
    truncated: np.ndarray
    blank: np.ndarray
    cost: Cost
    exit_scores: np.ndarray

    def order_at(self, index: int) -> np.ndarray:
        """Order by the scores of one exit alone, candidates without one there last.

        Parameters
        ----------
        index : int
            Exit, from 0.

        Returns
        -------
        numpy.ndarray
            (k,) candidate indices, best first.
        """
        return np.argsort(-np.nan_to_num(self.exit_scores[index], nan=-np.inf), kind="stable")


class Ranker:
    """Base of every ranker; a system brings `rank_all`."""

    @property
    def layer_work(self) -> int:
        """Multiply-adds of one layer for one token, which weigh rankers of a sequence; 0 where
        there are no layers."""
        return 0

    def rank(self, question: str, candidates: Sequence[str]) -> Ranking:
        """Rank the candidates of one question.

        Parameters
        ----------
        question : str
        candidates : sequence of str
            At least one.

        Returns
        -------
        Ranking

        Raises
        ------
        InputError
            If the question or the candidate list is empty, or the question is too long.
        """
        record = Question("", question, tuple(Candidate(text) for text in candidates))
        return next(iter(self.rank_all([record])))

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        """Rank many questions, several at a time.

        Parameters
        ----------
        questions : iterable of Question
            Labels are not looked at.

        Yields
        ------
        Ranking
            One a question, in order.
        """
        raise NotImplementedError
