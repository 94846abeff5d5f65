"""Operations with their gradients, as one thread of a training runs them."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.engines.onednn.kernels import MEAN, VARIANCE
from wqa.engines.onednn.library import Array, Layout, Memory
from wqa.engines.onednn.operations import Operations
from wqa.engines.onednn.training_buffers import Buffer, Chunk, Tensor, TrainingMemory
from wqa.engines.onednn.training_parameters import External, TrainedNorm, TrainedProduct, view

#: A compiled operation; calling it runs it.
Run = Callable[[], object]


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

    Each method appends an operation, whose gradients run before those of the ones before it.
    """

    def __init__(
        self, memory: TrainingMemory, operations: Operations, thread: int, threads: int
    ) -> None:
        self._memory, self._config, self._operations = memory, memory.config, operations
        self._thread, self._threads = thread, threads
        self.forward: List[Run] = []
        self.backward: List[Run] = []
        self.masks: List[Mask] = []
        #: Each product with the gradient of its output, its input, and the mini-batch.
        self._products: List[Tuple[TrainedProduct, Buffer, Buffer, Chunk]] = []
        self._norms: List[TrainedNorm] = []

    def own(self, whole: Chunk) -> Chunk:
        """The thread's chunk of a mini-batch."""
        return whole.split(self._threads)[self._thread]

    def add(self, forward: Sequence[Run], backward: Sequence[Run]) -> None:
        """Append calls."""
        self.forward += forward
        self.backward[:0] = backward

    def dropout(self, mask: Array, rate: float, chunk: Chunk) -> Optional[Array]:
        """The factors of a dropout; None at rate 0."""
        if not rate:
            return None
        values = mask.data[: int(np.prod(mask.layout.shape))]
        self.masks.append(Mask(values.reshape(chunk.pairs, -1), rate, chunk.first))
        return mask

    def multiply(
        self, source: Array, factors: Optional[Array], out: Array, product: Array
    ) -> List[Run]:
        """Calls that multiply by factors, if any, and round; ``product`` holds what is rounded."""
        if factors is None:
            return [self._operations.convert(source, out)]
        if source.layout.kind == out.layout.kind:
            return [self._operations.multiply(source, factors, out)]
        multiplied = self._operations.multiply(source, factors, product)
        return [multiplied, self._operations.convert(product, out)]

    def dense(
        self,
        product: TrainedProduct,
        source: Tensor,
        out: Tensor,
        whole: Chunk,
        factors: Optional[Array] = None,
        residual: Optional[Buffer] = None,
        joined: Optional[Buffer] = None,
    ) -> None:
        """A product, a dropout and the sum with a residual; ``joined`` is added to the gradient."""
        chunk = self.own(whole)

        def rows(buffer: Optional[Buffer]) -> Any:
            return None if buffer is None else buffer.rows(chunk)

        run, steps = self._operations.dense, (("multiply", factors), ("add", rows(residual)))
        forward = run(rows(source.value), product.dense, rows(out.value), *steps)
        backward: List[Run] = []
        gradient = out.gradient
        if out.rounded and (factors is not None or gradient.kind != out.rounded.kind):
            gradient, dropped = out.rounded, self._memory.gradients.dropped
            arrays = rows(out.gradient), factors, rows(gradient), rows(dropped)
            backward += self.multiply(*arrays)
        result, step = rows(source.gradient), ("add", rows(joined))
        backward.append(run(rows(gradient), product.dense, result, step, backward=True))
        self.add([forward], backward)
        self._products.append((product, gradient, source.value, whole))

    def norm(
        self,
        trained: TrainedNorm,
        source: Tuple[Array, Array],
        out: Tuple[Array, Array],
        statistics: Sequence[Array],
    ) -> None:
        """A normalisation; its input and output come with their gradients."""
        rows: Dict[int, Memory] = dict(zip((MEAN, VARIANCE), statistics))
        own = trained.gradients[:, self._thread]
        parameters = [Array(Layout(part.shape, "float32"), part) for part in own]
        forward = self._operations.norm(source[0], trained.norm, out[0], rows)
        backward = self._operations.norm_backward(
            source[0], trained.norm, out[0], out[1], source[1], rows, parameters
        )
        self.add([forward], [backward])
        self._norms.append(trained)

    def gradient_calls(self, add: bool) -> Tuple[List[Run], List[Tuple[External, int]]]:
        """Calls for a share of the parameters' gradients, over all pairs of the mini-batch.

        They write to arrays, which are returned with the indices of their parameters, or add.
        """
        product, steps = self._operations.product, [("sum", None)] if add else []
        calls: List[Run] = []
        targets = []
        for trained, gradient, source, whole in self._products:
            start, end = share_of(trained.rows, self._thread, self._threads)
            if start == end:
                continue
            first = trained.first + start
            weight = External((end - start, trained.width), first * trained.width)
            bias = External((1, end - start), first)
            transposed = gradient.columns(whole, start, end, transposed=True)
            calls.append(product(transposed, source.rows(whole), weight, *steps))
            ones = self._memory.ones.view((1, whole.rows))
            calls.append(product(ones, gradient.columns(whole, start, end), bias, *steps))
            targets += [(weight, trained.weight), (bias, trained.weight + 1)]
        for norm in [] if self._thread else self._norms:
            for index, parts in enumerate(norm.gradients[:, : self._threads]):
                target = External(parts.shape[1:])
                calls.append(functools.partial(_sum_threads, target, parts, add))
                targets.append((target, norm.gain + index))
        return calls, targets


def _sum_threads(target: Array, parts: np.ndarray, add: bool) -> None:
    values = view(target.address, parts.shape[1])
    if add:
        values += parts.sum(axis=0)
    else:
        np.sum(parts, axis=0, out=values)
