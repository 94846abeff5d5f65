"""Operations on workspace buffers: each kernel is compiled once for its layouts, then bound.

A `Workspace` holds named buffers, which the operations of all layers share. `Operations` caches the
compiled kernels and binds them to arrays. Its methods return calls, which run when they are called.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from wqa.engines.onednn import primitives
from wqa.engines.onednn.library import TYPES, Array, Call, Layout, Memory, Scratch, zeros
from wqa.engines.onednn.parameters import Dense, Norm
from wqa.engines.onednn.primitives import (
    BETA,
    BIAS,
    DIFF_BETA,
    DIFF_DST,
    DIFF_GAMMA,
    DIFF_SRC,
    DST,
    GAMMA,
    SRC,
    SRC_1,
    WEIGHTS,
    Kernel,
    scale_argument,
)

#: A step after a product: its name, and a second operand, a number or None.
Step = Tuple[str, Union[Array, float, None]]


class Workspace:
    """Named buffers, and views of them in any shape that fits."""

    def __init__(self) -> None:
        self._buffers: Dict[str, np.ndarray] = {}
        self._arrays: Dict[tuple, Array] = {}

    def buffer(self, name: str, size: int, kind: str) -> np.ndarray:
        """A buffer, which is created when it is first used.

        Shapes: the result (size,).
        """
        if name not in self._buffers:
            self._buffers[name] = zeros((size,), kind)
        buffer = self._buffers[name]
        if buffer.size < size or buffer.dtype != TYPES[kind][1]:
            raise RuntimeError(f"buffer {name!r} has {buffer.size} elements of {buffer.dtype}")
        return buffer

    def array(
        self,
        name: str,
        size: int,
        shape: Sequence[int],
        kind: str,
        strides: Optional[Sequence[int]] = None,
    ) -> Array:
        """A view of a buffer, from its first element on."""
        key = (name, tuple(shape), kind, strides and tuple(strides))
        if key not in self._arrays:
            data = self.buffer(name, size, kind)
            self._arrays[key] = Array(Layout(shape, kind, strides), data)
        return self._arrays[key]


class Operations:
    """Compiles kernels once for their layouts, and binds them."""

    def __init__(self, epsilon: float, scratch: Optional[Scratch] = None) -> None:
        self._epsilon = epsilon
        self._kernels: Dict[tuple, Kernel] = {}
        self.scratch = scratch or Scratch()

    def _kernel(self, name: str, build: Callable[..., Kernel], *arguments: Any) -> Kernel:
        """The kernel of an operation, compiled on first use; layouts are compared by their keys."""
        key = (name, *(_key(argument) for argument in arguments))
        if key not in self._kernels:
            self._kernels[key] = build(*arguments)
        return self._kernels[key]

    def product(self, left: Array, right: Array, out: Array, *steps: Step) -> Call:
        """Bind ``out = steps(left @ right)``."""
        layouts = _layouts(_present(steps))
        kernel = self._kernel(
            "product",
            primitives.product,
            left.layout,
            right.layout,
            out.layout,
            None,
            None,
            layouts,
        )
        arrays: Dict[int, Memory] = {SRC: left, WEIGHTS: right, DST: out}
        return kernel.bind(arrays, _operands(steps), self.scratch)

    def dense(
        self, source: Array, weight: Dense, out: Array, *steps: Step, backward: bool = False
    ) -> Call:
        """Bind a product with prepacked weights."""
        layouts = _layouts(_present(steps))
        right = Layout(
            (source.layout.shape[1], out.layout.shape[1]), source.layout.kind, any_layout=True
        )
        bias = None if backward else weight.bias
        scales = {WEIGHTS: 2} if weight.scale is not None else None  # one a column
        kernel = self._kernel(
            "dense",
            primitives.product,
            source.layout,
            right,
            out.layout,
            bias and bias.layout,
            scales,
            layouts,
        )
        arrays: Dict[int, Memory] = {SRC: source, DST: out}
        arrays[WEIGHTS] = weight.packed(kernel, backward)
        if bias is not None:
            arrays[BIAS] = bias
        if weight.scale is not None:
            arrays[scale_argument(WEIGHTS)] = weight.scale
        return kernel.bind(arrays, _operands(steps), self.scratch)

    def norm(
        self, source: Array, norm: Norm, out: Array, statistics: Optional[Dict[int, Memory]] = None
    ) -> Call:
        """Bind a layer normalisation.

        Shapes: `source, out` (rows, width).
        """
        kernel = self._norm_kernel(source, out, statistics is not None)
        arrays: Dict[int, Memory] = {SRC: source, DST: out, GAMMA: norm.gamma, BETA: norm.beta}
        return kernel.bind({**arrays, **(statistics or {})}, scratch=self.scratch)

    def _norm_kernel(self, source: Array, out: Array, training: bool) -> Kernel:
        rows = Layout((source.layout.shape[0],), "float32") if training else None
        return self._kernel(
            "norm", primitives.layer_norm, source.layout, out.layout, self._epsilon, rows
        )

    def norm_backward(
        self,
        source: Array,
        norm: Norm,
        out: Array,
        gradient: Array,
        result: Array,
        statistics: Dict[int, Memory],
        parameters: Sequence[Array],
    ) -> Call:
        """Bind the gradients of a normalisation."""
        rows = Layout((source.layout.shape[0],), "float32")
        forward = self._norm_kernel(source, out, True)
        kernel = self._kernel(
            "norm backward",
            primitives.layer_norm_backward,
            forward,
            source.layout,
            gradient.layout,
            rows,
            self._epsilon,
        )
        arrays: Dict[int, Memory] = {SRC: source, DIFF_DST: gradient, DIFF_SRC: result}
        arrays.update({GAMMA: norm.gamma, BETA: norm.beta, **statistics})
        arrays.update({DIFF_GAMMA: parameters[0], DIFF_BETA: parameters[1]})
        return kernel.bind(arrays, scratch=self.scratch)

    def activation(self, name: str, source: Array, out: Array) -> Call:
        """Bind an activation."""
        kernel = self._kernel("activation", primitives.activation, name, source.layout)
        return kernel.bind({SRC: source, DST: out}, scratch=self.scratch)

    def activation_backward(self, name: str, source: Array, gradient: Array, result: Array) -> Call:
        """Bind the gradient of an activation."""
        forward = self._kernel("activation", primitives.activation, name, source.layout)
        kernel = self._kernel(
            "activation backward", primitives.activation_backward, forward, name, source.layout
        )
        arrays: Dict[int, Memory] = {SRC: source, DIFF_DST: gradient, DIFF_SRC: result}
        return kernel.bind(arrays, scratch=self.scratch)

    def softmax(self, source: Array, out: Array, training: bool = False) -> Call:
        """Bind a softmax over the last axis."""
        kernel = self._kernel("softmax", primitives.softmax, source.layout, out.layout, training)
        return kernel.bind({SRC: source, DST: out}, scratch=self.scratch)

    def softmax_backward(self, source: Array, out: Array, gradient: Array, result: Array) -> Call:
        """Bind the gradient of a softmax."""
        forward = self._kernel("softmax", primitives.softmax, source.layout, out.layout, True)
        kernel = self._kernel("softmax backward", primitives.softmax_backward, forward, out.layout)
        arrays: Dict[int, Memory] = {DST: out, DIFF_DST: gradient, DIFF_SRC: result}
        return kernel.bind(arrays, scratch=self.scratch)

    def multiply(self, source: Array, factors: Array, out: Array) -> Call:
        """Bind ``out = source * factors``, rounded and clipped where ``out`` is int8."""
        kernel = self._kernel(
            "multiply", primitives.multiply, source.layout, factors.layout, out.layout
        )
        return kernel.bind({SRC: source, SRC_1: factors, DST: out}, scratch=self.scratch)

    def convert(self, source: Array, out: Array) -> Call:
        """Bind a copy to another element type."""
        kernel = self._kernel("convert", primitives.convert, source.layout, out.layout)
        return kernel.bind({SRC: source, DST: out}, scratch=self.scratch)


def _key(argument: Any) -> Any:
    if isinstance(argument, Layout):
        return argument.key
    if isinstance(argument, tuple):
        return tuple(map(_key, argument))
    if isinstance(argument, list):
        return tuple(map(_key, argument))
    return tuple(argument.items()) if isinstance(argument, dict) else argument


def _present(steps: Sequence[Step]) -> List[Step]:
    """Steps without those whose second operand is None."""
    return [step for step in steps if step[1] is not None or step[0] not in ("add", "multiply")]


def _layouts(steps: Sequence[Step]) -> List[Tuple[str, Any]]:
    """Steps with layouts for arrays, as kernels are compiled from them."""
    pairs = []
    for name, operand in steps:
        pairs.append((name, operand.layout if isinstance(operand, Array) else operand))
    return pairs


def _operands(steps: Sequence[Step]) -> List[Array]:
    return [operand for _, operand in steps if isinstance(operand, Array)]
