"""How well probabilities tell the share of candidates that are answers."""

from __future__ import annotations

import numpy as np


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
    numbers = np.clip(np.ceil(probabilities * bins).astype(int) - 1, 0, bins - 1)
    surplus = np.bincount(numbers, np.asarray(labels) - probabilities, bins)
    return float(np.abs(surplus).sum() / len(probabilities))


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
    signs = 1 - 2 * np.asarray(labels)
    return float(np.logaddexp(0, signs * np.asarray(log_odds, dtype=np.float64)).mean())
