"""The operations that a transformer encoder is made of, compiled for their layouts."""

from __future__ import annotations

import ctypes
from typing import Dict, Optional, Sequence

from wqa.engines.onednn.kernels import ACTIVATIONS, Attributes, Kernel, Step
from wqa.engines.onednn.library import Layout, engine

_ACCURATE_SOFTMAX, _NORM_FLAGS = 196608, 6
_ADD, _MULTIPLY = 131056, 131057
_TRAINING, _INFERENCE, _BACKWARD = 64, 96, 128


def product(
    left: Layout,
    right: Layout,
    out: Layout,
    bias: Optional[Layout] = None,
    scales: Optional[Dict[int, int]] = None,
    steps: Sequence[Step] = (),
) -> Kernel:
    """Compile ``out = steps(left @ right + bias)``."""
    return Kernel(
        "matmul",
        engine(),
        left.handle,
        right.handle,
        bias.handle if bias else None,
        out.handle,
        attributes=Attributes(scales, steps),
    )


def layer_norm(
    source: Layout, out: Layout, epsilon: float, statistics: Optional[Layout] = None
) -> Kernel:
    """Compile a normalisation over the last axis, with gain `GAMMA` and offset `BETA` in float32.

    Shapes: `statistics` (rows,).
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
    forward: Kernel, source: Layout, gradient: Layout, statistics: Layout, epsilon: float
) -> Kernel:
    """Compile the gradients `DIFF_SRC`, `DIFF_GAMMA` and `DIFF_BETA` of a normalisation."""
    return Kernel(
        "layer_normalization_backward",
        engine(),
        _BACKWARD,
        gradient.handle,
        gradient.handle,
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
    """Compile the gradient `DIFF_SRC` of a softmax, from its output `DST`."""
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


def activation(name: str, layout: Layout) -> Kernel:
    """Compile an activation."""
    return Kernel(
        "eltwise_forward",
        engine(),
        _TRAINING,
        ACTIVATIONS[name],
        layout.handle,
        layout.handle,
        ctypes.c_float(0),
        ctypes.c_float(0),
        attributes=Attributes(),
    )


def activation_backward(forward: Kernel, name: str, layout: Layout) -> Kernel:
    """Compile the gradient `DIFF_SRC` of an activation, from its input `SRC`."""
    return Kernel(
        "eltwise_backward",
        engine(),
        ACTIVATIONS[name],
        layout.handle,
        layout.handle,
        layout.handle,
        ctypes.c_float(0),
        ctypes.c_float(0),
        forward.description,
        attributes=Attributes(),
    )


def multiply(source: Layout, factors: Layout, out: Layout) -> Kernel:
    """Compile ``out = source * factors``, rounded and clipped where ``out`` is int8.

    oneDNN is slow from float32 to bfloat16: multiply in float32, then `convert`.
    """
    return _binary(_MULTIPLY, source, factors, out)


def add(source: Layout, addend: Layout, out: Layout) -> Kernel:
    """Compile ``out = source + addend``."""
    return _binary(_ADD, source, addend, out)


def _binary(operation: int, left: Layout, right: Layout, out: Layout) -> Kernel:
    handles = (left.handle, right.handle, out.handle)
    return Kernel("binary", engine(), operation, *handles, attributes=Attributes())


def convert(source: Layout, out: Layout) -> Kernel:
    """Compile a copy to another element type or other strides."""
    return Kernel("reorder", source.handle, engine(), out.handle, engine(), attributes=Attributes())
