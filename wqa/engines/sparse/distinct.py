"""Distinct words of texts, without sorting."""

from __future__ import annotations

from typing import Tuple

import numpy as np


class Distinct:
    """Finds the distinct ids among many.

    It is not safe in several threads at once.
    """

    def __init__(self, rows: int) -> None:
        self._last = np.zeros(rows, np.intp)  # where each id came last; stale for other ids

    def of(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Distinct ids.

        Shapes: `ids` (words,), `distinct` (W,), `indices` (words,).
        """
        numbers = np.arange(len(ids))
        self._last[ids] = numbers
        last = self._last[ids]
        is_last = last == numbers
        ranks = np.cumsum(is_last) - 1
        return ids[is_last], ranks[last]
