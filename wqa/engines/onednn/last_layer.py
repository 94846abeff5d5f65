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

from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from wqa.config import BackboneConfig
from wqa.engines.inputs import as_float32
from wqa.engines.onednn.library import Call, Memory, cached
from wqa.engines.onednn.operations import Operations
from wqa.engines.onednn.packed_rows import (
    Group,
    PackedBatch,
    PackedLayer,
    RelativeBias,
    RowBuffers,
    round_up,
)

#: Rows that attend at once: a row has C numbers for each head of the attention.
ATTENDING = 64
#: Rows that run the rest of a layer at once.
FINISHING = 512
#: Most numbers of the encodings of a group of pairs, so that the second product finds them in the
#: cache.
GROUP_NUMBERS = 1 << 19


class LastLayer:
    """Layers for the rows that heads read, in buffers of their own."""

    def __init__(
        self,
        config: BackboneConfig,
        kind: str,
        layers: Sequence[PackedLayer],
        relative: Optional[RelativeBias],
        operations: Operations,
        attention: Callable[..., Callable[..., None]],
    ) -> None:
        self._config, self._layers, self._relative = config, layers, relative
        self._operations, self._attention = operations, attention
        self._buffers = RowBuffers(config, kind, FINISHING, operations)
        self._cache: Dict[tuple, Any] = {}

    def attend(self, index: int, encodings: np.ndarray, batch: PackedBatch) -> np.ndarray:
        """Run the attention of a layer for the rows that are read; `finish` follows.

        The encodings do not change. Shapes: `encodings` (rows, C), the result (pairs, 2 n C).
        """
        units = self._config.units
        pairs, count = batch.read_rows.shape
        out = np.empty((pairs, count, 2, units), np.float32)
        x = self._buffers.memory("x", units)
        values = self._buffers.memory("values", units, "float32")
        folded = self._buffers.memory("folded", self._config.num_heads * units)
        most = ATTENDING // count
        for groups in _chunks(batch.groups_of(GROUP_NUMBERS // units, most), most):
            start, end = groups[0].pair, groups[-1].pair + groups[-1].pairs
            rows = batch.read_rows[start:end].ravel()
            used = len(rows)
            np.take(encodings, rows, axis=0, out=x[:used], mode="clip")
            before, after = self._around_attention(index, round_up(used))
            for call in before:
                call()
            for group in groups:
                queries = folded[(group.pair - start) * count :]
                self._attend(queries, encodings[group.row :], group, batch)
            after()
            values[:used] += self._layers[index].by_head.bias
            out[start:end, :, 0] = as_float32(x[:used]).reshape(-1, count, units)
            out[start:end, :, 1] = values[:used].reshape(-1, count, units)
        return out.reshape(pairs, -1)

    def _attend(
        self, queries: np.ndarray, encodings: np.ndarray, group: Group, batch: PackedBatch
    ) -> None:
        """Replace the queries of a group, which hold the weight of the keys, by their context.

        Shapes: `queries` (rows read, H C), `encodings` (rows, C), from the group's first rows on.
        """
        units, pairs, length = self._config.units, group.pairs, group.length
        count = self._config.num_heads * batch.read_rows.shape[1]
        query = (pairs, count, units), (count * units, units, 1)
        transposed = (pairs, units, length), (length * units, 1, units)
        rows = (pairs, length, units), (length * units, units, 1)
        folded = queries.ctypes.data
        others = encodings.ctypes.data
        addresses = [folded, others, others, folded]
        bias = None
        if self._relative is not None:
            positions = batch.positions[group.pair : group.pair + pairs]
            relative = self._relative.rows(length, positions).copy()  # (pairs, n, H, L)
            addresses.append(relative.ctypes.data)
            bias = (pairs, count, length)
        self._attention(query, transposed, rows, bias)(*addresses)

    def finish(self, index: int, rows: np.ndarray) -> np.ndarray:
        """Run the rest of a layer, for rows of any number of micro-batches.

        Shapes: `rows` (pairs, 2 n C), the result (pairs, n C).
        """
        units = self._config.units
        flat = rows.reshape(-1, 2, units)
        out = np.empty((len(flat), units), np.float32)
        buffers = self._buffers
        encodings = buffers.memory("values", units, "float32")
        context = buffers.memory("sums", units, "float32")
        x = buffers.memory("x", units)
        for start in range(0, len(flat), FINISHING):
            part = flat[start : start + FINISHING]
            encodings[: len(part)], context[: len(part)] = part[:, 0], part[:, 1]
            for call in self._finishing_calls(index, round_up(len(part))):
                call()
            out[start : start + len(part)] = as_float32(x[: len(part)])
        return out.reshape(len(rows), -1)

    @cached
    def _around_attention(self, index: int, rows: int) -> Tuple[List[Call], Call]:
        """Calls before the attention, and the one after it."""
        layer, buffers, units = self._layers[index], self._buffers, self._config.units
        x, query = (buffers.array(name, rows, units) for name in ("x", "query"))
        values = buffers.array("values", rows, units, "float32")
        folded = buffers.array("folded", rows, self._config.num_heads * units)
        before: List[Call] = []
        source = buffers.rounded(before, x, layer.products["query"], "x8")
        before.append(self._operations.dense(source, layer.products["query"], query))
        queries, contexts = self._by_head(query), self._by_head(folded)
        before.append(self._operations.product(queries, layer.by_head.key, contexts))
        out = self._by_head(values)
        return before, self._operations.product(contexts, layer.by_head.value, out)

    def _by_head(self, rows: Memory) -> Memory:
        """One matrix a head: (H, rows, width / H)."""
        matrices = rows.data.reshape(len(rows.data), self._config.num_heads, -1)
        return Memory.of(matrices.swapaxes(0, 1))

    @cached
    def _finishing_calls(self, index: int, rows: int) -> List[Call]:
        units, buffers = self._config.units, self._buffers
        calls: List[Call] = []
        for name, source in (("x", "values"), ("context", "sums")):
            numbers = buffers.array(source, rows, units, "float32")
            calls.append(self._operations.convert(numbers, buffers.array(name, rows, units)))
        for step in buffers.after_attention(self._layers[index], rows).values():
            calls += step
        return calls


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
