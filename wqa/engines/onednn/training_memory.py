"""Buffers of a training, of the size of the largest mini-batch, which chunks of mini-batches share.

Rows of a mini-batch are (B L, C). The queries, keys and values of the attention heads are views of
them, (B, H, L, C / H). Attention scores are (B, H, Q, L), with Q queries a pair. A chunk of a
mini-batch has its place in each buffer, so that threads compute chunks of their own, and the
gradients of parameters read all rows.

Parameters stay in MXNet's memory, and their gradients are written in place:
`mxnet.autograd.Function` copies each gradient and ignores ``grad_req="add"``. `record` creates the
same kind of node by the same function of MXNet's C interface, but passes the addresses of the
gradients to a callable, which writes them where the optimizer reads them.
"""

from __future__ import annotations

import ctypes
import math
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet.autograd import Function
from mxnet.base import _LIB, MXCallbackList, c_array, c_handle_array, check_call

from wqa.config import BackboneConfig
from wqa.engines.onednn.library import STREAMS, Memory, cached, one, zeros
from wqa.engines.onednn.operations import Dense, Norm, address, split_queries, vector, view
from wqa.models.backbone import EncoderLayer
from wqa.models.embeddings import Embeddings

#: MXNet's numbers of the requests "null" and "add".
NULL, ADD = 0, 3

#: Callbacks of the nodes that MXNet has not deleted yet.
_kept: Dict[int, Any] = {}
_Generic = ctypes.CFUNCTYPE(ctypes.c_int)


class Chunk(NamedTuple):
    """The pairs of a mini-batch, or neighbouring ones of them, and the positions of each."""

    pairs: int
    length: int
    first: int = 0  # index of the first pair in the mini-batch

    @property
    def rows(self) -> int:
        """Positions of all pairs."""
        return self.pairs * self.length

    def part(self, index: int, count: int) -> Chunk:
        """One of several chunks of a mini-batch, whose numbers of pairs differ by one at most."""
        start, end = (self.pairs * edge // count for edge in (index, index + 1))
        return Chunk(end - start, self.length, start)


class Buffer:
    """Rows of the largest mini-batch, of which a chunk has those of its pairs."""

    def __init__(self, rows: int, width: int, kind: str) -> None:
        self.width, self.kind, self.data = width, kind, zeros((rows * width,), kind)

    def part(self, chunk: Chunk, *shape: int) -> np.ndarray:
        """What a chunk has: an array of a shape for each of its pairs, (B, ...)."""
        size = math.prod(shape)
        own = self.data[chunk.first * size : (chunk.first + chunk.pairs) * size]
        return own.reshape(chunk.pairs, *shape)

    def rows(self, chunk: Chunk) -> np.ndarray:
        """Rows of a chunk, (B L, width)."""
        return self.part(chunk, chunk.length, self.width).reshape(chunk.rows, self.width)


def operand(buffer: Optional[Buffer], chunk: Chunk) -> Any:
    """Rows of a chunk as an operand; None without a buffer."""
    return None if buffer is None else Memory.of(buffer.rows(chunk))


class Tensor(NamedTuple):
    """Values that a layer computes, and their gradient, in memory that layers share."""

    value: Buffer
    gradient: Buffer
    rounded: Optional[Buffer] = None  # the gradient where a product reads it

    def rows(self, chunk: Chunk) -> Tuple[Memory, Memory]:
        """Rows of a chunk, and their gradient."""
        return operand(self.value, chunk), operand(self.gradient, chunk)


class TrainingMemory:
    """Buffers for mini-batches of at most so many tokens, and of a length."""

    def __init__(self, config: BackboneConfig, kind: str, tokens: int, length: int) -> None:
        self.config, self.kind, self.tokens, self.length = config, kind, tokens, length
        #: Width of the embeddings' tables.
        self.width = config.embedding_size or config.units
        self.padding = self.row("float32", 1)
        self.ones = self.row(width=1)
        self.ones.data[:] = one(kind)
        self.gradients = Gradients(self)
        items = config.num_heads * length**2 if config.family.relative_buckets else 0
        #: Biases by relative position, and each thread's sum of their gradients.
        self.biases = Buffer(1 + STREAMS, items, "float32")
        self._cache: Dict[tuple, Any] = {}

    def row(self, kind: str = "", width: int = 0) -> Buffer:
        """Rows of C, or of another width."""
        return Buffer(self.tokens, width or self.config.units, kind or self.kind)

    def scores(self, kind: str = "") -> Buffer:
        """Attention scores."""
        return self.row(kind, self.config.num_heads * self.length)

    def tensor(self, gradient: Buffer, rounded: Optional[Buffer] = None) -> Tensor:
        """Values beside a gradient; float32, a sum, where a product reads that rounded."""
        kind = "float32" if rounded else self.kind
        return Tensor(self.row(kind, gradient.width), gradient, rounded)

    def statistics(self) -> Tuple[Buffer, Buffer]:
        """Mean and variance of each row, which a normalisation keeps."""
        return self.row("float32", 1), self.row("float32", 1)

    @cached
    def activations(self, call: int, index: int, is_read: bool) -> Activations:
        """Activations of a layer of a call in its pass."""
        own = Activations(self, is_read)
        if index and not is_read:
            own.x = self.activations(call, index - 1, False).after
        return own

    @cached
    def embeddings(self, call: int) -> EmbeddingTensors:
        """Tensors of the embeddings of a call in its pass."""
        return EmbeddingTensors(self)


class Gradients:
    """Gradients inside a layer, which each layer computes anew, and its scores before the softmax.

    Where few positions of each pair are read, what lives beyond a thread's own part of a layer has
    another buffer, as the place of a chunk depends on the number of positions.
    """

    def __init__(self, memory: TrainingMemory) -> None:
        row, scores, wide = memory.row, memory.scores, memory.config.hidden_size
        self.x = row("float32")
        self.x_read = row("float32")
        self.x_of_queries = row("float32")
        self.x_of_keys = row("float32")
        self.middle = row("float32")
        self.dropped = row("float32")
        self.attention_sum = row("float32")
        self.attention_rounded = row()
        self.ffn_sum = row("float32")
        self.ffn_rounded = row()
        self.query, self.key = row(), row()
        self.value, self.context = row(), row()
        self.inner, self.active = row("", wide), row("", wide)
        self.weights, self.kept, self.scores = scores(), scores(), scores()
        self.raw, self.raw_read = scores("float32"), scores("float32")


class Activations:
    """What a layer computes forward, and its gradients read."""

    def __init__(self, memory: TrainingMemory, is_read: bool) -> None:
        g, tensor, scores = memory.gradients, memory.tensor, memory.scores
        of_x = g.x_read if is_read else g.x
        self.x, self.after = tensor(of_x), tensor(of_x)
        self.query, self.key = tensor(g.query), tensor(g.key)
        self.value, self.context = tensor(g.value), tensor(g.context)
        self.attention_sum = tensor(g.attention_sum, g.attention_rounded)
        self.middle = tensor(g.middle)
        self.ffn_sum = tensor(g.ffn_sum, g.ffn_rounded)
        self.inner, self.active = tensor(g.inner), tensor(g.active)
        self.raw = g.raw_read if is_read else g.raw
        self.weights, self.kept, self.kept_mask = scores(), scores(), scores("float32")
        self.attention_mask, self.ffn_mask = memory.row("float32"), memory.row("float32")
        self.attention_statistics, self.ffn_statistics = memory.statistics(), memory.statistics()


class EmbeddingTensors:
    """What the embeddings compute, and the gradients."""

    def __init__(self, memory: TrainingMemory) -> None:
        wide = [memory.row("float32", memory.width) for _ in range(6)]
        self.mask = wide[0]
        self.sums, self.normed = Tensor(*wide[1:3]), Tensor(*wide[3:5])
        self.embedded = Tensor(memory.row(width=memory.width), wide[5])
        self.projected = Tensor(memory.row(), memory.row())
        self.statistics = memory.statistics()


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
            arrays = [ctypes.c_void_p(handles[index]) for index in range(1 + input_count)]
            out_gradient, *others = map(address, arrays)
            backward(out_gradient, list(zip(others, requests)))
            return 1
        except BaseException:  # noqa: B036 - an exception must not propagate into C code
            traceback.print_exc()
            return 0

    def delete(state) -> int:
        _kept.pop(key, None)
        return 1

    callbacks = [Function._bwd_functype(call_backward), Function._del_functype(delete)]
    generic = c_array(_Generic, [ctypes.cast(callback, _Generic) for callback in callbacks])
    states = c_array(ctypes.c_void_p, [None] * len(callbacks))
    entry = MXCallbackList(len(callbacks), generic, states)
    key = id(entry)
    _kept[key] = entry
    counted = len(inputs), c_handle_array(inputs), 1, c_handle_array([out])
    check_call(_LIB.MXCustomFunctionRecord(*counted, ctypes.byref(entry)))


class TrainedProduct(NamedTuple):
    """A dense layer, and where its parameters are."""

    dense: Dense
    weight: int  # index of the weight among the parameters of the block; the bias follows
    first: int  # first of the parameter's rows


class TrainedNorm(NamedTuple):
    """Gain and offset of a normalisation, and each thread's gradients of them."""

    norm: Norm
    gain: int  # index of the gain among the parameters of the block; the offset follows
    gradients: np.ndarray  # (2, threads, width)


class Trained:
    """Parameters of a block, in the memory in which the optimizer changes them."""

    def __init__(self, *blocks: mx.gluon.Block) -> None:
        self._parameters = [item for block in blocks for item in block.params.values()]
        #: MXNet's arrays of the parameters.
        self.data: List[mx.nd.NDArray] = [parameter.data() for parameter in self._parameters]
        self._values = [view(address(array.handle), *array.shape) for array in self.data]
        self._products: List[TrainedProduct] = []
        self.norms: List[TrainedNorm] = []

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
        values, bias = self._values[weight : weight + 2]
        first = 0
        if third >= 0:
            values, bias = split_queries(values)[third], split_queries(bias)[third]
            first = third * len(values)
        dense = Dense(lambda: values, bias, refreshable=True)
        self._products.append(TrainedProduct(dense, weight, first))
        return self._products[-1]

    def _norm(self, gain: int) -> TrainedNorm:
        """The normalisation of a gain and the offset after it."""
        gamma, beta = map(vector, self._values[gain : gain + 2])
        gradients = zeros((2, STREAMS, gamma.data.size), "float32")
        self.norms.append(TrainedNorm(Norm(gamma, beta), gain, gradients))
        return self.norms[-1]


class TrainedLayer(Trained):
    """Parameters of one layer."""

    def __init__(self, layer: EncoderLayer) -> None:
        dense = layer.qkv, layer.proj, layer.ffn_1, layer.ffn_2
        super().__init__(*dense, layer.attention_norm, layer.ffn_norm)
        self.query, self.key, self.value = (self._product(0, third) for third in range(3))
        self.output, self.inner, self.outer = map(self._product, (2, 4, 6))
        self.attention_norm, self.ffn_norm = self._norm(8), self._norm(10)


class TrainedEmbeddings(Trained):
    """Parameters of the normalisation and the projection of embeddings."""

    def __init__(self, block: Embeddings) -> None:
        blocks = [block.layer_norm, block.projection]
        super().__init__(*(part for part in blocks if part is not None))
        self.norm = self._norm(0)
        self.projection = None if block.projection is None else self._product(2)
