"""Encodings of a document as the bytes of an entry of a cache, in one of four element types.

An entry is the rows of a document, one after another, little-endian. In ``int8`` a scale for each
row, float32, comes before them: a value is its integer times the scale of its row.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

import numpy as np

from wqa.errors import check_choice

#: Element types of entries, and the NumPy types that carry them (bfloat16 as its 16 bits).
STORES: Dict[str, np.dtype] = {
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "float32": np.dtype("<f4"),
    "int8": np.dtype("i1"),
}

_SCALE = np.dtype("<f4")
_WORD = np.dtype("<i8")
#: Half of the number of values of a word.
_HALF = 1 << 63
#: Greatest integer of ``int8``.
_MOST = 127
#: Bits of a bfloat16's exponent, which are all set in NaN and infinity.
_EXPONENT = np.uint16(0x7F80)


class EntryFormat:
    """Layout of the entries of a cache.

    Parameters
    ----------
    units : int
        C, the width of an encoding.
    store : str
        Element type, a key of `STORES`.

    Attributes
    ----------
    units : int
        C, as given.
    store : str
        The element type, as given.
    dtype : numpy.dtype
        Type of the arrays that `read` returns: that of the store, float32 for int8.

    Raises
    ------
    OptionError
        If the element type is unknown.
    """

    def __init__(self, units: int, store: str) -> None:
        check_choice("store", store, STORES)
        self.units = units
        self.store = store
        self._element = STORES[store]
        self._scale_bytes = _SCALE.itemsize if store == "int8" else 0
        self.dtype = _SCALE if store == "int8" else self._element

    def size(self, rows: int) -> int:
        """Bytes of an entry.

        Parameters
        ----------
        rows : int
            Number of its rows.

        Returns
        -------
        int
        """
        return rows * (self._scale_bytes + self.units * self._element.itemsize)

    def pack(self, encodings: np.ndarray) -> bytes:
        """Convert encodings to the bytes of an entry.

        Parameters
        ----------
        encodings : numpy.ndarray
            (rows, C): float32, or uint16 that holds the bits of bfloat16.

        Returns
        -------
        bytes
            The entry. Values that float16 cannot represent become infinite.
        """
        if self.store == "bfloat16":
            return _as_bfloat16(encodings).tobytes()
        with np.errstate(over="ignore", invalid="ignore"):  # `is_finite` tells
            return self._pack(_as_float32(encodings))

    def _pack(self, values: np.ndarray) -> bytes:
        if self.store != "int8":
            return values.astype(self._element).tobytes()
        scales = np.abs(values).max(axis=1, keepdims=True) / np.float32(_MOST)
        divisors = np.where(scales > 0, scales, np.float32(1))  # a row of zeros stays zero
        rounded = np.rint(values / divisors).astype(self._element)
        return scales.astype(_SCALE).tobytes() + rounded.tobytes()

    def is_finite(self, packed: bytes, rows: int) -> bool:
        """Whether all values of an entry are finite numbers.

        Parameters
        ----------
        packed : bytes
            The entry, as `pack` returns it.
        rows : int
            Number of its rows.

        Returns
        -------
        bool
        """
        with np.errstate(invalid="ignore"):
            values = self.read(np.frombuffer(packed, np.uint8), rows, rows)
        if self.store == "bfloat16":
            return bool(((values & _EXPONENT) != _EXPONENT).all())
        return bool(np.isfinite(values).all())

    def read(self, entry: np.ndarray, rows: int, count: int) -> np.ndarray:
        """Take the first rows of an entry. Other rows are not read.

        Parameters
        ----------
        entry : numpy.ndarray
            Bytes of the entry, uint8.
        rows : int
            Number of its rows.
        count : int
            Number of rows to take.

        Returns
        -------
        numpy.ndarray
            (count, C) of type `dtype`: a view of the bytes, or a new array for int8.
        """
        start = rows * self._scale_bytes
        end = start + count * self.units * self._element.itemsize
        values = entry[start:end].view(self._element).reshape(count, self.units)
        if self.store != "int8":
            return values
        scales = entry[: count * self._scale_bytes].view(_SCALE)
        return np.multiply(values, scales[:, None], dtype=np.float32)

    def checksum(self, entry: np.ndarray, rows: int, count: int) -> int:
        """Sum of the first rows of an entry, and of their scales. Other rows are not read.

        It is the sum of their 64-bit words, modulo 2**64. A changed word, or a page that was not
        written, changes it. It takes a fifth of the time of CRC-32.

        Parameters
        ----------
        entry, rows, count
            As `read` takes them.

        Returns
        -------
        int
            A number of 64 bits with a sign.
        """
        total = 0
        for start, end in self._parts(rows, count):
            whole = end - (end - start) % _WORD.itemsize
            total += int(np.add.reduce(entry[start:whole].view(_WORD)))
            if whole < end:
                total += int.from_bytes(entry[whole:end].tobytes(), "little")
        return (total + _HALF) % (2 * _HALF) - _HALF

    def _parts(self, rows: int, count: int) -> List[Tuple[int, int]]:
        """Start and end of the bytes of the first rows."""
        if count == rows:
            return [(0, self.size(rows))]
        scales = rows * self._scale_bytes
        end = scales + count * self.units * self._element.itemsize
        return [(0, count * self._scale_bytes), (scales, end)]


def _as_float32(encodings: np.ndarray) -> np.ndarray:
    if encodings.dtype == np.uint16:
        return (encodings.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(encodings, np.float32)


def _as_bfloat16(encodings: np.ndarray) -> np.ndarray:
    """The upper halves of float32 numbers, rounded to the nearest, ties to even."""
    if encodings.dtype == np.uint16:
        return encodings
    bits = np.ascontiguousarray(encodings, np.float32).view(np.uint32)
    rounded = bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)
    return (rounded >> 16).astype(np.uint16)
