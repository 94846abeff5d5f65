"""Layers and embeddings with their gradients, as one thread of a training runs them."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.engines.inputs import as_float32
from wqa.engines.onednn.library import Array, Memory
from wqa.engines.onednn.operations import Operations
from wqa.engines.onednn.training_memory import (
    Activations,
    Buffer,
    Chunk,
    EmbeddingTensors,
    Tensor,
    TrainingMemory,
)
from wqa.engines.onednn.training_parameters import (
    External,
    TrainedEmbeddings,
    TrainedLayer,
    TrainedNorm,
    TrainedProduct,
    view,
)

#: A compiled operation; calling it runs it.
Operation = Callable[[], object]


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
        self._gradient_calls: Dict[bool, Tuple[List[Operation], List[Tuple[External, int]]]] = {}

    def _own(self, whole: Chunk) -> Chunk:
        """The thread's chunk of a mini-batch."""
        return whole.split(self._threads)[self._thread]

    def _rows(self, buffer: Buffer, whole: Chunk) -> Array:
        """The thread's rows of a buffer."""
        return self._memory.operand(buffer.rows(self._own(whole)))

    def _add(self, forward: Sequence[Operation], backward: Sequence[Operation]) -> None:
        self.forward += forward
        self.backward[:0] = backward

    def _pair(self, tensor: Tensor, whole: Chunk) -> Tuple[Array, Array]:
        """The thread's rows of a tensor, and their gradient."""
        return self._rows(tensor.value, whole), self._rows(tensor.gradient, whole)

    def enter(self, source: Array, of_source: Array, x: Tensor, whole: Chunk) -> None:
        """Copy a layer's input from MXNet's memory, and its gradient to it."""
        (value, gradient), convert = self._pair(x, whole), self._operations.convert
        self._add([convert(source, value)], [convert(gradient, of_source)])

    def leave(self, out: Array, of_out: Array, last: Tensor, whole: Chunk) -> None:
        """Copy an output to MXNet's memory, and its gradient to a buffer that all threads read."""
        (value, gradient), convert = self._pair(last, whole), self._operations.convert
        self._add([convert(value, out)], [convert(of_out, gradient)])

    def _dropout(self, mask: np.ndarray, rate: float, whole: Chunk) -> Optional[Array]:
        """The factors of a dropout; None at rate 0."""
        if not rate:
            return None
        chunk = self._own(whole)
        self.masks.append(Mask(mask.reshape(chunk.pairs, -1), rate, chunk.first))
        return self._memory.operand(mask)

    def _multiply(
        self, source: Array, factors: Optional[Array], out: Array, product: Array
    ) -> List[Operation]:
        """Multiply by factors, if any, and round; ``product`` holds what is rounded."""
        if factors is None:
            return [self._operations.convert(source, out)]
        if source.layout.kind == out.layout.kind:
            return [self._operations.multiply(source, factors, out)]
        multiplied = self._operations.multiply(source, factors, product)
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

        def rows(buffer: Optional[Buffer]) -> Any:
            return None if buffer is None else self._rows(buffer, whole)

        factors, run = None, self._operations.dense
        if mask is not None:
            factors = self._dropout(mask.rows(self._own(whole)), self._config.dropout, whole)
        steps = ("multiply", factors), ("add", rows(residual))
        forward = run(rows(source.value), product.dense, rows(out.value), *steps)
        backward: List[Operation] = []
        gradient = out.gradient
        if out.rounded and (factors is not None or gradient.kind != out.rounded.kind):
            gradient, dropped = out.rounded, self._memory.gradients.dropped
            backward += self._multiply(rows(out.gradient), factors, rows(gradient), rows(dropped))
        result, step = rows(source.gradient), ("add", rows(joined))
        backward.append(run(rows(gradient), product.dense, result, step, backward=True))
        self._add([forward], backward)
        self._products.append((product, gradient, source.value, whole))

    def _norm(
        self,
        trained: TrainedNorm,
        source: Tuple[Array, Array],
        out: Tuple[Array, Array],
        statistics: Sequence[Buffer],
        whole: Chunk,
    ) -> None:
        """A normalisation; its input and output come with their gradients."""
        rows: Dict[str, Memory] = {}
        for name, buffer in zip(("mean", "variance"), statistics):
            rows[name] = self._memory.operand(buffer.rows(self._own(whole))[:, 0])
        parameters = [Array.of(part) for part in trained.gradients[:, self._thread]]
        arrays = source[0], trained.norm, out[0], out[1], source[1], rows, parameters
        forward = self._operations.norm(source[0], trained.norm, out[0], rows)
        self._add([forward], [self._operations.norm_backward(*arrays)])
        self._norms.append(trained)

    def embeddings(
        self,
        trained: TrainedEmbeddings,
        own: EmbeddingTensors,
        whole: Chunk,
        sums: Tuple[Array, Array],
    ) -> Tensor:
        """Normalise, drop out and project sums, which come with their gradient."""
        chunk, backward = self._own(whole), []
        factors = self._dropout(own.mask.rows(chunk), self._config.dropout, whole)
        (normed, of_normed), (embedded, of_embedded) = (
            self._pair(tensor, whole) for tensor in (own.normed, own.embedded)
        )
        out = normed, of_embedded if factors is None else of_normed
        self._norm(trained.norm, sums, out, own.statistics, whole)
        if factors is not None:
            backward.append(self._operations.multiply(of_embedded, factors, of_normed))
        dropped = self._rows(own.dropped, whole)
        self._add(self._multiply(normed, factors, embedded, dropped), backward)
        if trained.projection is None:
            return own.embedded
        self._dense(trained.projection, own.embedded, own.projected, whole)
        return own.projected

    def layer(
        self,
        layer: TrainedLayer,
        of_keys: Activations,
        own: Activations,
        wholes: Tuple[Chunk, Chunk],
        positions: Optional[np.ndarray] = None,
        bias: Optional[Array] = None,
    ) -> None:
        """A layer with keys and values at all positions, and queries at all or at some.

        ``of_keys`` and ``own`` are the activations at the positions of the keys and of the queries,
        ``wholes`` the mini-batches of both. ``positions`` are the rows that are read, (B, n), and
        ``bias`` is added to the attention scores, (1, H, L, L).
        """
        g, (keys, queries), pair = self._memory.gradients, wholes, self._pair
        x_of_keys = Tensor(of_keys.x.value, g.x_of_keys)
        x_of_queries = Tensor(own.x.value, g.x_of_queries)
        added: Optional[Buffer] = g.x_of_queries
        if positions is not None:
            self._read(of_keys.x, x_of_queries, wholes, positions)
            added = None
        self._dense(layer.value, of_keys.x, of_keys.value, keys, g.x_of_keys)
        self._dense(layer.key, x_of_keys, of_keys.key, keys, added)
        self._dense(layer.query, x_of_queries, own.query, queries, g.attention_sum)
        self._attend(of_keys, own, wholes, positions, bias)
        masked = {"mask": own.attention_mask, "residual": own.x.value}
        self._dense(layer.output, own.context, own.attention_sum, queries, **masked)
        arrays = pair(own.attention_sum, queries), pair(own.middle, queries)
        self._norm(layer.attention_norm, *arrays, own.attention_statistics, queries)
        self._dense(layer.inner, own.middle, own.inner, queries, g.ffn_sum)
        self._activate(*pair(own.inner, queries), *pair(own.active, queries))
        masked = {"mask": own.ffn_mask, "residual": own.middle.value}
        self._dense(layer.outer, own.active, own.ffn_sum, queries, **masked)
        arrays = pair(own.ffn_sum, queries), pair(own.after, queries)
        self._norm(layer.ffn_norm, *arrays, own.ffn_statistics, queries)

    def _read(
        self, x: Tensor, out: Tensor, wholes: Tuple[Chunk, Chunk], positions: np.ndarray
    ) -> None:
        """Gather the rows that are read; backward, add their gradients to those of all rows."""
        keys, own = wholes[0], self._own(wholes[1])
        rows = x.value.rows(keys), positions.reshape(-1), 0, out.value.rows(own), "clip"
        of_rows = x.gradient.rows(keys), positions, out.gradient.rows(own)
        take = functools.partial(np.take, *rows)
        self._add([take], [functools.partial(_add_rows, *of_rows)])

    def _activate(self, source: Array, of_source: Array, out: Array, of_out: Array) -> None:
        run, name = self._operations, self._config.activation
        backward = run.activation_backward(name, source, of_out, of_source)
        self._add([run.activation(name, source, out)], [backward])

    def _attend(
        self,
        of_keys: Activations,
        own: Activations,
        wholes: Tuple[Chunk, Chunk],
        positions: Optional[np.ndarray],
        bias: Optional[Array],
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
        self._add([forward], [of_queries, of_keys_call])
        if bias is not None:
            self._add_bias(raw, of_scores, scores(g.bias_read), bias, positions)
        weights, of_weights = operand(scores(own.weights)), operand(scores(g.weights))
        arrays = operand(raw), weights, of_weights, operand(of_scores)
        self._add([run.softmax(*arrays[:2], training=True)], [run.softmax_backward(*arrays)])
        kept, of_kept = scores(own.weights), scores(g.weights)
        rate = self._config.attention_dropout
        mask = self._dropout(scores(own.kept_mask), rate, wholes[1])
        if mask is not None:
            kept, of_kept = scores(own.kept), scores(g.kept)
            backward = run.multiply(operand(of_kept), mask, of_weights)
            self._add([run.multiply(weights, mask, operand(kept))], [backward])
        of_values = product(kept.swapaxes(2, 3), of_context, of_value)
        of_kept_call = product(of_context, value.swapaxes(2, 3), of_kept)
        self._add([product(kept, value, context)], [of_values, of_kept_call])

    def _add_bias(
        self,
        raw: np.ndarray,
        of_scores: np.ndarray,
        read: np.ndarray,
        bias: Array,
        positions: Optional[np.ndarray],
    ) -> None:
        """Add biases by relative position to the scores, and sum their gradients.

        ``read`` holds the biases of the positions that are read, (B, H, n, L).
        """
        run, operand = self._operations, self._memory.operand
        shape, pairs = bias.layout.shape[1:], len(raw)
        size = int(np.prod(shape))
        total = self._memory.bias_sums.data[self._thread * size : (self._thread + 1) * size]
        if positions is None:
            ones = operand(self._memory.ones.data[:pairs].reshape(1, pairs))
            arrays = operand(of_scores.reshape(pairs, size)), operand(total.reshape(1, size))
            summed = run.product(ones, *arrays, ("sum", None))
            self._add([run.add(operand(raw), bias, operand(raw))], [summed])
            return
        copied = functools.partial(_copy_bias, bias, shape, positions, read)
        added = functools.partial(_add_bias, of_scores, positions, total.reshape(shape))
        self._add([copied, run.add(operand(raw), operand(read), operand(raw))], [added])

    def gradient_calls(self, addresses: Sequence[int], add: bool) -> List[Operation]:
        """Calls for a share of the parameters' gradients, over all pairs of the mini-batch.

        They write to arrays at the addresses of the block's parameters, or add to them.
        """
        if add not in self._gradient_calls:
            self._gradient_calls[add] = self._compile_gradients(add)
        calls, targets = self._gradient_calls[add]
        for target, parameter in targets:
            target.move(addresses[parameter])
        return calls

    def _compile_gradients(self, add: bool) -> Tuple[List[Operation], List[Tuple[External, int]]]:
        """The calls, and the arrays that they write with the indices of their parameters."""
        run, operand = self._operations, self._memory.operand
        calls: List[Operation] = []
        targets: List[Tuple[External, int]] = []
        steps = [("sum", None)] if add else []
        for product, gradient, source, whole in self._products:
            start, end = share_of(product.rows, self._thread, self._threads)
            if start == end:
                continue
            first = product.first + start
            weight = External((end - start, product.width), first * product.width)
            bias = External((1, end - start), first)
            columns = gradient.rows(whole)[:, start:end]
            calls.append(
                run.product(operand(columns.T), operand(source.rows(whole)), weight, *steps)
            )
            ones = operand(self._memory.ones.data[: whole.rows].reshape(1, whole.rows))
            calls.append(run.product(ones, operand(columns), bias, *steps))
            targets += [(weight, product.weight), (bias, product.weight + 1)]
        for norm in [] if self._thread else self._norms:
            for index, parts in enumerate(norm.gradients[:, : self._threads]):
                target = External(parts.shape[1:])
                calls.append(functools.partial(_sum_threads, target, parts, add))
                targets.append((target, norm.gain + index))
        return calls, targets


def _sum_threads(target: Array, parts: np.ndarray, add: bool) -> None:
    values = view(target.address, parts.shape[1])
    total = parts.sum(axis=0)
    values[:] = values + total if add else total


def _add_rows(target: np.ndarray, positions: np.ndarray, rows: np.ndarray) -> None:
    """Add rows to those at positions, of which a pair may have one several times.

    Shapes: `target` (B * L, C), `positions` (B, n), `rows` (B * n, C).
    """
    by_pair = rows.reshape(*positions.shape, -1)
    for column in range(positions.shape[1]):
        target[positions[:, column]] += by_pair[:, column]


def _copy_bias(bias: Array, shape: Sequence[int], positions: np.ndarray, out: np.ndarray) -> None:
    """Copy the biases, (H, L, L), of the positions that are read, (B, n), to (B, H, n, L)."""
    values = view(bias.address, int(np.prod(shape))).reshape(shape)
    np.copyto(out, values[:, positions % shape[-1]].swapaxes(0, 1))


def _add_bias(gradient: np.ndarray, positions: np.ndarray, total: np.ndarray) -> None:
    """Add the gradients of the scores, (B, H, n, L), of the positions that are read, (B, n)."""
    by_pair = as_float32(gradient)
    for pair, column in np.ndindex(*positions.shape):
        total[:, positions[pair, column] % total.shape[-1]] += by_pair[pair, :, column]
