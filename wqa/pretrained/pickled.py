"""PyTorch checkpoints, read without PyTorch and without running code from the pickle.

A checkpoint is a pickle of names and tensor descriptions beside the raw numbers. Since PyTorch 1.6
it is a zip archive; before, it was one file of several pickles. The unpickler knows tensors and
ordered dictionaries. It refuses any other name in the pickle before anything is called.
"""

from __future__ import annotations

import collections
import io
import pathlib
import pickle
import zipfile
from typing import Any, BinaryIO, Callable, Dict, NamedTuple, Optional, Tuple

import numpy as np

from wqa.errors import EncoderError, shorten
from wqa.pretrained.tensors import TensorFile, widen

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


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, where: str) -> None:
        super().__init__(file)
        self._where = where

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in STORAGES:
            return name

        def rebuild(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> PickledTensor:
            return PickledTensor(storage, offset, tuple(shape), tuple(strides))

        known: Dict[Tuple[str, str], Callable] = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): rebuild,
            ("torch._utils", "_rebuild_tensor"): PickledTensor,
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
            ("torch", "Size"): tuple,
        }
        if (module, name) not in known:
            raise EncoderError(
                self._where,
                f"the pickle asks for {module}.{name}",
                "tensors and nothing else",
                "nothing of it was run; do not use a file that you do not trust",
            )
        return known[module, name]

    def persistent_load(self, pid: Any) -> Storage:
        # (word, type, key, device, size), and before the zip format a view of another storage
        known = isinstance(pid, tuple) and len(pid) in (5, 6) and pid[0] == "storage"
        if not known or any(pid[5:]):
            raise EncoderError(
                self._where, f"the pickle refers to {shorten(pid)}", "a tensor's numbers", _MEND
            )
        return Storage(str(pid[2]), pid[1], int(pid[4]))


class PickledTensors(TensorFile):
    """Tensors of a PyTorch checkpoint.

    Parameters
    ----------
    path : pathlib.Path
        ``pytorch_model.bin`` or a shard of it.

    Raises
    ------
    EncoderError
        If the file is no checkpoint, is cut off, or its pickle names anything but tensors.
    """

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(path)
        try:
            with open(path, "rb") as file:
                read = self._zipped if zipfile.is_zipfile(file) else self._legacy
                file.seek(0)
                names, self._offsets = read(file)
        except EncoderError:
            raise
        except Exception as error:  # a damaged pickle can raise anything
            raise EncoderError(
                path,
                f"cannot be read ({type(error).__name__}: {error})",
                "a PyTorch checkpoint",
                _MEND,
            ) from None
        if not isinstance(names, dict):
            raise EncoderError(
                path, f"holds a {type(names).__name__}", "a dictionary of tensors", _MEND
            )
        self._tensors = {
            name: tensor for name, tensor in names.items() if isinstance(tensor, PickledTensor)
        }
        for name, tensor in self._tensors.items():
            self._check(name, tensor)
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}

    def read(self, name: str, start: int = 0, stop: Optional[int] = None) -> np.ndarray:
        """Read a tensor, or rows of it, as `TensorFile.read`; all rows by default."""
        storage, offset, shape, strides = self._tensors[name]
        if shape:
            rows = range(*slice(start, stop).indices(shape[0]))
            offset += rows.start * strides[0]
            shape = (len(rows), *shape[1:])
        dtype = np.dtype(STORAGES[storage.kind])
        first_byte = self._offsets[storage.key] + offset * dtype.itemsize
        numbers = np.fromfile(self.path, dtype, _extent(shape, strides), offset=first_byte)
        if storage.kind == BFLOAT16:
            numbers = widen(numbers)
        return np.lib.stride_tricks.as_strided(
            numbers, shape, [step * numbers.itemsize for step in strides]
        )

    def _check(self, name: str, tensor: PickledTensor) -> None:
        """Refuse numbers that lie outside the storage or the file."""
        storage, offset, shape, strides = tensor
        sound = (
            isinstance(storage, Storage)
            and isinstance(storage.kind, str)
            and storage.kind in STORAGES
            and storage.key in self._offsets
            and len(shape) == len(strides)
            and isinstance(offset, int)
            and offset >= 0
            and all(isinstance(number, int) and number >= 0 for number in (*shape, *strides))
        )
        if not sound or offset + _extent(shape, strides) > storage.size:
            raise EncoderError(
                self.path,
                f"tensor {shorten(name)} has no numbers of its shape",
                "a whole checkpoint",
                _MEND,
            )
        size = storage.size * np.dtype(STORAGES[storage.kind]).itemsize
        if self._offsets[storage.key] + size > self.path.stat().st_size:
            raise EncoderError(
                self.path, f"ends before tensor {shorten(name)} does", "a whole checkpoint", _MEND
            )

    def _zipped(self, file: BinaryIO) -> Tuple[Any, Dict[str, int]]:
        with zipfile.ZipFile(file) as archive:
            members = {member.filename: member for member in archive.infolist()}
            pickles = [name for name in members if name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise EncoderError(
                    self.path, f"holds {len(pickles)} data.pkl", "a PyTorch checkpoint", _MEND
                )
            folder = pickles[0][: -len("data.pkl")]
            if folder + "byteorder" in members and archive.read(folder + "byteorder") != b"little":
                raise EncoderError(self.path, "its numbers are big-endian", "little-endian numbers")
            names = _Unpickler(io.BytesIO(archive.read(pickles[0])), str(self.path)).load()
        offsets = {}
        for name, member in members.items():
            if name.startswith(folder + "data/"):
                if member.compress_type != zipfile.ZIP_STORED:
                    raise EncoderError(
                        self.path, f"{name} is compressed", "numbers as PyTorch stores them", _MEND
                    )
                # The last two fields of the local header: lengths of the name and of the extra.
                file.seek(member.header_offset + 26)
                lengths = np.frombuffer(file.read(4), "<u2")
                start = member.header_offset + 30 + int(lengths.sum())
                offsets[name[len(folder + "data/") :]] = start
        return names, offsets

    def _legacy(self, file: BinaryIO) -> Tuple[Any, Dict[str, int]]:
        where = str(self.path)
        if _Unpickler(file, where).load() != LEGACY_MAGIC:
            raise EncoderError(
                self.path, "does not start as a checkpoint does", "a PyTorch checkpoint", _MEND
            )
        # Two pickles go unused: the protocol's version and the system's word sizes.
        _Unpickler(file, where).load()
        _Unpickler(file, where).load()
        names = _Unpickler(file, where).load()
        keys = _Unpickler(file, where).load()
        storages = [
            tensor.storage for tensor in names.values() if isinstance(tensor, PickledTensor)
        ]
        sizes = {
            str(storage.key): np.dtype(STORAGES[storage.kind]).itemsize for storage in storages
        }
        offsets = {}
        for key in map(str, keys):
            count = int(np.frombuffer(file.read(8), "<i8")[0])
            offsets[key] = file.tell()
            file.seek(count * sizes[key], io.SEEK_CUR)
        return names, offsets


def _extent(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> int:
    """Count of numbers from a tensor's first to its last."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides))
