"""PyTorch's pickles and checkpoints, read and written without PyTorch.

A pickle calls nothing but what its reader allows. The opcodes are scanned before any of them is
followed, so that only those that PyTorch writes occur, and no more than a checkpoint needs. Then
Python's unpickler reads the pickle, in its form without C, which can be told that keys of
dictionaries are strings: hashing tuples in tuples overflows the stack of the process, or never
ends.

The format written is that of ``torch.save`` since PyTorch 1.6, as its notes on serialization and
the reader ``caffe2/serialize/inline_container.cc`` describe it: a zip archive whose members are
stored, not compressed. ``data.pkl`` is a pickle of protocol 2, in which a tensor is a call of
``torch._utils._rebuild_tensor_v2`` on a persistent id of its storage; ``data/KEY`` holds the
numbers of a storage, at a multiple of 64 bytes. The same tensors give the same bytes.
"""

from __future__ import annotations

import io
import math
import pathlib
import pickle
import pickletools
import struct
import zipfile
from typing import IO, Any, Callable, Iterable, List, Mapping, Tuple, Union

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


#: Opcodes of protocol 2, which PyTorch writes by default, and the last four of protocol 4.
_NAMES = """
PROTO FRAME STOP NONE NEWTRUE NEWFALSE BININT1 BININT2 BININT LONG1 BINFLOAT BINUNICODE
SHORT_BINUNICODE BINSTRING SHORT_BINSTRING MARK EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 TUPLE EMPTY_LIST
APPEND APPENDS EMPTY_DICT SETITEM SETITEMS BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL
STACK_GLOBAL BINPERSID REDUCE BUILD
"""
OPCODES = frozenset(_NAMES.split())

#: Greatest number of opcodes in a pickle. It bounds the stack, the memo and all that is built. A
#: checkpoint of 400 tensors has 20,000.
MOST_OPCODES = 500_000

#: Greatest size of a pickle in bytes. That of 400 tensors has 60,000.
MOST_BYTES = 1 << 24

#: The class that ``pickle.Unpickler`` replaces by C; in C the methods of opcodes cannot be changed.
_PythonUnpickler: Any = pickle._Unpickler


class Unpickler(_PythonUnpickler):
    """Reads pickles one after another from a stream.

    ``find`` takes a module and a name to what stands for them, the only objects that a pickle can
    call. ``refer`` takes a persistent id to what it refers to.
    """

    def __init__(
        self, stream: io.BytesIO, find: Callable[[str, str], Any], refer: Callable[[Any], Any]
    ) -> None:
        super().__init__(stream)
        self._stream, self.find_class, self.persistent_load = stream, find, refer

    def load(self) -> Any:
        """Read the next pickle."""
        start = self._stream.tell()
        self._scan()
        self._stream.seek(start)
        self.memo: Any = {}
        return super().load()

    def _scan(self) -> None:
        """Check the opcodes of a pickle without following them."""
        start = self._stream.tell()
        argument: Any
        for count, (opcode, argument, position) in enumerate(pickletools.genops(self._stream)):
            if opcode.name not in OPCODES:
                raise ValueError(f"opcode {opcode.name} at byte {position}")
            if opcode.name == "GLOBAL":
                self.find_class(*argument.split(" ", 1))  # its error tells more than an opcode
            if count >= MOST_OPCODES:
                raise ValueError(f"a pickle of more than {MOST_OPCODES} opcodes")
            if self._stream.tell() - start > MOST_BYTES:
                raise ValueError(f"a pickle of more than {MOST_BYTES} bytes")

    def _build(self) -> None:
        """Drop the attributes of a dictionary: PyTorch's ``_metadata`` of a module's tensors."""
        attributes = self.stack.pop()
        if type(self.stack[-1]) is not dict or type(attributes) is not dict:
            raise ValueError("the pickle sets attributes of what is no dictionary")

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set([(key, value)])

    def _set_items(self) -> None:
        items = self.pop_mark()
        self._set(zip(items[::2], items[1::2]))

    def _set(self, items: Iterable[Any]) -> None:
        if type(self.stack[-1]) is not dict:
            raise ValueError("the pickle sets items of what is no dictionary")
        for key, value in items:
            if type(key) is not str:
                raise ValueError(f"a key of type {type(key).__name__}")
            self.stack[-1][key] = value

    dispatch = {
        **_PythonUnpickler.dispatch,
        pickle.BUILD[0]: _build,
        pickle.SETITEM[0]: _set_item,
        pickle.SETITEMS[0]: _set_items,
    }
