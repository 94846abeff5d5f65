"""oneDNN's operations: compiled once for their layouts, then bound to memory and called."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from wqa.engines.onednn.library import (
    TYPES,
    Array,
    Handle,
    Layout,
    Memory,
    Pointer,
    Scratch,
    create,
    engine,
    library,
    stream,
    zeros,
)

#: oneDNN's numbers of activations, by name.
ACTIVATIONS = {"relu": 32, "tanh": 33, "gelu_tanh": 43, "gelu": 49}
_LINEAR = 38

#: oneDNN's numbers of an operation's arguments.
SRC, SRC_1, DST, WEIGHTS, BIAS = 1, 2, 17, 33, 41
MEAN, VARIANCE, GAMMA, BETA, SCRATCH = 49, 50, 51, 52, 80
DIFF_SRC, DIFF_DST, DIFF_GAMMA, DIFF_BETA = 129, 145, 255, 256
_SCALES, _POST_OP = 4096, 32768

_ADD, _MULTIPLY = 131056, 131057
_QUERY_IMPLEMENTATION, _QUERY_WEIGHTS, _QUERY_SCRATCH = 8, 131, 136
_USER_SCRATCH = 1

#: A step after an operation, as `Attributes` takes it.
Step = Tuple[str, Union[Layout, float, None]]


class _Argument(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("memory", Pointer)]


@functools.lru_cache(maxsize=None)
def _argument_array(count: int) -> Any:
    """ctypes' type of several arguments, kept: the types are cycles of references."""
    return _Argument * count


class Call:
    """An operation bound to its arrays; calling it runs it."""

    __slots__ = ("_execute", "_primitive", "_count", "_arguments", "_kept")

    def __init__(self, kernel: Kernel, arrays: Dict[int, Memory]) -> None:
        self._execute = library().dnnl_primitive_execute
        self._primitive, self._count = kernel.handle, len(arrays)
        arguments = [_Argument(number, array.handle) for number, array in arrays.items()]
        self._arguments = _argument_array(len(arrays))(*arguments)
        self._kept = (kernel, arrays)

    def __call__(self) -> None:
        status = self._execute(self._primitive, stream(), self._count, self._arguments)
        if status:
            raise RuntimeError(f"dnnl_primitive_execute returned status {status}")


class Kernel(Handle):
    """A compiled operation."""

    def __init__(
        self, operation: str, *arguments: Any, attributes: Optional[Attributes] = None
    ) -> None:
        handle = attributes.handle if attributes else None
        description = create(f"{operation}_primitive_desc_create", *arguments, handle)
        self._description = Handle("primitive_desc", description)
        self._step_arguments = tuple(attributes.arguments) if attributes else ()
        text = ctypes.c_char_p()
        library().dnnl_primitive_desc_query(
            description, _QUERY_IMPLEMENTATION, 0, ctypes.byref(text)
        )
        self.implementation = (text.value or b"").decode()
        self._scratch = self.layout_of(_QUERY_SCRATCH)
        self.scratch_bytes = library().dnnl_memory_desc_get_size(self._scratch)
        super().__init__("primitive", create("primitive_create", description))

    @property
    def description(self) -> Pointer:
        """oneDNN's description of the primitive; the kernel of the gradient is compiled from it."""
        return self._description.handle

    def layout_of(self, query: int) -> Pointer:
        """oneDNN's description of an operand's memory."""
        return Pointer(library().dnnl_primitive_desc_query_md(self._description.handle, query, 0))

    def bind(
        self,
        arrays: Dict[int, Memory],
        step_operands: Sequence[Memory] = (),
        scratch: Optional[Scratch] = None,
    ) -> Call:
        """Bind the operation to arrays."""
        bound = {**arrays, **dict(zip(self._step_arguments, step_operands))}
        if self.scratch_bytes and scratch is not None:
            bound[SCRATCH] = Memory(self._scratch, scratch.take(self.scratch_bytes))
        return Call(self, bound)


class PackedWeights(Memory):
    """Weights in the blocked layout that a product has chosen for its right operand."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel  # it owns the description
        self._blocked = kernel.layout_of(_QUERY_WEIGHTS)
        size = library().dnnl_memory_desc_get_size(self._blocked)
        super().__init__(self._blocked, zeros((size,), "int8"))

    def filler(self, source: Array) -> Call:
        """Bind the reorder that packs weights.

        Shapes: `source` (in, out).
        """
        reorder = Kernel("reorder", source.layout.handle, engine(), self._blocked, engine())
        return reorder.bind({SRC: source, DST: self})

    def fits(self, kernel: Kernel) -> bool:
        """Whether another product has chosen the same layout."""
        layout = kernel.layout_of(_QUERY_WEIGHTS)
        return bool(library().dnnl_memory_desc_equal(self._blocked, layout))


class Attributes(Handle):
    """Attributes of an operation: scales of its operands, and steps after it."""

    def __init__(self, scales: Optional[Dict[int, int]] = None, steps: Sequence[Step] = ()) -> None:
        super().__init__("primitive_attr", create("primitive_attr_create"))
        calls = library()
        calls.dnnl_primitive_attr_set_scratchpad_mode(self.handle, _USER_SCRATCH)
        for argument, mask in (scales or {}).items():
            calls.dnnl_primitive_attr_set_scales_mask(self.handle, argument, mask)
        chain = Handle("post_ops", create("post_ops_create"))
        #: Argument numbers of the steps' second operands, in order.
        self.arguments: List[int] = []
        for number, (step, operand) in enumerate(steps, 1):
            if isinstance(operand, Layout):
                operation = {"add": _ADD, "multiply": _MULTIPLY}[step]
                calls.dnnl_post_ops_append_binary(chain.handle, operation, operand.handle)
                self.arguments.append(_POST_OP * number | SRC_1)
            elif step == "sum":
                kind = TYPES["float32"][0]
                calls.dnnl_post_ops_append_sum(chain.handle, ctypes.c_float(1), 0, kind)
            else:
                factor = ctypes.c_float(operand or 0)
                algorithm = ACTIVATIONS.get(step, _LINEAR)
                calls.dnnl_post_ops_append_eltwise(
                    chain.handle, algorithm, factor, ctypes.c_float(0)
                )
        calls.dnnl_primitive_attr_set_post_ops(self.handle, chain.handle)


def scale_argument(argument: int) -> int:
    """oneDNN's number of the scale of an argument."""
    return _SCALES | argument
