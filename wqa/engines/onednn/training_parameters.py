"""Operations in MXNet's autograd graph, and the parameters whose gradients they write in place.

`mxnet.autograd.Function` copies each gradient and ignores ``grad_req="add"``. `record` creates the
same kind of node by the same function of MXNet's C interface, but passes the addresses of the
gradients to a callable, which writes them where the optimizer reads them.
"""

from __future__ import annotations

import ctypes
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, MXCallbackList, c_array, c_handle_array, check_call

from wqa.engines.onednn.library import STREAMS, zeros
from wqa.engines.onednn.operations import Dense, Norm, shared_memory, split_queries
from wqa.models.backbone import EncoderLayer
from wqa.models.embeddings import Embeddings

#: MXNet's numbers of the requests "null" and "add".
NULL, ADD = 0, 3

_Generic = ctypes.CFUNCTYPE(ctypes.c_int)
_Delete = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_Handles, _Requests = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int)
_Backward = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_int, _Handles, _Requests, ctypes.c_int, ctypes.c_void_p
)

#: Callbacks of the nodes that MXNet has not deleted yet.
_kept: Dict[int, Any] = {}


def record(
    inputs: Sequence[mx.nd.NDArray],
    out: mx.nd.NDArray,
    backward: Callable[[int, Sequence[Tuple[int, int]]], None],
) -> None:
    """Add an operation to the autograd graph.

    ``backward`` takes the address of the output's gradient and, for each input, the address of its
    gradient and the request: `NULL`, `ADD`, or any other number for "write".
    """

    def call_backward(output_count, input_count, handles, requests, is_train, state) -> int:
        try:
            out_gradient, *others = [_address(handles[index]) for index in range(1 + input_count)]
            backward(out_gradient, list(zip(others, requests)))
            return 1
        except BaseException:  # noqa: B036 - an exception must not propagate into C code
            traceback.print_exc()
            return 0

    def delete(state) -> int:
        _kept.pop(key, None)
        return 1

    callbacks = [_Backward(call_backward), _Delete(delete)]
    generic = c_array(_Generic, [ctypes.cast(callback, _Generic) for callback in callbacks])
    states = c_array(ctypes.c_void_p, [None] * len(callbacks))
    entry = MXCallbackList(
        len(callbacks),
        ctypes.cast(generic, ctypes.POINTER(_Generic)),
        ctypes.cast(states, ctypes.POINTER(ctypes.c_void_p)),
    )
    key = id(entry)
    _kept[key] = (entry, callbacks, generic, states)
    outputs = c_handle_array([out])
    counted = ctypes.c_int(len(inputs)), c_handle_array(inputs), ctypes.c_int(1), outputs
    check_call(_LIB.MXCustomFunctionRecord(*counted, ctypes.byref(entry)))


def _address(handle: int) -> int:
    pointer = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(ctypes.c_void_p(handle), ctypes.byref(pointer)))
    return pointer.value or 0


def view(start: int, size: int) -> np.ndarray:
    """View memory as float32 numbers, (size,)."""
    pointer = ctypes.cast(start, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(pointer, (size,))


class TrainedProduct(NamedTuple):
    """Weight and bias of a dense layer, (rows, width) and (rows,)."""

    dense: Dense
    rows: int
    width: int
    weight: int  # index of the weight among the parameters of the block; the bias follows
    first: int  # first of the parameter's rows


class TrainedNorm(NamedTuple):
    """Gain and offset of a normalisation, and each thread's gradients of them."""

    norm: Norm
    gain: int  # index of the gain among the parameters of the block; the offset follows
    gradients: np.ndarray  # (2, threads, width)


class Trained:
    """Parameters of a block, in the memory in which the optimizer changes them."""

    def __init__(self, *parameters: mx.gluon.Parameter) -> None:
        self._parameters = parameters
        #: MXNet's arrays of the parameters.
        self.data: List[mx.nd.NDArray] = [parameter.data() for parameter in parameters]
        self._products: List[TrainedProduct] = []

    def moved(self) -> bool:
        """Whether a parameter has another array, as after an initialisation."""
        pairs = zip(self._parameters, self.data)
        return any(parameter.data() is not array for parameter, array in pairs)

    def refresh(self) -> None:
        """Pack the weights again, after the optimizer has changed them."""
        for product in self._products:
            product.dense.refresh()

    def _product(self, weight: int, third: int = -1) -> TrainedProduct:
        """The product of a weight and the bias after it, or a third of a joint projection."""
        values = shared_memory(self.data[weight]).reshape(self.data[weight].shape)
        bias, first = shared_memory(self.data[weight + 1]), 0
        if third >= 0:
            values, bias = split_queries(values)[third], split_queries(bias)[third]
            first = third * len(values)
        rows, width = values.shape
        dense = Dense(lambda: values, bias, refreshable=True)
        self._products.append(TrainedProduct(dense, rows, width, weight, first))
        return self._products[-1]

    def _norm(self, gain: int) -> TrainedNorm:
        """The normalisation of a gain and the offset after it."""
        gamma, beta = map(shared_memory, self.data[gain : gain + 2])
        return TrainedNorm(Norm(gamma, beta), gain, zeros((2, STREAMS, gamma.size), "float32"))


class TrainedLayer(Trained):
    """Parameters of one layer."""

    def __init__(self, layer: EncoderLayer) -> None:
        parameters = []
        for dense in (layer.qkv, layer.proj, layer.ffn_1, layer.ffn_2):
            parameters += [dense.weight, dense.bias]
        for norm in (layer.attention_norm, layer.ffn_norm):
            parameters += [norm.gamma, norm.beta]
        super().__init__(*parameters)
        self.query, self.key, self.value = (self._product(0, third) for third in range(3))
        self.output, self.inner, self.outer = map(self._product, (2, 4, 6))
        self.attention_norm, self.ffn_norm = self._norm(8), self._norm(10)


class TrainedEmbeddings(Trained):
    """Parameters of the normalisation and the projection of embeddings."""

    def __init__(self, block: Embeddings) -> None:
        parameters, projection = [block.layer_norm.gamma, block.layer_norm.beta], block.projection
        if projection is not None:
            parameters += [projection.weight, projection.bias]
        super().__init__(*parameters)
        self.norm = self._norm(0)
        self.projection = None if projection is None else self._product(2)
