"""Operations on workspace buffers, and the parameters of layers that they read.

Each kernel is compiled once for its layouts, then bound. A `Workspace` holds named buffers, which
the operations of all layers share. `Operations` caches the compiled kernels and binds them to
arrays. Its methods return calls, which run when they are called. Weights are prepacked, vectors are
rows.
"""

from __future__ import annotations

import copy
import ctypes
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import mxnet as mx
import numpy as np

from wqa.engines.onednn import primitives
from wqa.engines.onednn.library import (
    TYPES,
    Array,
    Call,
    Layout,
    Memory,
    Scratch,
    count_threads,
    zeros,
)
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
    PackedWeights,
    scale_argument,
)

#: Products of a layer by name, and the step of the layer to which a product belongs.
PRODUCTS = {
    "query": "project",
    "key": "project",
    "value": "project",
    "output": "merge",
    "inner": "widen",
    "outer": "narrow",
}


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


class BufferView(Array):
    """A view of a buffer from its element ``start`` on."""

    def __init__(self, layout: Layout, buffer: np.ndarray, start: int) -> None:
        self.buffer_size, self.start = buffer.size, start
        super().__init__(layout, buffer[start:])


class Workspace:
    """Named buffers, and views of them in any shape that fits."""

    def __init__(self) -> None:
        self._buffers: Dict[str, np.ndarray] = {}
        self._arrays: Dict[tuple, BufferView] = {}

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
        start: int = 0,
    ) -> BufferView:
        """A view of a buffer of a size, from the element ``start`` on."""
        key = (name, tuple(shape), kind, strides and tuple(strides), start)
        if key not in self._arrays:
            buffer = self.buffer(name, size, kind)
            self._arrays[key] = BufferView(Layout(shape, kind, strides), buffer, start)
        return self._arrays[key]

    def like(self, name: str, view: BufferView, kind: str) -> BufferView:
        """A view of another buffer, with the shape and the place of a contiguous view."""
        return self.array(name, view.buffer_size, view.layout.shape, kind, start=view.start)


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

    def _kernel(self, build: Callable[..., Kernel], *arguments: Any) -> Kernel:
        """The kernel of an operation for the calling thread's number of threads.

        It is compiled when it is first used. Layouts are compared by their keys.
        """
        layouts = [_layout(argument) for argument in arguments]
        key = (build, count_threads(), *map(_key, layouts))
        if key not in self._kernels:
            self._kernels[key] = build(*layouts)
        return self._kernels[key]

    def product(self, left: Array, right: Array, out: Array, *steps: Step) -> Call:
        """Bind ``out = steps(left @ right)``."""
        kernel = self._kernel(primitives.product, left, right, out, None, None, _layouts(steps))
        arrays: Dict[int, Memory] = {SRC: left, WEIGHTS: right, DST: out}
        return kernel.bind(arrays, _operands(steps), self.scratch)

    def dense(
        self, source: Array, weight: Dense, out: Array, *steps: Step, backward: bool = False
    ) -> Call:
        """Bind a product with prepacked weights."""
        shape = (source.layout.shape[1], out.layout.shape[1])
        right = Layout(shape, source.layout.kind, any_layout=True)
        bias = None if backward else weight.bias
        scales = {WEIGHTS: 2} if weight.scale is not None else None  # one a column
        operands = (source, right, out, bias)
        kernel = self._kernel(primitives.product, *operands, scales, _layouts(steps))
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
        return self._kernel(primitives.layer_norm, source, out, self._epsilon, rows)

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
        operands = (forward, source, gradient, rows, self._epsilon)
        kernel = self._kernel(primitives.layer_norm_backward, *operands)
        arrays: Dict[int, Memory] = {SRC: source, DIFF_DST: gradient, DIFF_SRC: result}
        arrays.update({GAMMA: norm.gamma, BETA: norm.beta, **statistics})
        arrays.update({DIFF_GAMMA: parameters[0], DIFF_BETA: parameters[1]})
        return kernel.bind(arrays, scratch=self.scratch)

    def activation(self, name: str, source: Array, out: Array) -> Call:
        """Bind an activation."""
        kernel = self._kernel(primitives.activation, name, source)
        return kernel.bind({SRC: source, DST: out}, scratch=self.scratch)

    def activation_backward(self, name: str, source: Array, gradient: Array, result: Array) -> Call:
        """Bind the gradient of an activation."""
        forward = self._kernel(primitives.activation, name, source)
        kernel = self._kernel(primitives.activation_backward, forward, name, source)
        arrays: Dict[int, Memory] = {SRC: source, DIFF_DST: gradient, DIFF_SRC: result}
        return kernel.bind(arrays, scratch=self.scratch)

    def softmax(self, source: Array, out: Array, training: bool = False) -> Call:
        """Bind a softmax over the last axis."""
        kernel = self._kernel(primitives.softmax, source, out, training)
        return kernel.bind({SRC: source, DST: out}, scratch=self.scratch)

    def softmax_backward(self, source: Array, out: Array, gradient: Array, result: Array) -> Call:
        """Bind the gradient of a softmax."""
        forward = self._kernel(primitives.softmax, source, out, True)
        kernel = self._kernel(primitives.softmax_backward, forward, out)
        arrays: Dict[int, Memory] = {DST: out, DIFF_DST: gradient, DIFF_SRC: result}
        return kernel.bind(arrays, scratch=self.scratch)

    def multiply(self, source: Array, factors: Array, out: Array) -> Call:
        """Bind ``out = source * factors``, rounded and clipped where ``out`` is int8."""
        kernel = self._kernel(primitives.multiply, source, factors, out)
        return kernel.bind({SRC: source, SRC_1: factors, DST: out}, scratch=self.scratch)

    def add(self, source: Array, addend: Array, out: Array) -> Call:
        """Bind ``out = source + addend``."""
        kernel = self._kernel(primitives.add, source, addend, out)
        return kernel.bind({SRC: source, SRC_1: addend, DST: out}, scratch=self.scratch)

    def convert(self, source: Array, out: Array) -> Call:
        """Bind a copy to another element type."""
        kernel = self._kernel(primitives.convert, source, out)
        return kernel.bind({SRC: source, DST: out}, scratch=self.scratch)


def _key(argument: Any) -> Any:
    if isinstance(argument, Layout):
        return argument.key
    if isinstance(argument, (tuple, list)):
        return tuple(map(_key, argument))
    return tuple(argument.items()) if isinstance(argument, dict) else argument


def _layout(argument: Any) -> Any:
    """The layout of an array; any other argument as it is."""
    return argument.layout if isinstance(argument, Array) else argument


def _layouts(steps: Sequence[Step]) -> List[Tuple[str, Any]]:
    """Steps with layouts for arrays, as kernels are compiled from them, without those of None."""
    pairs = []
    for name, operand in steps:
        if operand is not None or name not in ("add", "multiply"):
            pairs.append((name, _layout(operand)))
    return pairs


def _operands(steps: Sequence[Step]) -> List[Array]:
    return [operand for _, operand in steps if isinstance(operand, Array)]
