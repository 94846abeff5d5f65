"""Stores for encodings between two exits, in bounded memory."""

from __future__ import annotations

import itertools
import operator
import os
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.errors import StorageError


class Spilled(NamedTuple):
    """A block in the temporary file. It is read, not mapped: a mapped page counts as memory."""

    descriptor: int
    offset: int
    shape: Tuple[int, ...]
    dtype: np.dtype

    def read(self) -> np.ndarray:
        size = self.dtype.itemsize * int(np.prod(self.shape))
        raw = os.pread(self.descriptor, size, self.offset)
        return np.frombuffer(raw, dtype=self.dtype).reshape(self.shape)


#: Encodings in memory, an array of the engine, or in the file; None once they are freed.
Block = Any


class BlockStore:
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
        self._blocks.append(Spilled(self._file.fileno(), offset, rows.shape, rows.dtype))


class RowStore(BlockStore):
    """Encodings of pairs as packed rows, by pair number."""

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self._positions: Dict[int, Tuple[int, int, int]] = {}  # pair: block, first row, end

    def put(self, pairs: Sequence[int], lengths: np.ndarray, rows: np.ndarray) -> None:
        """Store the encodings of a micro-batch, which become the store's.

        Shapes: `lengths` (pairs,), `rows` (sum of lengths, C).
        """
        start = 0
        for pair, length in zip(pairs, lengths.tolist()):
            self._positions[pair] = (len(self._blocks), start, start + length)
            start += length
        if self._reserve(rows.nbytes):
            self._blocks.append(rows)
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
            if isinstance(block, Spilled):
                block = block.read()
            for _, start, end in group:
                rows.append(block[start:end])
        return rows
