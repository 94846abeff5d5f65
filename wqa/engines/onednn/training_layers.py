"""Embeddings and layers compiled for training: the calls of each thread, forward and backward.

A thread computes a chunk of the pairs of a mini-batch, forward and backward, and after all threads
a share of the rows of each weight's gradient, over all pairs.
"""

from __future__ import annotations

import functools
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from wqa.engines.inputs import as_float32
from wqa.engines.onednn.library import Array
from wqa.engines.onednn.operations import Operations
from wqa.engines.onednn.training_buffers import (
    Activations,
    Buffer,
    Chunk,
    EmbeddingTensors,
    Tensor,
    TrainingMemory,
)
from wqa.engines.onednn.training_parameters import (
    External,
    Trained,
    TrainedEmbeddings,
    TrainedLayer,
    view,
)
from wqa.engines.onednn.training_tape import Run, Tape


class EmbeddingTape(Tape):
    """Embeddings: normalisation, dropout and projection of their sums."""

    def embeddings(
        self,
        trained: TrainedEmbeddings,
        own: EmbeddingTensors,
        whole: Chunk,
        sums: Tuple[Array, Array],
    ) -> Tensor:
        """Normalisation, dropout and projection of sums, which come with their gradient."""
        chunk = self.own(whole)
        factors = self.dropout(own.mask.rows(chunk), self._config.dropout, chunk)
        embedded, normed = own.embedded, own.normed.value.rows(chunk)
        of_embedded, of_normed = (tensor.gradient.rows(chunk) for tensor in (embedded, own.normed))
        out = normed, of_embedded if factors is None else of_normed
        self.norm(trained.norm, sums, out, [numbers.numbers(chunk) for numbers in own.statistics])
        backward = []
        if factors is not None:
            backward.append(self._operations.multiply(of_embedded, factors, of_normed))
        arrays = normed, factors, embedded.value.rows(chunk), own.dropped.rows(chunk)
        self.add(self.multiply(*arrays), backward)
        if trained.projection is None:
            return embedded
        self.dense(trained.projection, embedded, own.projected, whole)
        return own.projected


class LayerTape(Tape):
    """A layer, with keys and values at all positions, (B, L), and queries at all or at some.

    These are those that ``positions``, (B, n), name as rows, counted in the chunk.
    """

    def __init__(self, sizes: Tuple[Chunk, Chunk, Optional[np.ndarray]], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._all_keys, self._all_queries, self._positions = sizes
        self._keys, self._queries = self.own(self._all_keys), self.own(self._all_queries)

    def layer(
        self, layer: TrainedLayer, of_keys: Activations, own: Activations, bias: Optional[Array]
    ) -> None:
        """Append the operations of a layer, but for the last normalisation."""
        shared, rate = self._memory.gradients, self._config.dropout
        keys, queries, chunk = self._all_keys, self._all_queries, self._queries
        x, x_of_keys = of_keys.x, Tensor(of_keys.x.value, shared.x_of_keys)
        x_of_queries = Tensor(own.x.value, shared.x_of_queries)
        if self._positions is not None:
            self._read(of_keys.x, x_of_queries)
        added = shared.x_of_queries if self._positions is None else None
        self.dense(layer.value, x, of_keys.value, keys, joined=shared.x_of_keys)
        self.dense(layer.key, x_of_keys, of_keys.key, keys, joined=added)
        self.dense(layer.query, x_of_queries, own.query, queries, joined=shared.attention_sum)
        self._attend(of_keys, own, bias)
        mask = self.dropout(own.attention_mask.rows(chunk), rate, chunk)
        self.dense(layer.output, own.context, own.attention_sum, queries, mask, own.x.value)
        statistics = [buffer.numbers(chunk) for buffer in own.attention_statistics]
        arrays = own.attention_sum.rows(chunk), own.middle.rows(chunk)
        self.norm(layer.attention_norm, *arrays, statistics)
        self.dense(layer.inner, own.middle, own.inner, queries, joined=shared.ffn_sum)
        self._activate(own.inner, own.active)
        mask = self.dropout(own.ffn_mask.rows(chunk), rate, chunk)
        self.dense(layer.outer, own.active, own.ffn_sum, queries, mask, own.middle.value)
        statistics = [buffer.numbers(chunk) for buffer in own.ffn_statistics]
        self.norm(layer.ffn_norm, own.ffn_sum.rows(chunk), own.after.rows(chunk), statistics)

    def _read(self, x: Tensor, out: Tensor) -> None:
        """Gather the rows that are read; backward, add their gradients to those of all rows."""
        assert self._positions is not None
        of_keys, of_queries = (
            [buffer.values(chunk) for buffer in tensor[:2]]
            for tensor, chunk in ((x, self._keys), (out, self._queries))
        )
        rows = self._positions.reshape(-1)
        take = functools.partial(np.take, of_keys[0], rows, 0, of_queries[0], "clip")
        add = functools.partial(_add_rows, of_keys[1], self._positions, of_queries[1])
        self.add([take], [add])

    def _activate(self, source: Tensor, out: Tensor) -> None:
        name, (value, gradient) = self._config.activation, source.rows(self._queries)
        out_value, of_out = out.rows(self._queries)
        forward = self._operations.activation(name, value, out_value)
        backward = self._operations.activation_backward(name, value, of_out, gradient)
        self.add([forward], [backward])

    def _scores(self, buffer: Buffer, transposed: bool = False) -> Array:
        heads = self._config.num_heads
        return buffer.scores(self._queries, self._keys.length, heads, transposed)

    def _attend(self, of_keys: Activations, own: Activations, bias: Optional[Array]) -> None:
        shared, heads, keys = self._memory.gradients, self._config.num_heads, self._keys
        product, scale = self._operations.product, ("times", self._config.attention_scale)
        query, of_query, context, of_context = (
            buffer.heads(self._queries, heads) for buffer in (*own.query[:2], *own.context[:2])
        )
        key, of_key, value, of_value = (
            buffer.heads(keys, heads) for buffer in (*of_keys.key[:2], *of_keys.value[:2])
        )
        key_transposed, value_transposed = (
            tensor.value.heads(keys, heads, True) for tensor in (of_keys.key, of_keys.value)
        )
        raw, weights = self._scores(own.raw), self._scores(own.weights)
        of_scores, of_scores_transposed = (
            self._scores(shared.scores, transposed) for transposed in (False, True)
        )
        shape = (keys.pairs, 1, 1, keys.length)
        padding = self._memory.padding.view(shape, keys.first * keys.length)
        of_keys_product = product(of_scores_transposed, query, of_key, scale)
        self.add(
            [product(query, key_transposed, raw, scale, ("add", padding))],
            [product(of_scores, key, of_query, scale), of_keys_product],
        )
        if bias is not None:
            self._add_bias(raw, of_scores, bias)
        softmax = self._operations.softmax(raw, weights, training=True)
        arrays = raw, weights, self._scores(shared.weights), of_scores
        self.add([softmax], [self._operations.softmax_backward(*arrays)])
        kept, of_kept = self._drop_weights(own)
        of_values = product(self._scores(kept, True), of_context, of_value)
        of_kept_product = product(of_context, value_transposed, self._scores(of_kept))
        self.add([product(self._scores(kept), value, context)], [of_values, of_kept_product])

    def _drop_weights(self, own: Activations) -> Tuple[Buffer, Buffer]:
        """Dropout of the attention weights; returns what is kept, and its gradient."""
        shared, rate = self._memory.gradients, self._config.attention_dropout
        mask = self.dropout(self._scores(own.kept_mask), rate, self._queries)
        if mask is None:
            return own.weights, shared.weights
        weights, kept, of_weights, of_kept = map(
            self._scores, (own.weights, own.kept, shared.weights, shared.kept)
        )
        multiply = self._operations.multiply
        self.add([multiply(weights, mask, kept)], [multiply(of_kept, mask, of_weights)])
        return own.kept, shared.kept

    def _add_bias(self, raw: Array, of_scores: Array, bias: Array) -> None:
        """Add biases by relative position to the scores, and sum their gradients."""
        keys, positions, add = self._keys, self._positions, self._operations.add
        size = self._config.num_heads * keys.length**2
        total = self._memory.bias_sums.view((1, size), self._thread * size)
        if positions is None:
            ones = self._memory.ones.view((1, keys.pairs))
            by_pair = self._memory.gradients.scores.view((keys.pairs, size), keys.first * size)
            summed = self._operations.product(ones, by_pair, total, ("sum", None))
            self.add([add(raw, bias, raw)], [summed])
            return
        rows = self._scores(self._memory.gradients.bias_read)
        copied = functools.partial(_copy_bias, bias, positions, rows)
        added = functools.partial(_add_bias_gradient, of_scores, positions, total)
        self.add([copied, add(raw, rows, raw)], [added])


class Part:
    """A layer, or the embeddings, compiled for each thread."""

    def __init__(self, trained: Trained, tapes: Sequence[Tape]) -> None:
        self.trained, self.tapes = trained, tapes
        self._gradient_calls = functools.lru_cache(None)(
            lambda add: [tape.gradient_calls(add) for tape in tapes]
        )

    def gradient_calls(self, addresses: Sequence[int], add: bool) -> List[List[Run]]:
        """Each thread's calls for the gradients of the parameters, at their addresses."""
        threads = self._gradient_calls(add)
        for _, targets in threads:
            for target, parameter in targets:
                target.move(addresses[parameter])
        return [calls for calls, _ in threads]


class Compiled:
    """Embeddings, or layers in sequence, compiled for a mini-batch.

    Their input and output, and the gradients of both, are in MXNet's memory.
    """

    def __init__(
        self, memory: TrainingMemory, operations: Sequence[Operations], *sizes: Tuple[Chunk, int]
    ) -> None:
        self._memory, self._operations, self._count = memory, operations, len(operations)
        self.parts: List[Part] = []
        #: Index of the first parameter of each block among MXNet's inputs.
        self.starts: Dict[Trained, int] = {}
        (self.source, self.of_source), (self.out, self.of_out) = (
            [self._external(*size) for _ in range(2)] for size in sizes
        )
        #: Rows of each chunk that are read, (B, n), counted in the chunk; empty where all are.
        self.positions: List[np.ndarray] = []
        self.bias: Optional[External] = None
        self.bias_sums = np.zeros((0, 0), np.float32)

    def _external(self, whole: Chunk, width: int) -> List[External]:
        """Rows of each chunk in memory that MXNet owns."""
        arrays = []
        for chunk in whole.split(self._count):
            arrays.append(External((chunk.rows, width), chunk.first * chunk.length * width))
        return arrays

    def add(self, trained: Trained, tapes: Sequence[Tape]) -> None:
        """Append what is compiled of a block."""
        last = [1, *(start + len(own.parameters) for own, start in self.starts.items())][-1]
        self.starts.setdefault(trained, last)
        self.parts.append(Part(trained, tapes))

    def leave(self, thread: int, tape: Tape, last: Tensor, whole: Chunk) -> None:
        """Copy the output to MXNet's memory, and its gradient to a buffer that all threads read."""
        (value, gradient), convert = last.rows(tape.own(whole)), self._operations[thread].convert
        of_last = convert(self.of_out[thread], gradient)
        tape.add([convert(value, self.out[thread])], [of_last])

    def set_positions(self, read: np.ndarray, length: int) -> None:
        """Set the positions that are read, (B, n)."""
        first = 0
        for own in self.positions:
            pairs = np.arange(len(own))
            np.add(read[first : first + len(own)], length * pairs[:, None], out=own)
            first += len(own)


def compile_embeddings(
    memory: TrainingMemory,
    operations: Sequence[Operations],
    trained: TrainedEmbeddings,
    call: int,
    whole: Chunk,
) -> Compiled:
    """Compile embeddings for each thread, by its operations."""
    config, own = memory.config, memory.embeddings(call)
    widths = (config.embedding_size or config.units, config.units)
    compiled = Compiled(memory, operations, *((whole, width) for width in widths))
    tapes = []
    for thread, operation in enumerate(operations):
        tape = EmbeddingTape(memory, operation, thread, len(operations))
        sums = compiled.source[thread], compiled.of_source[thread]
        compiled.leave(thread, tape, tape.embeddings(trained, own, whole, sums), whole)
        tapes.append(tape)
    compiled.add(trained, tapes)
    return compiled


def compile_layers(
    memory: TrainingMemory,
    operations: Sequence[Operations],
    layers: Sequence[TrainedLayer],
    call: int,
    keys: Chunk,
    queries: Chunk,
) -> Compiled:
    """Compile layers for each thread, the last one for the positions that are read."""
    config, count = memory.config, len(operations)
    compiled = Compiled(memory, operations, (keys, config.units), (queries, config.units))
    if queries != keys:
        chunks = queries.split(count)
        compiled.positions = [np.zeros((chunk.pairs, chunk.length), np.intp) for chunk in chunks]
    if config.family.relative_buckets:
        shape = (config.num_heads, keys.length, keys.length)
        compiled.bias, size = External((1, *shape)), int(np.prod(shape))
        compiled.bias_sums = memory.bias_sums.data[: count * size].reshape(count, size)
    for index, layer in enumerate(layers):
        last = index == len(layers) - 1
        of_keys = memory.activations(call, index, False)
        own = memory.activations(call, index, last and queries != keys)
        tapes = []
        for thread, operation in enumerate(operations):
            positions = compiled.positions[thread] if last and compiled.positions else None
            sizes = (keys, queries if last else keys, positions)
            tape = LayerTape(sizes, memory, operation, thread, count)
            if not index:
                first, of_first = of_keys.x.rows(tape.own(keys))
                enter = operation.convert(compiled.source[thread], first)
                tape.add([enter], [operation.convert(of_first, compiled.of_source[thread])])
            tape.layer(layer, of_keys, own, compiled.bias)
            if last:
                compiled.leave(thread, tape, own.after, queries)
            tapes.append(tape)
        compiled.add(layer, tapes)
    return compiled


def _add_rows(target: np.ndarray, positions: np.ndarray, rows: np.ndarray) -> None:
    """Add rows to those at positions, of which a pair may have one several times.

    Shapes: `target` (B * L, C), `positions` (B, n), `rows` (B * n, C).
    """
    by_pair = rows.reshape(*positions.shape, -1)
    for column in range(positions.shape[1]):
        target[positions[:, column]] += by_pair[:, column]


def _copy_bias(bias: Array, positions: np.ndarray, target: Array) -> None:
    """Copy the biases of the positions that are read, (B, n), for their scores, (B, H, n, L)."""
    shape = bias.layout.shape[1:]  # (H, L, L)
    values = view(bias.address, int(np.prod(shape))).reshape(shape)
    rows = values[:, positions % shape[-1]].swapaxes(0, 1)
    np.copyto(target.data[: rows.size].reshape(rows.shape), rows)


def _add_bias_gradient(gradient: Array, positions: np.ndarray, total: Array) -> None:
    """Add the gradients of the scores, (B, H, n, L), of the positions that are read, (B, n)."""
    shape = gradient.layout.shape
    by_pair = as_float32(gradient.data[: int(np.prod(shape))]).reshape(shape)
    heads, length = shape[1], shape[-1]
    target = total.data[: heads * length**2].reshape(heads, length, length)
    for pair, column in np.ndindex(*positions.shape):
        target[:, positions[pair, column] % length] += by_pair[pair, :, column]
