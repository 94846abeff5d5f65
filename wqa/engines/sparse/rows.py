"""Rows of words: their products with filters, computed when they are needed, and pairs of texts."""

from __future__ import annotations

from typing import Tuple

import numpy as np

#: Most bytes of a table's rows. 60,000 words and the paper's filters would take 360 MB.
TABLE_BYTES = 1 << 28


class WordRows:
    """Products of words with the filters of a convolution, for the words that have occurred.

    A row is computed when its word first occurs, and then kept, up to a number of words. Beyond it
    all are forgotten, and the table fills anew with the words that occur from then on: frequent
    words return at once, and rare ones, of which most of a vocabulary consists, do not.

    Shapes: `vectors` (V, D), `weights` (F, D + 1, k).
    """

    def __init__(
        self, vectors: np.ndarray, weights: np.ndarray, most_bytes: int = TABLE_BYTES
    ) -> None:
        filters, _, width = weights.shape
        self._vectors = vectors
        self._weights = word_weights(weights)  # (D, k F)
        self._related = weights[:, -1].T  # (k, F)
        self._slots = np.zeros(len(vectors), np.int32)  # row of each word; 0 without one
        self._filled = 2
        self._allocate(min(len(vectors), most_bytes // (4 * width * filters)))

    @property
    def table(self) -> np.ndarray:
        """(rows, k, F) table as `wqa.engines.sparse.windows.Windows.outputs` takes it."""
        return self._table

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Rows of words, which stay where they are until the next call.

        Shapes: `ids` (words,), the result (words,).
        """
        rows = np.take(self._slots, ids, mode="clip")
        if rows.all():
            return rows
        missing = np.unique(ids[rows == 0])
        if self._filled + len(missing) > len(self._table):
            missing = np.unique(ids)
            self._forget(len(missing))
        start = self._filled
        self._filled += len(missing)  # first, so that an interrupt cannot give a row two words
        end = self._filled
        new = self._table[start:end].reshape(len(missing), -1)
        np.matmul(self._vectors[missing], self._weights, out=new)
        self._slots[missing] = np.arange(start, end, dtype=np.int32)
        return np.take(self._slots, ids, mode="clip")

    def _forget(self, needed: int) -> None:
        self._slots[:] = 0
        self._filled = 2
        if needed > len(self._table) - 2:
            self._allocate(needed)

    def _allocate(self, words: int) -> None:
        """Reserve memory, of which the system takes only what is written."""
        table = np.empty((2 + words, *self._related.shape), np.float32)
        table[0] = self._related
        table[1] = 0
        self._table = table


def word_weights(weights: np.ndarray) -> np.ndarray:
    """Weights of a convolution as the matrix that maps an embedding to its products.

    Shapes: `weights` (F, D + 1, k), the result (D, k F).
    """
    by_place = np.ascontiguousarray(weights[:, :-1].transpose(2, 0, 1))  # (k, F, D)
    return by_place.reshape(-1, by_place.shape[2]).T


class Distinct:
    """Finds the distinct ids among many.

    It is not safe in several threads at once.
    """

    def __init__(self, rows: int) -> None:
        self._last = np.zeros(rows, np.intp)  # where each id came last; stale for other ids

    def of(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Distinct ids.

        Shapes: `ids` (words,), `distinct` (W,), `indices` (words,).
        """
        numbers = np.arange(len(ids))
        self._last[ids] = numbers
        last = self._last[ids]
        is_last = last == numbers
        ranks = np.cumsum(is_last) - 1
        return ids[is_last], ranks[last]


def combine(questions: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Encoded pairs: ``[q * c; q - c]`` (Bonadiman and Moschitti 2020, section 4.1.2).

    Shapes: `questions, candidates` (n, F), the result (n, 2 F).
    """
    filters = questions.shape[1]
    pairs = np.empty((len(questions), 2 * filters), np.float32)
    np.multiply(questions, candidates, out=pairs[:, :filters])
    np.subtract(questions, candidates, out=pairs[:, filters:])
    return pairs


def combine_backward(
    questions: np.ndarray, candidates: np.ndarray, gradient: np.ndarray
) -> Tuple[np.ndarray, np.ndarray]:
    """Gradients of `combine`.

    Shapes: `questions, candidates` (n, F), `gradient` (n, 2 F), `questions, candidates` (n, F).
    """
    filters = questions.shape[1]
    product, difference = gradient[:, :filters], gradient[:, filters:]
    return product * candidates + difference, product * questions - difference
