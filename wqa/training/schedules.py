"""Learning rates by update."""

from __future__ import annotations


def triangular(update: int, peak: float, warmup: int, total: int) -> float:
    """Triangular schedule: up to the peak in ``warmup`` updates, then down in a line to 0.

    Soldaini and Moschitti 2020, section 5.2 (Smith 2017). A training that is shorter than its
    warm-up ends before the peak.

    Parameters
    ----------
    update : int
        From 1.
    peak : float
        Greatest learning rate.
    warmup : int
        Updates up to the peak; 0 starts there.
    total : int
        Updates of the whole training; the rate would reach 0 one update after it.

    Returns
    -------
    float
    """
    if update <= warmup:
        return peak * update / warmup
    return peak * (total + 1 - update) / (total + 1 - warmup)
