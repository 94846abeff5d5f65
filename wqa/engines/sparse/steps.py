"""Sequences of different lengths, computed step by step: all of their first items, then all second.

Sequences are sorted by length, longest first, so that those that have a step stand at the start.
The items of a step are contiguous rows, and nothing is padded.
"""

from __future__ import annotations

from typing import Iterator, Tuple

import numpy as np


class Steps:
    """Order of the items of sequences: by step, then by sequence, longest sequence first.

    Parameters
    ----------
    lengths : numpy.ndarray
        (n,) length of each sequence, at least 1.

    Attributes
    ----------
    order : numpy.ndarray
        (n,) index of the sequence at each rank, longest first.
    ranks : numpy.ndarray
        (items,) rank of the sequence of each row.
    steps : numpy.ndarray
        (items,) step of each row, from 0.
    starts : numpy.ndarray
        (longest + 1,) first row of each step, and the number of rows.
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

        Parameters
        ----------
        backwards : bool
            Whether each sequence is read from its last item to its first.

        Returns
        -------
        numpy.ndarray
            (items,) indices.
        """
        ends = np.cumsum(self._lengths)
        sequences = self.order[self.ranks]
        if backwards:
            return ends[sequences] - 1 - self.steps
        return (ends - self._lengths)[sequences] + self.steps

    def maxima(self, values: np.ndarray) -> np.ndarray:
        """Greatest value of each column over the items of each sequence.

        Parameters
        ----------
        values : numpy.ndarray
            (items, columns) in the order of the rows.

        Returns
        -------
        numpy.ndarray
            (n, columns) in the order of the ranks, longest sequence first.
        """
        best = values[: self.starts[1]].copy()
        for start, end in list(self)[1:]:
            first = best[: end - start]
            np.maximum(first, values[start:end], out=first)
        return best
