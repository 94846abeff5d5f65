"""Parameters that a training reads, and arrays that point at where their gradients go."""

from __future__ import annotations

import ctypes
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from wqa.models.backbone import Embeddings, EncoderLayer
from wqa.onednn.library import Array, Layout
from wqa.onednn.parameters import Dense, Norm, address, shared_memory, split_queries
from wqa.onednn.recording import ADD, NULL, Gradient


class Trained:
    """Parameters of a block, and arrays that are pointed at their gradients before each use.

    ``parameters`` are those of the block in the order in which their gradients are handed over.
    """

    def __init__(self, parameters: Sequence[mx.gluon.Parameter]) -> None:
        self.parameters = list(parameters)
        self.addresses = [address(parameter.data()) for parameter in self.parameters]
        self._targets: List[Tuple[Array, int, int]] = []  # array, parameter, offset in bytes
        self._discarded: Dict[int, np.ndarray] = {}

    def moved(self) -> bool:
        """Whether a parameter stands elsewhere by now, as after an initialisation."""
        return self.addresses != [address(parameter.data()) for parameter in self.parameters]

    def target(self, parameter: int, shape: Sequence[int], offset: int = 0) -> Array:
        """An array for the gradient of a parameter, or of its part from an element on."""
        array = Array(Layout(shape, "float32"), np.zeros(1, np.float32))
        self._targets.append((array, parameter, 4 * offset))
        return array

    def point(self, gradients: Sequence[Gradient], add: bool) -> None:
        """Point the arrays at where the gradients go; where they are to be added, parameters whose
        gradient is written start from zero."""
        places = []
        for index, gradient in enumerate(gradients):
            size = self.parameters[index].data().size
            place = gradient.address
            if gradient.request == NULL:
                place = self._discarded.setdefault(index, np.zeros(size, np.float32)).ctypes.data
            if add and gradient.request != ADD:
                view(place, size)[:] = 0
            places.append(place)
        for array, index, offset in self._targets:
            array.move(places[index] + offset)


class TrainedProduct(NamedTuple):
    """A dense layer: what products read, and where its gradients go."""

    dense: Dense
    weight_gradient: Array
    bias_gradient: Array
    shape: Tuple[int, int]  # (out, in)


class TrainedNorm(NamedTuple):
    """A normalisation: what kernels read, and where its gradients go."""

    norm: Norm
    gradients: Tuple[Array, Array]


def _product(trained: Trained, weight: int, third: Optional[int] = None) -> TrainedProduct:
    """The product of a weight and the bias after it among the parameters, or of a third of them."""
    values = shared_memory(trained.parameters[weight].data())
    values = values.reshape(trained.parameters[weight].shape)
    bias = shared_memory(trained.parameters[weight + 1].data())
    offset = 0
    if third is not None:
        values, bias = split_queries(values)[third], split_queries(bias)[third]
        offset = third * len(values)
    rows, width = values.shape
    dense = Dense(lambda: values, bias, refreshable=True)
    weight_gradient = trained.target(weight, (rows, width), offset * width)
    bias_gradient = trained.target(weight + 1, (1, rows), offset)
    return TrainedProduct(dense, weight_gradient, bias_gradient, (rows, width))


def _norm(trained: Trained, gamma: int) -> TrainedNorm:
    """The normalisation of a gain and the offset after it among the parameters."""
    values = [shared_memory(trained.parameters[gamma + index].data()) for index in range(2)]
    gradients = tuple(trained.target(gamma + index, (values[0].size,)) for index in range(2))
    return TrainedNorm(Norm(*values), gradients)  # type: ignore[arg-type]


class TrainedLayer(Trained):
    """Parameters of one layer."""

    def __init__(self, layer: EncoderLayer) -> None:
        parameters = []
        for dense in (layer.qkv, layer.proj, layer.ffn_1, layer.ffn_2):
            parameters += [dense.weight, dense.bias]
        for norm in (layer.attention_norm, layer.ffn_norm):
            parameters += [norm.gamma, norm.beta]
        super().__init__(parameters)
        self.query, self.key, self.value = (_product(self, 0, third) for third in range(3))
        self.output, self.inner, self.outer = (_product(self, weight) for weight in (2, 4, 6))
        self.attention_norm, self.ffn_norm = _norm(self, 8), _norm(self, 10)

    def refresh(self) -> None:
        """Pack the weights again."""
        for product in (self.query, self.key, self.value, self.output, self.inner, self.outer):
            product.dense.refresh()


class TrainedEmbeddings(Trained):
    """Parameters of the embeddings' normalisation and projection."""

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


def view(place: int, size: int) -> np.ndarray:
    """float32 numbers at an address.

    Parameters
    ----------
    place : int
        Address of the first.
    size : int
        How many there are.

    Returns
    -------
    numpy.ndarray
        (size,) float32; valid as long as their owner.
    """
    pointer = ctypes.cast(place, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(pointer, (size,))
