"""Layers and embeddings with their gradients, as one thread of a training runs them.

A thread computes a chunk of the pairs of a mini-batch, forward and backward, and after all threads
a share of the rows of each weight's gradient, over all pairs.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.engines.inputs import as_float32
from wqa.engines.onednn.library import Memory
from wqa.engines.onednn.operations import Operations, view
from wqa.engines.onednn.training_memory import (
    ADD,
    NULL,
    Activations,
    Buffer,
    Chunk,
    EmbeddingTensors,
    Tensor,
    TrainedEmbeddings,
    TrainedLayer,
    TrainedNorm,
    TrainedProduct,
    TrainingMemory,
    operand,
)

#: A compiled operation; calling it runs it.
Operation = Callable[[], object]
#: Address of the gradient of each parameter of a block, and MXNet's request.
Targets = Sequence[Tuple[int, int]]


class Mask(NamedTuple):
    """Mask of a dropout on a chunk of a mini-batch, with values 0 and 1 / (1 - rate).

    Shapes: `values` (pairs, values a pair).
    """

    values: np.ndarray
    rate: float
    first: int  # index of the chunk's first pair

    def draw(self, seed: int, number: int) -> None:
        """Draw the mask from a pass's seed and its number in the pass.

        That of a pair does not depend on the chunks into which the mini-batch is split.
        """
        pairs, size = self.values.shape
        words = -(-size // 4)  # of 64 bits, a pair
        bits = np.random.PCG64DXSM([seed, number]).advance(self.first * words)
        generator = np.random.Generator(bits)
        raw = generator.integers(0, 2**64 - 1, (pairs, words), np.uint64, endpoint=True)
        draws = raw.view(np.uint16)[:, :size]
        factor = np.float32(1 / (1 - self.rate))
        np.multiply(draws >= round(self.rate * 65536), factor, out=self.values)


def share_of(rows: int, thread: int, threads: int) -> Tuple[int, int]:
    """A thread's share of the rows of a weight: whole blocks of 16, but for the last."""
    blocks = -(-rows // 16)
    start, end = (16 * (blocks * part // threads) for part in (thread, thread + 1))
    return start, min(rows, end)


class Tape:
    """What one of several threads runs for its chunk of a mini-batch, forward and backward.

    Each method appends operations, whose gradients run before those of the ones before them. A
    gradient is named ``of_`` what it is the gradient of.
    """

    def __init__(
        self, memory: TrainingMemory, operations: Operations, pairs: int, thread: int, threads: int
    ) -> None:
        self._memory, self._config, self._operations = memory, memory.config, operations
        self._pairs, self._thread, self._threads = pairs, thread, threads
        self.forward: List[Operation] = []
        self.backward: List[Operation] = []
        self.masks: List[Mask] = []
        #: Each product with the gradient of its output, its input, and the mini-batch.
        self._products: List[Tuple[TrainedProduct, Buffer, Buffer, Chunk]] = []
        self._targets: Targets = ()
        self._gradient_calls: List[Operation] = []

    def _chunk(self, length: int) -> Chunk:
        """The thread's chunk of the mini-batch, with so many positions a pair."""
        return Chunk(self._pairs, length).part(self._thread, self._threads)

    def _add(self, forward: Operation, *backward: Operation) -> None:
        self.forward.append(forward)
        self.backward[:0] = backward

    def _dropout(self, mask: np.ndarray, rate: float, chunk: Chunk) -> Optional[Memory]:
        """The factors of a dropout; None at rate 0."""
        if not rate:
            return None
        self.masks.append(Mask(mask.reshape(chunk.pairs, -1), rate, chunk.first))
        return Memory.of(mask)

    def _multiply(
        self, source: Memory, factors: Optional[Memory], out: Memory, product: Memory
    ) -> List[Operation]:
        """Multiply by factors, if any, and round; ``product`` holds what is rounded."""
        if factors is None:
            return [self._operations.convert(source, out)]
        if source.layout.kind == out.layout.kind:
            return [self._operations.binary("multiply", source, factors, out)]
        multiplied = self._operations.binary("multiply", source, factors, product)
        return [multiplied, self._operations.convert(product, out)]

    def _dense(
        self,
        product: TrainedProduct,
        source: Tensor,
        out: Tensor,
        chunk: Chunk,
        joined: Optional[Buffer] = None,
        mask: Optional[Buffer] = None,
        residual: Optional[Buffer] = None,
    ) -> None:
        """A product, a dropout and the sum with a residual; ``joined`` is added to the gradient."""
        factors, run = None, self._operations.dense
        (value, of_value), (result, of_out) = source.rows(chunk), out.rows(chunk)
        if mask is not None:
            factors = self._dropout(mask.rows(chunk), self._config.dropout, chunk)
        steps = ("multiply", factors), ("add", operand(residual, chunk))
        forward = run(value, product.dense, result, *steps)
        backward: List[Operation] = []
        gradient = out.gradient
        if out.rounded and (factors is not None or gradient.kind != out.rounded.kind):
            gradient, unrounded = out.rounded, of_out
            of_out = operand(gradient, chunk)
            dropped = operand(self._memory.gradients.dropped, chunk)
            backward += self._multiply(unrounded, factors, of_out, dropped)
        step = ("add", operand(joined, chunk))
        backward.append(run(of_out, product.dense, of_value, step, backward=True))
        self._add(forward, *backward)
        whole = Chunk(self._pairs, chunk.length)
        self._products.append((product, gradient, source.value, whole))

    def _norm(
        self,
        trained: TrainedNorm,
        source: Tensor,
        out: Tensor,
        statistics: Sequence[Buffer],
        chunk: Chunk,
    ) -> None:
        """A normalisation."""
        kept = [Memory.of(buffer.rows(chunk)[:, 0]) for buffer in statistics]
        of_norm = map(Memory.of, trained.gradients[:, self._thread])
        arrays = trained.norm, source.rows(chunk), out.rows(chunk)
        self._add(*self._operations.norm_with_gradient(*arrays, *kept, *of_norm))

    def embeddings(self, trained: TrainedEmbeddings, own: EmbeddingTensors, length: int) -> None:
        """Normalise, drop out and project sums."""
        chunk = self._chunk(length)
        factors = self._dropout(own.mask.rows(chunk), self._config.dropout, chunk)
        self._norm(trained.norm, own.sums, own.normed, own.statistics, chunk)
        normed, of_normed = own.normed.rows(chunk)
        embedded, of_embedded = own.embedded.rows(chunk)
        self.forward += self._multiply(normed, factors, embedded, normed)
        self.backward[:0] = self._multiply(of_embedded, factors, of_normed, of_embedded)
        if trained.projection is not None:
            self._dense(trained.projection, own.embedded, own.projected, chunk)

    def layer(
        self,
        layer: TrainedLayer,
        of_keys: Activations,
        own: Activations,
        lengths: Tuple[int, int],
        positions: Optional[np.ndarray] = None,
        biases: Any = (),
    ) -> None:
        """A layer with keys and values at all positions, and queries at all or at some.

        ``of_keys`` and ``own`` are the activations at the positions of the keys and of the queries,
        ``lengths`` the numbers of both a pair. ``positions`` are the rows of the mini-batch that
        are read, (B, n). The first of the ``biases``, (n, H, L, L), if there are any, is added to
        the attention scores, and a thread adds the gradients to its own.
        """
        keys, queries = map(self._chunk, lengths)
        g, activate = self._memory.gradients, self._operations.activation_with_gradient
        x_of_keys = Tensor(of_keys.x.value, g.x_of_keys)
        x_of_queries = Tensor(own.x.value, g.x_of_queries)
        added: Optional[Buffer] = g.x_of_queries
        if positions is not None:
            positions = positions[queries.first : queries.first + queries.pairs]
            x, of_x = (buffer.rows(Chunk(self._pairs, keys.length)) for buffer in of_keys.x[:2])
            rows, of_rows = (buffer.rows(queries) for buffer in x_of_queries[:2])
            gather = functools.partial(np.take, x, positions.ravel(), 0, rows, mode="clip")
            # A pair may have a position several times.
            self._add(gather, functools.partial(np.add.at, of_x, positions.ravel(), of_rows))
            added = None
        self._dense(layer.value, of_keys.x, of_keys.value, keys, g.x_of_keys)
        self._dense(layer.key, x_of_keys, of_keys.key, keys, added)
        self._dense(layer.query, x_of_queries, own.query, queries, g.attention_sum)
        self._attend(of_keys, own, keys, queries, positions, biases)
        masked = {"mask": own.attention_mask, "residual": own.x.value}
        self._dense(layer.output, own.context, own.attention_sum, queries, **masked)
        arrays = own.attention_sum, own.middle, own.attention_statistics
        self._norm(layer.attention_norm, *arrays, queries)
        self._dense(layer.inner, own.middle, own.inner, queries, g.ffn_sum)
        (inner, of_inner), active = own.inner.rows(queries), own.active.rows(queries)
        self._add(*activate(self._config.activation, inner, *active, of_inner))
        masked = {"mask": own.ffn_mask, "residual": own.middle.value}
        self._dense(layer.outer, own.active, own.ffn_sum, queries, **masked)
        self._norm(layer.ffn_norm, own.ffn_sum, own.after, own.ffn_statistics, queries)

    def _attend(
        self,
        of_keys: Activations,
        own: Activations,
        keys: Chunk,
        queries: Chunk,
        positions: Optional[np.ndarray],
        biases: Any,
    ) -> None:
        g, run, config = self._memory.gradients, self._operations, self._config
        heads, scale = config.num_heads, ("times", config.attention_scale)

        def by_head(tensor: Tensor, chunk: Chunk) -> List[np.ndarray]:
            shape = chunk.length, heads, config.units // heads
            return [buffer.part(chunk, *shape).swapaxes(1, 2) for buffer in tensor[:2]]

        def scores(buffer: Buffer) -> np.ndarray:
            return buffer.part(queries, heads, queries.length, keys.length)

        def product(left: np.ndarray, right: np.ndarray, out: np.ndarray, *steps: Any) -> Operation:
            return run.product(Memory.of(left), Memory.of(right), Memory.of(out), *steps)

        (query, of_query), (key, of_key) = by_head(own.query, queries), by_head(of_keys.key, keys)
        context, of_context = by_head(own.context, queries)
        value, of_value = by_head(of_keys.value, keys)
        raw, of_scores = scores(own.raw), scores(g.scores)
        padding = self._memory.padding.part(keys, 1, 1, keys.length)
        forward = product(query, key.swapaxes(2, 3), raw, scale, ("add", Memory.of(padding)))
        of_queries = product(of_scores, key, of_query, scale)
        of_keys_call = product(of_scores.swapaxes(2, 3), query, of_key, scale)
        self._add(forward, of_queries, of_keys_call)
        if len(biases):
            of_biases = of_scores, biases[1 + self._thread], positions
            forward = functools.partial(_add_biases, raw, biases[0], positions)
            self._add(forward, functools.partial(_add_bias_gradients, *of_biases))
        kept, of_kept = scores(own.weights), scores(g.weights)
        weights, of_weights = Memory.of(kept), Memory.of(of_kept)
        softmax = run.softmax(Memory.of(raw), weights)
        self._add(softmax, run.softmax_gradient(softmax, weights, of_weights, Memory.of(of_scores)))
        mask = self._dropout(scores(own.kept_mask), config.attention_dropout, queries)
        if mask is not None:
            kept, of_kept = scores(own.kept), scores(g.kept)
            backward = run.binary("multiply", Memory.of(of_kept), mask, of_weights)
            self._add(run.binary("multiply", weights, mask, Memory.of(kept)), backward)
        of_values = product(kept.swapaxes(2, 3), of_context, of_value)
        of_kept_call = product(of_context, value.swapaxes(2, 3), of_kept)
        self._add(product(kept, value, context), of_values, of_kept_call)

    def gradient_calls(self, targets: Targets) -> List[Operation]:
        """Calls for a share of the parameters' gradients, over all pairs of the mini-batch."""
        if targets != self._targets:
            self._targets = targets
            self._gradient_calls = list(self._bind_gradients(targets))
        return self._gradient_calls

    def _bind_gradients(self, targets: Targets) -> Iterator[Operation]:
        for product, gradient, source, whole in self._products:
            start, end = share_of(product.dense.bias.data.size, self._thread, self._threads)
            columns = gradient.rows(whole)[:, start:end]
            ones = self._memory.ones.rows(whole)
            # Gradients of rows of the weight, and of the bias.
            factors = (columns.T, source.rows(whole)), (ones.T, columns)
            for (address, request), (left, right) in zip(targets[product.weight :], factors):
                if request == NULL or start == end:
                    continue
                size = right.shape[1] if right is not columns else 1  # of a row
                first = address + 4 * (product.first + start) * size
                out = Memory.of(view(first, len(left), right.shape[1]))
                steps = [("sum", None)] if request == ADD else []
                yield self._operations.product(Memory.of(left), Memory.of(right), out, *steps)


def accumulate(start: int, request: int, values: np.ndarray) -> None:
    """Write a gradient at an address, or add it, as MXNet requests."""
    if request != NULL:
        target = view(start, *values.shape)
        target[:] = target + values if request == ADD else values


def _add_biases(scores: np.ndarray, biases: np.ndarray, positions: Optional[np.ndarray]) -> None:
    """Add biases, (H, L, L), to scores, (B, H, Q, L), of all positions or of some rows, (B, Q)."""
    if positions is not None:
        biases = biases[:, positions % biases.shape[-1]].swapaxes(0, 1)
    scores += biases


def _add_bias_gradients(
    gradient: np.ndarray, total: np.ndarray, positions: Optional[np.ndarray]
) -> None:
    """Add the gradients of scores to those of the biases; shapes as `_add_biases` has them."""
    by_pair = as_float32(gradient)
    if positions is None:
        total += by_pair.sum(axis=0)
    else:
        by_row = total.swapaxes(0, 1)
        np.add.at(by_row, positions % len(by_row), by_pair.swapaxes(1, 2))
