"""The optimizer's state in checkpoints of earlier versions: a pickle that MXNet's Trainer wrote.

The pickle is a pair: the moments of the parameters by number, and the Adam, whose attributes hold
the counts of updates. Nothing that it names is imported.
"""

from __future__ import annotations

import math
import mmap
import pathlib
import struct
from typing import Any, Dict, NamedTuple, NoReturn, Sequence, Tuple

import numpy as np

from wqa.config.reading import open_file
from wqa.errors import RunDirectoryError, shorten
from wqa.io.parameter_files import MOST_AXES, NUMPY_MAGIC, PLAIN_MAGIC
from wqa.pretrained.unpickling import BYTES_HANDLERS, Name, Rules, load_pickle
from wqa.training.optimizer import MEND, MOMENTS, Moments, OptimizerState


class _Object(NamedTuple):
    """What stands for an object of a type, with its attributes."""

    kind: Name
    attributes: Dict[str, Any]


_ARRAY = Name("mxnet.ndarray.ndarray", "NDArray")
_ADAM = Name("mxnet.optimizer.optimizer", "Adam")
_BYTES = Name("builtins", "bytearray")

#: Arguments with which MXNet makes an object before it sets the attributes.
_ARGUMENTS = {_ARRAY: (None,), _ADAM: ()}


def unpickle_state(
    path: pathlib.Path, names: Sequence[str], devices: Sequence[int]
) -> OptimizerState:
    """Read a state from a pickle."""

    def find(module: str, name: str) -> Name:
        known = Name(module, name)
        if known not in (_ARRAY, _ADAM, _BYTES):
            raise RunDirectoryError(
                path,
                f"the pickle asks for {shorten(f'{module}.{name}')}",
                "arrays and an Adam, and nothing else",
                "nothing of it was run; do not resume a run that you do not trust",
            )
        return known

    try:
        with open_file(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            rules = Rules(find, _call, _refuse_reference, _build, (str, int))
            value, _ = load_pickle(raw, rules, 0, BYTES_HANDLERS, len(raw))
        return _state(value, names, devices)
    except (OSError, ValueError, LookupError, TypeError, struct.error) as error:
        raise RunDirectoryError(
            path, f"cannot be read ({error})", "the state of an Adam, as MXNet pickles it", MEND
        ) from None


def _call(target: Any, arguments: Tuple[Any, ...]) -> Any:
    if type(target) is not Name:
        raise ValueError("the pickle calls what is no type")
    if target == _BYTES:
        return _bytes(*arguments)
    if _ARGUMENTS[target] != arguments:
        raise ValueError(f"the pickle makes {target.name} of other arguments than MXNet")
    return _Object(target, {})


def _bytes(content: Any = b"") -> bytes:
    if type(content) is not bytes:
        raise ValueError("the values of an array are no bytes")
    return content


def _build(target: Any, attributes: Any) -> _Object:
    if type(target) is not _Object or type(attributes) is not dict or target.attributes:
        raise ValueError("the pickle sets attributes of what has none")
    # The same object: the memo refers to it.
    target.attributes.update(attributes)
    return target


def _refuse_reference(pid: Any) -> NoReturn:
    raise ValueError("the pickle refers to another file")


def _state(value: Any, names: Sequence[str], devices: Sequence[int]) -> OptimizerState:
    """The state in the value of a pickle."""
    if type(value) is not tuple or len(value) != 2 or type(value[0]) is not dict:
        raise ValueError("it holds no pair of states and optimizer")
    states, optimizer = value
    counts = _attributes(optimizer, _ADAM)["_all_index_update_counts"]
    moments = {}
    for number, arrays in states.items():
        if type(number) is not int or not 0 <= number < len(names):
            raise ValueError(f"parameter {shorten(number)} of a network of {len(names)}")
        if type(arrays) is not tuple or len(arrays) != len(MOMENTS):
            raise ValueError(f"parameter {number} has no mean and variance")
        numbers = [_count(counts[device][number]) for device in devices]
        moments[names[number]] = Moments(tuple(_values(array) for array in arrays), numbers)
    updates = _count(_attributes(optimizer, _ADAM)["num_update"])
    return OptimizerState(updates, moments)


def _count(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"a count of updates of type {type(value).__name__}")
    return value


def _attributes(value: Any, kind: Name) -> Dict[str, Any]:
    if type(value) is not _Object or value.kind != kind:
        raise ValueError(f"a {type(value).__name__} where {kind.name} is expected")
    return value.attributes


def _values(array: Any) -> np.ndarray:
    """The values of an array, in the format of a ``.params`` file."""
    raw = _bytes(_attributes(array, _ARRAY)["handle"])
    magic, storage, axes = struct.unpack_from("<Iii", raw)
    if magic not in (PLAIN_MAGIC, NUMPY_MAGIC) or storage or not 0 <= axes <= MOST_AXES:
        raise ValueError("an array is damaged")
    start = struct.calcsize("<Iii")
    shape = struct.unpack_from(f"<{axes}q", raw, start)
    start += 8 * axes
    _, _, code = struct.unpack_from("<iii", raw, start)  # of the device, and of the type
    values = np.frombuffer(raw, "<f4", offset=start + struct.calcsize("<iii"))
    if code or any(size < 1 for size in shape) or values.size != math.prod(shape):
        raise ValueError(f"an array of the shape {shorten(shape)} is damaged")
    return values.reshape(shape)
