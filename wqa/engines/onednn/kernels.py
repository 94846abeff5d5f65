"""Kernels of oneDNN: operations compiled for their layouts, with steps after them."""

from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Sequence, Tuple, Union

from wqa.engines.onednn.library import (
    TYPES,
    Array,
    Call,
    Handle,
    Layout,
    Memory,
    Pointer,
    Scratch,
    create,
    engine,
    library,
    zeros,
)

#: oneDNN's numbers of activations, by name.
ACTIVATIONS = {"relu": 32, "tanh": 33, "gelu_tanh": 43, "gelu": 49}
_LINEAR = 38

#: oneDNN's numbers of an operation's arguments.
ARGUMENTS = {
    "src": 1,
    "src_1": 2,
    "dst": 17,
    "weights": 33,
    "bias": 41,
    "mean": 49,
    "variance": 50,
    "gamma": 51,
    "beta": 52,
    "diff_src": 129,
    "diff_dst": 145,
    "diff_gamma": 255,
    "diff_beta": 256,
    "weight_scales": 4096 | 33,
}
_SCRATCH, _SECOND, _POST_OP = 80, 2, 32768

#: oneDNN's numbers of operations on two arrays.
ADD, MULTIPLY = 131056, 131057
_QUERY_WEIGHTS, _QUERY_SCRATCH = 131, 136
_USER_SCRATCH = 1

#: A step after an operation, as `Attributes` takes it.
Step = Tuple[str, Union[Layout, float, None]]


class Kernel(Handle):
    """A compiled operation. Layouts and kernels among its arguments become their descriptions."""

    def __init__(
        self, operation: str, *arguments: Any, attributes: Optional[Attributes] = None
    ) -> None:
        handles = [_handle(argument) for argument in (*arguments, attributes)]
        description = create(f"{operation}_primitive_desc_create", *handles)
        self.description = Handle("primitive_desc", description)
        self._step_arguments = tuple(attributes.arguments) if attributes else ()
        self._scratch = self.layout_of(_QUERY_SCRATCH)
        self.scratch_bytes = library().dnnl_memory_desc_get_size(self._scratch)
        super().__init__("primitive", create("primitive_create", description))

    def layout_of(self, query: int) -> Pointer:
        """oneDNN's description of an operand's memory."""
        return Pointer(library().dnnl_primitive_desc_query_md(self.description.handle, query, 0))

    def bind(
        self, scratch: Scratch, step_operands: Sequence[Memory] = (), /, **arrays: Memory
    ) -> Call:
        """Bind the operation to arrays by the names of `ARGUMENTS`."""
        bound = {ARGUMENTS[name]: array for name, array in arrays.items()}
        bound.update(zip(self._step_arguments, step_operands))
        if self.scratch_bytes:
            bound[_SCRATCH] = Memory(self._scratch, scratch.take(self.scratch_bytes))
        return Call(self, bound)


def _handle(argument: Any) -> Any:
    if isinstance(argument, Kernel):
        return argument.description.handle
    if isinstance(argument, Handle):
        return argument.handle
    if argument is engine:  # the function, which the caches of kernels can hash
        return engine()
    return ctypes.c_float(argument) if isinstance(argument, float) else argument


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
        reorder = Kernel("reorder", source.layout, engine(), self._blocked, engine())
        return reorder.bind(Scratch(), src=source, dst=self)

    def fits(self, kernel: Kernel) -> bool:
        """Whether another product has chosen the same layout."""
        layout = kernel.layout_of(_QUERY_WEIGHTS)
        return bool(library().dnnl_memory_desc_equal(self._blocked, layout))


class Attributes(Handle):
    """Attributes of an operation: scales of its operands, and steps after it."""

    def __init__(self, scales: Sequence[Tuple[int, int]] = (), steps: Sequence[Step] = ()) -> None:
        super().__init__("primitive_attr", create("primitive_attr_create"))
        calls = library()
        calls.dnnl_primitive_attr_set_scratchpad_mode(self.handle, _USER_SCRATCH)
        for argument, mask in scales:
            calls.dnnl_primitive_attr_set_scales_mask(self.handle, argument, mask)
        chain = Handle("post_ops", create("post_ops_create"))
        #: Argument numbers of the steps' second operands, in order.
        self.arguments: List[int] = []
        for number, (step, operand) in enumerate(steps, 1):
            if isinstance(operand, Layout):
                operation = {"add": ADD, "multiply": MULTIPLY}[step]
                calls.dnnl_post_ops_append_binary(chain.handle, operation, operand.handle)
                self.arguments.append(_POST_OP * number | _SECOND)
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
