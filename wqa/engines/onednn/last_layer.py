"""A layer for the few rows of each pair that a head reads; keys and values are those of all rows.

With few queries, keys and values of all rows are never computed. For a head h of the attention, a
query q, and the encoding x_j of row j, the score is

    q . (W_k x_j + b_k) = (W_k^T q) . x_j + q . b_k

where the last term is the same for all j, so that the softmax does not depend on it. The context is

    sum_j a_j (W_v x_j + b_v) = W_v (sum_j a_j x_j) + b_v

as the weights a_j sum to 1. So W_k multiplies queries and W_v sums of encodings: two products of
C^2 multiply-adds a query, in place of two a row of the pair. For pairs of 170 rows and two queries
in a layer of 768 units that is 1 / 23 of the multiply-adds.

The rest of the layer runs once for the rows of many micro-batches, as reading its weights costs
more than computing a few rows.
"""

from __future__ import annotations

import functools
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.config import BackboneConfig
from wqa.engines.inputs import as_float32
from wqa.engines.onednn.library import Array, Call, External, Layout, MovingCalls, Scratch
from wqa.engines.onednn.operations import Operations
from wqa.engines.onednn.packed_rows import (
    ATTENTIONS,
    Group,
    PackedBatch,
    PackedLayer,
    RelativeBias,
    RowBuffers,
    bind_attention,
    product_parameter,
    round_up,
)
from wqa.models.backbone import EncoderLayer

#: Rows that attend at once: a row has C numbers for each head of the attention.
ATTENDING = 64
#: Rows that run the rest of a layer at once.
FINISHING = 512
#: Most numbers of the encodings of a group of pairs, so that the second product finds them in the
#: cache.
GROUP_NUMBERS = 1 << 19


class HeadWeights(NamedTuple):
    """Weights of a layer's keys and values, one matrix for each head of the attention."""

    key: Array  # (H, C / H, C)
    value: Array  # (H, C, C / H)
    bias: np.ndarray  # (C,) of the values

    @classmethod
    def of(cls, block: EncoderLayer, config: BackboneConfig, kind: str) -> HeadWeights:
        """Copy the parameters of a layer."""
        heads, units = config.num_heads, config.units
        size = units // heads
        key = product_parameter(block, "key", "weight", config)
        value = product_parameter(block, "value", "weight", config)
        bias = product_parameter(block, "value", "bias", config)
        transposed = (size * units, 1, units)
        return cls(
            _converted(key, (heads, size, units), None, kind),
            _converted(value, (heads, units, size), transposed, kind),
            bias,
        )


def _converted(
    weight: np.ndarray, shape: Sequence[int], strides: Optional[Sequence[int]], kind: str
) -> Array:
    """A contiguous copy of a weight in an element type, read in strides."""
    source = Array(Layout(shape, "float32", strides), np.ascontiguousarray(weight))
    copy = Array(Layout(shape, kind))
    Operations(0.0).convert(source, copy)()
    return copy


def compile_folded(
    scratch: Scratch,
    config: BackboneConfig,
    kind: str,
    buffers: Tuple[Scratch, Scratch],
    is_biased: bool,
    pairs: int,
    length: int,
    queries: int,
) -> MovingCalls:
    """Compile the attention of pairs of one length, by queries that hold the weight of the keys.

    It takes the addresses of the queries, which the sums of encodings replace, twice that of the
    encodings, and where scores are biased of the bias, (pairs, queries, length).
    """
    units = config.units
    layouts = [
        Layout((pairs, queries, units), kind),
        Layout((pairs, length, units), kind),
        Layout((pairs, units, length), kind, (length * units, 1, units)),
    ]
    if is_biased:
        layouts.append(Layout((pairs, queries, length), "float32"))
    operands = [External(layout) for layout in layouts]
    query, rows, transposed, *biases = operands
    operations = Operations(config.layer_norm_eps, scratch)
    roles = query, transposed, rows, query
    return MovingCalls(operands, bind_attention(operations, buffers, kind, roles, biases))


class LastLayer:
    """Layers for the rows that heads read.

    ``weights`` are those of the layers that `attend` is called for.
    """

    def __init__(
        self,
        config: BackboneConfig,
        kind: str,
        layers: Sequence[PackedLayer],
        weights: Mapping[int, HeadWeights],
        relative: Optional[RelativeBias],
        operations: Operations,
        buffers: Tuple[Scratch, Scratch],
    ) -> None:
        self._config, self._kind = config, kind
        self._operations = operations
        self._attending = RowBuffers(config, kind, ATTENDING, operations)
        self._finishing = RowBuffers(config, kind, FINISHING, operations)
        self._layers, self._weights, self._relative = layers, weights, relative
        self._calls: Dict[tuple, Any] = {}
        sizes = (operations.scratch, config, kind, buffers, relative is not None)
        self._attention = functools.lru_cache(ATTENTIONS)(functools.partial(compile_folded, *sizes))

    def attend(self, index: int, encodings: np.ndarray, batch: PackedBatch) -> np.ndarray:
        """Run the attention of a layer for the rows that are read.

        Shapes: `encodings` (rows, C), the result (pairs, 2 n C).
        """
        units = self._config.units
        pairs, count = batch.read_rows.shape
        out = np.empty((pairs, count, 2, units), np.float32)
        x = self._attending.memory("x", units)
        values = self._attending.memory("values", units, "float32")
        bias = self._weights[index].bias
        address, row_bytes = encodings.ctypes.data, units * encodings.itemsize
        folded = self._attending.memory("folded", self._config.num_heads * units).ctypes.data
        most, queries = ATTENDING // count, count * self._config.num_heads
        for groups in _chunks(batch.groups_of(GROUP_NUMBERS // units, most), most):
            start, end = groups[0].pair, groups[-1].pair + groups[-1].pairs
            rows = batch.read_rows[start:end].ravel()
            used = len(rows)
            np.take(encodings, rows, axis=0, out=x[:used], mode="clip")
            before, after = self._calls_of(index, round_up(used))
            for call in before:
                call()
            for group in groups:
                offset = (group.pair - start) * queries * row_bytes
                attention = self._attention(group.pairs, group.length, queries)
                rows_address = address + group.row * row_bytes
                operands = [folded + offset, rows_address, rows_address]
                if self._relative is not None:
                    positions = batch.positions[group.pair : group.pair + group.pairs]
                    relative = self._relative.rows(positions, group.length).copy()
                    operands.append(relative.ctypes.data)  # (pairs, n, H, L)
                attention(*operands)
            after()
            values[:used] += bias
            out[start:end, :, 0] = as_float32(x[:used]).reshape(-1, count, units)
            out[start:end, :, 1] = values[:used].reshape(-1, count, units)
        return out.reshape(pairs, -1)

    def finish(self, index: int, rows: np.ndarray) -> np.ndarray:
        """Run the rest of a layer.

        Shapes: `rows` (pairs, 2 n C), the result (pairs, n C).
        """
        units = self._config.units
        flat = rows.reshape(-1, 2, units)
        out = np.empty((len(flat), units), np.float32)
        buffers = self._finishing
        encodings, context = (buffers.memory(name, units, "float32") for name in ("values", "sums"))
        x = buffers.memory("x", units)
        for start in range(0, len(flat), FINISHING):
            part = flat[start : start + FINISHING]
            encodings[: len(part)], context[: len(part)] = part[:, 0], part[:, 1]
            for call in self._finishing_calls(index, round_up(len(part))):
                call()
            out[start : start + len(part)] = as_float32(x[: len(part)])
        return out.reshape(len(rows), -1)

    def _calls_of(self, index: int, rows: int) -> Tuple[List[Call], Call]:
        """Calls before the attention, and the one after it."""
        key = ("attend", index, rows)
        if key not in self._calls:
            config, operations, buffers = self._config, self._operations, self._attending
            layer, weights = self._layers[index], self._weights[index]
            units, heads = config.units, config.num_heads
            size = units // heads
            x = buffers.array("x", rows, units)
            query = buffers.array("query", rows, units)
            values = buffers.array("values", rows, units, "float32")
            # One matrix a head: (H, rows, C / H), and (H, rows, C) in rows of H C numbers.
            shape, strides = (heads, rows, size), (size, units, 1)
            query_heads = Array(Layout(shape, self._kind, strides), query.data)
            value_heads = Array(Layout(shape, "float32", strides), values.data)
            layout = Layout((heads, rows, units), self._kind, (units, heads * units, 1))
            folded = Array(layout, buffers.array("folded", rows, heads * units).data)
            before: List[Call] = []
            source = buffers.rounded(before, x, layer.products["query"], "x8")
            before.append(operations.dense(source, layer.products["query"], query))
            before.append(operations.product(query_heads, weights.key, folded))
            after = operations.product(folded, weights.value, value_heads)
            self._calls[key] = (before, after)
        return self._calls[key]

    def _finishing_calls(self, index: int, rows: int) -> List[Call]:
        key = ("finish", index, rows)
        if key not in self._calls:
            units, buffers = self._config.units, self._finishing
            calls: List[Call] = []
            for name, source in (("x", "values"), ("context", "sums")):
                numbers = buffers.array(source, rows, units, "float32")
                calls.append(self._operations.convert(numbers, buffers.array(name, rows, units)))
            for step in buffers.after_attention(self._layers[index], rows).values():
                calls += step
            self._calls[key] = calls
        return self._calls[key]


def _chunks(groups: Sequence[Group], most: int) -> Iterator[List[Group]]:
    """Neighbouring groups of together at most so many pairs; a group has no more."""
    chunk: List[Group] = []
    pairs = 0
    for group in groups:
        if pairs + group.pairs > most:
            yield chunk
            chunk, pairs = [], 0
        chunk.append(group)
        pairs += group.pairs
    yield chunk
