"""Convolution of texts in training: forward with the words of a batch, and its sparse gradient.

A filter's greatest output comes from one position of a text, so the gradient of the outputs has one
element a filter and text. Where several positions share the maximum, each gets the gradient, as
MXNet's ``max`` gives it.

Shapes: n texts of P positions in all, k places of a window, F filters, D units of an embedding.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Union

import numpy as np
from scipy.sparse import csr_matrix

from wqa.engines.sparse.parameters import Filters
from wqa.engines.sparse.rows import Windows
from wqa.engines.sparse.threads import in_threads


class BatchWords(NamedTuple):
    """Distinct words of a batch.

    Shapes: `vectors` (2 + W, D), `words` (words,).
    """

    vectors: np.ndarray
    words: np.ndarray


class Convolved(NamedTuple):
    """Texts after the convolution, and what its gradient needs.

    Shapes: `texts` (n, F), `outputs` (P, F), `greatest` (n, F), `rows` (P, k), `related` (P, k).
    """

    texts: np.ndarray
    windows: Windows
    outputs: np.ndarray
    greatest: np.ndarray
    rows: np.ndarray
    related: np.ndarray


def word_table(vectors: np.ndarray, weight: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Products of a batch's words with the filters.

    Shapes: `vectors` (2 + W, D), `weight` (F, D + 1, k), `products` (D, k F), the result (2 + W, k,
    F).
    """
    filters, _, width = weight.shape
    table = np.empty((len(vectors), width, filters), np.float32)
    np.matmul(vectors, products, out=table.reshape(len(vectors), -1))
    table[0] = weight[:, -1].T
    return table


def convolve(
    batch: BatchWords,
    lengths: np.ndarray,
    related: np.ndarray,
    filters: Filters,
    products: np.ndarray,
) -> Convolved:
    """Encode the texts of a batch.

    Shapes: `lengths` (n,), `related` (words,), `products` (D, k F).
    """
    windows = Windows(lengths, filters.weight.shape[2])
    table = word_table(batch.vectors, filters.weight, products)
    outputs = windows.outputs(batch.words, related, table)
    greatest = windows.steps.maxima(outputs)
    texts = np.empty_like(greatest)
    texts[windows.steps.order] = greatest
    texts += filters.bias
    np.maximum(texts, 0, out=texts)
    rows = np.maximum(windows.pad(batch.words), 1)[windows.places]
    return Convolved(texts, windows, outputs, greatest, rows, windows.pad(related)[windows.places])


def filter_gradients(
    batch: BatchWords,
    done: Convolved,
    gradient: np.ndarray,
    threads: int,
    sources: Optional[np.ndarray] = None,
) -> Filters:
    """Gradients of the filters.

    Shapes: `gradient` (n, F), `sources` (P,).
    """
    gradient = np.where(done.texts > 0, gradient, 0)
    filters, places = gradient.shape[1], done.rows.shape[1]
    matrix = _position_gradients(done, gradient)  # (F, P)
    weight = np.empty((filters, batch.vectors.shape[1] + 1, places), np.float32)
    weight[:, -1] = matrix @ done.related
    of_place: Union[_SparseProducts, _DenseProducts] = _SparseProducts(batch, done, matrix)
    if sources is not None:
        of_place = _DenseProducts(batch, done, matrix, sources)
    products = in_threads(of_place.product, range(places), threads)
    for place, product in enumerate(products):
        weight[:, :-1, place] = product
    # Not the sum of the gradient: each of several greatest outputs adds the bias.
    return Filters(weight, np.asarray(matrix.sum(axis=1)).ravel())


def _position_gradients(done: Convolved, gradient: np.ndarray) -> csr_matrix:
    """Gradient of the outputs, (F, P): that of the text at its greatest outputs."""
    steps, filters = done.windows.steps, gradient.shape[1]
    by_rank = gradient[steps.order]
    is_greatest = np.empty(done.outputs.shape, bool)
    for start, end in steps:
        own = slice(start, end)
        np.equal(done.outputs[own], done.greatest[: end - start], out=is_greatest[own])
    positions, columns = np.divmod(np.flatnonzero(is_greatest), filters)
    values = by_rank[steps.ranks[positions], columns]
    is_active = values != 0  # the activation passes nothing to filters below 0
    positions, columns, values = positions[is_active], columns[is_active], values[is_active]
    counts = np.bincount(positions, minlength=len(is_greatest))
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    matrix = csr_matrix((values, columns.astype(np.int32), ends), shape=is_greatest.shape)
    return matrix.T.tocsr()


class _SparseProducts(NamedTuple):
    """Gradients of the weights of a place, from the words of the greatest outputs alone."""

    batch: BatchWords
    done: Convolved
    matrix: csr_matrix  # (F, P)

    def product(self, place: int) -> np.ndarray:
        """(F, D) gradient."""
        matrix, vectors = self.matrix, self.batch.vectors
        words = self.done.rows[:, place].astype(np.int32)[matrix.indices]
        shape = (matrix.shape[0], len(vectors))
        return csr_matrix((matrix.data, words, matrix.indptr), shape=shape) @ vectors


class _DenseProducts:
    """Gradients of the weights of a place, where many texts have the same windows."""

    def __init__(
        self, batch: BatchWords, done: Convolved, matrix: csr_matrix, sources: np.ndarray
    ) -> None:
        count = int(sources.max()) + 1
        first = np.empty(count, np.intp)
        first[sources] = np.arange(len(sources))
        self._rows, self._vectors = done.rows[first], batch.vectors  # (S, k)
        ones = np.ones(len(sources), np.float32)
        ends = np.arange(len(sources) + 1)
        merge = csr_matrix((ones, sources, ends), shape=(len(sources), count))
        self._gradients = (matrix @ merge).toarray()  # (F, S)

    def product(self, place: int) -> np.ndarray:
        """(F, D) gradient."""
        return self._gradients @ self._vectors[self._rows[:, place]]
