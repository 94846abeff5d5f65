"""Biases of attention scores by relative position in ranking.

A product with a second operand that is broadcast over pairs runs by oneDNN's reference loop, a
thousand times slower, and so does an addition of a part of a larger array. So the scores are added
to a contiguous array of their length by an operation of their own.
"""

from __future__ import annotations

import functools
from typing import Optional, Sequence

import mxnet as mx
import numpy as np

from wqa.config import BackboneConfig
from wqa.models.backbone import EncoderLayer
from wqa.models.embeddings import relative_bucket

#: Lengths whose arrays are kept: those of a base encoder for 128 tokens have 786 kB.
KEPT = 64


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
        #: Biases of all queries and keys of a pair by its length, (H, length, length).
        self.matrix = functools.lru_cache(KEPT)(functools.partial(_matrix, self._by_distance))

    @classmethod
    def of(cls, layers: Sequence[EncoderLayer], config: BackboneConfig) -> Optional[RelativeBias]:
        """Copy the table of an encoder's layers; None for encoders without one."""
        if not layers or layers[0].relative is None:
            return None
        return cls(layers[0].relative.weight.data().asnumpy(), config.max_positions)

    def rows(self, positions: np.ndarray, length: int) -> np.ndarray:
        """Biases of queries at positions of pairs of one length.

        Shapes: `positions` (...), the result (..., H, length).
        """
        windows = np.lib.stride_tricks.sliding_window_view(self._by_distance, length, axis=1)
        # The window of a query begins with the distance to the first key.
        return windows.swapaxes(0, 1)[self._longest - 1 - positions]


def _matrix(by_distance: np.ndarray, length: int) -> np.ndarray:
    longest = (by_distance.shape[1] + 1) // 2
    windows = np.lib.stride_tricks.sliding_window_view(by_distance, length, axis=1)
    return np.ascontiguousarray(windows[:, longest - 1 - np.arange(length)])
