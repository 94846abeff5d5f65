"""Relevance: probabilities corrected to follow the order of a ranking.

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

import numpy as np

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
    starts = np.concatenate([[0], np.flatnonzero(differs) + 1])
    values = np.minimum.reduceat(np.asarray(probabilities, dtype=np.float64), starts)
    ranks = np.arange(len(values))
    shrinkage = (1 - STEP) ** ranks
    scaled = values / shrinkage
    minimum = np.minimum.accumulate(scaled)
    values = np.where(scaled > minimum, minimum * shrinkage, values)
    least = LEAST * (1 - STEP) ** (ranks - most)
    sizes = np.diff(np.append(starts, len(probabilities)))
    return np.repeat(np.maximum(values, least), sizes)
