"""MXNet's ``.params`` files, read without MXNet.

MXNet believes the header of a file: a wrong number in it ends the process or takes all memory. Here
the file is mapped, and every number is compared with its size.

A file holds a list of arrays, then their names. All numbers are little-endian::

    uint64 0x112, uint64 0, uint64 number of arrays
    an array:  uint32 magic, int32 storage type, int32 ndim, int64 size of each axis,
               int32 device type, int32 device id, int32 type code, values
    uint64 number of names
    a name:    uint64 length, bytes
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from typing import Dict, List, Tuple

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


def map_parameters(path: PathLike) -> Dict[str, np.ndarray]:
    """Map the arrays of a ``.params`` file into memory, by name; values are read when used."""
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    magic, _, count = _numbers(content, "QQQ")
    if magic != FILE_MAGIC:
        raise ValueError("it is no file of MXNet's parameters")
    arrays: List[np.ndarray] = []
    while len(arrays) < count:
        arrays.append(_array(content))
    [names] = _numbers(content, "Q")
    if names != count:
        raise ValueError(f"{count} arrays have {names} names")
    by_name: Dict[str, np.ndarray] = {}
    for array in arrays:
        [length] = _numbers(content, "Q")
        _check_left(content, length)
        name = content.read(length).decode("utf-8")
        if name in by_name:
            raise ValueError(f"{shorten(name)} names two arrays")
        by_name[name] = array
    if content.tell() < len(content):
        raise ValueError("bytes follow the last name")
    return by_name


def _check_left(content: mmap.mmap, size: int) -> None:
    """Check that a number of bytes follow in a file."""
    position = content.tell()
    if size > len(content) - position:
        raise ValueError(
            f"it is cut off, or damaged: {size} bytes from {position} of {len(content)}"
        )


def _numbers(content: mmap.mmap, form: str) -> Tuple[int, ...]:
    """The next numbers of a file, in a format of `struct`."""
    size = struct.calcsize(f"<{form}")
    _check_left(content, size)
    return struct.unpack(f"<{form}", content.read(size))


def _array(content: mmap.mmap) -> np.ndarray:
    """The next array of a file."""
    start = f"the array at byte {content.tell()}"
    magic, storage, axes = _numbers(content, "Iii")
    if magic != ARRAY_MAGIC or storage != 0 or not 1 <= axes <= MOST_AXES:
        raise ValueError(f"{start} is no dense array")
    shape = _numbers(content, f"{axes}q")
    *_, code = _numbers(content, "iii")  # before the type, the device that held the array
    if not 0 <= code < len(TYPES) or min(shape) < 1:
        raise ValueError(f"{start} is of type {code} and shape {shorten(shape)}")
    dtype, count = TYPES[code], math.prod(shape)
    _check_left(content, count * dtype.itemsize)
    values = np.frombuffer(content, dtype, count, content.tell())
    content.seek(values.nbytes, os.SEEK_CUR)
    return values.reshape(shape)


def widen(halves: np.ndarray) -> np.ndarray:
    """Convert bfloat16, whose bits are uint16, to float32."""
    bits = halves.astype("<u4")
    bits <<= 16
    return bits.view("<f4")
