"""Compiles the embeddings and a layer into forward and backward calls."""

from __future__ import annotations

import functools
from typing import Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from wqa.engines.onednn.library import Array, Memory
from wqa.engines.onednn.padded import Mask, PaddedOperations, Run, Shape
from wqa.engines.onednn.trained import TrainedEmbeddings, TrainedLayer


class Part(NamedTuple):
    """Compiled calls of a layer or of the embeddings."""

    forward: List[Run]
    backward: List[Run]
    masks: List[Mask]


class LayerCompiler:
    """Compiles one layer of a slice for one shape of mini-batch."""

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
        self._prefix, self._suffix = f"{call} ", str(index)
        self._next = f"{call} x{index + 1}"
        self._shape, self._queries = shape, queries
        self._weight_masks = self._mask("weights", self._scores("weights"), True)
        total = self._rows("total", kind="float32")
        self._output_masks = self._mask("output", total)
        self._outer_masks = self._mask("outer", total)

    def part(self, add: bool) -> Part:
        """Compile the layer."""
        masks = [*self._weight_masks, *self._output_masks, *self._outer_masks]
        return Part(self._forward(), self._backward(add), masks)

    # Buffers of this layer, which live until its gradients are computed

    def _name(self, name: str) -> str:
        return f"{self._prefix}{name}{self._suffix}"

    def _rows(
        self, name: str, width: int = 0, kind: str = "", shape: Optional[Shape] = None
    ) -> Array:
        return self._shared(self._name(name), width, kind, shape)

    def _heads(self, name: str, shape: Shape, transposed: bool = False) -> Array:
        return self._padded.heads(self._name(name), shape, transposed)

    def _scores(self, name: str, transposed: bool = False) -> Array:
        return self._shared_scores(self._name(name), transposed)

    def _mask(self, name: str, like: Array, attention: bool = False) -> List[Mask]:
        rate = self._config.attention_dropout if attention else self._config.dropout
        return self._padded.mask(self._name(f"mask {name}"), like, rate)

    def _kept_weights(self, transposed: bool = False) -> Array:
        """Attention weights after the dropout."""
        return self._scores("kept" if self._weight_masks else "weights", transposed)

    def _query_rows(self) -> Array:
        """Encodings that queries are projected from: all, or those of the first positions."""
        if self._queries == self._shape:
            return self._rows("x")
        return self._rows("first x")

    # Buffers of gradients, which all layers share

    def _shared(
        self, name: str, width: int = 0, kind: str = "", shape: Optional[Shape] = None
    ) -> Array:
        width = width or self._config.units
        return self._padded.rows(name, shape or self._queries, width, kind)

    def _shared_scores(self, name: str, transposed: bool = False) -> Array:
        return self._padded.scores(name, self._shape, self._queries, transposed=transposed)

    # Forward

    def _forward(self) -> List[Run]:
        operations, layer, hidden_size = self._operations, self._layer, self._config.hidden_size
        x = self._query_rows()
        middle, total = self._rows("middle"), self._rows("total", kind="float32")
        inner, active = self._rows("inner", hidden_size), self._rows("active", hidden_size)
        last = self._rows("last", kind="float32")
        after = self._padded.rows(self._next, self._queries, self._config.units)
        output_steps = (("multiply", _array(self._output_masks)), ("add", x))
        outer_steps = (("multiply", _array(self._outer_masks)), ("add", middle))
        of_attention, of_ffn = self._statistics("attention", total), self._statistics("ffn", last)
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
            first = self._padded.values(self._name("first x"), self._queries, units, kind)
            x_values = self._padded.values(self._name("x"), self._shape, units, kind)
            runs.append(functools.partial(np.copyto, first, x_values[:, : self._queries.length]))
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
        return [
            operations.product(query, key, raw, ("times", scale), ("add", padding)),
            operations.softmax(raw, weights, training=True),
            *padded.multiply(weights, _array(self._weight_masks), kept),
            operations.product(kept, value, context),
        ]

    def _statistics(self, name: str, source: Array) -> Dict[int, Memory]:
        return self._padded.statistics(self._name(name), source)

    # Backward

    def _backward(self, add: bool) -> List[Run]:
        """Replace the gradient of the layer's output by that of its input."""
        return [
            *self._ffn_backward(add),
            *self._output_backward(add),
            *self._attention_backward(),
            *self._input_backward(add),
        ]

    def _ffn_backward(self, add: bool) -> List[Run]:
        padded, layer, hidden_size = self._padded, self._layer, self._config.hidden_size
        gradient, through, below = (
            self._shared(name, kind="float32") for name in ("gradient", "through", "below")
        )
        middle, inner = self._rows("middle"), self._rows("inner", hidden_size)
        active = self._rows("active", hidden_size)
        active_gradient = self._shared("active gradient", hidden_size)
        inner_gradient = self._shared("inner gradient", hidden_size)
        last = self._rows("last", kind="float32")
        after = padded.rows(self._next, self._queries, self._config.units)
        statistics = self._statistics("ffn", last)
        runs = padded.norm_backward(last, layer.ffn_norm, after, gradient, through, statistics, add)
        mask = _array(self._outer_masks)
        rounded, name = padded.rounded(through, "through", mask, self._queries, runs)
        runs += padded.weight_gradients(rounded, name, active, layer.outer, add)
        runs.append(padded.input_gradient(rounded, layer.outer, active_gradient))
        runs.append(
            self._operations.activation_backward(
                self._config.activation, inner, active_gradient, inner_gradient
            )
        )
        runs += padded.weight_gradients(inner_gradient, "inner gradient", middle, layer.inner, add)
        runs.append(padded.input_gradient(inner_gradient, layer.inner, below, ("add", through)))
        return runs

    def _output_backward(self, add: bool) -> List[Run]:
        padded, layer = self._padded, self._layer
        through, below = (self._shared(name, kind="float32") for name in ("through", "below"))
        total = self._rows("total", kind="float32")
        middle, statistics = self._rows("middle"), self._statistics("attention", total)
        norm = layer.attention_norm
        runs = padded.norm_backward(total, norm, middle, below, through, statistics, add)
        mask = _array(self._output_masks)
        rounded, name = padded.rounded(through, "through", mask, self._queries, runs)
        runs += padded.weight_gradients(rounded, name, self._rows("context"), layer.output, add)
        runs.append(padded.input_gradient(rounded, layer.output, self._shared("context gradient")))
        return runs

    def _attention_backward(self) -> List[Run]:
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
        return [
            operations.product(self._kept_weights(transposed=True), gradient, value_gradient),
            operations.product(gradient, value, kept),
            *padded.multiply(kept, _array(self._weight_masks), weights),
            operations.softmax_backward(source, self._scores("weights"), weights, raw),
            operations.product(raw, key, query_gradient, scale),
            operations.product(raw_transposed, query, key_gradient, scale),
        ]

    def _input_backward(self, add: bool) -> List[Run]:
        """Add the gradients of queries, keys and values to that of the residual, in this order."""
        padded, layer, shape = self._padded, self._layer, self._shape
        through, below = (self._shared(name, kind="float32") for name in ("through", "below"))
        gradient = self._shared("gradient", kind="float32", shape=shape)
        partial_sum = self._shared("partial sum", kind="float32", shape=shape)
        query = self._shared("query gradient")
        key, value = (self._shared(f"{name} gradient", shape=shape) for name in ("key", "value"))
        rows = self._rows("x", shape=shape)
        runs = padded.weight_gradients(
            query, "query gradient", self._query_rows(), layer.query, add
        )
        runs += padded.weight_gradients(key, "key gradient", rows, layer.key, add)
        runs += padded.weight_gradients(value, "value gradient", rows, layer.value, add)
        runs.append(padded.input_gradient(query, layer.query, below, ("add", through)))
        if self._queries == shape:
            runs.append(padded.input_gradient(key, layer.key, partial_sum, ("add", below)))
            runs.append(padded.input_gradient(value, layer.value, gradient, ("add", partial_sum)))
            return runs
        units = self._config.units
        first = padded.values("below", self._queries, units, "float32")
        target = padded.values("gradient", shape, units, "float32")[:, : first.shape[1]]
        runs.append(padded.input_gradient(key, layer.key, partial_sum))
        runs.append(padded.input_gradient(value, layer.value, gradient, ("add", partial_sum)))
        runs.append(functools.partial(np.add, target, first, out=target))
        return runs


def compile_embedding(
    padded: PaddedOperations, call: int, trained: TrainedEmbeddings, shape: Shape, add: bool
) -> Part:
    """Compile normalisation, dropout and projection of the summed embeddings."""
    config, operations, width = padded.config, padded.operations, padded.width
    sums = padded.external(f"{call} sums", shape, width)
    out = padded.external(f"{call} out", shape, config.units)
    normed = padded.rows(f"{call} normed", shape, width, "float32")
    entering = padded.rows(f"{call} embedded", shape, width)
    masks = padded.mask(f"{call} mask embedding", normed, config.dropout)
    factors = masks[0].array if masks else None
    statistics = padded.statistics(f"{call} embedding", sums)
    forward: List[Run] = [operations.norm(sums, trained.norm.norm, normed, statistics)]
    forward += padded.multiply(normed, factors, entering, "dropped embedding")
    # The gradient is copied from MXNet's memory to a buffer, which has a transposed view.
    gradient = padded.rows("gradient", shape, config.units, "float32")
    out_gradient = padded.external(f"{call} out gradient", shape, config.units)
    backward: List[Run] = [operations.convert(out_gradient, gradient)]
    if trained.projection is not None:
        projected = padded.rows(f"{call} projected", shape, config.units)
        forward.append(operations.dense(entering, trained.projection.dense, projected))
        forward.append(operations.convert(projected, out))
        rounded, name = padded.rounded(gradient, "gradient", None, shape, backward)
        gradient = padded.rows("projection gradient", shape, width, "float32")
        backward += padded.weight_gradients(rounded, name, entering, trained.projection, add)
        backward.append(padded.input_gradient(rounded, trained.projection, gradient))
    else:
        forward.append(operations.convert(entering, out))
    if factors is not None:
        dropped = padded.rows("normed gradient", shape, width, "float32")
        backward += padded.multiply(gradient, factors, dropped)
        gradient = dropped
    result = padded.external(f"{call} result", shape, width)
    backward += padded.norm_backward(sums, trained.norm, normed, gradient, result, statistics, add)
    return Part(forward, backward, masks)


def _array(masks: Sequence[Mask]) -> Optional[Array]:
    return masks[0].array if masks else None
