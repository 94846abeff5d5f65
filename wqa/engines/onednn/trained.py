"""Parameters of a training, as oneDNN reads them, and arrays for their gradients.

Custom operations in MXNet's autograd graph, which read and write gradients in place.

`mxnet.autograd.Function` copies each gradient and ignores ``grad_req="add"``. `record` creates the
same kind of node by the same function of MXNet's C interface, but passes the addresses of the
gradients to a callable, which writes them where the optimizer reads them.
"""

from __future__ import annotations

import ctypes
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, MXCallbackList, c_array, c_handle_array, check_call

from wqa.engines.onednn.library import Array, Layout
from wqa.engines.onednn.operations import Dense, Norm, address, shared_memory, split_queries
from wqa.models.backbone import EncoderLayer
from wqa.models.embeddings import Embeddings

#: MXNet's numbers of the requests "null" and "add".
NULL, ADD = 0, 3

_Backward = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int),
    ctypes.c_int,
    ctypes.c_void_p,
)
_Delete = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_Generic = ctypes.CFUNCTYPE(ctypes.c_int)

#: Callbacks of the nodes that MXNet has not deleted yet.
_alive: Dict[int, Any] = {}


class Gradient(NamedTuple):
    """Address to which the gradient of an input is written."""

    address: int
    request: int  # NULL, ADD, or any other number for "write"


def record(
    inputs: Sequence[mx.nd.NDArray],
    outputs: Sequence[mx.nd.NDArray],
    backward: Callable[[Sequence[int], Sequence[Gradient]], None],
) -> None:
    """Add an operation to the autograd graph."""

    def call_backward(output_count, input_count, handles, requests, is_train, state) -> int:
        try:
            addresses = [_address(handles[index]) for index in range(output_count + input_count)]
            gradients = [
                Gradient(addresses[output_count + index], requests[index])
                for index in range(input_count)
            ]
            backward(addresses[:output_count], gradients)
            return 1
        except BaseException:  # noqa: B036 - an exception must not propagate into C code
            traceback.print_exc()
            return 0

    def delete(state) -> int:
        _alive.pop(key, None)
        return 1

    callbacks = [_Backward(call_backward), _Delete(delete)]
    generic = c_array(_Generic, [ctypes.cast(callback, _Generic) for callback in callbacks])
    states = c_array(ctypes.c_void_p, [None] * len(callbacks))
    entry = MXCallbackList(
        ctypes.c_int(len(callbacks)),
        ctypes.cast(generic, ctypes.POINTER(_Generic)),
        ctypes.cast(states, ctypes.POINTER(ctypes.c_void_p)),
    )
    key = id(entry)
    _alive[key] = (entry, callbacks, generic, states)
    check_call(
        _LIB.MXCustomFunctionRecord(
            ctypes.c_int(len(inputs)),
            c_handle_array(inputs),
            ctypes.c_int(len(outputs)),
            c_handle_array(outputs),
            ctypes.byref(entry),
        )
    )


def _address(handle: int) -> int:
    pointer = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(ctypes.c_void_p(handle), ctypes.byref(pointer)))
    return pointer.value or 0


class Trained:
    """Parameters of a block, and arrays that share memory with their gradients."""

    def __init__(self, parameters: Sequence[mx.gluon.Parameter]) -> None:
        self.parameters = list(parameters)
        self.addresses = [address(parameter.data()) for parameter in self.parameters]
        #: Array, index of the parameter, offset in bytes.
        self._targets: List[Tuple[Array, int, int]] = []
        self._discarded: Dict[int, np.ndarray] = {}

    def moved(self) -> bool:
        """Whether the address of a parameter has changed, as after an initialisation."""
        return self.addresses != [address(parameter.data()) for parameter in self.parameters]

    def target(self, parameter: int, shape: Sequence[int], offset: int = 0) -> Array:
        """An array for the gradient of a parameter, or of a part that starts at an element."""
        array = Array(Layout(shape, "float32"), np.zeros(1, np.float32))
        self._targets.append((array, parameter, 4 * offset))
        return array

    def set_gradients(self, gradients: Sequence[Gradient], add: bool) -> None:
        """Set the addresses of the arrays to those of the gradients.

        With ``add``, operations add to the arrays. Gradients that MXNet wants written, not added,
        are set to zero first.
        """
        addresses = []
        for index, gradient in enumerate(gradients):
            size = self.parameters[index].data().size
            start = gradient.address
            if gradient.request == NULL:
                unused = self._discarded.setdefault(index, np.zeros(size, np.float32))
                start = unused.ctypes.data
            if add and gradient.request != ADD:
                view(start, size)[:] = 0
            addresses.append(start)
        for array, index, offset in self._targets:
            array.move(addresses[index] + offset)


class TrainedProduct:
    """Weight and bias of a dense layer, and arrays for their gradients.

    Parameters
    ----------
    trained : Trained
        Parameters of the block.
    dense : Dense
        Weight and bias.
    weight : int
        Index of the weight among the parameters; that of the bias is the next.
    rows, width : int
        Rows and columns of the weight.
    offset : int
        First of the parameter's rows.
    """

    def __init__(
        self, trained: Trained, dense: Dense, weight: int, rows: int, width: int, offset: int
    ) -> None:
        self.dense, self.rows = dense, rows
        self._trained, self._weight, self._width, self._offset = trained, weight, width, offset
        self._targets: Dict[Tuple[int, int], Tuple[Array, Array]] = {}

    def targets(self, start: int, end: int) -> Tuple[Array, Array]:
        """Arrays for the gradients of rows of the weight, and of these values of the bias.

        Shapes: the results (end - start, width), (1, end - start).
        """
        rows = (start, end)
        if rows not in self._targets:
            target, first, count = self._trained.target, self._offset + start, end - start
            self._targets[rows] = (
                target(self._weight, (count, self._width), first * self._width),
                target(self._weight + 1, (1, count), first),
            )
        return self._targets[rows]


class TrainedNorm(NamedTuple):
    """Gain and offset of a normalisation, and arrays for their gradients."""

    norm: Norm
    gradients: Tuple[Array, Array]


def _product(trained: Trained, weight: int, third: Optional[int] = None) -> TrainedProduct:
    """The product of the parameters ``weight`` (weight) and ``weight + 1`` (bias).

    ``third`` is the index of a part of a joint projection of queries, keys and values.
    """
    values = shared_memory(trained.parameters[weight].data())
    values = values.reshape(trained.parameters[weight].shape)
    bias = shared_memory(trained.parameters[weight + 1].data())
    offset = 0
    if third is not None:
        values = split_queries(values)[third]
        bias = split_queries(bias)[third]
        offset = third * len(values)
    rows, width = values.shape
    dense = Dense(lambda: values, bias, refreshable=True)
    return TrainedProduct(trained, dense, weight, rows, width, offset)


def _norm(trained: Trained, gamma: int) -> TrainedNorm:
    """The normalisation of the parameters ``gamma`` (gain) and ``gamma + 1`` (offset)."""
    beta = gamma + 1
    gain = shared_memory(trained.parameters[gamma].data())
    offset = shared_memory(trained.parameters[beta].data())
    gain_gradient = trained.target(gamma, (gain.size,))
    offset_gradient = trained.target(beta, (offset.size,))
    return TrainedNorm(Norm(gain, offset), (gain_gradient, offset_gradient))


class TrainedLayer(Trained):
    """Parameters of one layer."""

    def __init__(self, layer: EncoderLayer) -> None:
        parameters = []
        for dense in (layer.qkv, layer.proj, layer.ffn_1, layer.ffn_2):
            parameters += [dense.weight, dense.bias]
        for norm in (layer.attention_norm, layer.ffn_norm):
            parameters += [norm.gamma, norm.beta]
        super().__init__(parameters)
        self.query = _product(self, 0, 0)
        self.key = _product(self, 0, 1)
        self.value = _product(self, 0, 2)
        self.output = _product(self, 2)
        self.inner = _product(self, 4)
        self.outer = _product(self, 6)
        self.attention_norm = _norm(self, 8)
        self.ffn_norm = _norm(self, 10)

    def refresh(self) -> None:
        """Pack the weights again."""
        for product in (self.query, self.key, self.value, self.output, self.inner, self.outer):
            product.dense.refresh()


class TrainedEmbeddings(Trained):
    """Parameters of the normalisation and the projection of embeddings."""

    def __init__(self, block: Embeddings) -> None:
        parameters = [block.layer_norm.gamma, block.layer_norm.beta]
        if block.projection is not None:
            parameters += [block.projection.weight, block.projection.bias]
        super().__init__(parameters)
        self.norm = _norm(self, 0)
        self.projection = None if block.projection is None else _product(self, 2)

    def refresh(self) -> None:
        """Pack the weights again."""
        if self.projection is not None:
            self.projection.dense.refresh()


def view(start: int, size: int) -> np.ndarray:
    """View memory as float32 numbers.

    Shapes: the result (size,).
    """
    pointer = ctypes.cast(start, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(pointer, (size,))
