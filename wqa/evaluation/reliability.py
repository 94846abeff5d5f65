"""How well probabilities tell the share of candidates that are answers, and how much a mean says.

Answer triggering: whether to answer a question at all, by the relevance of its first candidate.

Yang et al. 2015, "WikiQA: A Challenge Dataset for Open-Domain Question Answering", section 4.3,
evaluate it by precision, recall and F1 over questions. A question is answered if the relevance of
its first candidate reaches a threshold, and answered rightly if this candidate is an answer.
"""

from __future__ import annotations

import logging
import math
from typing import NamedTuple, Tuple

import numpy as np

LOGGER = logging.getLogger(__name__)

#: Number of questions below which means are noted to say little.
FEW_QUESTIONS = 30
#: Standard deviations of a 95 % interval.
_Z = 1.96


def expected_calibration_error(
    probabilities: np.ndarray, labels: np.ndarray, bins: int = 15
) -> float:
    """Expected calibration error of the probability of the positive class.

    ECE = sum_m (n_m / n) |positives_m / n_m - p_m|, where the n_m candidates of bin m have
    probabilities in ((m - 1) / M, m / M] with the mean p_m; the first bin holds 0 too. The bins are
    those of Guo et al. 2017, section 2. There a bin compares accuracy with the confidence in the
    predicted class; of two classes, one of which is rare, the probability of that one says more, as
    in Naeini et al. 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning".

    Parameters
    ----------
    probabilities : numpy.ndarray
        (n,) probabilities in [0, 1], n at least 1.
    labels : numpy.ndarray
        (n,) 1 for an answer, else 0.
    bins : int
        M, the number of bins of equal width.

    Returns
    -------
    float
        The error, in [0, 1].
    """
    probabilities = np.asarray(probabilities, dtype=np.float64)
    upper_ends = np.ceil(probabilities * bins)
    numbers = upper_ends.astype(int) - 1
    numbers = np.clip(numbers, 0, bins - 1)
    labels = np.asarray(labels)
    surplus = labels - probabilities
    of_bins = np.bincount(numbers, surplus, bins)
    total = np.abs(of_bins).sum()
    return float(total / len(probabilities))


def negative_log_likelihood(log_odds: np.ndarray, labels: np.ndarray) -> float:
    """Mean negative log-likelihood of labels (Guo et al. 2017, section 2, equation 4).

    Parameters
    ----------
    log_odds : numpy.ndarray
        (n,) finite log-odds of the positive class, n at least 1.
    labels : numpy.ndarray
        (n,) 1 for an answer, else 0.

    Returns
    -------
    float
        Mean of -log p(label), in nats. It is finite where a probability is rounded to 0 or 1.
    """
    labels = np.asarray(labels)
    signs = 1 - 2 * labels
    log_odds = np.asarray(log_odds, dtype=np.float64)
    losses = np.logaddexp(0, signs * log_odds)
    return float(losses.mean())


class Triggering(NamedTuple):
    """A threshold, and its figures.

    Attributes
    ----------
    threshold : float
        Least relevance of a first candidate that answers its question, in (0, 1].
    precision : float
        Share of the answered questions that are answered rightly.
    recall : float
        Share of the questions with an answer among their candidates that are answered rightly.
    f1 : float
        Harmonic mean of both.
    answered : int
        Number of questions that are answered.
    """

    threshold: float
    precision: float
    recall: float
    f1: float
    answered: int


def best_threshold(relevance: np.ndarray, is_right: np.ndarray, answerable: int) -> Triggering:
    """Choose the threshold with the greatest F1.

    Parameters
    ----------
    relevance : numpy.ndarray
        (n,) relevance above 0 of the first candidate of each question; a question without a
        candidate that has text is never answered, and not among them.
    is_right : numpy.ndarray
        (n,) whether that candidate is an answer; at least one is.
    answerable : int
        Number of questions with an answer among their candidates.

    Returns
    -------
    Triggering
        The threshold, midway between the least relevance that it answers and the greatest that it
        does not, or 0. Of thresholds with equal F1 the greatest, which answers least.
    """
    relevance = np.asarray(relevance, dtype=np.float64)
    best_first = np.argsort(-relevance, kind="stable")
    values = np.append(relevance[best_first], 0.0)
    is_right = np.asarray(is_right)
    right = np.cumsum(is_right[best_first])
    answered = np.arange(1, len(values))
    positives = answered + answerable
    f1 = 2 * right / positives
    is_tied = values[1:] == values[:-1]
    f1[is_tied] = -1.0  # a threshold does not divide equal values
    best = int(f1.argmax())
    value = values[best]
    next_value = values[best + 1]
    threshold = (value + next_value) / 2
    if threshold <= next_value:  # there is no number between them
        threshold = value
    precision = right[best] / answered[best]
    recall = right[best] / answerable
    return Triggering(
        float(threshold),
        float(precision),
        float(recall),
        float(f1[best]),
        int(answered[best]),
    )


def wilson_interval(mean: float, count: int) -> Tuple[float, float]:
    """95 % interval of a mean of values from 0 to 1 (Wilson 1927).

    It is made for values that are 0 or 1, whose variance is the greatest that the mean allows.

    Parameters
    ----------
    mean : float
        The mean.
    count : int
        Number of values, at least 1.

    Returns
    -------
    low, high : float
        The interval.
    """
    share = _Z**2 / count
    center = mean + share / 2
    variance = mean * (1 - mean) / count
    variance += share / (4 * count)
    half = _Z * math.sqrt(variance)
    low = max(center - half, 0.0)
    high = (center + half) / (1 + share)
    return low / (1 + share), min(high, 1.0)


def note_few_questions(count: int, **means: float) -> None:
    """Log that means over few questions say little, with their intervals.

    Parameters
    ----------
    count : int
        Number of questions.
    **means
        Means over the questions, in [0, 1], by the names of their metrics.
    """
    if not 0 < count < FEW_QUESTIONS:
        return
    intervals = []
    for name, mean in means.items():
        low, high = wilson_interval(mean, count)
        bounds = f"{100 * low:.0f} to {100 * high:.0f}"
        intervals.append(f"{name} may be from {bounds}")
    text = ", ".join(intervals)
    LOGGER.warning(f"questions: {count}, which say little: {text} (95 % interval)")
