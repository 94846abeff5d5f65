"""PyTorch checkpoints, written without PyTorch.

The format is that of ``torch.save`` since PyTorch 1.6, as its notes on serialization and the reader
``caffe2/serialize/inline_container.cc`` describe it: a zip archive whose members are stored, not
compressed. ``data.pkl`` is a pickle of protocol 2, in which a tensor is a call of
``torch._utils._rebuild_tensor_v2`` on a persistent id of its storage; ``data/KEY`` holds the
numbers of a storage, at a multiple of 64 bytes. The same tensors give the same bytes.
"""

from __future__ import annotations

import math
import pathlib
import struct
import zipfile
from typing import IO, List, Mapping, Tuple, Union

import numpy as np

#: Folder of the members. PyTorch reads any.
FOLDER = "archive"

#: Version of the format, which every PyTorch since 1.6 reads.
VERSION = b"3\n"

#: The numbers of a storage start at a multiple of this number of bytes.
ALIGNMENT = 64

#: Key of the extra field of a zip header that fills up to the alignment.
_FILLER = b"FB"

#: Size of a local zip header without the name and the extra field.
_HEADER_SIZE = 30

#: Storages from this size on get the fields of zip64, which the header has to make room for.
_LARGE = 1 << 31

#: The date of all members, the first that zip archives can express.
_DATE = (1980, 1, 1, 0, 0, 0)


def write_checkpoint(
    path: pathlib.Path, tensors: Mapping[str, np.ndarray], copies: Mapping[str, str]
) -> None:
    """Write a state dictionary that ``torch.load`` reads, ``weights_only=True`` included."""
    keys = {name: str(number) for number, name in enumerate(tensors)}
    shapes = [(name, tensors[name].shape, keys[name]) for name in tensors]
    shapes += [(name, tensors[target].shape, keys[target]) for name, target in copies.items()]
    with open(path, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        _write_member(archive, file, "data.pkl", pickled_dictionary(shapes))
        _write_member(archive, file, "byteorder", b"little")
        for name, tensor in tensors.items():
            numbers = np.ascontiguousarray(tensor, "<f4").reshape(-1)
            _write_member(archive, file, f"data/{keys[name]}", numbers.view(np.uint8).data)
        _write_member(archive, file, "version", VERSION)


def pickled_dictionary(tensors: List[Tuple[str, Tuple[int, ...], str]]) -> bytes:
    """Pickle a state dictionary."""
    ordered = _global("collections", "OrderedDict") + b")R"  # a call without arguments
    items = []
    for name, shape, key in tensors:
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        storage = [
            _text("storage"),
            _global("torch", "FloatStorage"),
            _text(key),
            _text("cpu"),
            _integer(math.prod(shape)),
        ]
        arguments = [
            _tuple(storage) + b"Q",  # the object of a persistent id
            _integer(0),  # offset
            _tuple([_integer(length) for length in shape]),
            _tuple([_integer(stride) for stride in strides]),
            b"\x89",  # it needs no gradient
            ordered,  # it has no hooks
        ]
        call = _global("torch._utils", "_rebuild_tensor_v2") + _tuple(arguments) + b"R"
        items.append(_text(name) + call)
    return b"\x80\x02" + ordered + b"(" + b"".join(items) + b"u."


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    content = text.encode()
    return b"X" + struct.pack("<I", len(content)) + content


def _integer(value: int) -> bytes:
    if value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def _tuple(values: List[bytes]) -> bytes:
    return b"(" + b"".join(values) + b"t"


def _write_member(
    archive: zipfile.ZipFile, file: IO[bytes], name: str, content: Union[bytes, memoryview]
) -> None:
    """Write a member whose content starts at a multiple of `ALIGNMENT`."""
    member = zipfile.ZipInfo(f"{FOLDER}/{name}", _DATE)
    member.create_system = 3  # Unix, on every system
    is_large = len(content) >= _LARGE
    member.file_size = len(content)
    # In a large member's header, 20 bytes of zip64 come before this field.
    start = file.tell() + _HEADER_SIZE + len(member.filename) + (20 if is_large else 0)
    filler = -(start + 4) % ALIGNMENT
    member.extra = _FILLER + struct.pack("<H", filler) + bytes(filler)
    with archive.open(member, "w", force_zip64=is_large) as target:
        target.write(content)
