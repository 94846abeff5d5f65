"""Layers and embeddings with their gradients, as one thread of a training runs them.

A thread computes a chunk of the pairs of a mini-batch, forward and backward, and after all threads
a share of the rows of each weight's gradient, over all pairs.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

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
        self, memory: TrainingMemory, operations: Operations, thread: int, threads: int
    ) -> None:
        self._memory, self._config, self._operations = memory, memory.config, operations
        self._thread, self._threads = thread, threads
        self.forward: List[Operation] = []
        self.backward: List[Operation] = []
        self.masks: List[Mask] = []
        #: Each product with the gradient of its output, its input, and the mini-batch.
        self._products: List[Tuple[TrainedProduct, Buffer, Buffer, Chunk]] = []
        self._norms: List[TrainedNorm] = []
        self._targets: Targets = ()
        self._gradient_calls: List[Operation] = []

    def _own(self, whole: Chunk) -> Chunk:
        """The thread's chunk of a mini-batch."""
        return whole.part(self._thread, self._threads)

    def _rows(self, buffer: Optional[Buffer], whole: Chunk) -> Any:
        """The thread's rows of a buffer; None without one."""
        return None if buffer is None else self._memory.operand(buffer.rows(self._own(whole)))

    def _pair(self, tensor: Tensor, whole: Chunk) -> Tuple[Memory, Memory]:
        """The thread's rows of a tensor, and their gradient."""
        return self._memory.pair(tensor, self._own(whole))

    def _add(self, forward: Operation, *backward: Operation) -> None:
        self.forward.append(forward)
        self.backward[:0] = backward

    def _dropout(self, mask: np.ndarray, rate: float, whole: Chunk) -> Optional[Memory]:
        """The factors of a dropout; None at rate 0."""
        if not rate:
            return None
        chunk = self._own(whole)
        self.masks.append(Mask(mask.reshape(chunk.pairs, -1), rate, chunk.first))
        return self._memory.operand(mask)

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
        whole: Chunk,
        joined: Optional[Buffer] = None,
        mask: Optional[Buffer] = None,
        residual: Optional[Buffer] = None,
    ) -> None:
        """A product, a dropout and the sum with a residual; ``joined`` is added to the gradient."""
        factors, run = None, self._operations.dense
        value, of_value = self._pair(source, whole)
        if mask is not None:
            factors = self._dropout(mask.rows(self._own(whole)), self._config.dropout, whole)
        steps = ("multiply", factors), ("add", self._rows(residual, whole))
        forward = run(value, product.dense, self._rows(out.value, whole), *steps)
        backward: List[Operation] = []
        gradient = out.gradient
        of_out = self._rows(gradient, whole)
        if out.rounded and (factors is not None or gradient.kind != out.rounded.kind):
            gradient = out.rounded
            rounded = self._rows(gradient, whole)
            dropped = self._rows(self._memory.gradients.dropped, whole)
            backward += self._multiply(of_out, factors, rounded, dropped)
            of_out = rounded
        step = ("add", self._rows(joined, whole))
        backward.append(run(of_out, product.dense, of_value, step, backward=True))
        self._add(forward, *backward)
        self._products.append((product, gradient, source.value, whole))

    def _norm(
        self,
        trained: TrainedNorm,
        source: Tensor,
        out: Tensor,
        statistics: Dict[str, Buffer],
        whole: Chunk,
    ) -> None:
        """A normalisation."""
        kept, of_norm = {}, {}
        for name, buffer in statistics.items():
            kept[name] = self._memory.operand(buffer.rows(self._own(whole))[:, 0])
        for name, part in zip(("diff_gamma", "diff_beta"), trained.gradients[:, self._thread]):
            of_norm[name] = Memory.of(part)
        value, gradient = self._pair(source, whole)
        arrays = value, trained.norm, *self._pair(out, whole), gradient
        self._add(*self._operations.norm_with_gradient(*arrays, kept, of_norm))
        self._norms.append(trained)

    def embeddings(self, trained: TrainedEmbeddings, own: EmbeddingTensors, whole: Chunk) -> None:
        """Normalise, drop out and project sums."""
        factors = self._dropout(own.mask.rows(self._own(whole)), self._config.dropout, whole)
        self._norm(trained.norm, own.sums, own.normed, own.statistics, whole)
        normed, of_normed = self._pair(own.normed, whole)
        embedded, of_embedded = self._pair(own.embedded, whole)
        dropped = self._rows(own.dropped, whole)
        self.forward += self._multiply(normed, factors, embedded, dropped)
        self.backward[:0] = self._multiply(of_embedded, factors, of_normed, dropped)
        if trained.projection is not None:
            self._dense(trained.projection, own.embedded, own.projected, whole)

    def layer(
        self,
        layer: TrainedLayer,
        of_keys: Activations,
        own: Activations,
        wholes: Tuple[Chunk, Chunk],
        positions: Optional[np.ndarray] = None,
        biases: Optional[np.ndarray] = None,
    ) -> None:
        """A layer with keys and values at all positions, and queries at all or at some.

        ``of_keys`` and ``own`` are the activations at the positions of the keys and of the queries,
        ``wholes`` the mini-batches of both. ``positions`` are the rows of the mini-batch that are
        read, (B, n). The first of the ``biases``, (n, H, L, L), is added to the attention scores,
        and a thread adds the gradients to its own.
        """
        if positions is not None:
            chunk = self._own(wholes[1])
            positions = positions[chunk.first : chunk.first + chunk.pairs]
        g, (keys, queries) = self._memory.gradients, wholes
        x_of_keys = Tensor(of_keys.x.value, g.x_of_keys)
        x_of_queries = Tensor(own.x.value, g.x_of_queries)
        added: Optional[Buffer] = g.x_of_queries
        if positions is not None:
            self._read(of_keys.x, x_of_queries, wholes, positions)
            added = None
        self._dense(layer.value, of_keys.x, of_keys.value, keys, g.x_of_keys)
        self._dense(layer.key, x_of_keys, of_keys.key, keys, added)
        self._dense(layer.query, x_of_queries, own.query, queries, g.attention_sum)
        self._attend(of_keys, own, wholes, positions, biases)
        masked = {"mask": own.attention_mask, "residual": own.x.value}
        self._dense(layer.output, own.context, own.attention_sum, queries, **masked)
        arrays = own.attention_sum, own.middle, own.attention_statistics
        self._norm(layer.attention_norm, *arrays, queries)
        self._dense(layer.inner, own.middle, own.inner, queries, g.ffn_sum)
        (inner, of_inner), active = self._pair(own.inner, queries), self._pair(own.active, queries)
        activate, name = self._operations.activation_with_gradient, self._config.activation
        self._add(*activate(name, inner, *active, of_inner))
        masked = {"mask": own.ffn_mask, "residual": own.middle.value}
        self._dense(layer.outer, own.active, own.ffn_sum, queries, **masked)
        self._norm(layer.ffn_norm, own.ffn_sum, own.after, own.ffn_statistics, queries)

    def _read(
        self, x: Tensor, out: Tensor, wholes: Tuple[Chunk, Chunk], positions: np.ndarray
    ) -> None:
        """Gather the rows that are read; backward, add their gradients to those of all rows."""
        keys, own = wholes[0], self._own(wholes[1])
        arrays = x.value.rows(keys), positions.ravel(), 0, out.value.rows(own)
        of_x = x.gradient.rows(keys)
        of_rows = out.gradient.rows(own)
        forward = functools.partial(np.take, *arrays, mode="clip")
        # A pair may have a position several times.
        self._add(forward, functools.partial(np.add.at, of_x, positions.ravel(), of_rows))

    def _attend(
        self,
        of_keys: Activations,
        own: Activations,
        wholes: Tuple[Chunk, Chunk],
        positions: Optional[np.ndarray],
        biases: Optional[np.ndarray],
    ) -> None:
        g, run, heads = self._memory.gradients, self._operations, self._config.num_heads
        keys, queries = map(self._own, wholes)
        operand, scale = self._memory.operand, ("times", self._config.attention_scale)

        def by_head(tensor: Tensor, chunk: Chunk) -> List[np.ndarray]:
            return [buffer.heads(chunk, heads) for buffer in tensor[:2]]

        def scores(buffer: Buffer) -> np.ndarray:
            return buffer.scores(queries, keys.length, heads)

        def product(left: np.ndarray, right: np.ndarray, out: np.ndarray, *steps: Any) -> Operation:
            return run.product(operand(left), operand(right), operand(out), *steps)

        (query, of_query), (key, of_key) = by_head(own.query, queries), by_head(of_keys.key, keys)
        context, of_context = by_head(own.context, queries)
        value, of_value = by_head(of_keys.value, keys)
        raw, of_scores = scores(own.raw), scores(g.scores)
        padding = self._memory.padding.rows(keys).reshape(keys.pairs, 1, 1, keys.length)
        forward = product(query, key.swapaxes(2, 3), raw, scale, ("add", operand(padding)))
        of_queries = product(of_scores, key, of_query, scale)
        of_keys_call = product(of_scores.swapaxes(2, 3), query, of_key, scale)
        self._add(forward, of_queries, of_keys_call)
        if biases is not None:
            of_biases = of_scores, biases[1 + self._thread], positions
            forward = functools.partial(_add_biases, raw, biases[0], positions)
            self._add(forward, functools.partial(_add_bias_gradients, *of_biases))
        kept, of_kept = scores(own.weights), scores(g.weights)
        weights, of_weights = operand(kept), operand(of_kept)
        softmax = run.softmax(operand(raw), weights)
        self._add(softmax, run.softmax_gradient(softmax, weights, of_weights, operand(of_scores)))
        rate = self._config.attention_dropout
        mask = self._dropout(scores(own.kept_mask), rate, wholes[1])
        if mask is not None:
            kept, of_kept = scores(own.kept), scores(g.kept)
            backward = run.binary("multiply", operand(of_kept), mask, of_weights)
            self._add(run.binary("multiply", weights, mask, operand(kept)), backward)
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
        run, operand = self._operations, self._memory.operand
        for product, gradient, source, whole in self._products:
            start, end = share_of(product.rows, self._thread, self._threads)
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
                yield run.product(operand(left), operand(right), out, *steps)
        for norm in [] if self._thread else self._norms:
            for (address, request), parts in zip(targets[norm.gain :], norm.gradients):
                own = parts[: self._threads]
                yield functools.partial(_sum_threads, address, request, own)


def accumulate(start: int, request: int, values: np.ndarray) -> None:
    """Write a gradient at an address, or add it, as MXNet requests."""
    if request != NULL:
        target = view(start, *values.shape)
        target[:] = target + values if request == ADD else values


def _sum_threads(start: int, request: int, parts: np.ndarray) -> None:
    accumulate(start, request, parts.sum(axis=0))


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
