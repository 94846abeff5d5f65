"""Learning rates by update."""

from __future__ import annotations


def triangular(update: int, peak: float, warmup: int, total: int) -> float:
    """Triangular schedule: a linear rise to the peak, then a linear fall to 0.

    Soldaini and Moschitti 2020, section 5.2 (Smith 2017). A training that is shorter than its
    warm-up ends before the peak.

    Parameters
    ----------
    update : int
        Number of the update, from 1.
    peak : float
        Greatest learning rate.
    warmup : int
        Number of updates before the peak; 0 to start at the peak.
    total : int
        Number of updates of the training; the rate would be 0 one update later.

    Returns
    -------
    float
        Learning rate of the update.
    """
    if update <= warmup:
        return peak * update / warmup
    return peak * (total + 1 - update) / (total + 1 - warmup)
