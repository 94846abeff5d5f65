"""Encodings of single texts as rows of a joint sequence."""

from __future__ import annotations

import functools
from typing import Optional, Sequence

import numpy as np

from wqa.engines.onednn.library import TYPES, Array, Layout, MovingCalls, Scratch
from wqa.engines.onednn.operations import Operations
from wqa.engines.onednn.packed_rows import ATTENTIONS

#: Element type by the NumPy type that carries it.
_KINDS = {np.dtype(carrier): kind for kind, (_, carrier) in TYPES.items()}


class TextWriter:
    """Writes encodings of texts into the rows of joint sequences.

    The rows of a table of the text's position in the pair are added while a text is in the cache of
    the processor. NumPy is ten times slower. Shapes: `tables` (positions, C).
    """

    def __init__(self, tables: Sequence[Optional[np.ndarray]], kind: str, units: int) -> None:
        self._kind, self._units, self._tables = kind, units, tables
        self._operations, self._buffer = Operations(0.0), Scratch()
        self._compiled = functools.lru_cache(ATTENTIONS)(self._compile)

    def write(self, rows: np.ndarray, text: int, out: np.ndarray) -> None:
        """Write the encodings of a text.

        Shapes: `rows` (length, C), `out` (length, C).
        """
        kind = _KINDS[rows.dtype]
        key = (kind, len(rows), text)
        self._compiled(*key)(rows.ctypes.data, out.ctypes.data)

    def _compile(self, kind: str, length: int, text: int) -> MovingCalls:
        shape = (length, self._units)
        source = Array.elsewhere(Layout(shape, kind))
        target = Array.elsewhere(Layout(shape, self._kind))
        convert, table = self._operations.convert, self._tables[text]
        if table is None:
            return MovingCalls((source, target), [convert(source, target)])
        addend = Array(Layout(shape, "float32"), np.ascontiguousarray(table, np.float32))
        # Sums are float32, as those of the embeddings.
        total = target
        if self._kind != "float32":
            total = Array(Layout(shape, "float32"), self._buffer.take(4 * length * self._units))
        calls = [] if kind == "float32" else [convert(source, total)]
        calls.append(self._operations.add(total if calls else source, addend, total))
        if total is not target:
            calls.append(convert(total, target))
        return MovingCalls((source, target), calls)
