"""Encodings that wait between two exits, in bounded memory."""

from __future__ import annotations

import os
import tempfile
from typing import IO, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import mxnet as mx
import numpy as np


class _Spilled(NamedTuple):
    """A micro-batch in the temporary file. It is read, not mapped: a mapped page counts as
    memory."""

    descriptor: int
    offset: int
    shape: Tuple[int, ...]
    dtype: np.dtype

    def read(self) -> np.ndarray:
        raw = os.pread(self.descriptor, self.dtype.itemsize * int(np.prod(self.shape)), self.offset)
        return np.frombuffer(raw, dtype=self.dtype).reshape(self.shape)


Block = Union[mx.nd.NDArray, np.ndarray, _Spilled, None]


class _Store:
    """Blocks in memory up to a budget of bytes, and past it in a temporary file."""

    def __init__(self, budget: int) -> None:
        self._budget, self._used = budget, 0
        self._blocks: List[Block] = []
        self._file: Optional[IO[bytes]] = None

    def _has_room(self, size: int) -> bool:
        """Whether so many bytes more stay in memory; they then count."""
        fits = self._used + size <= self._budget
        self._used += size if fits else 0
        return fits

    def _spill(self, rows: np.ndarray) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the store
        offset = self._file.seek(0, 2)
        self._file.write(rows.tobytes())
        self._file.flush()
        self._blocks.append(_Spilled(self._file.fileno(), offset, rows.shape, rows.dtype))


class HiddenStore(_Store):
    """Encodings of pairs by pair number; past a budget they go to a temporary file.

    Parameters
    ----------
    budget : int
        Bytes held in memory.
    """

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self._place: Dict[int, Tuple[int, int]] = {}

    def put(self, pairs: Sequence[int], hidden: mx.nd.NDArray) -> None:
        """Keep a micro-batch.

        Parameters
        ----------
        pairs : sequence of int
            Numbers of its rows.
        hidden : mxnet.nd.NDArray
            (B, L, C).
        """
        for row, pair in enumerate(pairs):
            self._place[pair] = (len(self._blocks), row)
        if self._has_room(hidden.size * 4):
            self._blocks.append(hidden)
        else:
            self._spill(hidden.asnumpy())

    def take(self, pairs: Sequence[int], length: int, ctx: mx.Context) -> mx.nd.NDArray:
        """Gather rows into a new micro-batch, trimmed or padded to a length.

        Rows are taken in the order in which they were put; what comes before them is let go.

        Parameters
        ----------
        pairs : sequence of int
            Numbers of the rows.
        length : int
            L of the result; no pair may be longer.
        ctx : mxnet.Context

        Returns
        -------
        mxnet.nd.NDArray
            (B, L, C).
        """
        parts: List[mx.nd.NDArray] = []
        start, first = 0, self._place[pairs[0]][0]
        self._blocks[:first] = [None] * first
        while start < len(pairs):
            block = self._place[pairs[start]][0]
            end = start
            while end < len(pairs) and self._place[pairs[end]][0] == block:
                end += 1
            parts.append(
                _rows(
                    self._blocks[block],
                    [self._place[pair][1] for pair in pairs[start:end]],
                    length,
                    ctx,
                )
            )
            start = end
        return parts[0] if len(parts) == 1 else mx.nd.concat(*parts, dim=0)


def _rows(block: Block, rows: List[int], length: int, ctx: mx.Context) -> mx.nd.NDArray:
    if isinstance(block, _Spilled):
        part = mx.nd.array(block.read()[rows, :length], ctx=ctx)
    else:
        part = mx.nd.take(block, mx.nd.array(rows, ctx=ctx, dtype="int32"))
        if part.shape[1] > length:
            part = mx.nd.slice_axis(part, axis=1, begin=0, end=length)
    if part.shape[1] < length:
        padding = mx.nd.zeros((part.shape[0], length - part.shape[1], part.shape[2]), ctx=ctx)
        part = mx.nd.concat(part, padding, dim=1)
    return part


class RowStore(_Store):
    """Encodings of pairs as packed rows, by pair number; past a budget they go to a temporary file.

    Parameters
    ----------
    budget : int
        Bytes held in memory.
    """

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self._place: Dict[int, Tuple[int, int, int]] = {}

    def put(self, pairs: Sequence[int], lengths: np.ndarray, rows: np.ndarray) -> None:
        """Keep a micro-batch.

        Parameters
        ----------
        pairs : sequence of int
            Numbers of its pairs.
        lengths : numpy.ndarray
            Rows of each.
        rows : numpy.ndarray
            (sum of lengths, C); copied.
        """
        start = 0
        for pair, length in zip(pairs, lengths.tolist()):
            self._place[pair] = (len(self._blocks), start, start + length)
            start += length
        if self._has_room(rows.nbytes):
            self._blocks.append(rows.copy())
        else:
            self._spill(rows)

    def take(self, pairs: Sequence[int]) -> List[np.ndarray]:
        """Rows of pairs, each (length, C).

        Pairs are taken in the order in which they were put; what comes before them is let go.

        Parameters
        ----------
        pairs : sequence of int

        Returns
        -------
        list of numpy.ndarray
        """
        first = self._place[pairs[0]][0]
        self._blocks[:first] = [None] * first
        rows: List[np.ndarray] = []
        number, block = -1, np.empty(0, np.float32)
        for pair in pairs:
            place, start, end = self._place[pair]
            if place != number:
                number, kept = place, self._blocks[place]
                assert kept is not None
                block = kept.read() if isinstance(kept, _Spilled) else kept
            rows.append(block[start:end])
        return rows
