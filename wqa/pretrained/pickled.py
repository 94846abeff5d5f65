"""PyTorch checkpoints, read without PyTorch and without running code of the file.

A checkpoint is a pickle of names and descriptions of tensors beside their numbers. Since PyTorch
1.6 it is a zip archive; before, as in TANDA's released files, it was one file of several pickles.
"""

from __future__ import annotations

import contextlib
import io
import math
import pathlib
import pickle
import pickletools
import zipfile
from typing import Any, BinaryIO, Callable, Dict, Iterator, NamedTuple, Optional, Tuple

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

#: Opcodes that PyTorch's pickles need. Those left out make sets and dictionaries of any keys, or
#: objects with states of their own.
_NAMES = """
PROTO FRAME STOP NONE NEWTRUE NEWFALSE BININT1 BININT2 BININT LONG1 BINFLOAT BINUNICODE
SHORT_BINUNICODE BINSTRING SHORT_BINSTRING MARK EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 TUPLE EMPTY_LIST
APPEND APPENDS EMPTY_DICT SETITEM SETITEMS BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL
STACK_GLOBAL BINPERSID REDUCE BUILD
"""
OPCODES = frozenset(_NAMES.split())

#: Greatest number of opcodes in a pickle, and of its bytes. A checkpoint of 400 tensors has 20,000
#: in 60,000.
MOST_OPCODES, MOST_BYTES = 500_000, 1 << 24

#: Greatest size of an axis, a stride or a storage, beyond that of any file.
MOST_NUMBERS = 1 << 62
#: Greatest number of axes, that of NumPy.
MOST_AXES = 32

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


class _Constructor(NamedTuple):
    """A function that a pickle may call; unlike Python's, it takes no attributes."""

    build: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.build(*arguments)


class _Dictionary(Dict[str, Any]):
    """A dictionary of a pickle. Its keys are strings, as the hash of nested tuples may not end."""

    def __init__(self) -> None:  # a pickle fills it by SETITEMS
        super().__init__()

    def __setitem__(self, key: str, value: Any) -> None:
        if type(key) is not str:
            raise ValueError(f"a key of type {type(key).__name__}")
        super().__setitem__(key, value)

    def __setstate__(self, attributes: Any) -> None:
        """Ignore attributes, such as PyTorch's ``_metadata`` of a module's tensors."""


def _sizes(sizes: Any) -> Tuple[int, ...]:
    """Sizes of axes, offsets or strides."""
    if type(sizes) not in (tuple, list) or len(sizes) > MOST_AXES:
        raise ValueError(f"a tensor's sizes are no tuple of at most {MOST_AXES}")
    for size in sizes:
        if type(size) is not int or not 0 <= size <= MOST_NUMBERS:
            raise ValueError(f"a tensor's size is {_describe(size)}")
    return tuple(sizes)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> PickledTensor:
    """A tensor; since 0.4 PyTorch writes its gradient's flag and hooks behind it."""
    if type(storage) is not Storage:
        raise ValueError("a tensor without numbers")
    if len(_sizes(shape)) != len(_sizes(strides)):
        raise ValueError(f"a tensor of {len(shape)} axes with {len(strides)} strides")
    return PickledTensor(storage, _sizes((offset,))[0], tuple(shape), tuple(strides))


def _parameter(tensor: Any, *_: Any) -> Any:
    """The tensor of a parameter, without its gradient's flag and hooks."""
    return tensor


def _describe(value: Any) -> str:
    """Quote a value of a pickle, but never one that holds others."""
    if isinstance(value, (str, int, float)):
        return shorten(value)
    return f"a {type(value).__name__}"


#: What stands for the objects that a pickle may name; the type of a storage is its name.
_KNOWN: Dict[Tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Dictionary,
    ("torch._utils", "_rebuild_tensor"): _Constructor(_tensor),
    ("torch._utils", "_rebuild_tensor_v2"): _Constructor(_tensor),
    ("torch._utils", "_rebuild_parameter"): _Constructor(_parameter),
    ("torch", "Size"): _Constructor(_sizes),
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
        # (word, type, key, device, size), and before the zip format a view of another storage
        if type(pid) is tuple and len(pid) in (5, 6) and pid[0] == "storage":
            _, kind, key, _, size, *view = pid
            if type(kind) is type(key) is str and kind in STORAGES and not any(view):
                return Storage(key, kind, *_sizes((size,)))
        raise pickle.UnpicklingError(f"it refers to {_describe(pid)}, not to numbers of a tensor")


def _load(stream: io.BytesIO) -> Any:
    """Read the next pickle of a stream, after its opcodes are checked."""
    parts = []
    for count, (opcode, argument, position) in enumerate(pickletools.genops(stream)):
        if opcode.name not in OPCODES:
            raise pickle.UnpicklingError(f"opcode {opcode.name} at byte {position}")
        if count >= MOST_OPCODES:
            raise pickle.UnpicklingError(f"more than {MOST_OPCODES:,} opcodes")
        # Python takes memory for a memo of as many entries as an index says.
        if opcode.name.endswith("BINPUT") and argument > count:  # type: ignore[operator]
            raise pickle.UnpicklingError(f"entry {argument} of a memo of less than {count}")
        if opcode.name == "EMPTY_DICT":
            parts.append(b"ccollections\nOrderedDict\n)R")  # which is a `_Dictionary`
        elif opcode.name != "FRAME":  # its length is that of the original opcodes
            parts.append(stream.getvalue()[position : stream.tell()])
    return _Unpickler(io.BytesIO(b"".join(parts))).load()


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
        if type(key) is not str:  # the hash of nested tuples may not end
            raise ValueError(f"a storage's key of type {type(key).__name__}")
        file.seek(position)
        count = int.from_bytes(file.read(8), "little")
        blocks[key] = _Block(count * widths[key], offset=position + 8)
        position += 8 + count * widths[key]
    return values, blocks
