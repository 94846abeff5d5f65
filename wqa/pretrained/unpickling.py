"""Interpreter of pickles: those in PyTorch's checkpoints, and those of MXNet's optimizers.

Python's own unpickler builds whatever a pickle says: tuples in tuples until hashing one overflows
the process's stack, tables of any size, attributes of real classes. This interpreter knows the
opcodes that PyTorch writes and no more, unless the caller allows `BYTES_HANDLERS` too. It builds
strings, numbers, tuples, lists and dictionaries with strings as keys. It imports and calls nothing:
the caller says what a name, a call, an object's attributes and a reference to a storage stand for.
"""

from __future__ import annotations

import mmap
import struct
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

#: What each opcode does to an interpreter.
Handlers = Mapping[bytes, Callable[["_Interpreter"], Any]]

#: Greatest number of opcodes in a pickle. It bounds the stack, the memo and all that is built. A
#: checkpoint of 400 tensors has 20,000.
MOST_OPCODES = 500_000

#: Greatest size of a pickle in bytes. That of 400 tensors has 60,000.
MOST_BYTES = 1 << 24

#: Greatest size of a long integer in bytes.
MOST_INTEGER_BYTES = 16


def _drop_attributes(target: Any, attributes: Any) -> Any:
    """Drop the attributes of a dictionary: PyTorch's ``_metadata`` of a module's tensors."""
    if type(target) is not dict or type(attributes) is not dict:
        raise ValueError("the pickle sets attributes of what is no dictionary")
    return target


class Name(NamedTuple):
    """What stands for an object that a pickle names."""

    module: str
    name: str


class Rules(NamedTuple):
    """Meaning of what a pickle refers to."""

    name: Callable[[str, str], Any]
    call: Callable[[Any, Tuple[Any, ...]], Any]
    reference: Callable[[Any], Any]
    build: Callable[[Any, Any], Any] = _drop_attributes
    keys: Tuple[type, ...] = (str,)


def load_pickle(
    content: Union[bytes, mmap.mmap],
    rules: Rules,
    position: int = 0,
    handlers: Optional[Handlers] = None,
    most_bytes: int = MOST_BYTES,
) -> Tuple[Any, int]:
    """Read a pickle."""
    handlers = HANDLERS if handlers is None else handlers
    interpreter = _Interpreter(content, rules, position)
    for _ in range(MOST_OPCODES):
        code = interpreter.take(1)
        if code == b".":
            return interpreter.pop(), interpreter.position
        handler = handlers.get(code)
        if handler is None:
            raise ValueError(f"opcode {code!r} at byte {interpreter.position - 1}")
        handler(interpreter)
        if interpreter.position - position > most_bytes:
            raise ValueError(f"a pickle of more than {most_bytes} bytes")
    raise ValueError(f"a pickle of more than {MOST_OPCODES} opcodes")


class _Interpreter:
    """State of a pickle that is being read. Its methods are what opcodes do."""

    def __init__(self, content: Union[bytes, mmap.mmap], rules: Rules, position: int) -> None:
        self.position = position
        self._content = content
        self._rules = rules
        self._stack: List[Any] = []
        self._marks: List[int] = []
        self._memo: Dict[int, Any] = {}

    def take(self, count: int) -> bytes:
        """Read bytes."""
        end = self.position + count
        if end > len(self._content):
            raise ValueError("the pickle is cut off")
        taken = self._content[self.position : end]
        self.position = end
        return taken

    def number(self, form: str) -> Any:
        """Read a number in a format of `struct`."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        """Read a line of text."""
        end = self._content.find(b"\n", self.position)
        if end < 0:
            raise ValueError("the pickle is cut off")
        text = self.take(end - self.position)
        self.position += 1
        return text.decode("utf-8")

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self._stack.append(value)

    def pop(self) -> Any:
        """Take the last value from the stack."""
        if not self._stack:
            raise ValueError("the pickle's stack is empty")
        return self._stack.pop()

    def last(self, count: int) -> List[Any]:
        """Take several values from the stack, in the order in which they were put there."""
        if count > len(self._stack):
            raise ValueError("the pickle's stack is empty")
        values = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return values

    def mark(self) -> None:
        """Remember the size of the stack."""
        self._marks.append(len(self._stack))

    def marked(self) -> List[Any]:
        """Take the values since the last mark from the stack."""
        if not self._marks:
            raise ValueError("the pickle has no mark")
        return self.last(max(0, len(self._stack) - self._marks.pop()))

    def remember(self, key: int) -> None:
        """Copy the last value into the memo."""
        self._memo[key] = self.pop()
        self.push(self._memo[key])

    def memoize(self) -> None:
        """Copy the last value into the memo, under the next number."""
        self.remember(len(self._memo))

    def recall(self, key: int) -> None:
        """Put a value of the memo on the stack."""
        if key not in self._memo:
            raise ValueError(f"the pickle's memo has no {key}")
        self.push(self._memo[key])

    def text(self, form: str, encoding: str = "utf-8") -> None:
        """Put a string on the stack; its length comes first, in a format of `struct`."""
        self.push(self.take(self.number(form)).decode(encoding))

    def integer(self) -> None:
        """Put an integer of any length on the stack."""
        size = self.number("<B")
        if size > MOST_INTEGER_BYTES:
            raise ValueError(f"an integer of {size} bytes")
        self.push(int.from_bytes(self.take(size), "little", signed=True))

    def append(self, values: List[Any]) -> None:
        """Append values to the list that is last on the stack."""
        target = self.pop()
        if type(target) is not list:
            raise ValueError("the pickle appends to what is no list")
        target.extend(values)
        self.push(target)

    def set_items(self, values: List[Any]) -> None:
        """Put keys and values in turn into the dictionary that is last on the stack."""
        target = self.pop()
        if type(target) is not dict or len(values) % 2:
            raise ValueError("the pickle sets items of what is no dictionary")
        for key, value in zip(values[::2], values[1::2]):
            if type(key) not in self._rules.keys:
                raise ValueError(f"a key of type {type(key).__name__}")
            target[key] = value
        self.push(target)

    def build(self) -> None:
        """Give the last object but one the attributes that are last on the stack."""
        attributes = self.pop()
        self.push(self._rules.build(self.pop(), attributes))

    def name(self, module: Any, name: Any) -> None:
        """Put what stands for a name on the stack."""
        if type(module) is not str or type(name) is not str:
            raise ValueError("a name that is no string")
        self.push(self._rules.name(module, name))

    def call(self) -> None:
        """Put the result of a call on the stack."""
        arguments = self.pop()
        if type(arguments) is not tuple:
            raise ValueError("a call without a tuple of arguments")
        self.push(self._rules.call(self.pop(), arguments))

    def reference(self) -> None:
        """Put what a persistent id refers to on the stack."""
        self.push(self._rules.reference(self.pop()))


#: What an opcode does. Opcodes up to ``\x8a`` are of protocol 2, which PyTorch writes by default;
#: the last four are of protocol 4.
HANDLERS: Handlers = {
    b"\x80": lambda pickle: pickle.take(1),  # the protocol
    b"N": lambda pickle: pickle.push(None),
    b"\x88": lambda pickle: pickle.push(True),
    b"\x89": lambda pickle: pickle.push(False),
    b"K": lambda pickle: pickle.push(pickle.number("<B")),
    b"M": lambda pickle: pickle.push(pickle.number("<H")),
    b"J": lambda pickle: pickle.push(pickle.number("<i")),
    b"G": lambda pickle: pickle.push(pickle.number(">d")),
    b"\x8a": _Interpreter.integer,
    b"X": lambda pickle: pickle.text("<I"),
    b"U": lambda pickle: pickle.text("<B", "ascii"),
    b"T": lambda pickle: pickle.text("<I", "ascii"),
    b"(": _Interpreter.mark,
    b")": lambda pickle: pickle.push(()),
    b"\x85": lambda pickle: pickle.push(tuple(pickle.last(1))),
    b"\x86": lambda pickle: pickle.push(tuple(pickle.last(2))),
    b"\x87": lambda pickle: pickle.push(tuple(pickle.last(3))),
    b"t": lambda pickle: pickle.push(tuple(pickle.marked())),
    b"]": lambda pickle: pickle.push([]),
    b"a": lambda pickle: pickle.append(pickle.last(1)),
    b"e": lambda pickle: pickle.append(pickle.marked()),
    b"}": lambda pickle: pickle.push({}),
    b"s": lambda pickle: pickle.set_items(pickle.last(2)),
    b"u": lambda pickle: pickle.set_items(pickle.marked()),
    b"q": lambda pickle: pickle.remember(pickle.number("<B")),
    b"r": lambda pickle: pickle.remember(pickle.number("<I")),
    b"h": lambda pickle: pickle.recall(pickle.number("<B")),
    b"j": lambda pickle: pickle.recall(pickle.number("<I")),
    b"c": lambda pickle: pickle.name(pickle.line(), pickle.line()),
    b"R": _Interpreter.call,
    b"b": _Interpreter.build,
    b"Q": _Interpreter.reference,
    b"\x8c": lambda pickle: pickle.text("<B"),
    b"\x93": lambda pickle: pickle.name(*pickle.last(2)),
    b"\x94": _Interpreter.memoize,
    b"\x95": lambda pickle: pickle.take(8),  # the size of a frame
}

#: The same with bytes and with objects that are made without arguments.
BYTES_HANDLERS: Handlers = {
    **HANDLERS,
    b"C": lambda pickle: pickle.push(pickle.take(pickle.number("<B"))),
    b"B": lambda pickle: pickle.push(pickle.take(pickle.number("<I"))),
    b"\x8e": lambda pickle: pickle.push(pickle.take(pickle.number("<Q"))),
    b"\x81": _Interpreter.call,
}
