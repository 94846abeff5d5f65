"""Operations on workspace buffers, and the parameters of layers that they read.

Each kernel is compiled once for its layouts, then bound. `Operations` caches the compiled kernels
and binds them to arrays. Its methods return calls, which run when they are called. Weights are
prepacked, vectors are rows.
"""

from __future__ import annotations

import copy
import ctypes
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import mxnet as mx
import numpy as np

from wqa.engines.onednn.kernels import (
    ACTIVATIONS,
    ADD,
    ARGUMENTS,
    MULTIPLY,
    Attributes,
    Kernel,
    PackedWeights,
)
from wqa.engines.onednn.library import Array, Call, Layout, Memory, Scratch, count_threads, engine

#: Products of a layer by name, and the step of the layer to which a product belongs.
PRODUCTS = {
    "query": "project",
    "key": "project",
    "value": "project",
    "output": "merge",
    "inner": "widen",
    "outer": "narrow",
}


_ACCURATE_SOFTMAX, _NORM_FLAGS = 196608, 6
_TRAINING, _INFERENCE, _BACKWARD = 64, 96, 128


def address(array: mx.nd.NDArray) -> int:
    """Address of an MXNet array's first element on the CPU."""
    pointer = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    return pointer.value or 0


def shared_memory(array: mx.nd.NDArray) -> np.ndarray:
    """A flat view of an MXNet array's memory on the CPU.

    Shapes: the result (size,).
    """
    pointer = ctypes.cast(address(array), ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(pointer, (array.size,))


class Quantized(NamedTuple):
    """An 8-bit weight of a product, and its scales."""

    #: (in, out) int8.
    weight: np.ndarray
    #: (out,) float32, scale of each output channel.
    scale: np.ndarray
    #: (in,) float32; an input channel is multiplied by it before it is rounded.
    factor: np.ndarray

    def in_seven_bits(self) -> Quantized:
        """Round the weight to integers from -64 to 64, for processors without VNNI.

        Those add the products of two neighbouring channels in 16 bits. With an unsigned input of
        up to 255, a weight of 64 is the largest whose sum of two products fits.

        Returns
        -------
        Quantized
            The coarser weight, with its scale doubled.
        """
        weight = np.rint(self.weight * np.float32(0.5)).astype(np.int8)
        return Quantized(weight, self.scale * 2, self.factor)


class Vector(Array):
    """float32 numbers that a kernel reads."""

    def __init__(self, values: np.ndarray, axes: int = 2) -> None:
        shape = (1, values.size) if axes == 2 else (values.size,)
        super().__init__(Layout(shape, "float32"), np.ascontiguousarray(values, dtype=np.float32))


class Dense:
    """Weight and bias of a dense layer, prepacked for each kernel that reads them.

    Shapes: `bias` (out,).
    """

    def __init__(
        self,
        weight: Callable[[], np.ndarray],
        bias: np.ndarray,
        quantized: Optional[Quantized] = None,
        refreshable: bool = False,
    ) -> None:
        self._weight, self._quantized, self._refreshable = weight, quantized, refreshable
        self.bias = Vector(bias)
        self.scale = Vector(quantized.scale, axes=1) if quantized else None
        #: (1, in) factors of the input before it is rounded to int8; None for a float weight.
        self.factor = Vector(quantized.factor) if quantized else None
        self._packed: Dict[bool, List[PackedWeights]] = {False: [], True: []}
        self._fillers: List[Call] = []
        self._lock = threading.Lock()  # several threads may read a weight

    @classmethod
    def of(cls, block: mx.gluon.nn.Dense) -> Dense:
        """Copy the parameters of a block."""
        weight = block.weight.data().asnumpy()
        return cls(lambda: weight, block.bias.data().asnumpy())

    def _source(self, backward: bool) -> Array:
        if self._quantized is not None:
            return Array(Layout(self._quantized.weight.shape, "int8"), self._quantized.weight)
        weight = self._weight()
        rows, width = weight.shape
        if backward:
            return Array(Layout((rows, width), "float32"), weight)
        return Array(Layout((width, rows), "float32", (1, width)), weight)  # transposed

    def packed(self, kernel: Kernel, backward: bool = False) -> PackedWeights:
        """The weight, prepacked in the layout that a kernel has chosen."""
        with self._lock:
            for packed in self._packed[backward]:
                if packed.fits(kernel):
                    return packed
            packed = PackedWeights(kernel)
            fill = packed.filler(self._source(backward))
            fill()
            self._packed[backward].append(packed)
            if self._refreshable:
                self._fillers.append(fill)
            return packed

    def refresh(self) -> None:
        """Pack the weight again, after the optimizer has changed it."""
        for fill in self._fillers:
            fill()


class Norm:
    """Gain and offset of a normalisation.

    Shapes: `gamma, beta` (width,).
    """

    def __init__(self, gamma: np.ndarray, beta: np.ndarray) -> None:
        self.gamma, self.beta = Vector(gamma, axes=1), Vector(beta, axes=1)

    @classmethod
    def of(cls, block: mx.gluon.nn.LayerNorm) -> Norm:
        """Copy the parameters of a block."""
        return cls(block.gamma.data().asnumpy(), block.beta.data().asnumpy())


def split_queries(array: np.ndarray) -> Tuple[np.ndarray, ...]:
    """Split a joint projection into those of queries, keys and values.

    Shapes: `array` (3 C, C).
    """
    units = len(array) // 3
    return array[:units], array[units : 2 * units], array[2 * units :]


#: A step after a product: its name, and a second operand, a number or None.
Step = Tuple[str, Union[Array, float, None]]


class Operations:
    """Compiles kernels once for their layouts, and binds them."""

    def __init__(self, epsilon: float, scratch: Optional[Scratch] = None) -> None:
        self._epsilon = epsilon
        self._kernels: Dict[tuple, Kernel] = {}
        self.scratch = scratch or Scratch()

    def sibling(self) -> Operations:
        """Operations by the same kernels for another thread, with a scratch buffer of their own."""
        sibling = copy.copy(self)
        sibling.scratch = Scratch()
        return sibling

    def _kernel(
        self,
        operation: str,
        *arguments: Any,
        scales: Sequence[Tuple[int, int]] = (),
        steps: Sequence[Step] = (),
    ) -> Kernel:
        """The kernel of an operation for the calling thread's number of threads.

        It is compiled when it is first used.
        """
        layouts = [_layout(argument) for argument in arguments]
        of_steps = []
        for name, operand in steps:
            if operand is not None or name not in ("add", "multiply"):
                of_steps.append((name, _layout(operand)))
        key = (operation, count_threads(), *layouts, *scales, *of_steps)
        if key not in self._kernels:
            attributes = Attributes(scales, of_steps)
            self._kernels[key] = Kernel(operation, *layouts, attributes=attributes)
        return self._kernels[key]

    def _bind(self, kernel: Kernel, steps: Sequence[Step] = (), /, **arrays: Memory) -> Call:
        operands = [operand for _, operand in steps if isinstance(operand, Array)]
        return kernel.bind(self.scratch, operands, **arrays)

    def product(self, left: Array, right: Array, out: Array, *steps: Step) -> Call:
        """Bind ``out = steps(left @ right)``."""
        kernel = self._kernel("matmul", engine, left, right, None, out, steps=steps)
        return self._bind(kernel, steps, src=left, weights=right, dst=out)

    def dense(
        self, source: Array, weight: Dense, out: Array, *steps: Step, backward: bool = False
    ) -> Call:
        """Bind a product with prepacked weights."""
        shape = (source.layout.shape[1], out.layout.shape[1])
        right = Layout(shape, source.layout.kind, any_layout=True)
        bias = None if backward else weight.bias
        scales = [] if weight.scale is None else [(ARGUMENTS["weights"], 2)]  # one a column
        operands = (engine, source, right, bias, out)
        kernel = self._kernel("matmul", *operands, scales=scales, steps=steps)
        arrays: Dict[str, Memory] = {"weights": weight.packed(kernel, backward)}
        if bias is not None:
            arrays["bias"] = bias
        if weight.scale is not None:
            arrays["weight_scales"] = weight.scale
        return self._bind(kernel, steps, src=source, dst=out, **arrays)

    def norm(self, source: Array, norm: Norm, out: Array) -> Call:
        """Bind a layer normalisation."""
        arguments = (_INFERENCE, source, out, None, self._epsilon, _NORM_FLAGS)
        kernel = self._kernel("layer_normalization_forward", engine, *arguments)
        return self._bind(kernel, src=source, gamma=norm.gamma, beta=norm.beta, dst=out)

    def norm_with_gradient(
        self,
        source: Array,
        norm: Norm,
        out: Array,
        of_out: Array,
        of_source: Array,
        **others: Memory,
    ) -> Tuple[Call, Call]:
        """Bind a layer normalisation in training, and its gradients.

        Shapes: `source, out` (rows, width); `others` are ``mean`` and ``variance``, (rows,), and
        ``diff_gamma`` and ``diff_beta``, (width,).
        """
        rows, numbers = Layout((source.layout.shape[0],), "float32"), (self._epsilon, _NORM_FLAGS)
        first = (engine, _TRAINING, source, out, rows, *numbers)
        forward = self._kernel("layer_normalization_forward", *first)
        second = (engine, _BACKWARD, of_out, of_out, source, rows, *numbers, forward)
        backward = self._kernel("layer_normalization_backward", *second)
        arrays: Dict[str, Memory] = {"src": source, "gamma": norm.gamma, "beta": norm.beta}
        for name in ("mean", "variance"):
            arrays[name] = others.pop(name)
        gradients = {"diff_dst": of_out, "diff_src": of_source, **others}
        return self._bind(forward, dst=out, **arrays), self._bind(backward, **arrays, **gradients)

    def activation_with_gradient(
        self, name: str, source: Array, out: Array, of_out: Array, of_source: Array
    ) -> Tuple[Call, Call]:
        """Bind an activation, and its gradient."""
        arguments = (ACTIVATIONS[name], source, source)
        forward = self._kernel("eltwise_forward", engine, _TRAINING, *arguments, 0.0, 0.0)
        last = (source, 0.0, 0.0, forward)
        backward = self._kernel("eltwise_backward", engine, *arguments, *last)
        arrays = {"src": source, "diff_dst": of_out, "diff_src": of_source}
        return self._bind(forward, src=source, dst=out), self._bind(backward, **arrays)

    def softmax(self, source: Array, out: Array) -> Call:
        """Bind a softmax over the last axis."""
        arguments = (_INFERENCE, _ACCURATE_SOFTMAX, source, out, len(source.layout.shape) - 1)
        kernel = self._kernel("softmax_forward", engine, *arguments)
        return self._bind(kernel, src=source, dst=out)

    def softmax_with_gradient(
        self, source: Array, out: Array, of_out: Array, of_source: Array
    ) -> Tuple[Call, Call]:
        """Bind a softmax over the last axis in training, and its gradient."""
        axis = len(source.layout.shape) - 1
        arguments = (_TRAINING, _ACCURATE_SOFTMAX, source, out, axis)
        forward = self._kernel("softmax_forward", engine, *arguments)
        layouts = (out, out, out, axis, forward)
        backward = self._kernel("softmax_backward", engine, _ACCURATE_SOFTMAX, *layouts)
        arrays = {"dst": out, "diff_dst": of_out, "diff_src": of_source}
        return self._bind(forward, src=source, dst=out), self._bind(backward, **arrays)

    def multiply(self, source: Array, factors: Array, out: Array) -> Call:
        """Bind ``out = source * factors``, rounded and clipped where ``out`` is int8.

        oneDNN is slow from float32 to bfloat16: multiply in float32, then `convert`.
        """
        return self._binary(MULTIPLY, source, factors, out)

    def add(self, source: Array, addend: Array, out: Array) -> Call:
        """Bind ``out = source + addend``."""
        return self._binary(ADD, source, addend, out)

    def _binary(self, number: int, source: Array, second: Array, out: Array) -> Call:
        kernel = self._kernel("binary", engine, number, source, second, out)
        return self._bind(kernel, src=source, src_1=second, dst=out)

    def convert(self, source: Array, out: Array) -> Call:
        """Bind a copy to another element type or other strides."""
        kernel = self._kernel("reorder", source, engine, out, engine)
        return self._bind(kernel, src=source, dst=out)


def _layout(argument: Any) -> Any:
    """The layout of an array; any other argument as it is."""
    return argument.layout if isinstance(argument, Array) else argument
