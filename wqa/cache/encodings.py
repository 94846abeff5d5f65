"""Encodings of a document as the bytes of an entry of a cache, in one of four element types.

An entry is the rows of a document, one after another, little-endian. In ``int8`` a scale for each
row, float32, comes before them: a value is its integer times the scale of its row.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

import numpy as np

from wqa.errors import DataError, check_choice, shorten
from wqa.io.arrays import widen

#: Element types of entries, and the NumPy types that carry them (bfloat16 as its 16 bits).
STORES: Dict[str, np.dtype] = {
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "float32": np.dtype("<f4"),
    "int8": np.dtype("i1"),
}

_SCALE = np.dtype("<f4")
_WORD = np.dtype("<i8")
#: Greatest integer of ``int8``.
_MOST = np.float32(127)
#: Bits of a bfloat16 that is no number.
_NAN = 0x7FC0


class EntryFormat:
    """Layout of the entries of a cache."""

    def __init__(self, units: int, store: str) -> None:
        check_choice("store", store, STORES)
        self.units = units
        self.store = store
        self._element = STORES[store]
        self._row_bytes = units * self._element.itemsize
        self._scale_bytes = 0
        self.dtype = self._element
        if store == "int8":
            self._scale_bytes = _SCALE.itemsize
            self.dtype = _SCALE

    def size(self, rows: int) -> int:
        """Bytes of an entry."""
        return rows * (self._scale_bytes + self._row_bytes)

    def pack(self, encodings: np.ndarray) -> bytes:
        """Convert encodings to the bytes of an entry.

        Shapes: `encodings` (rows, C).
        """
        if self.store == "bfloat16":
            return _as_bfloat16(encodings).tobytes()
        with np.errstate(over="ignore", invalid="ignore"):  # `is_finite` tells
            return self._pack(_as_float32(encodings))

    def _pack(self, values: np.ndarray) -> bytes:
        if self.store != "int8":
            return values.astype(self._element).tobytes()
        greatest = np.abs(values).max(axis=1, keepdims=True)
        scales = (greatest / _MOST).astype(_SCALE)
        divisors = scales.copy()
        divisors[scales == 0] = 1  # a row of zeros stays zero
        integers = np.rint(values / divisors)
        integers = integers.astype(self._element)
        return scales.tobytes() + integers.tobytes()

    def is_finite(self, packed: bytes, rows: int) -> bool:
        """Whether all values of an entry are finite numbers."""
        entry = np.frombuffer(packed, np.uint8)
        with np.errstate(invalid="ignore"):
            values = self.read(entry, rows, rows)
        if self.store == "bfloat16":
            values = _as_float32(values)
        return bool(np.isfinite(values).all())

    def read(self, entry: np.ndarray, rows: int, count: int) -> np.ndarray:
        """Take the first rows of an entry. Other rows are not read.

        Shapes: the result (count, C).
        """
        start, end = self._bounds(rows, count)
        values = entry[start:end].view(self._element)
        values = values.reshape(count, self.units)
        if self.store != "int8":
            return values
        scales = entry[: count * self._scale_bytes].view(_SCALE)
        return np.multiply(values, scales[:, None], dtype=np.float32)

    def checksum(self, entry: np.ndarray, rows: int, count: int) -> int:
        """Sum of the first rows of an entry, and of their scales. Other rows are not read.

        It is the sum of their 64-bit words, modulo 2**64. A changed word, or a page that was not
        written, changes it. It takes a fifth of the time of CRC-32.
        """
        start, end = self._bounds(rows, count)
        total = _sum(entry[start:end])
        if self._scale_bytes:
            scales = count * self._scale_bytes
            total += _sum(entry[:scales])
        half = 1 << 63
        return (total + half) % (2 * half) - half  # modulo 2**64, with a sign

    def _bounds(self, rows: int, count: int) -> Tuple[int, int]:
        """Start and end of the first rows, which lie behind the scales of all."""
        start = rows * self._scale_bytes
        return start, start + count * self._row_bytes


class PackedDocument(NamedTuple):
    """A document as a cache stores it."""

    id: str
    digest: bytes
    content: np.ndarray
    rows: int
    truncated: bool


def pack_document(
    format: EntryFormat,
    tokens: int,
    id: str,
    digest: bytes,
    encodings: np.ndarray,
    truncated: bool = False,
) -> PackedDocument:
    """Convert the encodings of a document to its entry.

    Shapes: `encodings` (rows, C).
    """
    rows = encodings[: tokens or None]
    if not len(rows) or rows.shape[1:] != (format.units,):
        expected = f"rows of {format.units} values"
        raise DataError(f"document {shorten(id)}", f"encodings of {rows.shape}", expected)
    packed = format.pack(rows)
    if not format.is_finite(packed, len(rows)):
        raise DataError(
            f"document {shorten(id)}",
            f"encodings that are no finite numbers in {format.store}",
            "finite numbers",
            "take store float32; if it fails too, the weights are damaged",
        )
    is_cut = truncated or len(rows) < len(encodings)
    return PackedDocument(id, digest, np.frombuffer(packed, np.uint8), len(rows), is_cut)


def _sum(content: np.ndarray) -> int:
    """Sum of the words of some bytes; those behind the last whole word are a word too."""
    left = len(content) % _WORD.itemsize
    whole = len(content) - left
    words = content[:whole].view(_WORD)
    total = np.add.reduce(words)
    rest = content[whole:].tobytes()
    return int(total) + int.from_bytes(rest, "little")


def _as_float32(encodings: np.ndarray) -> np.ndarray:
    if encodings.dtype == np.uint16:
        return widen(encodings)
    return np.asarray(encodings, np.float32)


def _as_bfloat16(encodings: np.ndarray) -> np.ndarray:
    """The upper halves of float32 numbers, rounded to the nearest, ties to even."""
    if encodings.dtype == np.uint16:
        return encodings
    values = np.ascontiguousarray(encodings, np.float32)
    bits = values.view(np.uint32)
    is_odd = (bits >> 16) & 1
    rounded = bits + is_odd + np.uint32(0x7FFF)
    rounded >>= 16
    upper = rounded.astype(np.uint16)
    upper[np.isnan(values)] = _NAN  # whose bits may have become those of a number
    return upper
