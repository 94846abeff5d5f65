"""Operations: compiled once for their layouts, then bound to memory and called."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional, Sequence, Tuple, Union

from wqa.models.onednn.library import (
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

#: Activations by name, as oneDNN numbers them.
ACTIVATIONS = {"relu": 32, "tanh": 33, "gelu_tanh": 43, "gelu": 49}
_LINEAR = 38

#: Arguments of an operation, as oneDNN numbers them.
SRC, SRC_1, DST, WEIGHTS, BIAS, MEAN, VARIANCE, GAMMA, BETA, SCRATCH = (
    1,
    2,
    17,
    33,
    41,
    49,
    50,
    51,
    52,
    80,
)
DIFF_SRC, DIFF_DST, DIFF_GAMMA, DIFF_BETA = 129, 145, 255, 256
_SCALES, _POST_OP = 4096, 32768

_ACCURATE_SOFTMAX, _ADD, _MULTIPLY = 196608, 131056, 131057
_TRAINING, _INFERENCE, _BACKWARD = 64, 96, 128
_QUERY_IMPLEMENTATION, _QUERY_WEIGHTS, _QUERY_SCRATCH, _NORM_FLAGS, _USER_SCRATCH = (
    8,
    131,
    136,
    6,
    1,
)

#: A step after an operation, as `Attributes` takes it.
Step = Tuple[str, Union[Layout, float, None]]


class _Argument(ctypes.Structure):
    _fields_ = [("place", ctypes.c_int), ("memory", Pointer)]


class Call:
    """An operation bound to its arrays; calling it runs it."""

    __slots__ = ("_execute", "_primitive", "_count", "_arguments", "_kept")

    def __init__(self, kernel: Kernel, arrays: Dict[int, Memory]) -> None:
        self._execute = library().dnnl_primitive_execute
        self._primitive, self._count = kernel.handle, len(arrays)
        self._arguments = (_Argument * len(arrays))(
            *(_Argument(place, array.handle) for place, array in arrays.items())
        )
        self._kept = (kernel, arrays)

    def __call__(self) -> None:
        status = self._execute(self._primitive, stream(), self._count, self._arguments)
        if status:
            raise RuntimeError(f"dnnl_primitive_execute returned status {status}")


class Kernel(Handle):
    """A compiled operation.

    Attributes
    ----------
    implementation : str
        oneDNN's name of the code that runs, such as ``brg:avx512_core_amx``.
    scratch_bytes : int
        Memory that it needs while it runs.
    """

    def __init__(
        self,
        operation: str,
        *arguments: Any,
        attributes: Optional[Handle] = None,
        places: Sequence[int] = (),
    ) -> None:
        self._description = Handle(
            "primitive_desc",
            create(
                f"{operation}_primitive_desc_create",
                *arguments,
                attributes.handle if attributes else None,
            ),
        )
        self._places = tuple(places)  # where the arrays of post-operations go
        text = ctypes.c_char_p()
        library().dnnl_primitive_desc_query(
            self._description.handle, _QUERY_IMPLEMENTATION, 0, ctypes.byref(text)
        )
        self.implementation = (text.value or b"").decode()
        self._scratch = self.layout_of(_QUERY_SCRATCH)
        self.scratch_bytes = library().dnnl_memory_desc_get_size(self._scratch)
        super().__init__("primitive", create("primitive_create", self._description.handle))

    @property
    def description(self) -> Pointer:
        """What the gradient's operation is compiled from."""
        return self._description.handle

    def layout_of(self, query: int) -> Pointer:
        """oneDNN's description of an operand; it lives as long as the kernel."""
        return Pointer(library().dnnl_primitive_desc_query_md(self._description.handle, query, 0))

    def bind(
        self,
        arrays: Dict[int, Memory],
        post: Sequence[Memory] = (),
        scratch: Optional[Scratch] = None,
    ) -> Call:
        """Bind the operation to arrays.

        Parameters
        ----------
        arrays : dict of int to Memory
            By argument.
        post : sequence of Memory
            Second operands of the post-operations that have one, in order.
        scratch : Scratch, optional
            Needed where ``scratch_bytes`` is not 0.

        Returns
        -------
        Call
        """
        arrays = {**arrays, **dict(zip(self._places, post))}
        if self.scratch_bytes and scratch is not None:
            arrays[SCRATCH] = Memory(self._scratch, scratch.take(self.scratch_bytes))
        return Call(self, arrays)


class PackedWeights(Memory):
    """Weights laid out as a product wants its right operand.

    Parameters
    ----------
    kernel : Kernel
        Compiled with ``any_layout`` for its right operand.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._wanted = (
            kernel,
            kernel.layout_of(_QUERY_WEIGHTS),
        )  # which owns the description
        super().__init__(
            self._wanted, zeros((library().dnnl_memory_desc_get_size(self._wanted),), "int8")
        )

    def filler(self, source: Array) -> Call:
        """What lays the weights of an array out here, each time that it is called."""
        return Kernel("reorder", source.layout.handle, engine(), self._wanted, engine()).bind(
            {SRC: source, DST: self}
        )

    def fits(self, kernel: Kernel) -> bool:
        """Whether another product wants the same layout."""
        return bool(
            library().dnnl_memory_desc_equal(self._wanted, kernel.layout_of(_QUERY_WEIGHTS))
        )


class Attributes(Handle):
    """What an operation does beyond its own: scales of its operands, and steps after it.

    Parameters
    ----------
    scales : dict of int to int
        Arguments that are multiplied by a scale: 0 for one number, otherwise the axes' bits.
    steps : sequence of (str, Layout, float or None)
        ``add`` or ``multiply`` with a second operand of that layout; ``times`` with a number;
        ``sum`` with what stood in the output (None); or an activation's name (None).
    """

    def __init__(self, scales: Optional[Dict[int, int]] = None, steps: Sequence[Step] = ()) -> None:
        super().__init__("primitive_attr", create("primitive_attr_create"))
        calls = library()
        calls.dnnl_primitive_attr_set_scratchpad_mode(self.handle, _USER_SCRATCH)
        for place, mask in (scales or {}).items():
            calls.dnnl_primitive_attr_set_scales_mask(self.handle, place, mask)
        chain = Handle("post_ops", create("post_ops_create"))
        self.places = []
        for number, (step, layout) in enumerate(steps, 1):
            if step == "sum":
                calls.dnnl_post_ops_append_sum(
                    chain.handle, ctypes.c_float(1), 0, TYPES["float32"][0]
                )
            elif not isinstance(layout, Layout):
                calls.dnnl_post_ops_append_eltwise(
                    chain.handle,
                    ACTIVATIONS.get(step, _LINEAR),
                    ctypes.c_float(layout or 0),
                    ctypes.c_float(0),
                )
            else:
                calls.dnnl_post_ops_append_binary(
                    chain.handle, {"add": _ADD, "multiply": _MULTIPLY}[step], layout.handle
                )
                self.places.append(_POST_OP * number | SRC_1)
        calls.dnnl_primitive_attr_set_post_ops(self.handle, chain.handle)


def product(
    left: Layout,
    right: Layout,
    out: Layout,
    bias: Optional[Layout] = None,
    scales: Optional[Dict[int, int]] = None,
    steps: Sequence[Step] = (),
) -> Kernel:
    """Compile ``out = steps(left @ right + bias)``.

    Parameters
    ----------
    left, right, out : Layout
        The last two axes are multiplied; axes before them are a batch.
    bias : Layout, optional
        float32, broadcast.
    scales, steps
        As `Attributes` takes them.

    Returns
    -------
    Kernel
    """
    attributes = Attributes(scales, steps)
    return Kernel(
        "matmul",
        engine(),
        left.handle,
        right.handle,
        bias.handle if bias else None,
        out.handle,
        attributes=attributes,
        places=attributes.places,
    )


def scale_place(place: int) -> int:
    """The argument that carries another argument's scale."""
    return _SCALES | place


def layer_norm(
    source: Layout, out: Layout, epsilon: float, statistics: Optional[Layout] = None
) -> Kernel:
    """Compile a normalisation over the last axis, with gain `GAMMA` and offset `BETA` in float32.

    With ``statistics``, float32 of a row, it also writes `MEAN` and `VARIANCE`, for
    `layer_norm_backward`.
    """
    return Kernel(
        "layer_normalization_forward",
        engine(),
        _TRAINING if statistics else _INFERENCE,
        source.handle,
        out.handle,
        statistics.handle if statistics else None,
        ctypes.c_float(epsilon),
        ctypes.c_uint(_NORM_FLAGS),
        attributes=Attributes(),
    )


def layer_norm_backward(
    forward: Kernel, source: Layout, slope: Layout, statistics: Layout, epsilon: float
) -> Kernel:
    """Compile the gradients of a normalisation: `DIFF_SRC`, `DIFF_GAMMA` and `DIFF_BETA` of
    `DIFF_DST`.

    ``slope`` is the layout of both `DIFF_DST` and `DIFF_SRC`.
    """
    return Kernel(
        "layer_normalization_backward",
        engine(),
        _BACKWARD,
        slope.handle,
        slope.handle,
        source.handle,
        statistics.handle,
        ctypes.c_float(epsilon),
        ctypes.c_uint(_NORM_FLAGS),
        forward.description,
        attributes=Attributes(),
    )


def softmax(source: Layout, out: Layout, training: bool = False) -> Kernel:
    """Compile a softmax over the last axis."""
    return Kernel(
        "softmax_forward",
        engine(),
        _TRAINING if training else _INFERENCE,
        _ACCURATE_SOFTMAX,
        source.handle,
        out.handle,
        len(source.shape) - 1,
        attributes=Attributes(),
    )


def softmax_backward(forward: Kernel, out: Layout) -> Kernel:
    """Compile the gradient of a softmax, `DIFF_SRC` of `DIFF_DST`, from its output `DST`; all of
    one layout."""
    return Kernel(
        "softmax_backward",
        engine(),
        _ACCURATE_SOFTMAX,
        out.handle,
        out.handle,
        out.handle,
        len(out.shape) - 1,
        forward.description,
        attributes=Attributes(),
    )


def activation(name: str, both: Layout) -> Kernel:
    """Compile an activation of `ACTIVATIONS`."""
    return Kernel(
        "eltwise_forward",
        engine(),
        _TRAINING,
        ACTIVATIONS[name],
        both.handle,
        both.handle,
        ctypes.c_float(0),
        ctypes.c_float(0),
        attributes=Attributes(),
    )


def activation_backward(forward: Kernel, name: str, all_three: Layout) -> Kernel:
    """Compile the gradient of an activation, `DIFF_SRC` of `DIFF_DST`, from its input `SRC`."""
    return Kernel(
        "eltwise_backward",
        engine(),
        ACTIVATIONS[name],
        all_three.handle,
        all_three.handle,
        all_three.handle,
        ctypes.c_float(0),
        ctypes.c_float(0),
        forward.description,
        attributes=Attributes(),
    )


def scaled(source: Layout, factors: Layout, out: Layout) -> Kernel:
    """Compile ``out = source * factors``, rounded and clipped where ``out`` is int8.

    From float32 to bfloat16 oneDNN has slow code only: multiply in float32, then use `converted`.
    """
    return Kernel(
        "binary",
        engine(),
        _MULTIPLY,
        source.handle,
        factors.handle,
        out.handle,
        attributes=Attributes(),
    )


def converted(source: Layout, out: Layout) -> Kernel:
    """Compile a copy into another type."""
    return Kernel("reorder", source.handle, engine(), out.handle, engine(), attributes=Attributes())
