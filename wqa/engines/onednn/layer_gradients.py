"""Compiles the embeddings and a layer into forward and backward calls."""

from __future__ import annotations

import functools
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.engines.onednn.library import Array, Memory
from wqa.engines.onednn.operations import BufferView
from wqa.engines.onednn.padded import Mask, PaddedOperations, Run, Shape, Share
from wqa.engines.onednn.relative import TrainedBias
from wqa.engines.onednn.trained import TrainedEmbeddings, TrainedLayer, TrainedNorm


class Part(NamedTuple):
    """Compiled calls of a layer or of the embeddings, of each of several threads.

    A thread computes the activations of its pairs, and their gradients. After all of these it
    computes its share of the parameters' gradients, of all pairs.
    """

    forward: List[List[Run]]
    backward: List[List[Run]]
    parameters: List[List[Run]]
    masks: List[List[Mask]]


def compile_layer(
    streams: Sequence[PaddedOperations],
    call: int,
    index: int,
    layer: TrainedLayer,
    shape: Shape,
    queries: Shape,
    add: bool,
) -> Part:
    """Compile one layer of a slice, by the operations of each thread, for a mini-batch."""
    count = len(streams)
    chunks = zip(streams, shape.split(count), queries.split(count))
    compilers = [LayerCompiler(padded, call, index, layer, *chunk) for padded, *chunk in chunks]
    shares = [Share(thread, count) for thread in range(count)]
    return Part(
        [compiler.forward() for compiler in compilers],
        [compiler.backward(share) for compiler, share in zip(compilers, shares)],
        [
            compiler.parameter_gradients(shape, queries, add, share)
            for compiler, share in zip(compilers, shares)
        ],
        [compiler.masks for compiler in compilers],
    )


class LayerCompiler:
    """Compiles one layer of a slice for a chunk of a mini-batch.

    ``shape`` is that of keys and values, ``queries`` that of all else.
    """

    def __init__(
        self,
        padded: PaddedOperations,
        call: int,
        index: int,
        layer: TrainedLayer,
        shape: Shape,
        queries: Shape,
    ) -> None:
        self._padded, self._config, self._layer = padded, padded.config, layer
        self._operations = padded.operations
        self._call, self._prefix, self._suffix = call, f"{call} ", str(index)
        self._next = f"{call} x{index + 1}"
        self._shape, self._queries = shape, queries
        self._bias: Optional[TrainedBias] = None
        if padded.config.family.relative_buckets:
            self._bias = TrainedBias(padded, call, shape.length)
        self._weight_masks = self._mask("weights", self._scores("weights"), True)
        total = self._rows("total", kind="float32")
        self._output_masks = self._mask("output", total)
        self._outer_masks = self._mask("outer", total)
        self.masks = [*self._weight_masks, *self._output_masks, *self._outer_masks]

    # Buffers of this layer, which live until its gradients are computed

    def _name(self, name: str) -> str:
        return f"{self._prefix}{name}{self._suffix}"

    def _rows(
        self, name: str, width: int = 0, kind: str = "", shape: Optional[Shape] = None
    ) -> BufferView:
        return self._shared(self._name(name), width, kind, shape)

    def _heads(self, name: str, shape: Shape, transposed: bool = False) -> BufferView:
        return self._padded.heads(self._name(name), shape, transposed)

    def _scores(self, name: str, transposed: bool = False) -> BufferView:
        return self._shared_scores(self._name(name), transposed)

    def _mask(self, name: str, like: BufferView, attention: bool = False) -> List[Mask]:
        rate = self._config.attention_dropout if attention else self._config.dropout
        return self._padded.mask(self._name(f"mask {name}"), like, rate, self._queries)

    def _kept_weights(self, transposed: bool = False) -> BufferView:
        """Attention weights after the dropout."""
        return self._scores("kept" if self._weight_masks else "weights", transposed)

    def _query_rows(self, shape: Shape) -> BufferView:
        """Encodings that queries are projected from: all, or those of positions that are read."""
        return self._rows("x" if self._queries == self._shape else "read x", shape=shape)

    # Buffers of gradients, which all layers share

    def _shared(
        self, name: str, width: int = 0, kind: str = "", shape: Optional[Shape] = None
    ) -> BufferView:
        width = width or self._config.units
        return self._padded.rows(name, shape or self._queries, width, kind)

    def _shared_scores(self, name: str, transposed: bool = False) -> BufferView:
        return self._padded.scores(name, self._shape, self._queries, transposed=transposed)

    # Forward

    def forward(self) -> List[Run]:
        """The layer's output from its input."""
        operations, layer, hidden_size = self._operations, self._layer, self._config.hidden_size
        x = self._query_rows(self._queries)
        middle, total = self._rows("middle"), self._rows("total", kind="float32")
        inner, active = self._rows("inner", hidden_size), self._rows("active", hidden_size)
        last = self._rows("last", kind="float32")
        after = self._padded.rows(self._next, self._queries, self._config.units)
        output_steps = (("multiply", _array(self._output_masks)), ("add", x))
        outer_steps = (("multiply", _array(self._outer_masks)), ("add", middle))
        of_attention, of_ffn = self._statistics("attention"), self._statistics("ffn")
        return [
            *self._project_forward(x),
            *self._attention_forward(),
            operations.dense(self._rows("context"), layer.output.dense, total, *output_steps),
            operations.norm(total, layer.attention_norm.norm, middle, of_attention),
            operations.dense(middle, layer.inner.dense, inner),
            operations.activation(self._config.activation, inner, active),
            operations.dense(active, layer.outer.dense, last, *outer_steps),
            operations.norm(last, layer.ffn_norm.norm, after, of_ffn),
        ]

    def _project_forward(self, x: Array) -> List[Run]:
        runs: List[Run] = []
        if self._queries != self._shape:
            units, kind = self._config.units, self._padded.kind
            read = self._padded.values(self._name("read x"), self._queries, units, kind)
            x_values = self._padded.values(self._name("x"), self._shape, units, kind)
            positions = self._padded.read_rows(self._call, self._queries).reshape(-1)
            runs.append(functools.partial(np.take, x_values, positions, 0, read, "clip"))
        rows, layer = self._rows("x", shape=self._shape), self._layer
        runs.append(self._operations.dense(x, layer.query.dense, self._rows("query")))
        for name, product in (("key", layer.key), ("value", layer.value)):
            out = self._rows(name, shape=self._shape)
            runs.append(self._operations.dense(rows, product.dense, out))
        return runs

    def _attention_forward(self) -> List[Run]:
        operations, padded = self._operations, self._padded
        raw = padded.scores("raw", self._shape, self._queries, "float32")
        weights, kept = self._scores("weights"), self._kept_weights()
        query, context = (self._heads(name, self._queries) for name in ("query", "context"))
        key, value = self._heads("key", self._shape, True), self._heads("value", self._shape)
        scale, padding = self._config.attention_scale, padded.padding(self._shape)
        bias = [] if self._bias is None else self._bias.forward(self._shape, self._queries, raw)
        return [
            operations.product(query, key, raw, ("times", scale), ("add", padding)),
            *bias,
            operations.softmax(raw, weights, training=True),
            *padded.multiply(weights, _array(self._weight_masks), kept),
            operations.product(kept, value, context),
        ]

    def _statistics(self, name: str) -> Dict[int, Memory]:
        return self._padded.statistics(self._name(name), self._queries)

    # Backward

    def backward(self, share: Share) -> List[Run]:
        """Replace the gradient of the layer's output by that of its input."""
        return [
            *self._ffn_backward(share),
            *self._output_backward(share),
            *self._attention_backward(share),
            *self._input_backward(),
        ]

    def _norm_backward(
        self,
        name: str,
        norm: TrainedNorm,
        source: Array,
        out: Array,
        gradient: Array,
        result: Array,
        share: Share,
    ) -> Run:
        parameters = self._padded.norm_gradients(name, self._config.units, share)
        return self._operations.norm_backward(
            source, norm.norm, out, gradient, result, self._statistics(name), parameters
        )

    def _ffn_backward(self, share: Share) -> List[Run]:
        padded, layer, hidden_size = self._padded, self._layer, self._config.hidden_size
        gradient, through, below = (
            self._shared(name, kind="float32") for name in ("gradient", "ffn gradient", "below")
        )
        inner = self._rows("inner", hidden_size)
        active_gradient = self._shared("active gradient", hidden_size)
        inner_gradient = self._shared("inner gradient", hidden_size)
        last = self._rows("last", kind="float32")
        after = padded.rows(self._next, self._queries, self._config.units)
        runs = [self._norm_backward("ffn", layer.ffn_norm, last, after, gradient, through, share)]
        mask = _array(self._outer_masks)
        rounded = padded.rounded("ffn gradient", self._queries, mask, runs)
        runs.append(padded.input_gradient(rounded, layer.outer, active_gradient))
        runs.append(
            self._operations.activation_backward(
                self._config.activation, inner, active_gradient, inner_gradient
            )
        )
        runs.append(padded.input_gradient(inner_gradient, layer.inner, below, ("add", through)))
        return runs

    def _output_backward(self, share: Share) -> List[Run]:
        padded, layer = self._padded, self._layer
        through, below = (self._shared(name, kind="float32") for name in ("through", "below"))
        total, middle = self._rows("total", kind="float32"), self._rows("middle")
        norm = layer.attention_norm
        runs = [self._norm_backward("attention", norm, total, middle, below, through, share)]
        mask = _array(self._output_masks)
        rounded = padded.rounded("through", self._queries, mask, runs)
        runs.append(padded.input_gradient(rounded, layer.output, self._shared("context gradient")))
        return runs

    def _attention_backward(self, share: Share) -> List[Run]:
        operations, padded = self._operations, self._padded
        scale = ("times", self._config.attention_scale)
        shape, queries = self._shape, self._queries
        gradient = padded.heads("context gradient", queries)
        names = ("kept gradient", "weights gradient", "raw gradient")
        kept, weights, raw = map(self._shared_scores, names)
        raw_transposed = self._shared_scores("raw gradient", transposed=True)
        source = padded.scores("raw", shape, queries, "float32")
        query, key = self._heads("query", queries), self._heads("key", shape)
        value = self._heads("value", shape, transposed=True)
        query_gradient = padded.heads("query gradient", queries)
        key_gradient, value_gradient = (
            padded.heads(f"{name} gradient", shape) for name in ("key", "value")
        )
        bias = [] if self._bias is None else self._bias.backward(shape, queries, raw, share)
        return [
            operations.product(self._kept_weights(transposed=True), gradient, value_gradient),
            operations.product(gradient, value, kept),
            *padded.multiply(kept, _array(self._weight_masks), weights),
            operations.softmax_backward(source, self._scores("weights"), weights, raw),
            *bias,
            operations.product(raw, key, query_gradient, scale),
            operations.product(raw_transposed, query, key_gradient, scale),
        ]

    def _input_backward(self) -> List[Run]:
        """Add the gradients of queries, keys and values to that of the residual, in this order."""
        padded, layer, shape = self._padded, self._layer, self._shape
        through, below = (self._shared(name, kind="float32") for name in ("through", "below"))
        gradient = self._shared("gradient", kind="float32", shape=shape)
        partial_sum = self._shared("partial sum", kind="float32", shape=shape)
        query = self._shared("query gradient")
        key, value = (self._shared(f"{name} gradient", shape=shape) for name in ("key", "value"))
        runs = [padded.input_gradient(query, layer.query, below, ("add", through))]
        if self._queries == shape:
            runs.append(padded.input_gradient(key, layer.key, partial_sum, ("add", below)))
            runs.append(padded.input_gradient(value, layer.value, gradient, ("add", partial_sum)))
            return runs
        units = self._config.units
        own = padded.values("below", self._queries, units, "float32")
        target = padded.values("gradient", shape, units, "float32")
        positions = padded.read_rows(self._call, self._queries)
        runs.append(padded.input_gradient(key, layer.key, partial_sum))
        runs.append(padded.input_gradient(value, layer.value, gradient, ("add", partial_sum)))
        runs.append(functools.partial(_add_rows, target, positions, own))
        return runs

    def parameter_gradients(
        self, shape: Shape, queries: Shape, add: bool, share: Share
    ) -> List[Run]:
        """A share of the gradients of the parameters, over all pairs of the mini-batch.

        With ``add`` they accumulate.
        """
        padded, layer, hidden_size = self._padded, self._layer, self._config.hidden_size
        outer = padded.rounded_name("ffn gradient", _array(self._outer_masks))
        output = padded.rounded_name("through", _array(self._output_masks))
        active = self._rows("active", hidden_size, shape=queries)
        middle, context = (self._rows(name, shape=queries) for name in ("middle", "context"))
        rows = self._rows("x", shape=shape)
        runs = []
        for name, size, source, product in (
            (outer, queries, active, layer.outer),
            ("inner gradient", queries, middle, layer.inner),
            (output, queries, context, layer.output),
            ("query gradient", queries, self._query_rows(queries), layer.query),
            ("key gradient", shape, rows, layer.key),
            ("value gradient", shape, rows, layer.value),
        ):
            runs += padded.weight_gradients(name, size, source, product, add, share)
        for name, norm in (("ffn", layer.ffn_norm), ("attention", layer.attention_norm)):
            runs += padded.sum_norm_gradients(name, norm, add, share)
        return runs


def compile_embedding(
    streams: Sequence[PaddedOperations],
    call: int,
    trained: TrainedEmbeddings,
    shape: Shape,
    add: bool,
) -> Part:
    """Compile normalisation, dropout and projection of the summed embeddings."""
    threads = [
        _embedding_calls(padded, call, trained, shape, chunk, Share(thread, len(streams)), add)
        for thread, (padded, chunk) in enumerate(zip(streams, shape.split(len(streams))))
    ]
    forward, backward, parameters, masks = map(list, zip(*threads))
    return Part(forward, backward, parameters, masks)


def _embedding_calls(
    padded: PaddedOperations,
    call: int,
    trained: TrainedEmbeddings,
    mini_batch: Shape,
    shape: Shape,
    share: Share,
    add: bool,
) -> Tuple[List[Run], List[Run], List[Run], List[Mask]]:
    """A thread's calls of `Part`."""
    config, operations, width = padded.config, padded.operations, padded.width
    sums = padded.external(f"{call} sums", shape, width)
    out = padded.external(f"{call} out", shape, config.units)
    normed = padded.rows(f"{call} normed", shape, width, "float32")
    entering = padded.rows(f"{call} embedded", shape, width)
    masks = padded.mask(f"{call} mask embedding", normed, config.dropout, shape)
    factors = masks[0].array if masks else None
    statistics = padded.statistics(f"{call} embedding", shape)
    forward: List[Run] = [operations.norm(sums, trained.norm.norm, normed, statistics)]
    forward += padded.multiply(normed, factors, entering, "dropped embedding")
    # The gradient is copied from MXNet's memory to a buffer, which all threads can read.
    gradient = padded.rows("gradient", shape, config.units, "float32")
    out_gradient = padded.external(f"{call} out gradient", shape, config.units)
    backward: List[Run] = [operations.convert(out_gradient, gradient)]
    parameters: List[Run] = []
    if trained.projection is not None:
        projected = padded.rows(f"{call} projected", shape, config.units)
        forward.append(operations.dense(entering, trained.projection.dense, projected))
        forward.append(operations.convert(projected, out))
        rounded = padded.rounded("gradient", shape, None, backward)
        gradient = padded.rows("projection gradient", shape, width, "float32")
        source = padded.rows(f"{call} embedded", mini_batch, width)
        name = padded.rounded_name("gradient", None)
        parameters += padded.weight_gradients(
            name, mini_batch, source, trained.projection, add, share
        )
        backward.append(padded.input_gradient(rounded, trained.projection, gradient))
    else:
        forward.append(operations.convert(entering, out))
    if factors is not None:
        dropped = padded.rows("normed gradient", shape, width, "float32")
        backward += padded.multiply(gradient, factors, dropped)
        gradient = dropped
    result = padded.external(f"{call} result", shape, width)
    norm_gradients = padded.norm_gradients("embedding", width, share)
    backward.append(
        operations.norm_backward(
            sums, trained.norm.norm, normed, gradient, result, statistics, norm_gradients
        )
    )
    parameters += padded.sum_norm_gradients("embedding", trained.norm, add, share)
    return forward, backward, parameters, masks


def _array(masks: Sequence[Mask]) -> Optional[Array]:
    return masks[0].array if masks else None


def _add_rows(target: np.ndarray, positions: np.ndarray, rows: np.ndarray) -> None:
    """Add rows to those at positions, of which a pair may have one several times.

    Shapes: `target` (B * L, C), `positions` (B, n), `rows` (B * n, C).
    """
    by_pair = rows.reshape(*positions.shape, -1)
    for column in range(positions.shape[1]):
        target[positions[:, column]] += by_pair[:, column]
