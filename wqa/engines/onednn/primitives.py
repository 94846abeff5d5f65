"""The operations that a transformer encoder is made of, compiled for their layouts."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

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
SRC, SRC_1, DST, WEIGHTS, BIAS = 1, 2, 17, 33, 41
MEAN, VARIANCE, GAMMA, BETA, SCRATCH = 49, 50, 51, 52, 80
DIFF_SRC, DIFF_DST, DIFF_GAMMA, DIFF_BETA = 129, 145, 255, 256
_SCALES, _POST_OP = 4096, 32768

_ADD, _MULTIPLY = 131056, 131057
_QUERY_IMPLEMENTATION, _QUERY_WEIGHTS, _QUERY_SCRATCH = 8, 131, 136
_USER_SCRATCH = 1

#: A step after an operation, as `Attributes` takes it.
Step = Tuple[str, Union[Layout, float, None]]


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


_ACCURATE_SOFTMAX, _NORM_FLAGS = 196608, ctypes.c_uint(6)
_TRAINING, _INFERENCE, _BACKWARD = 64, 96, 128
_ZERO = ctypes.c_float(0)


def _compile(operation: str, *arguments: Any, attributes: Optional[Attributes] = None) -> Kernel:
    """Compile an operation; layouts and kernels among its arguments become their descriptions."""
    handles = []
    for argument in arguments:
        if isinstance(argument, Layout):
            argument = argument.handle
        elif isinstance(argument, Kernel):
            argument = argument.description
        handles.append(argument)
    return Kernel(operation, engine(), *handles, attributes=attributes or Attributes())


def product(
    left: Layout,
    right: Layout,
    out: Layout,
    bias: Optional[Layout] = None,
    scales: Optional[Dict[int, int]] = None,
    steps: Sequence[Step] = (),
) -> Kernel:
    """Compile ``out = steps(left @ right + bias)``."""
    return _compile("matmul", left, right, bias, out, attributes=Attributes(scales, steps))


def layer_norm(
    source: Layout, out: Layout, epsilon: float, statistics: Optional[Layout] = None
) -> Kernel:
    """Compile a normalisation over the last axis, with gain `GAMMA` and offset `BETA` in float32.

    Shapes: `statistics` (rows,).
    """
    kind = _TRAINING if statistics else _INFERENCE
    numbers = (ctypes.c_float(epsilon), _NORM_FLAGS)
    return _compile("layer_normalization_forward", kind, source, out, statistics, *numbers)


def layer_norm_backward(
    forward: Kernel, source: Layout, gradient: Layout, statistics: Layout, epsilon: float
) -> Kernel:
    """Compile the gradients `DIFF_SRC`, `DIFF_GAMMA` and `DIFF_BETA` of a normalisation."""
    layouts = (gradient, gradient, source, statistics)
    numbers = (ctypes.c_float(epsilon), _NORM_FLAGS)
    return _compile("layer_normalization_backward", _BACKWARD, *layouts, *numbers, forward)


def softmax(source: Layout, out: Layout, training: bool = False) -> Kernel:
    """Compile a softmax over the last axis."""
    kind = _TRAINING if training else _INFERENCE
    last = len(source.shape) - 1
    return _compile("softmax_forward", kind, _ACCURATE_SOFTMAX, source, out, last)


def softmax_backward(forward: Kernel, out: Layout) -> Kernel:
    """Compile the gradient `DIFF_SRC` of a softmax, from its output `DST`."""
    last = len(out.shape) - 1
    return _compile("softmax_backward", _ACCURATE_SOFTMAX, out, out, out, last, forward)


def activation(name: str, layout: Layout) -> Kernel:
    """Compile an activation."""
    kind = ACTIVATIONS[name]
    return _compile("eltwise_forward", _TRAINING, kind, layout, layout, _ZERO, _ZERO)


def activation_backward(forward: Kernel, name: str, layout: Layout) -> Kernel:
    """Compile the gradient `DIFF_SRC` of an activation, from its input `SRC`."""
    kind, layouts = ACTIVATIONS[name], (layout, layout, layout)
    return _compile("eltwise_backward", kind, *layouts, _ZERO, _ZERO, forward)


def multiply(source: Layout, factors: Layout, out: Layout) -> Kernel:
    """Compile ``out = source * factors``, rounded and clipped where ``out`` is int8.

    oneDNN is slow from float32 to bfloat16: multiply in float32, then `convert`.
    """
    return _compile("binary", _MULTIPLY, source, factors, out)


def add(source: Layout, addend: Layout, out: Layout) -> Kernel:
    """Compile ``out = source + addend``."""
    return _compile("binary", _ADD, source, addend, out)


def convert(source: Layout, out: Layout) -> Kernel:
    """Compile a copy to another element type or other strides."""
    return Kernel("reorder", source.handle, engine(), out.handle, engine(), attributes=Attributes())
