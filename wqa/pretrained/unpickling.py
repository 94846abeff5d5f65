"""Reads the pickles in PyTorch's checkpoints, and calls nothing but what its caller allows.

The opcodes are scanned before any of them is followed, so that only those that PyTorch writes
occur, and no more than a checkpoint needs. Then Python's unpickler reads the pickle, in its form
without C, which can be told that keys of dictionaries are strings: hashing tuples in tuples
overflows the stack of the process, or never ends.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, Callable, Iterable

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
