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
import pickletools
import zipfile
from typing import Any, BinaryIO, Dict, Iterator, NamedTuple, Optional, Tuple

import numpy as np

from wqa.errors import EncoderError, shorten
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

#: Greatest number of opcodes of a pickle, and of its bytes; a checkpoint of 400 tensors has 20,000
#: and 60,000.
MOST_OPCODES, MOST_BYTES = 200_000, 1 << 24

_HINT = "fetch the file again, or take the encoder's model.safetensors"


class Storage(NamedTuple):
    """A block of numbers, which several tensors may share."""

    key: str
    kind: str  # a key of STORAGES
    size: int  # count of numbers


class PickledTensor(NamedTuple):
    """Description of a tensor. Offset and strides count numbers, not bytes."""

    storage: Storage
    offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]


def _tensor(storage: Storage, offset: int, shape: Any, strides: Any, *_: Any) -> PickledTensor:
    """A tensor, without its gradient's flag and hooks."""
    return PickledTensor(storage, offset, tuple(shape), tuple(strides))


#: What stands for the objects that a pickle may name; the type of a storage is its name.
_KNOWN: Dict[Tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    ("torch", "Size"): tuple,
    **{("torch", kind): kind for kind in STORAGES},
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
        _, kind, key, _, size, *view = pid
        if kind not in STORAGES or any(view):
            raise pickle.UnpicklingError("it refers to more than numbers of a tensor")
        return Storage(key, kind, size)


def _load(stream: io.BytesIO) -> Any:
    """Read the next pickle of a stream, unless it has more opcodes than any checkpoint."""
    start = stream.tell()
    for count, _ in enumerate(pickletools.genops(stream)):
        if count >= MOST_OPCODES:
            raise pickle.UnpicklingError(f"more than {MOST_OPCODES:,} opcodes")
    stream.seek(start)
    return _Unpickler(stream).load()


class _Block(NamedTuple):
    """Numbers of a storage: a member of the zip archive, or from an offset of the file on."""

    size: int  # in bytes
    member: str = ""
    offset: int = 0


class PickledTensors:
    """Tensors of a PyTorch checkpoint."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._storage: Tuple[str, Any] = ("", b"")  # the last one that was read
        with self._errors(), open(path, "rb") as file:
            is_zip = zipfile.is_zipfile(file)
            file.seek(0)
            values, self._blocks = _read_zip(file) if is_zip else _read_legacy(file)
            if not isinstance(values, dict):
                raise ValueError(f"a {type(values).__name__}, where a dictionary is expected")
            self._tensors: Dict[str, PickledTensor] = {}
            for name, tensor in values.items():
                if isinstance(tensor, PickledTensor):
                    if type(name) is not str:
                        raise ValueError(f"a tensor with the name {shorten(name)}")
                    self._check(name, tensor)
                    self._tensors[name] = tensor
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}

    def read(self, name: str, start: int = 0, stop: Optional[int] = None) -> np.ndarray:
        """Read a tensor, or rows of it; all rows by default."""
        storage, offset, shape, strides = self._tensors[name]
        dtype = np.dtype(STORAGES[storage.kind])
        with self._errors():
            if 0 in shape:
                return np.zeros(shape, dtype)
            steps = [stride * dtype.itemsize for stride in strides]
            raw = self._read_storage(storage.key)
            rows: np.ndarray = np.ndarray(shape, dtype, raw, offset * dtype.itemsize, steps)
        if shape:
            rows = rows[start:stop]
        return widen(rows) if storage.kind == "BFloat16Storage" else rows

    def _read_storage(self, key: str) -> Any:
        """Read the numbers of a storage, as bytes."""
        if self._storage[0] != key:
            size, member, offset = self._blocks[key]
            self._storage = ("", b"")
            if member:  # zipfile compares its CRC-32
                with zipfile.ZipFile(self.path) as archive:
                    self._storage = (key, archive.read(member))
            else:
                self._storage = (key, np.fromfile(self.path, np.uint8, size, offset=offset))
        return self._storage[1]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert whatever a damaged file raises into an `EncoderError`."""
        try:
            yield
        except Exception as error:
            problem = f"cannot be read ({type(error).__name__}: {error})"
            raise EncoderError(
                self.path, problem, "a PyTorch checkpoint of tensors", _HINT
            ) from None

    def _check(self, name: str, tensor: PickledTensor) -> None:
        """Check that numbers of a tensor lie in its storage, and those of the storage in the file.

        Without the last comparison, strides of 0 make an array of any size from one number.
        """
        storage, offset, shape, strides = tensor
        if not all(type(number) is int for number in (storage.size, offset, *shape, *strides)):
            raise ValueError(f"tensor {shorten(name)} has sizes that are no whole numbers")
        if len(shape) != len(strides) or min(offset, *shape, *strides, 0) < 0:
            raise ValueError(f"tensor {shorten(name)} has no shape and strides that fit")
        last = sum((size - 1) * step for size, step in zip(shape, strides))
        extent = 0 if 0 in shape else 1 + last
        if offset + extent > storage.size or math.prod(shape) > storage.size:
            raise ValueError(f"tensor {shorten(name)} has no numbers of its shape")
        size = storage.size * np.dtype(STORAGES[storage.kind]).itemsize
        block = self._blocks.get(storage.key, _Block(-1))
        if not size <= block.size <= self.path.stat().st_size - block.offset:
            raise ValueError(f"the file ends before tensor {shorten(name)} does")


def _read_zip(file: BinaryIO) -> Tuple[Any, Dict[str, _Block]]:
    """Values of the pickle in a zip archive, and where the numbers of storages are."""
    with zipfile.ZipFile(file) as archive:
        members = {member.filename: member for member in archive.infolist()}
        pickles = [name for name in members if name.endswith("/data.pkl")]
        if len(pickles) != 1 or members[pickles[0]].file_size > MOST_BYTES:
            raise ValueError(f"{len(pickles)} data.pkl of at most {MOST_BYTES:,} bytes")
        for name, member in members.items():
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{shorten(name)} is compressed")
        folder = pickles[0][: -len("data.pkl")]
        order = members.get(f"{folder}byteorder")
        if order is not None and order.file_size != len("little"):
            raise ValueError("its numbers are big-endian")
        values = _load(io.BytesIO(archive.read(pickles[0])))
    blocks = {}
    for name, member in members.items():
        if name.startswith(f"{folder}data/"):
            blocks[name[len(f"{folder}data/") :]] = _Block(member.file_size, name)
    return values, blocks


def _read_legacy(file: BinaryIO) -> Tuple[Any, Dict[str, _Block]]:
    """Values of the pickles before the zip format, and where the numbers of storages are."""
    # Five pickles come before the numbers, of which the first three are tiny.
    stream = io.BytesIO(file.read(3 * MOST_BYTES))
    if _load(stream) != LEGACY_MAGIC:
        raise ValueError("it does not start as a checkpoint does")
    # Two pickles go unused: the protocol's version and the system's word sizes.
    _, _, values, keys = (_load(stream) for _ in range(4))
    widths = {}
    for tensor in values.values():
        if isinstance(tensor, PickledTensor):
            dtype = np.dtype(STORAGES[tensor.storage.kind])
            widths[tensor.storage.key] = dtype.itemsize
    blocks, position = {}, stream.tell()
    for key in keys:
        file.seek(position)
        count = int.from_bytes(file.read(8), "little")
        blocks[key] = _Block(count * widths[key], offset=position + 8)
        position += 8 + count * widths[key]
    return values, blocks
