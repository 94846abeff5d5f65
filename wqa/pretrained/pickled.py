"""PyTorch checkpoints, read without PyTorch and without running code from the pickle.

A checkpoint is a pickle of names and tensor descriptions beside the raw numbers. Since PyTorch 1.6
it is a zip archive; before, it was one file of several pickles. Tensors and ordered dictionaries
are all that a pickle may name; `wqa.pretrained.pickling` reads it and calls nothing else.
"""

from __future__ import annotations

import io
import math
import pathlib
import zipfile
import zlib
from typing import Any, BinaryIO, Dict, NamedTuple, Optional, Set, Tuple

import numpy as np

from wqa.config.runs import open_file
from wqa.errors import EncoderError, shorten
from wqa.io.parameter_files import widen
from wqa.pretrained.pickling import MOST_BYTES, Unpickler

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

#: The storage that holds the upper halves of float32 numbers.
BFLOAT16 = "BFloat16Storage"

#: First number of a checkpoint from before the zip format.
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C

_MEND = "fetch the file again, or take the encoder's model.safetensors"


#: Bytes that are read at a time to check them.
CHECKED_BYTES = 1 << 20

#: Greatest size of an axis, a step or a storage, beyond that of any file.
MOST_NUMBERS = 1 << 62


class StorageType(NamedTuple):
    """What stands for the type of a storage in a pickle."""

    kind: str  # a key of STORAGES


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


class _Block(NamedTuple):
    """Where a storage's numbers lie in the file."""

    offset: int
    size: int  # in bytes
    checksum: Optional[int]  # CRC-32; None before the zip format


def _dictionary(pairs: Any = ()) -> Dict[str, Any]:
    dictionary = {}
    for pair in pairs:
        if len(pair) != 2 or type(pair[0]) is not str:
            raise ValueError("a dictionary with a key that is no string")
        dictionary[pair[0]] = pair[1]
    return dictionary


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> PickledTensor:
    """A tensor; since 0.4 PyTorch writes its gradient's flag and hooks behind it."""
    if type(storage) is not Storage:
        raise ValueError("a tensor without numbers")
    shape, strides = _sizes(shape), _sizes(strides)
    (offset,) = _sizes((offset,))
    if len(shape) != len(strides):
        raise ValueError(f"a tensor of {len(shape)} axes with {len(strides)} strides")
    return PickledTensor(storage, offset, shape, strides)


def _sizes(sizes: Any) -> Tuple[int, ...]:
    if type(sizes) not in (tuple, list):
        raise ValueError("a tensor's sizes are no tuple")
    for size in sizes:
        if type(size) is not int or not 0 <= size <= MOST_NUMBERS:
            raise ValueError(f"a tensor's size is {_describe(size)}")
    return tuple(sizes)


def _describe(value: Any) -> str:
    """Quote a value of a pickle, but never one that holds others."""
    if isinstance(value, (str, int, float)):
        return shorten(value)
    return f"a {type(value).__name__}"


def _parameter(tensor: Any, *_: Any) -> Any:
    """The tensor of a parameter, without its gradient's flag and hooks."""
    return tensor


#: What stands for the objects that a pickle may name.
_KNOWN: Dict[Tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _dictionary,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch", "Size"): _sizes,
    **{("torch", kind): StorageType(kind) for kind in STORAGES},
}


class PickledTensors:
    """Tensors of a PyTorch checkpoint."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._checked: Set[str] = set()
        try:
            with open_file(path) as file:
                read = self._zipped if zipfile.is_zipfile(file) else self._legacy
                file.seek(0)
                names, self._blocks = read(file)
        except EncoderError:
            raise
        except Exception as error:  # a damaged pickle can raise anything
            problem = f"cannot be read ({type(error).__name__}: {error})"
            raise self._error(problem, "a PyTorch checkpoint") from None
        self._tensors = {
            name: tensor for name, tensor in names.items() if isinstance(tensor, PickledTensor)
        }
        for name, tensor in self._tensors.items():
            self._check(name, tensor)
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}

    def read(self, name: str, start: int = 0, stop: Optional[int] = None) -> np.ndarray:
        """Read a tensor, or rows of it; all rows by default."""
        storage, offset, shape, strides = self._tensors[name]
        if shape:
            rows = range(*slice(start, stop).indices(shape[0]))
            offset += rows.start * strides[0]
            shape = (len(rows), *shape[1:])
        dtype = np.dtype(STORAGES[storage.kind])
        self._check_sum(storage.key)
        first_byte = self._blocks[storage.key].offset + offset * dtype.itemsize
        numbers = np.fromfile(self.path, dtype, _extent(shape, strides), offset=first_byte)
        if storage.kind == BFLOAT16:
            numbers = widen(numbers)
        return np.lib.stride_tricks.as_strided(
            numbers, shape, [step * numbers.itemsize for step in strides]
        )

    def _error(self, problem: str, expected: str) -> EncoderError:
        return EncoderError(self.path, problem, expected, _MEND)

    def _check(self, name: str, tensor: PickledTensor) -> None:
        """Refuse numbers that lie outside the storage or the file."""
        storage, offset, shape, strides = tensor
        sound = (
            storage.key in self._blocks
            and offset + _extent(shape, strides) <= storage.size
            # Without this, steps of 0 make a table of any size from one number.
            and math.prod(shape) <= storage.size
        )
        if not sound:
            raise self._error(
                f"tensor {shorten(name)} has no numbers of its shape", "a whole checkpoint"
            )
        size = storage.size * np.dtype(STORAGES[storage.kind]).itemsize
        block = self._blocks[storage.key]
        if size > block.size or block.offset + block.size > self.path.stat().st_size:
            raise self._error(f"ends before tensor {shorten(name)} does", "a whole checkpoint")

    def _check_sum(self, key: str) -> None:
        """Compare a storage's numbers with their CRC-32 before the first of them is used."""
        block = self._blocks[key]
        if block.checksum is None or key in self._checked:
            return
        checksum = 0
        with open_file(self.path) as file:
            file.seek(block.offset)
            for start in range(0, block.size, CHECKED_BYTES):
                part = file.read(min(CHECKED_BYTES, block.size - start))
                checksum = zlib.crc32(part, checksum)
        if checksum != block.checksum:
            problem = f"the numbers of storage {shorten(key)} are damaged (CRC-32 {checksum:08x})"
            raise self._error(problem, f"{block.checksum:08x}")
        self._checked.add(key)

    def _unpickler(self, stream: io.BytesIO) -> Unpickler:
        return Unpickler(stream, self._find, self._storage)

    def _find(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise EncoderError(
                self.path,
                f"the pickle asks for {module[:60]}.{name[:60]}",
                "tensors and nothing else",
                "nothing of it was run; do not use a file that you do not trust",
            )
        return _KNOWN[module, name]

    def _storage(self, pid: Any) -> Storage:
        # (word, type, key, device, size), and before the zip format a view of another storage
        if type(pid) is tuple and len(pid) in (5, 6) and pid[0] == "storage":
            _, kind, key, _, size, *view = pid
            if type(kind) is StorageType and type(key) is str and not any(view):
                return Storage(key, kind.kind, *_sizes((size,)))
        raise self._error(f"the pickle refers to {_describe(pid)}", "a tensor's numbers")

    def _names(self, names: Any) -> Dict[str, Any]:
        if type(names) is not dict:
            raise self._error(f"holds a {type(names).__name__}", "a dictionary of tensors")
        return names

    def _zipped(self, file: BinaryIO) -> Tuple[Dict[str, Any], Dict[str, _Block]]:
        with zipfile.ZipFile(file) as archive:
            members = {member.filename: member for member in archive.infolist()}
            pickles = [name for name in members if name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise self._error(f"holds {len(pickles)} data.pkl", "a PyTorch checkpoint")
            folder = pickles[0][: -len("data.pkl")]
            for name, member in members.items():
                # Bit 0 of the flags marks an encrypted member.
                if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                    problem = f"{shorten(name)} is compressed or encrypted"
                    raise self._error(problem, "a checkpoint as PyTorch stores it")
            for name in (pickles[0], folder + "byteorder"):
                if name in members and members[name].file_size > MOST_BYTES:
                    raise ValueError(f"{name} of {members[name].file_size} bytes")
            if folder + "byteorder" in members and archive.read(folder + "byteorder") != b"little":
                raise EncoderError(self.path, "its numbers are big-endian", "little-endian numbers")
            names = self._unpickler(io.BytesIO(archive.read(pickles[0]))).load()
        blocks = {}
        for name, member in members.items():
            if name.startswith(folder + "data/"):
                # The last two fields of the local header: lengths of the name and of the extra.
                file.seek(member.header_offset + 26)
                lengths = np.frombuffer(file.read(4), "<u2")
                start = member.header_offset + 30 + int(lengths.sum())
                blocks[name[len(folder + "data/") :]] = _Block(start, member.file_size, member.CRC)
        return self._names(names), blocks

    def _legacy(self, file: BinaryIO) -> Tuple[Dict[str, Any], Dict[str, _Block]]:
        # Five pickles come before the numbers, of which the first three are tiny.
        content = io.BytesIO(file.read(3 * MOST_BYTES))
        unpickler = self._unpickler(content)
        magic = unpickler.load()
        if type(magic) is not int or magic != LEGACY_MAGIC:
            raise self._error("does not start as a checkpoint does", "a PyTorch checkpoint")
        # Two pickles go unused: the protocol's version and the system's word sizes.
        _, _, values, keys = (unpickler.load() for _ in range(4))
        position = content.tell()
        names = self._names(values)
        widths = {}
        for tensor in names.values():
            if type(tensor) is PickledTensor:
                storage = tensor.storage
                widths[storage.key] = np.dtype(STORAGES[storage.kind]).itemsize
        blocks = {}
        for key in keys:
            file.seek(position)
            count = int(np.frombuffer(file.read(8), "<u8")[0])
            blocks[key] = _Block(position + 8, count * widths[key], None)
            position += 8 + count * widths[key]
        return names, blocks


def _extent(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> int:
    """Count of numbers from a tensor's first to its last."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides))
