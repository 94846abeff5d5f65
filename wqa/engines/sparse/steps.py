"""Sequences of different lengths, computed step by step: all of their first items, then all second.

Sequences are sorted by length, longest first, so that those that have a step stand at the start.
The items of a step are contiguous rows, and nothing is padded.
"""

from __future__ import annotations

from typing import Iterator, Tuple

import numpy as np


class Steps:
    """Order of the items of sequences: by step, then by sequence, longest sequence first.

    Shapes: `lengths` (n,), `order` (n,), `ranks` (items,), `steps` (items,), `starts` (longest +
    1,).
    """

    def __init__(self, lengths: np.ndarray) -> None:
        self.order = np.argsort(-lengths, kind="stable")
        self._lengths = lengths
        shorter = np.cumsum(np.bincount(lengths))[:-1]  # sequences that end before each step
        counts = len(lengths) - shorter
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self.steps = np.repeat(np.arange(len(counts)), counts)
        self.ranks = np.arange(len(self.steps)) - self.starts[self.steps]

    def __iter__(self) -> Iterator[Tuple[int, int]]:
        """First row and end of each step."""
        starts = self.starts.tolist()
        return zip(starts, starts[1:])

    def rows(self, backwards: bool = False) -> np.ndarray:
        """Item of each row, where the sequences stand behind one another.

        Shapes: the result (items,).
        """
        ends = np.cumsum(self._lengths)
        sequences = self.order[self.ranks]
        if backwards:
            return ends[sequences] - 1 - self.steps
        return (ends - self._lengths)[sequences] + self.steps

    def maxima(self, values: np.ndarray) -> np.ndarray:
        """Greatest value of each column over the items of each sequence.

        Shapes: `values` (items, columns), the result (n, columns).
        """
        best = values[: self.starts[1]].copy()
        for start, end in list(self)[1:]:
            first = best[: end - start]
            np.maximum(first, values[start:end], out=first)
        return best
