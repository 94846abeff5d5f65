"""Biases of attention scores by relative position, in ranking and in training.

A product with a second operand that is broadcast over pairs runs by oneDNN's reference loop, a
thousand times slower, and so does an addition of a part of a larger array. So the scores are added
to a contiguous array of their length by an operation of their own.
"""

from __future__ import annotations

import collections
import functools
import threading
from typing import List, Optional, Sequence

import mxnet as mx
import numpy as np

from wqa.config import BackboneConfig
from wqa.engines.inputs import as_float32
from wqa.engines.onednn.library import Array
from wqa.engines.onednn.operations import BufferView
from wqa.engines.onednn.padded import PaddedOperations, Run, Shape, Share
from wqa.engines.onednn.trained import view
from wqa.models.backbone import EncoderLayer
from wqa.models.masks import relative_bucket

#: Most numbers of the arrays that are kept, 64 MB: all lengths up to 160 of a base encoder.
KEPT = 1 << 24


class RelativeBias:
    """Biases of an encoder's attention scores, shared by its layers and by threads.

    Parameters
    ----------
    table : numpy.ndarray
        (buckets, H) biases.
    longest : int
        Greatest length of a pair.
    """

    def __init__(self, table: np.ndarray, longest: int) -> None:
        distances = mx.nd.arange(1 - longest, longest)
        buckets = relative_bucket(mx.nd, distances, len(table)).asnumpy().astype(int)
        #: (H, 2 longest - 1) biases by distance, from that of the farthest key before the query.
        self._by_distance = np.ascontiguousarray(table[buckets].T, np.float32)
        self._longest = longest
        self._arrays: collections.OrderedDict[int, np.ndarray] = collections.OrderedDict()
        self._kept, self._lock = 0, threading.Lock()

    @classmethod
    def of(cls, layers: Sequence[EncoderLayer], config: BackboneConfig) -> Optional[RelativeBias]:
        """Copy the table of an encoder's layers; None for encoders without one."""
        if not layers or layers[0].relative is None:
            return None
        return cls(layers[0].relative.weight.data().asnumpy(), config.max_positions)

    def matrix(self, length: int) -> np.ndarray:
        """Biases of all queries and keys of a pair.

        Shapes: the result (H, length, length).
        """
        with self._lock:
            if length not in self._arrays:
                self._arrays[length] = self.rows(np.arange(length), length).swapaxes(0, 1).copy()
                self._kept += self._arrays[length].size
                while self._kept > KEPT and len(self._arrays) > 1:
                    self._kept -= self._arrays.popitem(last=False)[1].size
            self._arrays.move_to_end(length)
            return self._arrays[length]

    def rows(self, positions: np.ndarray, length: int) -> np.ndarray:
        """Biases of queries at positions of pairs of one length.

        Shapes: `positions` (...), the result (..., H, length).
        """
        windows = np.lib.stride_tricks.sliding_window_view(self._by_distance, length, axis=1)
        # The window of a query begins with the distance to the first key.
        return windows.swapaxes(0, 1)[self._longest - 1 - positions]


class TrainedBias:
    """The biases of a slice of layers in training, (H, L, L), and their gradients.

    MXNet computes them from the table, and the gradient of the table from theirs. Each thread sums
    the gradients of its pairs over the layers of the slice.
    """

    def __init__(self, padded: PaddedOperations, call: int, length: int) -> None:
        self._padded, self._call, self._length = padded, call, length
        self._heads = padded.config.num_heads

    def forward(self, shape: Shape, queries: Shape, scores: BufferView) -> List[Run]:
        """Add the biases to the scores of a chunk, (B, H, Q, L)."""
        bias, runs = self._padded.bias(self._call, self._length), []
        if queries != shape:
            rows = self._padded.scores("bias", shape, queries, "float32")
            positions = self._padded.read_rows(self._call, queries)
            runs.append(functools.partial(self._copy_rows, positions, bias, rows))
            bias = rows
        return [*runs, self._padded.operations.add(scores, bias, scores)]

    def _copy_rows(self, positions: np.ndarray, bias: Array, target: Array) -> None:
        """Copy the biases of the positions that are read, (B, n)."""
        shape = (self._heads, self._length, self._length)
        values = view(bias.address, int(np.prod(shape))).reshape(shape)
        rows = values[:, positions % self._length].swapaxes(0, 1)  # (B, H, n, L)
        np.copyto(target.data[: rows.size].reshape(rows.shape), rows)

    def backward(
        self, shape: Shape, queries: Shape, gradient: BufferView, share: Share
    ) -> List[Run]:
        """Add the gradient of the scores of a chunk, (B, H, Q, L), to a thread's sum."""
        total = self._padded.bias_gradient(self._length, share)
        if queries != shape:
            positions = self._padded.read_rows(self._call, queries)
            return [functools.partial(self._add_rows, positions, gradient, total)]
        ones = self._padded.ones(shape.pairs)
        pairs = self._padded.by_pair("raw gradient", shape, gradient)
        return [self._padded.operations.product(ones, pairs, total, ("sum", None))]

    def _add_rows(self, positions: np.ndarray, gradient: Array, total: Array) -> None:
        """Add the gradients of the positions that are read, (B, n)."""
        (pairs, count), heads, length = positions.shape, self._heads, self._length
        values = as_float32(gradient.data[: pairs * heads * count * length])
        by_pair = values.reshape(pairs, heads, count, length)
        target = total.data[: heads * length**2].reshape(heads, length, length)
        for pair, column in np.ndindex(pairs, count):
            target[:, positions[pair, column] % length] += by_pair[pair, :, column]

    def clear(self, threads: int) -> None:
        """Set the sums of all threads to 0, before a slice runs backward."""
        for total in self._sums(threads):
            total[:] = 0

    def gradient(self, threads: int) -> np.ndarray:
        """Sum over the threads, in order.

        Shapes: the result (H L L,).
        """
        return np.sum(self._sums(threads), axis=0)

    def _sums(self, threads: int) -> List[np.ndarray]:
        shares = [Share(thread, threads) for thread in range(threads)]
        sums = [self._padded.bias_gradient(self._length, share) for share in shares]
        return [one.data[: self._heads * self._length**2] for one in sums]
