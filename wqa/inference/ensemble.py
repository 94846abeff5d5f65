"""Ensembles of rankers (Matsubara et al. 2022, sections 3.2 and 5.5).

The probabilities of k rankers are combined linearly: p(a | q) = sum_i w_i p_i(a | q), with weights
that are not negative and sum to 1. The paper tunes them by Optuna, as `wqa.tuning.tune_weights`
does. Or their scores are: s(a | q) = sum_i w_i s_i(a | q), a logarithmic pool of the probabilities,
in which a ranker that is not sure of anything changes little. Every ranker ranks every candidate,
so that an ensemble costs what all of them cost.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.errors import OptionError, check_choice, check_range
from wqa.inference.dropping import combined
from wqa.inference.ranker import Capabilities, GroupRanker, Ranker
from wqa.inference.ranking import Ranking, ranking_of

#: Greatest weight of a ranker, with which no sum overflows.
GREATEST = 1e300


def normalized_weights(weights: Optional[Sequence[float]], rankers: int) -> Tuple[float, ...]:
    """Weights that sum to 1."""
    if weights is None:
        return (1 / rankers,) * rankers
    values = list(weights)
    if len(values) != rankers:
        raise OptionError("weights", f"{len(values)} values", f"one for each of {rankers} rankers")
    for value in values:
        check_range("weights", value, 0.0, GREATEST)
    total = sum(values)
    if not total:
        raise OptionError("weights", "0 for every ranker", "at least one above 0")
    return tuple(value / total for value in values)


def log_odds_of_mean(scores: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """Log-odds of the weighted mean of probabilities.

    Shapes: `scores` (k, C), the result (C,).
    """
    scores = np.asarray(scores, dtype=float)
    with np.errstate(divide="ignore"):  # a weight of 0 adds nothing to a sum of logarithms
        logs = np.log(np.asarray(weights, dtype=float))
    logs = logs[:, None]
    # Logarithms of w_i sigmoid(s_i) and w_i sigmoid(-s_i), which do not round to 0 or 1.
    positive = logs - np.logaddexp(0, -scores)
    negative = logs - np.logaddexp(0, scores)
    log_odds = np.logaddexp.reduce(positive, axis=0)  # (C,)
    return log_odds - np.logaddexp.reduce(negative, axis=0)


def mean_of_scores(scores: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """Weighted mean of scores.

    Shapes: `scores` (k, C), the result (C,).
    """
    shares = np.asarray(weights, dtype=float)
    counted = shares > 0  # 0 times the infinite score of a blank candidate is not a number
    scores = np.asarray(scores, dtype=float)
    return shares[counted] @ scores[counted]


#: What an ensemble combines linearly, and the score that comes of it.
COMBINATIONS: Dict[str, Callable[..., np.ndarray]] = {
    "probabilities": log_odds_of_mean,
    "scores": mean_of_scores,
}


class EnsembleRanker(GroupRanker):
    """Rankers that all rank all candidates, by the weighted mean of their probabilities or scores.

    ``scores`` are the log-odds of the mean of probabilities at temperature 1, or the mean of
    scores, so that calibrations of runs change neither the order nor what tuned weights are worth.
    ``probabilities`` are the mean of those that the rankers give. ``exits`` is the last layer at
    which any ranker scored a candidate, ``truncated`` says whether it lost tokens in any ranker.
    ``exit_scores`` has one row: an ensemble is one stage, and drops nothing. ``cost`` is the sum
    over the rankers, relative to the largest of their full networks.

    Parameters
    ----------
    rankers : sequence of Ranker
        The rankers, of any systems, encoders and tokenizers.
    weights : sequence of float, optional
        w_1, ..., w_k, none of them negative; they are divided by their sum. Equal by default.
    names : sequence of str, optional
        Name of each ranker in tables; ``ranker 1``, ``ranker 2``, ... by default.
    combine : {"probabilities", "scores"}
        What is combined linearly.

    Raises
    ------
    OptionError
        If there is no ranker, the weights do not fit the rankers, or ``combine`` is unknown.
    """

    def __init__(
        self,
        rankers: Sequence[Ranker],
        weights: Optional[Sequence[float]] = None,
        names: Sequence[str] = (),
        combine: str = "probabilities",
    ) -> None:
        if not rankers:
            raise OptionError("rankers", "none", "at least one")
        count = len(rankers)
        self.rankers = list(rankers)
        #: w_1, ..., w_k, which sum to 1.
        self.weights = normalized_weights(weights, count)
        self.names = list(names) or [f"ranker {number}" for number in range(1, count + 1)]
        check_choice("combine", combine, COMBINATIONS)
        self.combine = combine

    @property
    def capabilities(self) -> Capabilities:
        """The rankers, all in one stage."""
        layers = max(ranker.capabilities.num_layers for ranker in self.rankers)
        return Capabilities("ensemble", 1, (), layers, tuple(self.rankers))

    def _rank_group(self, group: Sequence[Question]) -> Iterator[Ranking]:
        return map(self._combined, self.rank_by_each(group))

    def rank_pairs(self, group: Sequence[Sequence[Any]]) -> List[Ranking]:
        """Rank tokenized questions as one group, by rankers that share a tokenizer.

        Parameters
        ----------
        group : sequence of sequence of TextInput
            Pairs of each question, as `CascadeRanker.rank_pairs` takes them.

        Returns
        -------
        list of Ranking
            Ranking of each question.
        """
        ranked = [ranker.rank_pairs(group) for ranker in self.rankers]  # type: ignore[attr-defined]
        return list(map(self._combined, zip(*ranked)))

    def rank_by_each(self, questions: Sequence[Question]) -> Iterator[Tuple[Ranking, ...]]:
        """Rank questions by every ranker, as one group.

        Parameters
        ----------
        questions : sequence of Question
            Questions with their candidates.

        Yields
        ------
        tuple of Ranking
            Rankings of each question in order, one of each ranker. Where a ranker fails, the
            questions before that one are ranked.
        """
        return zip(*(ranker.rank_all(questions) for ranker in self.rankers))

    def _combined(self, ranked: Sequence[Ranking]) -> Ranking:
        """The ranking of one question from those of all rankers."""
        stacked = np.stack([ranking.scores for ranking in ranked])
        scores = COMBINATIONS[self.combine](stacked, self.weights)
        scores[np.isneginf(scores)] = np.nan
        probabilities = np.stack([ranking.probabilities for ranking in ranked])
        mean = np.array(self.weights) @ probabilities
        exits = np.max([ranking.exits for ranking in ranked], axis=0)
        truncated = np.any([ranking.truncated for ranking in ranked], axis=0)
        costs = [ranking.cost for ranking in ranked]
        largest = max(costs, key=lambda cost: cost.full_candidate_work)
        cost = combined(costs, largest.full_candidate_work, largest.full_multiply_adds)
        ranking = ranking_of(scores[None], [1], truncated, cost, self.calibration)
        probabilities = np.where(ranking.blank, 0.0, np.minimum(mean, 1.0))
        exits = np.where(ranking.blank, 0, exits)
        return dataclasses.replace(ranking, exits=exits, probabilities=probabilities)
