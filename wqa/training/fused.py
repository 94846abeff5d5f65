"""Gradients of an exit network on a CPU, its layers computed by oneDNN in bfloat16 or float32.

MXNet keeps the parameters, the embeddings' lookups, the heads, the loss and the optimizer. What
lies between the embeddings' sums and the pooled encodings is done here, forward and back, on padded
rows: products with weights that are laid out anew each update, their bias, dropout and residual in
one step; normalisations whose statistics are kept; attention over the whole mini-batch. Gradients
are written where MXNet's optimizer reads them. In bfloat16 what products read is rounded, while
their sums, the residuals, the normalisations and all gradients of parameters are float32.
"""

from __future__ import annotations

import functools
import math
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd

from wqa.models.backbone import MASKED, EncoderLayer
from wqa.models.heads import ExitNetwork, FirstPositionHead
from wqa.models.onednn import Array
from wqa.training.operations import Operations
from wqa.training.parameters import Norm, Product, Shape, shared_memory


class _Layer:
    """Parameters of a layer and their gradients."""

    def __init__(self, layer: EncoderLayer) -> None:
        units = layer.proj.weight.shape[0]
        self.query, self.key, self.value = (
            Product(layer.qkv.weight, layer.qkv.bias, place * units, units) for place in range(3)
        )
        self.output, self.inner, self.outer = (
            Product(dense.weight, dense.bias) for dense in (layer.proj, layer.ffn_1, layer.ffn_2)
        )
        self.attention_norm, self.ffn_norm = Norm(layer.attention_norm), Norm(layer.ffn_norm)

    @property
    def products(self) -> List[Product]:
        return [self.query, self.key, self.value, self.output, self.inner, self.outer]


class _Steps(NamedTuple):
    """A part of the network on one shape; ``back`` runs after that of all parts above."""

    forward: List[Callable[[], object]]
    back: List[Callable[[], object]]


class FusedNetwork:
    """Computes gradients of an exit network.

    Parameters
    ----------
    model : ExitNetwork
        Initialised on one CPU; its parameters and gradients are read and written in place.
    kind : {"float32", "bfloat16"}
    tokens : int
        Most padded tokens of a mini-batch.
    length : int
        Greatest length of a pair.
    """

    def __init__(self, model: ExitNetwork, kind: str, tokens: int, length: int) -> None:
        self._model, self._config = model, model.config
        self._operations = Operations(model.config, kind, max(tokens, length), length)
        self._steps: Dict[tuple, _Steps] = {}
        embeddings = model.backbone.embeddings
        self._norm = Norm(embeddings.layer_norm)
        self._projection = [
            Product(block.weight, block.bias)
            for block in [embeddings.projection]
            if block is not None
        ]
        made = {id(layer): _Layer(layer) for layer in model.backbone.layers}
        self._layers = [made[id(layer)] for layer in model.backbone.layers]

    def gradients(
        self, index: int, batch: Sequence[np.ndarray], loss: Callable, seed: int
    ) -> float:
        """Loss and gradients of a mini-batch.

        Parameters
        ----------
        index : int
            Exit, from 0.
        batch : sequence of numpy.ndarray
            Token ids and types, (B, L), int32; valid lengths and labels, (B,), float32.
        loss : callable
            Of scores and labels, a loss a row.
        seed : int
            Of the dropout between embeddings and head; the head's follows MXNet's.

        Returns
        -------
        float
            Mean loss. The gradients stand in the parameters of the exit's path.
        """
        mx.nd.waitall()  # the optimizer may still be writing
        model, operations = self._model, self._operations
        depth, shape = model.exits[index], Shape(*batch[0].shape)
        parts = [self._part(place, shape, depth) for place in range(-1, depth)]
        for product in [
            *self._projection,
            *(part for layer in set(self._layers[:depth]) for part in layer.products),
        ]:
            product.refresh()
        operations.draw(shape, seed)
        operations.padding(shape)[:] = np.where(
            np.arange(shape.length) < batch[2][:, None], 0, MASKED
        )
        token_ids, token_types, _, labels = (
            mx.nd.array(array, dtype=array.dtype) for array in batch
        )
        embeddings = model.backbone.embeddings
        with autograd.record():
            sums = embeddings.sums(mx.nd, token_ids, token_types, embeddings.position_weight.data())
        sums.wait_to_read()
        self._values("sums", shape, sums.shape[-1], "float32")[:] = shared_memory(sums).reshape(
            sums.shape
        )
        for part in parts:
            for call in part.forward:
                call()
        value = self._through_the_head(index, batch[2], labels, shape, loss)
        for part in reversed(parts):
            for call in part.back:
                call()
        sums.backward(mx.nd.array(self._values("sums slope", shape, sums.shape[-1], "float32")))
        for parameter in self._own(depth):
            parameter.data()._fresh_grad = True
        return value

    def _through_the_head(
        self, index: int, lengths: np.ndarray, labels: mx.nd.NDArray, shape: Shape, loss: Callable
    ) -> float:
        """Loss by the head of an exit, and its slope at the encodings that the head reads."""
        head, units = self._model.head(index), self._config.units
        asked = self._asked(self._model.exits[index] - 1, shape, self._model.exits[index])
        weights = (
            np.ones((shape.pairs, 1), np.float32)
            if asked.length == 1
            else _mean_weights(lengths, shape)
        )
        last = self._values(f"x{self._model.exits[index]}", asked, units, self._operations.kind)
        pooled = mx.nd.array(np.matmul(weights[:, None], _float32(last))[:, 0])
        pooled.attach_grad()
        with autograd.record():
            value = loss(head.classify(mx.nd, pooled), labels).mean()
        value.backward()
        np.multiply(
            weights[:, :, None],
            pooled.grad.asnumpy()[:, None],
            out=self._values("slope", asked, units, "float32"),
        )
        return value.asscalar().item()

    def _values(self, name: str, shape: Shape, width: int, kind: str) -> np.ndarray:
        flat = self._operations.rows(name, shape, width, kind).data[: shape.rows * width]
        return flat.reshape(shape.pairs, shape.length, width)

    def _own(self, depth: int) -> List[mx.gluon.Parameter]:
        """Parameters whose gradients are written here."""
        embeddings = self._model.backbone.embeddings
        blocks = [
            *self._model.backbone.layers[:depth],
            embeddings.layer_norm,
            embeddings.projection,
        ]
        return list(
            {
                id(parameter): parameter
                for block in blocks
                if block is not None
                for parameter in block.collect_params().values()
            }.values()
        )

    def _asked(self, place: int, shape: Shape, depth: int) -> Shape:
        """Positions that a layer computes: the first of each pair, where the head above reads no
        other."""
        head = self._model.head(self._model.exits.index(depth))
        return (
            Shape(shape.pairs, 1)
            if place == depth - 1 and isinstance(head, FirstPositionHead)
            else shape
        )

    def _part(self, place: int, shape: Shape, depth: int) -> _Steps:
        """A layer, from 0, or the embeddings, -1. A shared layer adds to the gradients of its
        places above."""
        add = place >= 0 and any(
            self._layers[above] is self._layers[place] for above in range(place + 1, depth)
        )
        asked = self._asked(place, shape, depth)
        key = (place, shape, asked, add)
        if key not in self._steps:
            self._steps[key] = (
                self._embedding(shape)
                if place < 0
                else _Steps(
                    self._forward(place, shape, asked), self._back(place, shape, asked, add)
                )
            )
        return self._steps[key]

    def _embedding(self, shape: Shape) -> _Steps:
        ops, config, width = (
            self._operations,
            self._config,
            self._config.embedding_size or self._config.units,
        )
        sums, out = ops.rows("sums", shape, width, "float32"), ops.rows("x0", shape, config.units)
        entering = ops.rows("projected", shape, width) if self._projection else out
        normed = ops.rows("normed", shape, width, "float32") if config.dropout else entering
        mask = ops.mask("mask embedding", shape, sums, config.dropout)
        forward: List = [ops.norm(sums, self._norm, normed, "embedding")]
        forward += ops.times(normed, mask, entering, "dropped embedding")
        back: List = []
        slope = ops.rows("slope", shape, config.units, "float32")
        for projection in self._projection:
            forward.append(ops.dense(entering, projection, out))
            rounded, name = ops.rounded(slope, "slope", None, shape, back)
            slope = ops.rows("projection slope", shape, width, "float32")
            back += [
                *ops.weight_slopes(rounded, name, entering, projection, False),
                ops.dense_back(rounded, projection, slope),
            ]
        if mask is not None:
            dropped = ops.rows("normed slope", shape, width, "float32")
            back += ops.times(slope, mask, dropped)
            slope = dropped
        result = ops.rows("sums slope", shape, width, "float32")
        return _Steps(
            forward,
            back + ops.norm_back(sums, self._norm, normed, slope, result, "embedding", False),
        )

    def _dropouts(self, place: int, shape: Shape, asked: Shape) -> Tuple:
        """Masks of the attention weights, of the attention's output and of the feed-forward's."""
        ops, config = self._operations, self._config
        weights, rows = (
            ops.scores(f"weights{place}", shape, asked),
            ops.rows(f"total{place}", asked, config.units, "float32"),
        )
        return (
            ops.mask(f"mask weights{place}", shape, weights, config.attention_dropout),
            ops.mask(f"mask output{place}", shape, rows, config.dropout),
            ops.mask(f"mask outer{place}", shape, rows, config.dropout),
        )

    def _kept(self, place: int, shape: Shape, asked: Shape, turned: bool = False) -> Array:
        """Attention weights after their dropout."""
        name = "kept" if self._config.attention_dropout else "weights"
        return self._operations.scores(f"{name}{place}", shape, asked, turned=turned)

    def _firsts(
        self, name: str, shape: Shape, asked: Shape, kind: str = ""
    ) -> Tuple[Array, np.ndarray, np.ndarray]:
        """Rows that ask, and their memory beside the first rows of those of that name."""
        units, kind = self._config.units, kind or self._operations.kind
        rows = self._operations.rows(f"{name} asked", asked, units, kind)
        return (
            rows,
            self._values(f"{name} asked", asked, units, kind),
            self._values(name, shape, units, kind)[:, :1],
        )

    def _forward(self, place: int, shape: Shape, asked: Shape) -> List[Callable[[], object]]:
        ops, config, layer = self._operations, self._config, self._layers[place]
        mask, output_mask, outer_mask = self._dropouts(place, shape, asked)

        def rows(
            name: str, width: int = config.units, kind: str = "", shape: Shape = asked
        ) -> Array:
            return ops.rows(f"{name}{place}", shape, width, kind)

        everywhere = x = rows("x", shape=shape)
        calls: List[Callable[[], object]] = []
        if asked != shape:
            x, here, there = self._firsts(f"x{place}", shape, asked)
            calls.append(functools.partial(np.copyto, here, there))
        middle, after = rows("middle"), ops.rows(f"x{place + 1}", asked, config.units)
        total, last = rows("total", kind="float32"), rows("last", kind="float32")
        inner, active = rows("inner", config.hidden_size), rows("active", config.hidden_size)
        raw, weights = (
            ops.scores("raw", shape, asked, "float32"),
            ops.scores(f"weights{place}", shape, asked),
        )
        return [
            *calls,
            ops.dense(x, layer.query, rows("query")),
            ops.dense(everywhere, layer.key, rows("key", shape=shape)),
            ops.dense(everywhere, layer.value, rows("value", shape=shape)),
            ops.multiply(
                ops.heads(f"query{place}", asked),
                ops.heads(f"key{place}", shape, turned=True),
                raw,
                ("times", self._scale),
                ("add", ops.padding_array(shape)),
            ),
            ops.softmax(raw, weights),
            *ops.times(weights, mask, self._kept(place, shape, asked)),
            ops.multiply(
                self._kept(place, shape, asked),
                ops.heads(f"value{place}", shape),
                ops.heads(f"context{place}", asked),
            ),
            ops.dense(rows("context"), layer.output, total, ("multiply", output_mask), ("add", x)),
            ops.norm(total, layer.attention_norm, middle, f"attention{place}"),
            ops.dense(middle, layer.inner, inner),
            ops.activation(config.activation, inner, active),
            ops.dense(active, layer.outer, last, ("multiply", outer_mask), ("add", middle)),
            ops.norm(last, layer.ffn_norm, after, f"ffn{place}"),
        ]

    @property
    def _scale(self) -> float:
        return 1 / math.sqrt(self._config.units // self._config.num_heads)

    def _back(
        self, place: int, shape: Shape, asked: Shape, add: bool
    ) -> List[Callable[[], object]]:
        """From ``slope``, that of the layer's output, to that of its input, in the same memory."""
        ops, config, layer = self._operations, self._config, self._layers[place]
        _, output_mask, outer_mask = self._dropouts(place, shape, asked)

        def rows(name: str, width: int = config.units, kind: str = "") -> Array:
            return ops.rows(name, asked, width, kind)

        slope, through, below = (
            rows(name, kind="float32") for name in ("slope", "through", "below")
        )
        middle, after = rows(f"middle{place}"), rows(f"x{place + 1}")
        inner, active, active_slope, inner_slope = (
            rows(name, config.hidden_size)
            for name in (f"inner{place}", f"active{place}", "active slope", "inner slope")
        )
        calls = ops.norm_back(
            rows(f"last{place}", kind="float32"),
            layer.ffn_norm,
            after,
            slope,
            through,
            f"ffn{place}",
            add,
        )
        rounded, name = ops.rounded(through, "through", outer_mask, asked, calls)
        calls += [
            *ops.weight_slopes(rounded, name, active, layer.outer, add),
            ops.dense_back(rounded, layer.outer, active_slope),
            ops.activation_back(config.activation, inner, active_slope, inner_slope),
            *ops.weight_slopes(inner_slope, "inner slope", middle, layer.inner, add),
            ops.dense_back(inner_slope, layer.inner, below, ("add", through)),
            *ops.norm_back(
                rows(f"total{place}", kind="float32"),
                layer.attention_norm,
                middle,
                below,
                through,
                f"attention{place}",
                add,
            ),
        ]
        rounded, name = ops.rounded(through, "through", output_mask, asked, calls)
        calls += [
            *ops.weight_slopes(rounded, name, rows(f"context{place}"), layer.output, add),
            ops.dense_back(rounded, layer.output, rows("context slope")),
            *self._attention_back(place, shape, asked),
        ]
        return calls + self._input_back(place, shape, asked, add)

    def _attention_back(self, place: int, shape: Shape, asked: Shape) -> List[Callable[[], object]]:
        ops, scale = self._operations, ("times", self._scale)
        slope, entering = ops.heads("context slope", asked), ops.scores("kept slope", shape, asked)
        dropped, raw = (
            ops.scores("weights slope", shape, asked),
            ops.scores("raw slope", shape, asked),
        )
        return [
            ops.multiply(
                self._kept(place, shape, asked, turned=True), slope, ops.heads("value slope", shape)
            ),
            ops.multiply(slope, ops.heads(f"value{place}", shape, turned=True), entering),
            *ops.times(entering, self._dropouts(place, shape, asked)[0], dropped),
            ops.softmax_back(ops.scores(f"weights{place}", shape, asked), dropped, raw),
            ops.multiply(
                raw, ops.heads(f"key{place}", shape), ops.heads("query slope", asked), scale
            ),
            ops.multiply(
                ops.scores("raw slope", shape, asked, turned=True),
                ops.heads(f"query{place}", asked),
                ops.heads("key slope", shape),
                scale,
            ),
        ]

    def _input_back(
        self, place: int, shape: Shape, asked: Shape, add: bool
    ) -> List[Callable[[], object]]:
        """Through queries, keys and values in turn: each adds to what came so far, the residual's
        slope first."""
        ops, units, layer = self._operations, self._config.units, self._layers[place]
        through, below = (ops.rows(name, asked, units, "float32") for name in ("through", "below"))
        slope, other = (ops.rows(name, shape, units, "float32") for name in ("slope", "other"))
        query, key, value = (
            ops.rows(f"{name} slope", each, units)
            for name, each in (("query", asked), ("key", shape), ("value", shape))
        )
        everywhere = x = ops.rows(f"x{place}", shape, units)
        if asked != shape:
            x = self._firsts(f"x{place}", shape, asked)[0]
        calls = [
            *ops.weight_slopes(query, "query slope", x, layer.query, add),
            *ops.weight_slopes(key, "key slope", everywhere, layer.key, add),
            *ops.weight_slopes(value, "value slope", everywhere, layer.value, add),
            ops.dense_back(query, layer.query, below, ("add", through)),
        ]
        if asked == shape:
            return [
                *calls,
                ops.dense_back(key, layer.key, other, ("add", below)),
                ops.dense_back(value, layer.value, slope, ("add", other)),
            ]
        here, firsts = (
            self._values("below", asked, units, "float32"),
            self._values("slope", shape, units, "float32")[:, :1],
        )
        return [
            *calls,
            ops.dense_back(key, layer.key, other),
            ops.dense_back(value, layer.value, slope, ("add", other)),
            functools.partial(np.add, firsts, here, out=firsts),
        ]


def _mean_weights(lengths: np.ndarray, shape: Shape) -> np.ndarray:
    """(B, L): what each position weighs in the mean of positions 1..m."""
    steps = np.arange(shape.length)
    real = (steps > 0) & (steps < lengths[:, None])
    return (real / (lengths[:, None] - 1)).astype(np.float32)


def _float32(rows: np.ndarray) -> np.ndarray:
    return rows if rows.dtype == np.float32 else (rows.astype(np.uint32) << 16).view(np.float32)
