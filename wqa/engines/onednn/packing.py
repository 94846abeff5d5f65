"""Packed rows: the tokens of a micro-batch in one matrix, without padding."""

from __future__ import annotations

import functools
from typing import Callable, List, NamedTuple, Optional

import numpy as np

#: Rows are rounded up to a multiple of this: two of AMX's tiles.
ROWS = 32
#: Sizes of a group of pairs of one length, and the most attention scores a head of a group, so that
#: the scores fit in the cache.
GROUPS, GROUP_SCORES = (16, 8, 4, 2, 1), 1 << 15


class Group(NamedTuple):
    """Neighbouring pairs of one length, whose attention runs as one batch."""

    pair: int  # index of the first pair
    row: int  # first row of that pair
    pairs: int
    length: int


def round_up(rows: int) -> int:
    """Round a number of rows up to a compiled shape."""
    return -(-rows // ROWS) * ROWS


class PackedBatch:
    """Start row and length of each pair of a micro-batch.

    Parameters
    ----------
    lengths : numpy.ndarray
        (pairs,) tokens of each pair; pairs of equal length must be neighbours.
    read : numpy.ndarray, optional
        (pairs, n) positions of the rows that heads read, from 0, -1 for one that is absent; the
        first position by default.
    """

    def __init__(self, lengths: np.ndarray, read: Optional[np.ndarray] = None) -> None:
        self.lengths = lengths
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        self.tokens = int(self.starts[-1])
        self.rows = round_up(self.tokens)
        if read is None:
            read = np.zeros((len(lengths), 1), dtype=int)
        #: (pairs, n) whether each row that heads read is there.
        self.is_read = read >= 0
        #: (pairs, n) rows that heads read; the first of the pair in place of one that is absent.
        self.read_rows = self.starts[:-1, None] + np.maximum(read, 0)

    @functools.cached_property
    def groups(self) -> List[Group]:
        """Groups for attention with queries at all positions."""
        return self._grouped(lambda length: GROUP_SCORES // length**2)

    def groups_of(self, rows: int, pairs: int) -> List[Group]:
        """Groups of a limited number of rows.

        Parameters
        ----------
        rows : int
            Most rows of a group; a pair is never divided.
        pairs : int
            Most pairs of a group.

        Returns
        -------
        list of Group
        """
        return self._grouped(lambda length: min(rows // length, pairs))

    def _grouped(self, most: Callable[[int], int]) -> List[Group]:
        """Groups of neighbouring pairs; ``most`` takes a length and returns the most pairs."""
        groups: List[Group] = []
        edges = np.flatnonzero(np.diff(self.lengths, prepend=-1, append=-1))
        for pair, end in zip(edges.tolist(), edges[1:].tolist()):
            length = int(self.lengths[pair])
            limit = max(1, most(length))
            while pair < end:
                count = next(size for size in GROUPS if size <= min(limit, end - pair))
                groups.append(Group(pair, int(self.starts[pair]), count, length))
                pair += count
        return groups

    @property
    def first_rows(self) -> np.ndarray:
        """(pairs,) row of each pair's first token."""
        return self.starts[:-1]
