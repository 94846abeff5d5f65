"""PyTorch checkpoints, read without PyTorch and without running code of the file.

A checkpoint is a pickle of names and descriptions of tensors beside their numbers. Since PyTorch
1.6 it is a zip archive; before, as in TANDA's released files, it was one file of several pickles.
"""

from __future__ import annotations

import collections
import contextlib
import io
import math
import pathlib
import pickle
import struct
import zipfile
from typing import Any, BinaryIO, Dict, Iterator, NamedTuple, Tuple, Type

import numpy as np

from wqa.errors import EncoderError, WqaError, shorten
from wqa.io.files import PathLike
from wqa.io.parameter_files import widen

#: NumPy types of PyTorch's storages; the numbers are little-endian. bfloat16 is read as uint16.
STORAGES = {
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "<u2",
    "DoubleStorage": "<f8",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}

#: First number of a checkpoint from before the zip format.
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C

#: Greatest size of a pickle in bytes; that of a checkpoint of 400 tensors has 60,000.
MOST_BYTES = 1 << 24


@contextlib.contextmanager
def reading(
    path: PathLike, expected: str = "", kind: Type[WqaError] = EncoderError
) -> Iterator[None]:
    """Convert whatever a damaged file raises into an error of this package."""
    try:
        yield
    except Exception as error:
        problem = f"cannot be read ({type(error).__name__}: {error})"
        raise kind(path, problem, expected, "fetch or restore the file") from None


class Storage(NamedTuple):
    """A block of numbers, which several tensors may share."""

    key: str
    dtype: np.dtype


class PickledTensor(NamedTuple):
    """Description of a tensor. Offset and strides count numbers, not bytes."""

    storage: Storage
    offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]


def _tensor(storage: Storage, offset: int, shape: Any, strides: Any, *_: Any) -> PickledTensor:
    """A tensor, without its gradient's flag and hooks."""
    return PickledTensor(storage, offset, tuple(shape), tuple(strides))


#: What stands for the objects that a pickle may name.
_KNOWN: Dict[Tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    ("torch", "Size"): tuple,
    **{("torch", kind): np.dtype(name) for kind, name in STORAGES.items()},
}


class _Unpickler(pickle.Unpickler):
    """Reads a pickle that names tensors and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            name = shorten(f"{module[:60]}.{name[:60]}")
            raise pickle.UnpicklingError(f"it asks for {name}; nothing of it was run")
        return _KNOWN[module, name]

    def persistent_load(self, pid: Any) -> Storage:
        # Before the zip format, a view of another storage may follow.
        _, dtype, key, _, _, *view = pid
        if not isinstance(dtype, np.dtype) or any(view):
            raise pickle.UnpicklingError("it refers to more than numbers of a tensor")
        return Storage(key, dtype)


#: The bytes of each storage in the file: the first, and their number.
Blocks = Dict[str, Tuple[int, int]]


class PickledTensors:
    """Tensors of a PyTorch checkpoint."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        with self._reading(), open(path, "rb") as file:
            self._is_unchecked = zipfile.is_zipfile(file)
            file.seek(0)
            read_pickles = _read_zip if self._is_unchecked else _read_legacy
            values, self._blocks = read_pickles(file)
            self._tensors: Dict[str, PickledTensor] = {}
            self.shapes: Dict[str, Tuple[int, ...]] = {}
            for name, tensor in values.items():
                if isinstance(name, str) and isinstance(tensor, PickledTensor):
                    self._tensors[name] = tensor
                    self.shapes[name] = self._view(name).shape

    def read(self, name: str) -> np.ndarray:
        """Read a tensor."""
        with self._reading():
            if self._is_unchecked:
                with zipfile.ZipFile(self.path) as archive:
                    damaged = archive.testzip()
                if damaged:
                    raise ValueError(f"{shorten(damaged)} has another CRC-32")
                self._is_unchecked = False
            values = self._view(name).copy()  # the mapped pages are released
        return widen(values) if values.dtype == STORAGES["BFloat16Storage"] else values

    def _reading(self) -> contextlib.AbstractContextManager:
        return reading(self.path, "a PyTorch checkpoint of tensors")

    def _view(self, name: str) -> np.ndarray:
        """Map a tensor from the file; NumPy compares its extent with that of the storage."""
        (key, dtype), offset, shape, strides = self._tensors[name]
        start, size = self._blocks[key]
        # Strides of 0 would make a tensor of any size from one number.
        if math.prod(shape) * dtype.itemsize > size:
            raise ValueError(f"tensor {shorten(name)} has no numbers of its shape")
        if 0 in shape:
            return np.zeros(shape, dtype)
        storage = np.memmap(self.path, np.uint8, "r", start, (size,))
        steps = [stride * dtype.itemsize for stride in strides]
        return np.ndarray(shape, dtype, storage, offset * dtype.itemsize, steps)


def _read_zip(file: BinaryIO) -> Tuple[Any, Blocks]:
    """Values of the pickle in a zip archive, and where in the file the storages are."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        for member in members:
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{shorten(member.filename)} is compressed")
        pickles = [member for member in members if member.filename.endswith("/data.pkl")]
        if len(pickles) != 1 or pickles[0].file_size > MOST_BYTES:
            raise ValueError(f"{len(pickles)} data.pkl of at most {MOST_BYTES:,} bytes")
        values = _Unpickler(io.BytesIO(archive.read(pickles[0]))).load()
    folder = pickles[0].filename[: -len("data.pkl")]
    blocks = {}
    for member in members:
        if member.filename.startswith(f"{folder}data/"):
            # A header of 30 bytes, which ends with the sizes of a name and an extra field.
            file.seek(member.header_offset + 26)
            sizes = struct.unpack("<HH", file.read(4))
            key = member.filename[len(f"{folder}data/") :]
            blocks[key] = (member.header_offset + 30 + sum(sizes), member.file_size)
    return values, blocks


def _read_legacy(file: BinaryIO) -> Tuple[Any, Blocks]:
    """Values of the pickles before the zip format, and where in the file the storages are."""
    # Five pickles come before the numbers, of which the first three are tiny.
    stream = io.BytesIO(file.read(3 * MOST_BYTES))
    if _Unpickler(stream).load() != LEGACY_MAGIC:
        raise ValueError("it does not start as a checkpoint does")
    # Two pickles go unused: the protocol's version and the system's word sizes.
    _, _, values, keys = (_Unpickler(stream).load() for _ in range(4))
    widths = {}
    for tensor in values.values():
        if isinstance(tensor, PickledTensor):
            widths[tensor.storage.key] = tensor.storage.dtype.itemsize
    blocks, position = {}, stream.tell()
    for key in keys:
        file.seek(position)
        count = int.from_bytes(file.read(8), "little")
        blocks[key] = (position + 8, count * widths[key])
        position = sum(blocks[key])
    return values, blocks
