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

from wqa.engines.onednn.library import (
    AVX512,
    TYPES,
    VNNI,
    Call,
    Handle,
    Layout,
    Memory,
    Pointer,
    Scratch,
    count_threads,
    create,
    engine,
    instruction_set,
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
_BINARY = {"add": 131056, "multiply": 131057}
_QUERY_WEIGHTS, _QUERY_SCRATCH = 131, 136
_USER_SCRATCH = 1
_ACCURATE_SOFTMAX, _NORM_FLAGS = 196608, 6
_TRAINING, _INFERENCE, _BACKWARD = 64, 96, 128
_DIRECT = 1

#: Products of a layer by name, and the step of the layer to which a product belongs.
PRODUCTS = {
    "query": "project",
    "key": "project",
    "value": "project",
    "output": "merge",
    "inner": "widen",
    "outer": "narrow",
}


def address(handle: Pointer) -> int:
    """Address of the first element of MXNet's array with a handle, on the CPU."""
    pointer = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(handle, ctypes.byref(pointer)))
    return pointer.value or 0


def view(start: int, *shape: int) -> np.ndarray:
    """View memory that others own as float32 numbers of a shape."""
    return np.ctypeslib.as_array(ctypes.cast(start, ctypes.POINTER(ctypes.c_float)), shape)


class Quantized(NamedTuple):
    """An 8-bit weight of a product, and its scales."""

    #: (in, out) int8.
    weight: np.ndarray
    #: (out,) float32, scale of each output channel.
    scale: np.ndarray
    #: (in,) float32; an input channel is multiplied by it before it is rounded.
    factor: np.ndarray


def vector(values: np.ndarray) -> Memory:
    """float32 numbers that a kernel reads."""
    return Memory.of(np.ascontiguousarray(values, dtype=np.float32))


class Dense:
    """Weight and bias of a dense layer, prepacked for each kernel that reads them.

    ``read`` returns the weight, (out, in). A ``refreshable`` one stays where it is, and `refresh`
    packs it again.

    Shapes: `bias` (out,).
    """

    def __init__(
        self,
        read: Callable[[], np.ndarray],
        bias: np.ndarray,
        quantized: Optional[Quantized] = None,
        refreshable: bool = False,
    ) -> None:
        self._read, self._refreshable = read, refreshable
        self.bias = vector(bias[None])
        self.scale = self.factor = None
        if quantized is not None:
            weight = quantized.weight
            self._read, self.scale = lambda: weight.T, vector(quantized.scale)
            #: (1, in) factors of the input before it is rounded to int8; None for a float weight.
            self.factor = vector(quantized.factor[None])
        #: Whether products are convolutions: without AVX-512, or for int8 without VNNI, a product
        #: of matrices packs the weight again in each call, which large ones, of training, hardly
        #: notice. Convolutions round int8 weights to seven bits there, so that sums of two products
        #: fit in 16 bits.
        needed = AVX512 if quantized is None else VNNI
        self.convolves = not refreshable and not instruction_set() & needed
        self._packed: Dict[bool, List[Memory]] = {False: [], True: []}
        self._packing: List[Call] = []
        self._lock = threading.Lock()  # several threads may read a weight

    @classmethod
    def of(cls, block: mx.gluon.nn.Dense) -> Dense:
        """Copy the parameters of a block."""
        weight = block.weight.data().asnumpy()
        return cls(lambda: weight, block.bias.data().asnumpy())

    def packed(self, kernel: Kernel, backward: bool = False) -> Memory:
        """The weight, prepacked in the layout that a kernel has chosen."""
        layout, size = kernel.layout_of(_QUERY_WEIGHTS)
        with self._lock:
            for packed in self._packed[backward]:
                if library().dnnl_memory_desc_equal(packed.layout.handle, layout.handle):
                    return packed
            packed = Memory(layout, zeros((size,), "int8"))
            weight = self._read()
            if self.convolves:
                weight = np.ascontiguousarray(weight)[:, :, None, None]
            elif not backward:
                weight = weight.T
            pack = Operations().convert(Memory.of(weight), packed)
            pack()
            self._packed[backward].append(packed)
            if self._refreshable:
                self._packing.append(pack)
            return packed

    def refresh(self) -> None:
        """Pack the weight again, after the optimizer has changed it."""
        for pack in self._packing:
            pack()


class Norm(NamedTuple):
    """Gain and offset of a normalisation, (width,) each."""

    gamma: Memory
    beta: Memory

    @classmethod
    def of(cls, block: mx.gluon.nn.LayerNorm) -> Norm:
        """Copy the parameters of a block."""
        return cls(*(vector(part.data().asnumpy()) for part in (block.gamma, block.beta)))


def split_queries(array: np.ndarray) -> Tuple[np.ndarray, ...]:
    """Split a joint projection into those of queries, keys and values.

    Shapes: `array` (3 C, C).
    """
    units = len(array) // 3
    return array[:units], array[units : 2 * units], array[2 * units :]


#: A step after an operation: its name, and a second operand, a number or None. Without an operand
#: the steps "add" and "multiply" are left out.
Step = Tuple[str, Union[Memory, float, None]]


class Kernel(Handle):
    """A compiled operation, with scales of its operands and steps after it."""

    def __init__(
        self,
        operation: str,
        arguments: Sequence[Any],
        scales: Sequence[Tuple[int, int]],
        steps: Sequence[Tuple[str, Any]],
    ) -> None:
        calls = library()
        attributes = Handle("primitive_attr", create("primitive_attr_create"))
        calls.dnnl_primitive_attr_set_scratchpad_mode(attributes.handle, _USER_SCRATCH)
        for argument, mask in scales:
            calls.dnnl_primitive_attr_set_scales_mask(attributes.handle, argument, mask)
        chain = Handle("post_ops", create("post_ops_create"))
        #: Numbers of the steps' second operands among the arguments, in order.
        self.operands: List[int] = []
        for number, (step, operand) in enumerate(steps, 1):
            if step in _BINARY:
                calls.dnnl_post_ops_append_binary(chain.handle, _BINARY[step], operand.handle)
                self.operands.append(_POST_OP * number | _SECOND)
            elif step == "sum":
                kind = TYPES["float32"][0]
                calls.dnnl_post_ops_append_sum(chain.handle, ctypes.c_float(1), 0, kind)
            else:
                numbers = ctypes.c_float(operand or 0), ctypes.c_float(0)
                algorithm = ACTIVATIONS.get(step, _LINEAR)
                calls.dnnl_post_ops_append_eltwise(chain.handle, algorithm, *numbers)
        calls.dnnl_primitive_attr_set_post_ops(attributes.handle, chain.handle)
        handles = [_handle(argument) for argument in (*arguments, attributes)]
        description = create(f"{operation}_primitive_desc_create", *handles)
        self.description = Handle("primitive_desc", description)
        self.scratch = self.layout_of(_QUERY_SCRATCH)
        super().__init__("primitive", create("primitive_create", description))

    def layout_of(self, query: int) -> Tuple[Handle, int]:
        """Layout that the operation has chosen for an operand, and its number of bytes."""
        known = library().dnnl_primitive_desc_query_md(self.description.handle, query, 0)
        layout = Handle("memory_desc", create("memory_desc_clone", Pointer(known)))
        return layout, library().dnnl_memory_desc_get_size(layout.handle)


def _handle(argument: Any) -> Any:
    if isinstance(argument, Kernel):
        return argument.description.handle
    if isinstance(argument, Handle):
        return argument.handle
    if argument is engine:  # the function, which the cache of kernels can hash
        return engine()
    if isinstance(argument, tuple):
        return (ctypes.c_int64 * len(argument))(*argument)
    return ctypes.c_float(argument) if isinstance(argument, float) else argument


class Operations:
    """Compiles kernels once for their layouts, and binds them."""

    def __init__(self, epsilon: float = 0.0, scratch: Optional[Scratch] = None) -> None:
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
            if operand is not None or name not in _BINARY:
                of_steps.append((name, _layout(operand)))
        key = (operation, count_threads(), *layouts, *scales, *of_steps)
        if key not in self._kernels:
            self._kernels[key] = Kernel(operation, layouts, scales, of_steps)
        return self._kernels[key]

    def _bind(self, kernel: Kernel, steps: Sequence[Step] = (), /, **arrays: Memory) -> Call:
        bound = {ARGUMENTS[name]: array for name, array in arrays.items()}
        operands = [operand for _, operand in steps if isinstance(operand, Memory)]
        bound.update(zip(kernel.operands, operands))
        layout, size = kernel.scratch
        if size:
            bound[_SCRATCH] = Memory(layout, self.scratch.take(size))
        return Call(kernel, bound)

    def product(self, left: Memory, right: Memory, out: Memory, *steps: Step) -> Call:
        """Bind ``out = steps(left @ right)``."""
        kernel = self._kernel("matmul", engine, left, right, None, out, steps=steps)
        return self._bind(kernel, steps, src=left, weights=right, dst=out)

    def dense(
        self, source: Memory, weight: Dense, out: Memory, *steps: Step, backward: bool = False
    ) -> Call:
        """Bind a product with prepacked weights."""
        if weight.convolves:
            return self._convolution(source, weight, out, *steps)
        shape = (source.layout.shape[1], out.layout.shape[1])
        right = Layout(shape, source.layout.kind, any_layout=True)
        arrays = {"src": source, "dst": out}
        scales = []
        if not backward:
            arrays["bias"] = weight.bias
        if weight.scale is not None:
            arrays["weight_scales"] = weight.scale
            scales = [(ARGUMENTS["weights"], 2)]  # one a column
        operands = (engine, source, right, arrays.get("bias"), out)
        kernel = self._kernel("matmul", *operands, scales=scales, steps=steps)
        return self._bind(kernel, steps, weights=weight.packed(kernel, backward), **arrays)

    def _convolution(self, source: Memory, weight: Dense, out: Memory, *steps: Step) -> Call:
        """Bind a product as a convolution, whose rows are the pixels of an image."""
        arrays = {"src": source.as_image(), "dst": out.as_image()}
        arrays["bias"] = Memory.of(weight.bias.data[0])
        scales = []
        if weight.scale is not None:
            arrays["weight_scales"] = weight.scale
            scales = [(ARGUMENTS["weights"], 1)]  # one an output channel
        shape = (out.layout.shape[1], source.layout.shape[1], 1, 1)
        filters = Layout(shape, source.layout.kind, any_layout=True)
        operands = (arrays["src"], filters, arrays["bias"], arrays["dst"])
        numbers = ((1, 1), (0, 0), (0, 0), (0, 0))  # strides, dilations, padding before and behind
        images = []
        for name, operand in steps:
            images.append((name, operand.as_image() if isinstance(operand, Memory) else operand))
        arguments = (engine, _INFERENCE, _DIRECT, *operands, *numbers)
        kernel = self._kernel("convolution_forward", *arguments, scales=scales, steps=images)
        return self._bind(kernel, images, weights=weight.packed(kernel), **arrays)

    def norm(self, source: Memory, norm: Norm, out: Memory) -> Call:
        """Bind a layer normalisation."""
        arguments = (_INFERENCE, source, out, None, self._epsilon, _NORM_FLAGS)
        kernel = self._kernel("layer_normalization_forward", engine, *arguments)
        return self._bind(kernel, src=source, dst=out, **norm._asdict())

    def norm_with_gradient(
        self, norm: Norm, source: Tuple[Memory, Memory], out: Tuple[Memory, Memory], *others: Memory
    ) -> Tuple[Call, Call]:
        """Bind a layer normalisation in training, and its gradients.

        ``source`` and ``out`` are the values and their gradient, (rows, width); the ``others`` are
        the mean and the variance, (rows,), and the gradients of gain and offset, (width,).
        """
        (value, of_value), (result, of_result) = source, out
        mean, variance, of_gain, of_offset = others
        numbers = mean, self._epsilon, _NORM_FLAGS
        first = engine, _TRAINING, value, result, *numbers
        forward = self._kernel("layer_normalization_forward", *first)
        second = engine, _BACKWARD, of_result, of_result, value, *numbers, forward
        backward = self._kernel("layer_normalization_backward", *second)
        arrays = {"src": value, "mean": mean, "variance": variance, **norm._asdict()}
        gradients = {"diff_src": of_value, "diff_gamma": of_gain, "diff_beta": of_offset}
        run_backward = self._bind(backward, diff_dst=of_result, **arrays, **gradients)
        return self._bind(forward, dst=result, **arrays), run_backward

    def activation_with_gradient(
        self, name: str, source: Memory, out: Memory, of_out: Memory, of_source: Memory
    ) -> Tuple[Call, Call]:
        """Bind an activation, and its gradient."""
        arguments = (ACTIVATIONS[name], source, source)
        forward = self._kernel("eltwise_forward", engine, _TRAINING, *arguments, 0.0, 0.0)
        last = (source, 0.0, 0.0, forward)
        backward = self._kernel("eltwise_backward", engine, *arguments, *last)
        arrays = {"src": source, "diff_dst": of_out, "diff_src": of_source}
        return self._bind(forward, src=source, dst=out), self._bind(backward, **arrays)

    def softmax(self, source: Memory, out: Memory) -> Call:
        """Bind a softmax over the last axis."""
        axis = len(source.layout.shape) - 1
        arguments = (engine, _TRAINING, _ACCURATE_SOFTMAX, source, out, axis)
        return self._bind(self._kernel("softmax_forward", *arguments), src=source, dst=out)

    def softmax_gradient(
        self, forward: Call, out: Memory, of_out: Memory, of_source: Memory
    ) -> Call:
        """Bind the gradient of a softmax."""
        layouts = (out, out, out, len(out.layout.shape) - 1, forward.kernel)
        kernel = self._kernel("softmax_backward", engine, _ACCURATE_SOFTMAX, *layouts)
        return self._bind(kernel, dst=out, diff_dst=of_out, diff_src=of_source)

    def binary(self, name: str, source: Memory, second: Memory, out: Memory) -> Call:
        """Bind ``out = source + second``, or ``*``, rounded and clipped where ``out`` is int8.

        oneDNN is slow from float32 to bfloat16: multiply in float32, then `convert`.
        """
        kernel = self._kernel("binary", engine, _BINARY[name], source, second, out)
        return self._bind(kernel, src=source, src_1=second, dst=out)

    def convert(self, source: Memory, out: Memory) -> Call:
        """Bind a copy to another element type or layout."""
        kernel = self._kernel("reorder", source, engine, out, engine)
        return self._bind(kernel, src=source, dst=out)


def _layout(argument: Any) -> Any:
    """The layout of an array; any other argument as it is."""
    return argument.layout if isinstance(argument, Memory) else argument
