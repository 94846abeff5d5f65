"""Stores for encodings between two exits, in bounded memory."""

from __future__ import annotations

import itertools
import operator
import os
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import mxnet as mx
import numpy as np

from wqa.errors import StorageError


class _Spilled(NamedTuple):
    """A block in the temporary file. It is read, not mapped: a mapped page counts as memory."""

    descriptor: int
    offset: int
    shape: Tuple[int, ...]
    dtype: np.dtype

    def read(self) -> np.ndarray:
        size = self.dtype.itemsize * int(np.prod(self.shape))
        raw = os.pread(self.descriptor, size, self.offset)
        return np.frombuffer(raw, dtype=self.dtype).reshape(self.shape)


Block = Union[mx.nd.NDArray, np.ndarray, _Spilled, None]


class _Store:
    """Blocks of encodings, in memory up to a budget and then in a temporary file."""

    def __init__(self, budget: int) -> None:
        self._budget, self._used = budget, 0
        self._blocks: List[Block] = []
        self._file: Optional[Any] = None

    def _reserve(self, size: int) -> bool:
        """Reserve bytes of the budget; False if too few are left."""
        if self._used + size > self._budget:
            return False
        self._used += size
        return True

    def _free(self, count: int) -> None:
        """Free the first blocks."""
        self._blocks[:count] = [None] * count

    def _spill(self, rows: np.ndarray) -> None:
        try:
            if self._file is None:
                # Without a buffer, which would be written again where the disk is full.
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - as the store
            offset = self._file.seek(0, 2)
            left = memoryview(rows.tobytes())
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise StorageError(
                "temporary file",
                f"encodings between two exits cannot be written ({error})",
                f"room for {rows.nbytes} bytes in the folder of temporary files",
                "free space, set TMPDIR to another folder, or raise hidden_bytes",
            ) from None
        self._blocks.append(_Spilled(self._file.fileno(), offset, rows.shape, rows.dtype))


class HiddenStore(_Store):
    """Encodings of pairs as padded blocks, by pair number."""

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self._positions: Dict[int, Tuple[int, int]] = {}  # pair: block, row

    def put(self, pairs: Sequence[int], hidden: mx.nd.NDArray) -> None:
        """Store the encodings of a micro-batch.

        Shapes: `hidden` (B, L, C).
        """
        for row, pair in enumerate(pairs):
            self._positions[pair] = (len(self._blocks), row)
        if self._reserve(hidden.size * 4):
            self._blocks.append(hidden)
        else:
            self._spill(hidden.asnumpy())

    def take(self, pairs: Sequence[int], length: int, ctx: mx.Context) -> mx.nd.NDArray:
        """Gather the encodings of pairs into a micro-batch, trimmed or padded to a length.

        Pairs must be taken in the order in which they were put: earlier blocks are freed.

        Shapes: the result (B, L, C).
        """
        parts: List[mx.nd.NDArray] = []
        positions = [self._positions[pair] for pair in pairs]
        self._free(positions[0][0])
        for block, group in itertools.groupby(positions, key=operator.itemgetter(0)):
            rows = [row for _, row in group]
            parts.append(_rows(self._blocks[block], rows, length, ctx))
        return parts[0] if len(parts) == 1 else mx.nd.concat(*parts, dim=0)


def _rows(block: Block, rows: List[int], length: int, ctx: mx.Context) -> mx.nd.NDArray:
    if isinstance(block, _Spilled):
        part = mx.nd.array(block.read()[rows, :length], ctx=ctx)
    else:
        part = mx.nd.take(block, mx.nd.array(rows, ctx=ctx, dtype="int32"))
        if part.shape[1] > length:
            part = mx.nd.slice_axis(part, axis=1, begin=0, end=length)
    count, positions, units = part.shape
    if positions < length:
        padding = mx.nd.zeros((count, length - positions, units), ctx=ctx)
        part = mx.nd.concat(part, padding, dim=1)
    return part


class RowStore(_Store):
    """Encodings of pairs as packed rows, by pair number."""

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self._positions: Dict[int, Tuple[int, int, int]] = {}  # pair: block, first row, end

    def put(self, pairs: Sequence[int], lengths: np.ndarray, rows: np.ndarray) -> None:
        """Store the encodings of a micro-batch.

        Shapes: `lengths` (pairs,), `rows` (sum of lengths, C).
        """
        start = 0
        for pair, length in zip(pairs, lengths.tolist()):
            self._positions[pair] = (len(self._blocks), start, start + length)
            start += length
        if self._reserve(rows.nbytes):
            self._blocks.append(rows.copy())
        else:
            self._spill(rows)

    def take(self, pairs: Sequence[int]) -> List[np.ndarray]:
        """Encodings of pairs, which must be taken in the order in which they were put.

        Shapes: the result (length, C).
        """
        rows: List[np.ndarray] = []
        positions = [self._positions[pair] for pair in pairs]
        self._free(positions[0][0])
        for index, group in itertools.groupby(positions, key=operator.itemgetter(0)):
            block = self._blocks[index]
            assert block is not None
            if isinstance(block, _Spilled):
                block = block.read()
            for _, start, end in group:
                rows.append(block[start:end])
        return rows
