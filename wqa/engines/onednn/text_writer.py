"""Encodings of single texts as rows of a joint sequence."""

from __future__ import annotations

import functools
from typing import Optional, Sequence

import numpy as np

from wqa.engines.onednn.library import TYPES, Array, External, Layout, MovingCalls, Scratch
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
        parts = Operations(0.0), Scratch(), tables, kind, units
        self._compiled = functools.lru_cache(ATTENTIONS)(functools.partial(_compile, *parts))

    def write(self, rows: np.ndarray, text: int, out: np.ndarray) -> None:
        """Write the encodings of a text.

        Shapes: `rows` (length, C), `out` (length, C).
        """
        kind = _KINDS[rows.dtype]
        key = (kind, len(rows), text)
        self._compiled(*key)(rows.ctypes.data, out.ctypes.data)


def _compile(
    operations: Operations,
    buffer: Scratch,
    tables: Sequence[Optional[np.ndarray]],
    kind: str,
    units: int,
    given: str,
    length: int,
    text: int,
) -> MovingCalls:
    """Calls that add a table to encodings of the type ``given``."""
    shape = (length, units)
    source = External(Layout(shape, given))
    target = External(Layout(shape, kind))
    convert, table = operations.convert, tables[text]
    if table is None:
        return MovingCalls((source, target), [convert(source, target)])
    addend = Array(Layout(shape, "float32"), np.ascontiguousarray(table, np.float32))
    # Sums are float32, as those of the embeddings.
    total: Array = target
    if kind != "float32":
        total = Array(Layout(shape, "float32"), buffer.take(4 * length * units))
    calls = [] if given == "float32" else [convert(source, total)]
    calls.append(operations.add(total if calls else source, addend, total))
    if total is not target:
        calls.append(convert(total, target))
    return MovingCalls((source, target), calls)
