"""MXNet's ``.params`` files, read without MXNet.

MXNet believes the header of a file: a wrong number in it ends the process or takes all memory. Here
every number is compared with the size of the file before anything is allocated.

A file holds a list of arrays, then their names. All numbers are little-endian::

    uint64 0x112, uint64 0, uint64 number of arrays
    an array:  uint32 magic, int32 storage type, int32 ndim, int64 size of each axis,
               int32 device type, int32 device id, int32 type code, values
    uint64 number of names
    a name:    uint64 length, bytes
"""

from __future__ import annotations

import collections
import math
import os
import struct
from typing import IO, Any, Dict, NamedTuple, Tuple

import numpy as np

from wqa.config.runs import open_file
from wqa.errors import shorten
from wqa.io.files import PathLike

#: First number of a file.
FILE_MAGIC = 0x112

#: First number of an array: as MXNet writes it since 1.0, the same with NumPy's semantics (where
#: a scalar has no axis), and before 1.0, without the storage type.
PLAIN_MAGIC, NUMPY_MAGIC, OLD_MAGIC = 0xF993FAC9, 0xF993FACA, 0xF993FAC8

#: Types of values by MXNet's codes. It has more, which the parameters of a network never have.
TYPES: Dict[int, np.dtype] = {
    0: np.dtype("<f4"),
    1: np.dtype("<f8"),
    2: np.dtype("<f2"),
    3: np.dtype("u1"),
    4: np.dtype("<i4"),
    5: np.dtype("i1"),
    6: np.dtype("<i8"),
    7: np.dtype("?"),
}

#: Greatest number of axes, as in NumPy.
MOST_AXES = 32

#: Greatest number of arrays. The largest networks have a few thousand.
MOST_ARRAYS = 1 << 16


class StoredArray(NamedTuple):
    """An array in a file."""

    dtype: np.dtype
    shape: Tuple[int, ...]
    offset: int


def read_layout(path: PathLike) -> Dict[str, StoredArray]:
    """Read types, shapes and positions of the arrays in a ``.params`` file, but no values."""
    with open_file(path) as file:
        header = _Header(file)
        if header.take("Q") != FILE_MAGIC:
            raise ValueError("it is no file of MXNet's parameters")
        header.take("Q")
        arrays = [_array(header) for _ in range(header.count("arrays"))]
        names = [_name(header) for _ in range(header.count("names"))]
        if header.left():
            raise ValueError(f"{header.left()} bytes follow the last name")
    if arrays and not names:
        raise ValueError("its arrays have no names")
    if len(names) != len(arrays):
        raise ValueError(f"{len(arrays)} arrays have {len(names)} names")
    layout = dict(zip(names, arrays))
    if len(layout) < len(names):
        name, _ = collections.Counter(names).most_common(1)[0]
        raise ValueError(f"{shorten(name)} names two arrays")
    return layout


def read_array(path: PathLike, stored: StoredArray, start: int = 0, stop: int = -1) -> np.ndarray:
    """Read an array, or rows of it."""
    dtype, shape, offset = stored
    if stop >= 0:
        shape = (stop - start, *shape[1:])
        offset += start * math.prod(shape[1:]) * dtype.itemsize
    values = np.fromfile(path, dtype, math.prod(shape), offset=offset)
    if values.size != math.prod(shape):
        raise ValueError("it is cut off")
    return values.reshape(shape)


def is_finite(array: np.ndarray) -> bool:
    """Whether an array holds neither NaN nor infinity."""
    return bool(np.isfinite(array).all())


class _Header:
    """Reads a file from its start, field by field.

    Each method takes the bytes that follow. It raises a ValueError, before it reads or allocates,
    if they go beyond the end of the file.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size

    def left(self) -> int:
        """Number of bytes that are not read yet."""
        return self._size - self._file.tell()

    def bytes(self, count: int) -> bytes:
        """Read bytes."""
        self._check(count)
        return self._file.read(count)

    def take(self, form: str) -> Any:
        """Read one number in a format of `struct`."""
        return struct.unpack(f"<{form}", self.bytes(struct.calcsize(f"<{form}")))[0]

    def skip(self, count: int) -> None:
        """Pass over bytes."""
        self._check(count)
        self._file.seek(count, os.SEEK_CUR)

    def count(self, what: str) -> int:
        """Read the number of arrays or names that follow."""
        number = self.take("Q")
        if number > MOST_ARRAYS:
            raise ValueError(f"it is damaged: {number} {what} are more than {MOST_ARRAYS}")
        return number

    def offset(self) -> int:
        """Number of bytes that are read."""
        return self._file.tell()

    def _check(self, count: int) -> None:
        if count > self.left():
            raise ValueError(
                f"it is cut off, or damaged: {count} bytes from byte {self.offset()} on would lie "
                f"behind its end at byte {self._size}"
            )


def _array(header: _Header) -> StoredArray:
    """Read the header of an array and pass over its values."""
    start = header.offset()
    magic = header.take("I")
    if magic not in (PLAIN_MAGIC, NUMPY_MAGIC, OLD_MAGIC):
        raise ValueError(f"no array begins at byte {start}")
    if magic != OLD_MAGIC and header.take("i") != 0:
        raise ValueError(f"the array at byte {start} is not dense")
    axes = header.take("i")
    least = 0 if magic == NUMPY_MAGIC else 1
    if not least <= axes <= MOST_AXES:
        raise ValueError(f"the array at byte {start} has {axes} axes")
    shape = tuple(header.take("q") for _ in range(axes))
    if any(size < 1 for size in shape):
        raise ValueError(f"the array at byte {start} has the shape {shorten(shape)}")
    header.skip(8)  # the device that held the array
    code = header.take("i")
    if code not in TYPES:
        raise ValueError(f"the array at byte {start} is of the unknown type {code}")
    offset = header.offset()
    header.skip(math.prod(shape) * TYPES[code].itemsize)
    return StoredArray(TYPES[code], shape, offset)


def _name(header: _Header) -> str:
    try:
        return header.bytes(header.take("Q")).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("a name is not UTF-8") from None


def widen(halves: np.ndarray) -> np.ndarray:
    """Convert bfloat16, whose bits are uint16, to float32."""
    bits = halves.astype("<u4")
    bits <<= 16
    return bits.view("<f4")
