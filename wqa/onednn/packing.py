"""Packed rows: the tokens of a micro-batch in one matrix, without padding."""

from __future__ import annotations

from typing import List, NamedTuple

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
    """Round a number of rows up to a compiled shape.

    Parameters
    ----------
    rows : int
        Rows that the shape must hold.

    Returns
    -------
    int
        The next multiple of `ROWS`.
    """
    return -(-rows // ROWS) * ROWS


class PackedBatch:
    """Start row and length of each pair of a micro-batch.

    Parameters
    ----------
    lengths : numpy.ndarray
        (pairs,) tokens of each pair; pairs of equal length must be neighbours.
    """

    def __init__(self, lengths: np.ndarray) -> None:
        self.lengths = lengths
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        self.tokens = int(self.starts[-1])
        self.rows = round_up(self.tokens)
        self.groups: List[Group] = []
        edges = np.flatnonzero(np.diff(lengths, prepend=-1, append=-1))
        for pair, end in zip(edges.tolist(), edges[1:].tolist()):
            self._add_groups(pair, end, int(lengths[pair]))

    def _add_groups(self, pair: int, end: int, length: int) -> None:
        most = max(1, GROUP_SCORES // length**2)
        while pair < end:
            count = next(size for size in GROUPS if size <= min(most, end - pair))
            self.groups.append(Group(pair, int(self.starts[pair]), count, length))
            pair += count

    @property
    def first_rows(self) -> np.ndarray:
        """(pairs,) row of each pair's first token."""
        return self.starts[:-1]
