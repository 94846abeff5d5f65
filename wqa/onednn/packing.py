"""How the pairs of a micro-batch stand in one matrix of packed rows."""

from __future__ import annotations

from typing import List, NamedTuple

import numpy as np

#: Rows are rounded up to a multiple of this: two of AMX's tiles.
ROWS = 32
#: Pairs of one length that attend together, and scores a head that they may have, so that the
#: scores stay in the cache.
GROUPS, GROUP_SCORES = (16, 8, 4, 2, 1), 1 << 15


class Group(NamedTuple):
    """Neighbouring pairs of one length."""

    pair: int  # index of the first of them
    row: int  # its first row
    pairs: int
    length: int


def round_up(rows: int) -> int:
    """Rows of a compiled shape that holds a number of rows.

    Parameters
    ----------
    rows : int
        Rows that are needed.

    Returns
    -------
    int
        The next multiple of `ROWS`.
    """
    return -(-rows // ROWS) * ROWS


class PackedBatch:
    """Where the pairs of a micro-batch stand.

    Parameters
    ----------
    lengths : numpy.ndarray
        (pairs,) tokens of each pair; equal ones are neighbours.
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
