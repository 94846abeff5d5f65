"""Encodings of single texts as rows of a joint sequence."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence

import numpy as np

from wqa.engines.onednn.library import TYPES, Array, Call, Layout, Scratch
from wqa.engines.onednn.operations import Operations
from wqa.engines.onednn.packed_rows import Recent

#: Element type by the NumPy type that carries it.
_KINDS = {np.dtype(carrier): kind for kind, (_, carrier) in TYPES.items()}


class _Compiled(NamedTuple):
    """Calls that write a text, and the operands whose addresses are those of the text."""

    source: Array
    target: Array
    calls: List[Call]


class TextWriter:
    """Writes encodings of texts into the rows of joint sequences.

    The rows of a table of the text's position in the pair are added while a text is in the cache of
    the processor. NumPy is ten times slower. Shapes: `tables` (positions, C).
    """

    def __init__(self, tables: Sequence[Optional[np.ndarray]], kind: str, units: int) -> None:
        self._kind, self._units, self._tables = kind, units, tables
        self._operations, self._buffer = Operations(0.0), Scratch()
        self._compiled: Recent[_Compiled] = Recent()

    def write(self, rows: np.ndarray, text: int, out: np.ndarray) -> None:
        """Write the encodings of a text.

        Shapes: `rows` (length, C), `out` (length, C).
        """
        kind = _KINDS[rows.dtype]
        key = (kind, len(rows), text)
        compiled = self._compiled.get(key, lambda: self._compile(*key))
        compiled.source.move(rows.ctypes.data)
        compiled.target.move(out.ctypes.data)
        for call in compiled.calls:
            call()

    def _compile(self, kind: str, length: int, text: int) -> _Compiled:
        shape, nothing = (length, self._units), np.zeros(1, np.float32)
        source = Array(Layout(shape, kind), nothing)  # each call sets the address
        target = Array(Layout(shape, self._kind), nothing)
        convert, table = self._operations.convert, self._tables[text]
        if table is None:
            return _Compiled(source, target, [convert(source, target)])
        addend = Array(Layout(shape, "float32"), np.ascontiguousarray(table, np.float32))
        # Sums are float32, as those of the embeddings.
        total = target
        if self._kind != "float32":
            total = Array(Layout(shape, "float32"), self._buffer.take(4 * length * self._units))
        calls = [] if kind == "float32" else [convert(source, total)]
        calls.append(self._operations.add(total if calls else source, addend, total))
        if total is not target:
            calls.append(convert(total, target))
        return _Compiled(source, target, calls)
