"""Stored outputs of a reference, which `convert` compares an encoder with, in bounded memory.

A ``.npz`` file is a zip archive: a member of some kilobytes can unpack to gigabytes, and its header
can declare a shape of any size. So the sizes that the archive declares are compared with those that
a comparison needs, before anything is unpacked.
"""

from __future__ import annotations

import io
import math
import zipfile
from typing import Dict

import numpy as np
from numpy.lib import format as npy

from wqa.config import BackboneConfig
from wqa.errors import EncoderError, shorten

#: Greatest number of tokens in stored outputs, the padding included.
MOST_TOKENS = 1 << 14

#: Greatest size of the header of an array in bytes.
MOST_HEADER = 10_000

#: Greatest size of a number in bytes.
_WIDEST = 8


def read_outputs(path: str, config: BackboneConfig) -> Dict[str, np.ndarray]:
    """Read the outputs of a reference."""
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {"token_ids": _array(archive, "token_ids", MOST_TOKENS)}
            tokens = arrays["token_ids"].size
            counts = {
                "token_types": tokens,
                "valid_length": tokens,
                "states": (1 + config.num_layers) * tokens * config.units,
                "logits": 2 * tokens,
            }
            stored = set(archive.namelist())
            for name, most in counts.items():
                if name in ("valid_length", "states") or f"{name}.npy" in stored:
                    arrays[name] = _array(archive, name, most)
        arrays.setdefault("token_types", np.zeros_like(arrays["token_ids"]))
        return arrays
    except Exception as error:  # a damaged archive can raise anything
        raise EncoderError(
            path,
            f"cannot be read ({error})",
            "token_ids, valid_length and states in NumPy's .npz format",
        ) from None


def _array(archive: zipfile.ZipFile, name: str, most: int) -> np.ndarray:
    """An array of at most some numbers."""
    member = archive.getinfo(f"{name}.npy")
    limit = MOST_HEADER + _WIDEST * most
    if member.file_size > limit:
        raise ValueError(f"{name} of {member.file_size:,} bytes, where at most {limit:,} are used")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is compressed in another way than NumPy does")
    with archive.open(member) as file:
        # With a size, as much is unpacked as the archive declares, and no more.
        content = file.read(member.file_size)
    start = io.BytesIO(content[:MOST_HEADER])
    version = npy.read_magic(start)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, is_fortran, dtype = read_header(start)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - start.tell():
        raise ValueError(f"{name} has no numbers of its shape {shorten(shape)}")
    values = np.frombuffer(content, dtype, offset=start.tell())
    return values.reshape(shape, order="F" if is_fortran else "C")
