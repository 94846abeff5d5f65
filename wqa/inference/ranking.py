"""The result of a ranker: candidates in order, with what became of each.

Relevance: probabilities corrected to follow the order of a ranking.

The score of a candidate that an early exit dropped may exceed that of a candidate that went on
(Soldaini and Moschitti 2020, section 4.3.2, compare candidates at one exit only), so that to sort
by score, or by probability, is to undo the cascade. A running minimum down the order corrects this.
An isotonic regression would be the other choice; it averages a candidate with those below it that
violate the order. With the running minimum the relevance of a candidate depends on those above it
alone: the candidates of the last exit keep their probabilities, among them the first, which a
no-answer threshold is compared with, and what was dropped is lowered. A part of the ranking from
its top has the values of the whole.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
from scipy.special import expit

from wqa.data import Candidate, Question
from wqa.errors import InputError, OptionError, ScoreError, check_range, shorten
from wqa.inference.calibrated import Calibration
from wqa.inference.dropping import Cost

#: Least relative difference of two values. Half of it would do for float64 and JSON; this one is
#: also seen by clients that hold the values in float32.
STEP = 2.0**-22
#: Least value of a candidate that has text, the smallest normal float32.
LEAST = 2.0**-126


def decreasing(probabilities: np.ndarray, differs: np.ndarray, most: int) -> np.ndarray:
    """Lower probabilities so that they strictly decrease down an order.

    Value i is the least of the values so far, reduced by `STEP` for each change of rank since, or
    `LEAST` and a step for each candidate that may follow, where that is greater. So values are at
    most the probabilities, but for those that are practically 0.

    Shapes: `probabilities` (n,), `differs` (n - 1,), the result (n,).
    """
    if not len(probabilities):
        return np.zeros(0)
    later_starts = np.flatnonzero(differs) + 1
    starts = np.concatenate([[0], later_starts])
    probabilities = np.asarray(probabilities, dtype=np.float64)
    values = np.minimum.reduceat(probabilities, starts)
    ranks = np.arange(len(values))
    shrinkage = (1 - STEP) ** ranks
    scaled = values / shrinkage
    minimum = np.minimum.accumulate(scaled)
    values = np.where(scaled > minimum, minimum * shrinkage, values)
    least = LEAST * (1 - STEP) ** (ranks - most)
    sizes = np.diff(np.append(starts, len(probabilities)))
    return np.repeat(np.maximum(values, least), sizes)


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Candidates of one question, ranked. All arrays but ``order`` are indexed by candidate.

    A ranking cannot hold a score that is not finite, whatever ranker creates it.

    Attributes
    ----------
    order : numpy.ndarray
        (k,) candidate indices, best first; each occurs once. The first of them alone, after `top`.
    scores : numpy.ndarray
        (k,) log-odds of being an answer; minus infinity for a blank candidate.
    exits : numpy.ndarray
        (k,) layer at which each candidate was last scored; 0 for a blank one.
    truncated : numpy.ndarray
        (k,) whether the candidate lost tokens to the length limit.
    blank : numpy.ndarray
        (k,) whether the candidate has no text; blank candidates come last.
    cost : Cost
        Multiply-adds of the ranking.
    exit_scores : numpy.ndarray
        (N, k) score after each stage, NaN where the candidate was not scored there.
    documents : tuple of Candidate
        The candidates themselves, if they were asked for; empty otherwise.
    dropped : numpy.ndarray
        (k,) whether the candidate was dropped on the way. By default those that the last stage did
        not score, but for blank ones.
    probabilities : numpy.ndarray
        (k,) probability of being an answer, calibrated where the run was; 0 for a blank candidate.
        By default the sigmoid of each score.
    threshold : float or None
        Least relevance of a first candidate that answers the question, of a calibrated run.
    windows : numpy.ndarray or None
        (k, 2) characters of each candidate whose score it has, the last excluded; -1 for one that
        was read whole. None where no candidate was read in windows.

    Raises
    ------
    ScoreError
        If a score of a candidate with text is not finite.
    """

    order: np.ndarray
    scores: np.ndarray
    exits: np.ndarray
    truncated: np.ndarray
    blank: np.ndarray
    cost: Cost
    exit_scores: np.ndarray
    documents: Tuple[Candidate, ...] = ()
    dropped: np.ndarray = None  # type: ignore[assignment]
    probabilities: np.ndarray = None  # type: ignore[assignment]
    threshold: Optional[float] = None
    windows: Optional[np.ndarray] = None

    def __post_init__(self) -> None:
        non_blank = ~np.asarray(self.blank, dtype=bool)
        if self.dropped is None:
            is_unscored = np.isnan(self.exit_scores[-1])
            object.__setattr__(self, "dropped", non_blank & is_unscored)
        # NaN stands for an exit that did not score the candidate.
        infinite = np.isinf(self.exit_scores).any(axis=0)
        finite = np.isfinite(self.scores) & ~infinite
        wrong = np.flatnonzero(non_blank & ~finite)
        if len(wrong):
            candidate = int(wrong[0])
            scores = np.append(self.exit_scores[:, candidate], self.scores[candidate])
            value = scores[~np.isfinite(scores)][-1]
            raise score_error("scores", f"candidate {candidate + 1}", value)
        if self.probabilities is None:
            object.__setattr__(self, "probabilities", expit(self.scores))

    @functools.cached_property
    def relevance(self) -> np.ndarray:
        """(k,) float64 in [0, 1] that strictly decreases along ``order``.

        It is the probability where probabilities follow the order, and is lowered below the
        candidates above where they do not, as `wqa.inference.ranking` has it. It differs by at
        least 2^-22 of itself between candidates, but for those that tie, which have the same. A
        candidate with text has a relevance above 0, a blank one 0, and 0 stands for those that
        `top` left out. Where scores are no log-odds, as the counts of the baseline ``wo``,
        relevance tells the order alone.
        """
        relevance = np.zeros(len(self.scores))
        blank = np.asarray(self.blank, dtype=bool)
        non_blank = np.flatnonzero(~blank[self.order])  # places in the order
        order = np.asarray(self.order)[non_blank]
        differs = self.differs[non_blank[1:] - 1]
        relevance[order] = decreasing(self.probabilities[order], differs, len(relevance))
        return relevance

    @property
    def differs(self) -> np.ndarray:
        """(n - 1,) whether a candidate of the order does not tie with the one before it.

        Candidates tie if the same stages scored them, and the last of these scores are equal.
        """
        stages = np.count_nonzero(~np.isnan(self.exit_scores), axis=0)
        differ = np.zeros(len(self.order) - 1, dtype=bool)
        for values in (stages, self.exits, self.scores):
            ranked = np.asarray(values)[self.order]
            differ |= ranked[1:] != ranked[:-1]
        return differ

    def answered(self, threshold: Optional[float] = None) -> bool:
        """Tell whether the first candidate answers the question, or none of them does.

        Parameters
        ----------
        threshold : float, optional
            Least relevance of an answer, from 0 to 1; by default that of the calibrated run.

        Returns
        -------
        bool
            False if the first candidate is blank or its relevance is below the threshold.

        Raises
        ------
        OptionError
            If the threshold is out of range, or there is none, as the run is not calibrated.
        """
        if threshold is None:
            threshold = self.threshold
        if threshold is None:
            hint = "calibrate the run with `wqa calibrate`, or give a number"
            raise OptionError("threshold", "none", "that of a calibrated run", hint)
        check_range("threshold", threshold, 0.0, 1.0)
        first = self.order[0]
        return not self.blank[first] and bool(self.relevance[first] >= threshold)

    @property
    def scored_by_stage(self) -> np.ndarray:
        """(N,) number of candidates that each stage scored: those that the stage before kept."""
        return np.sum(~np.isnan(self.exit_scores), axis=1)

    def top(self, count: Optional[int]) -> Ranking:
        """The ranking with the best candidates alone in its order.

        Parameters
        ----------
        count : int or None
            Number of candidates to keep; all of them where there are fewer, or it is None.

        Returns
        -------
        Ranking

        Raises
        ------
        OptionError
            If ``count`` is not a whole number from 1.
        """
        if count is None:
            return self
        check_range("top_k", count, 1)
        return dataclasses.replace(self, order=self.order[:count])

    def to_dicts(self) -> List[Dict[str, Any]]:
        """The candidates in their order, as values of JSON.

        Returns
        -------
        list of dict
            For each candidate ``rank``, from 1; ``index``, from 0; ``score``, None for a blank
            candidate; ``relevance``; ``probability``; ``exit``; and the flags ``dropped``,
            ``truncated`` and ``blank``. Where candidates were read in windows, ``window`` has the
            first and last character of the one that gave the score, None for a candidate that was
            read whole. With `documents` also ``id`` and ``meta``, None where there
            is none, and ``text``.
        """
        rows = []
        for rank, index in enumerate(self.order.tolist(), 1):
            score = float(self.scores[index])
            blank = bool(self.blank[index])
            row: Dict[str, Any] = {
                "rank": rank,
                "index": index,
                "score": None if blank else score,
                "relevance": float(self.relevance[index]),
                "probability": float(self.probabilities[index]),
                "exit": int(self.exits[index]),
                "dropped": bool(self.dropped[index]),
                "truncated": bool(self.truncated[index]),
                "blank": blank,
            }
            if self.windows is not None:
                row["window"] = self.window(index)
            if self.documents:
                document = self.documents[index]
                row.update(id=document.id, text=document.text, meta=document.meta)
            rows.append(row)
        return rows

    def window(self, index: int) -> Optional[List[int]]:
        """Characters of a candidate whose score it has, None for one that was read whole.

        Parameters
        ----------
        index : int
            Index of the candidate.

        Returns
        -------
        list of int or None
            First character, and the one behind the last.
        """
        if self.windows is None or self.windows[index, 0] < 0:
            return None
        return self.windows[index].tolist()

    def order_at(self, index: int) -> np.ndarray:
        """Order by the scores of one stage; candidates that it did not score come last.

        Parameters
        ----------
        index : int
            Index of the stage.

        Returns
        -------
        numpy.ndarray
            (k,) candidate indices, best first.
        """
        scores = np.nan_to_num(self.exit_scores[index], nan=-np.inf)
        return np.argsort(-scores, kind="stable")


def ranking_of(
    exit_scores: np.ndarray,
    layers: Sequence[int],
    truncated: np.ndarray,
    cost: Cost,
    calibration: Calibration,
) -> Ranking:
    """Ranking by the last stage that scored each candidate; a stage follows each of the layers.

    Candidates without a score are blank. Shapes: `exit_scores` (N, k), `truncated` (k,).
    """
    reached = np.count_nonzero(~np.isnan(exit_scores), axis=0)  # stages that scored each
    candidates = np.arange(len(reached))
    scores = exit_scores[np.maximum(reached - 1, 0), candidates]
    scores = np.where(reached > 0, scores, -np.inf)
    exits = np.array([0, *layers])[reached]
    return Ranking(
        # Survivors by the score of the last exit, then candidates that the exits before dropped,
        # last exit first; ties in the original order.
        order=np.lexsort((candidates, -scores, -exits)),
        scores=scores,
        exits=exits,
        truncated=truncated,
        blank=reached == 0,
        cost=cost,
        exit_scores=exit_scores,
        probabilities=calibration.probabilities(exit_scores),
        threshold=calibration.threshold,
    )


def score_error(where: str, candidate: str, score: float) -> ScoreError:
    """Create the error of a score that is not finite."""
    hint = "the weights are damaged or diverged: restore them, or train again from a checkpoint"
    return ScoreError(where, f"{score} for {candidate}", "finite scores", hint)


def question_name(question: Question) -> str:
    """Name of a question in errors: its id, or its text if it has none."""
    return f"question {shorten(question.id or question.question)}"


def candidate_name(question: Question, index: int) -> str:
    """Name of a candidate in errors: its id, or its number if it has none."""
    id = question.candidates[index].id
    return f"candidate {index + 1}" if id is None else f"document {shorten(id)}"


def check_candidates(question: Question) -> None:
    """Check that a question has candidates."""
    if not question.candidates:
        expected = "at least one candidate"
        raise InputError(question_name(question), "the candidate list is empty", expected)
