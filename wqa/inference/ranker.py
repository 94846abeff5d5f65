"""The contract of every system: a question and its candidates in, a `Ranking` out."""

from __future__ import annotations

import dataclasses
from typing import Iterable, Iterator, List, Sequence, Tuple

import numpy as np

from wqa.data import Candidate, Question
from wqa.inference.cost import Cost
from wqa.inference.dropping import Drop, DropRatio, Keep, check_drops


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
        Multiply-adds of the ranking.
    exit_scores : numpy.ndarray
        (N, k) score after each stage, NaN where the candidate was not scored there.
    """

    order: np.ndarray
    scores: np.ndarray
    exits: np.ndarray
    truncated: np.ndarray
    blank: np.ndarray
    cost: Cost
    exit_scores: np.ndarray

    def order_at(self, index: int) -> np.ndarray:
        """Order by the scores of one stage alone, candidates without one there last.

        Parameters
        ----------
        index : int
            Stage, from 0.

        Returns
        -------
        numpy.ndarray
            (k,) candidate indices, best first.
        """
        return np.argsort(-np.nan_to_num(self.exit_scores[index], nan=-np.inf), kind="stable")


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """What a ranker offers, so that no caller has to ask for its type.

    Attributes
    ----------
    system : str
        Name of the system, such as ``"cascade"``; ``"sequence"`` for several in sequence.
    stages : int
        N: a ranking has N rows of ``exit_scores``, and candidates can be dropped after each stage
        but the last.
    exits : tuple of int
        Layer after which each stage scores; empty where the stages are not layers of one encoder.
    num_layers : int
        Layers of the full encoder; 0 where there is none.
    rankers : tuple of Ranker
        Rankers inside this one, in the order in which they run.
    """

    system: str
    stages: int = 1
    exits: Tuple[int, ...] = ()
    num_layers: int = 0
    rankers: Tuple[Ranker, ...] = ()


class Ranker:
    """Base of every ranker; a system brings `rank_all` and `capabilities`."""

    _drops: Tuple[Drop, ...] = (Drop(),)

    @property
    def capabilities(self) -> Capabilities:
        """What the ranker offers."""
        return Capabilities(type(self).__name__)

    @property
    def drops(self) -> Tuple[Drop, ...]:
        """What each stage discards; the last one discards nothing."""
        return self._drops

    def set_drops(self, drop_ratio: DropRatio = None, keep: Keep = None) -> None:
        """Set what each stage discards, from the next ranking on.

        Parameters
        ----------
        drop_ratio : float, or sequence of float or None, optional
            alpha, the share that a stage discards: one for all stages, or one a stage.
        keep : int, or sequence of int or None, optional
            k, how many candidates go on, likewise. Without either, nothing is discarded.

        Raises
        ------
        OptionError
            If they do not fit the stages.
        """
        self._drops = check_drops(self.capabilities.stages, drop_ratio, keep)

    @property
    def drop_ratio(self) -> List[float]:
        """Drop ratio of each stage, 0 for the last and where a stage keeps a number.

        Setting it is `set_drops` with the ratio alone.
        """
        return [drop.ratio for drop in self._drops]

    @drop_ratio.setter
    def drop_ratio(self, drop_ratio: DropRatio) -> None:
        self.set_drops(drop_ratio)

    def rank(self, question: str, candidates: Sequence[str]) -> Ranking:
        """Rank the candidates of one question.

        Parameters
        ----------
        question : str
            Text of the question.
        candidates : sequence of str
            Texts of the candidates, at least one.

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
            Questions with their candidates. The labels are not read.

        Yields
        ------
        Ranking
            One a question, in order.
        """
        raise NotImplementedError
