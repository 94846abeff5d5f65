"""Encodings of single texts as rows of a joint sequence: conversion, and the tables' rows.

Encodings that were stored in 16 bits are converted, and the rows of the position and the type table
are added, while a text is in the cache of the processor. NumPy is
ten times slower.
"""

from __future__ import annotations

import functools
from typing import List, NamedTuple, Optional, Sequence

import numpy as np

from wqa.engines.inputs import as_float32
from wqa.engines.onednn import primitives
from wqa.engines.onednn.library import TYPES, Array, Call, Layout, Scratch
from wqa.engines.onednn.operations import Operations
from wqa.engines.onednn.packed_parts import Recent
from wqa.engines.onednn.primitives import DST, SRC

#: Element type by the NumPy type that carries it.
_KINDS = {np.dtype(carrier): kind for kind, (_, carrier) in TYPES.items()}


class _Writing(NamedTuple):
    """Calls that write a text, and the operands whose addresses are those of the text."""

    source: Array
    target: Array
    calls: List[Call]


class PairRows:
    """Writes encodings of texts into the rows of joint sequences.

    Shapes: `tables` (positions, C).
    """

    def __init__(self, tables: Sequence[Optional[np.ndarray]], kind: str, units: int) -> None:
        self._kind, self._units = kind, units
        self._operations = Operations(0.0)
        self._tables: List[Optional[np.ndarray]] = []
        for table in tables:
            if table is not None:
                table = np.ascontiguousarray(table, np.float32)
            self._tables.append(table)
        self._buffer = Scratch()
        self._writings: Recent[Optional[_Writing]] = Recent()

    def write(self, rows: np.ndarray, text: int, out: np.ndarray) -> None:
        """Write the encodings of a text.

        Shapes: `rows` (length, C), `out` (length, C).
        """
        writing = self._writing(_KINDS[rows.dtype], len(rows), text)
        if writing is None:
            rows = as_float32(rows) if rows.dtype == np.uint16 else rows.astype(np.float32)
            writing = self._writing("float32", len(rows), text)
            assert writing is not None
        writing.source.move(rows.ctypes.data)
        writing.target.move(out.ctypes.data)
        for call in writing.calls:
            call()

    def _writing(self, kind: str, length: int, text: int) -> Optional[_Writing]:
        def build() -> Optional[_Writing]:
            if kind != "float32" and not _is_fast(kind):
                return None
            return self._compile(kind, length, self._tables[text])

        return self._writings.get((kind, length, text), build)

    def _compile(self, kind: str, length: int, table: Optional[np.ndarray]) -> _Writing:
        shape = (length, self._units)
        nothing = np.zeros(1, np.float32)  # each call sets the address
        source = Array(Layout(shape, kind), nothing)
        target = Array(Layout(shape, self._kind), nothing)
        if table is None:
            return _Writing(source, target, [_convert(source, target)])
        addend = Array(Layout(shape, "float32"), table)
        # Sums are float32, as those of the embeddings.
        total = target
        if self._kind != "float32":
            buffer = self._buffer.take(4 * length * self._units)
            total = Array(Layout(shape, "float32"), buffer)
        calls: List[Call] = []
        summand = source
        if kind != "float32":
            calls.append(_convert(source, total))
            summand = total
        calls.append(self._operations.add(summand, addend, total))
        if total is not target:
            calls.append(_convert(total, target))
        return _Writing(source, target, calls)


@functools.lru_cache(maxsize=None)
def _is_fast(kind: str) -> bool:
    """Whether oneDNN has a kernel of its own to convert to float32.

    For a processor with AVX2 and nothing more it falls back to a loop, which is slower than NumPy.
    """
    shape = (32, 32)
    kernel = primitives.convert(Layout(shape, kind), Layout(shape, "float32"))
    return kernel.implementation.startswith("jit")


def _convert(source: Array, target: Array) -> Call:
    kernel = primitives.convert(source.layout, target.layout)
    return kernel.bind({SRC: source, DST: target}, scratch=Scratch())
