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

import math
import os
import struct
from typing import IO, Dict, List, NamedTuple, Tuple

import numpy as np

from wqa.errors import shorten
from wqa.io.files import PathLike

#: First number of a file.
FILE_MAGIC = 0x112

#: First number of an array, as MXNet writes it since 1.0.
ARRAY_MAGIC = 0xF993FAC9

#: Types of values by MXNet's codes. It has more, which the parameters of a network never have.
TYPES = tuple(np.dtype(name) for name in ("<f4", "<f8", "<f2", "u1", "<i4", "i1", "<i8", "?"))

#: Greatest number of axes, as in NumPy.
MOST_AXES = 32


class StoredArray(NamedTuple):
    """An array in a file."""

    dtype: np.dtype
    shape: Tuple[int, ...]
    offset: int


def read_layout(path: PathLike) -> Dict[str, StoredArray]:
    """Read types, shapes and positions of the arrays in a ``.params`` file, but no values."""
    layout: Dict[str, StoredArray] = {}
    with open(path, "rb") as file:
        magic, _, count = _read(file, "QQQ")
        if magic != FILE_MAGIC:
            raise ValueError("it is no file of MXNet's parameters")
        arrays: List[StoredArray] = []
        while len(arrays) < count:
            arrays.append(_read_array_header(file))
        [names] = _read(file, "Q")
        if names != count:
            raise ValueError(f"{count} arrays have {names} names")
        for array in arrays:
            [length] = _read(file, "Q")
            _check_left(file, length)
            name = file.read(length).decode("utf-8")
            if name in layout:
                raise ValueError(f"{shorten(name)} names two arrays")
            layout[name] = array
        if file.read(1):
            raise ValueError("bytes follow the last name")
    return layout


def read_array(path: PathLike, stored: StoredArray) -> np.ndarray:
    """Read an array."""
    dtype, shape, offset = stored
    return np.fromfile(path, dtype, math.prod(shape), offset=offset).reshape(shape)


def _read(file: IO[bytes], form: str) -> Tuple[int, ...]:
    """Read numbers in a format of `struct`."""
    size = struct.calcsize(f"<{form}")
    _check_left(file, size)
    return struct.unpack(f"<{form}", file.read(size))


def _check_left(file: IO[bytes], count: int) -> None:
    """Check that a number of bytes follow in a file, before they are read."""
    size = os.fstat(file.fileno()).st_size
    if count > size - file.tell():
        raise ValueError(f"it is cut off, or damaged: {count} bytes from {file.tell()} of {size}")


def _read_array_header(file: IO[bytes]) -> StoredArray:
    """Read the header of an array and pass over its values."""
    start = f"the array at byte {file.tell()}"
    [magic] = _read(file, "I")
    storage, axes = _read(file, "ii")
    if magic != ARRAY_MAGIC or storage != 0 or not 1 <= axes <= MOST_AXES:
        raise ValueError(f"{start} is no dense array")
    shape = _read(file, f"{axes}q")
    *_, code = _read(file, "iii")  # before the type, the device that held the array
    if not 0 <= code < len(TYPES) or min(shape, default=1) < 1:
        raise ValueError(f"{start} is of type {code} and shape {shorten(shape)}")
    stored = StoredArray(TYPES[code], shape, file.tell())
    size = math.prod(shape) * stored.dtype.itemsize
    _check_left(file, size)
    file.seek(size, os.SEEK_CUR)
    return stored


def widen(halves: np.ndarray) -> np.ndarray:
    """Convert bfloat16, whose bits are uint16, to float32."""
    bits = halves.astype("<u4")
    bits <<= 16
    return bits.view("<f4")
