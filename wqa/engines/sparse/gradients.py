"""Scores of a list network in MXNet's autograd graph, computed by sparse products on a CPU.

`ListGradients` computes the network forward and backward. Its threads share the lists of a batch.
MXNet keeps the parameters, the loss and the optimizer.

A filter's greatest output comes from one position of a text, so the gradient of the outputs has one
element a filter and text. Where several positions share the maximum, each gets the gradient, as
MXNet's ``max`` gives it.

Shapes: n texts of P positions in all, k places of a window, F filters, D units of an embedding.
"""

from __future__ import annotations

import functools
import threading
from typing import List, NamedTuple, Optional, Sequence, Union

import mxnet as mx
import numpy as np
from mxnet import autograd
from scipy.sparse import csr_matrix

from wqa.engines.onednn.trained import ADD, NULL, Gradient, record, view
from wqa.engines.sparse.lists import Relatedness, WordLists, lists_of_arrays
from wqa.engines.sparse.parameters import (
    Filters,
    ListParameters,
    list_parameters,
    network_parameters,
)
from wqa.engines.sparse.recurrence import Pass, run_layer, run_layer_backward
from wqa.engines.sparse.rows import (
    Distinct,
    Steps,
    Windows,
    combine,
    combine_backward,
    word_weights,
)
from wqa.engines.sparse.threads import one_blas_thread
from wqa.engines.threads import in_threads
from wqa.models.network import Network


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


#: Least number of candidates' words in a thread's share of a batch.
_LEAST_WORDS = 1024


class ListGradients:
    """Computes the scores of a list network, and the gradients of its parameters.

    `attach` of the network takes it. The word embeddings are static: they are read once.

    Parameters
    ----------
    network : Network
        An initialised network that `list_obstacle` has nothing against, on the CPU.
    threads : int
        Number of threads that compute.
    """

    def __init__(self, network: Network, threads: int) -> None:
        mx.nd.waitall()
        self._parts = network_parameters(network)
        self._threads = threads
        self._vectors = network.vectors.data().asnumpy()
        self._relatedness = Relatedness(self._vectors)
        self._distinct = [Distinct(len(self._vectors)) for _ in range(threads)]
        self._lock = threading.Lock()

    def seed(self, seed: int) -> None:
        """Do nothing, as there are no dropouts.

        Parameters
        ----------
        seed : int
            Seed, as `wqa.engines.onednn.GradientEngine.seed` takes it.
        """

    def scores(self, *arrays: mx.nd.NDArray) -> mx.nd.NDArray:
        """Score candidates.

        Parameters
        ----------
        *arrays : mxnet.nd.NDArray
            The inputs of the network: ``question_ids``, ``question_valid``, ``candidate_ids``,
            ``candidate_valid`` and ``list_valid``.

        Returns
        -------
        mxnet.nd.NDArray
            (Q, n) float32 scores, 0 at padding.
        """
        candidates = arrays[2].shape[:2]
        lists = lists_of_arrays(*[array.asnumpy() for array in arrays])
        mx.nd.waitall()  # the optimizer may still be writing
        with self._lock, one_blas_thread():
            parameters = list_parameters(self._parts)
            shares = self._forward(lists, parameters)
        is_real = np.arange(candidates[1]) < lists.counts[:, None]
        padded = np.zeros(candidates, np.float32)
        padded[is_real] = np.concatenate([share.scores for share in shares])
        out = mx.nd.array(padded)

        def backward(outputs: Sequence[int], inputs: Sequence[Gradient]) -> None:
            gradient = view(outputs[0], is_real.size).reshape(is_real.shape)[is_real]
            with self._lock, one_blas_thread():
                gradients = self._backward(shares, parameters, gradient)
            for target, values in zip(inputs, gradients):
                _store(target, values)

        if autograd.is_recording():
            record([parameter.data() for parameter in self._parts], [out], backward)
        return out

    def _forward(self, lists: WordLists, parameters: ListParameters) -> List[_Forward]:
        """Scores of a batch in shares, one for each thread if there are words enough."""
        words = len(lists.candidate_ids)
        shares = lists.groups(max(_LEAST_WORDS, -(-words // self._threads)))
        products = [word_weights(filters.weight) for filters in parameters[:2]]

        def forward(number: int) -> _Forward:
            # A thread takes every so many shares, so that it has a `Distinct` of its own.
            distinct = self._distinct[number % self._threads]
            return self._forward_share(shares[number], parameters, products, distinct)

        return in_threads(forward, range(len(shares)), self._threads)

    def _forward_share(
        self,
        lists: WordLists,
        parameters: ListParameters,
        products: Sequence[np.ndarray],
        distinct: Distinct,
    ) -> _Forward:
        of_questions, of_candidates = self._relatedness(lists)
        repeated, lengths = lists.repeated_questions()
        question_words = self._words(lists.question_ids, distinct)
        question_words = question_words._replace(words=question_words.words[repeated])
        candidate_words = self._words(lists.candidate_ids, distinct)
        question, candidate = parameters[:2]
        questions = convolve(question_words, lengths, of_questions, question, products[0])
        lengths = lists.candidate_lengths
        candidates = convolve(candidate_words, lengths, of_candidates, candidate, products[1])
        pairs = combine(questions.texts, candidates.texts)
        hidden, steps = pairs, Steps(lists.counts)
        passes: List[Pass] = []
        if parameters.directions:
            hidden, passes = run_layer(parameters.directions, pairs, steps)
        scores = hidden @ parameters.weight[0] + parameters.bias
        # Windows of a question's words are the same for all its candidates.
        sources = repeated[questions.windows.steps.rows()]
        texts = (question_words, candidate_words, questions, candidates, sources)
        return _Forward(*texts, steps, pairs, passes, hidden, scores)

    def _words(self, ids: np.ndarray, distinct: Distinct) -> BatchWords:
        rows, indices = distinct.of(ids)
        vectors = np.zeros((2 + len(rows), self._vectors.shape[1]), np.float32)
        np.take(self._vectors, rows, axis=0, out=vectors[2:], mode="clip")
        return BatchWords(vectors, indices + 2)

    def _backward(
        self, shares: Sequence[_Forward], parameters: ListParameters, gradient: np.ndarray
    ) -> List[np.ndarray]:
        """Gradients of the parameters, in the order of `network_parameters`."""
        ends = np.cumsum([len(share.scores) for share in shares])
        gradients = np.split(gradient, ends[:-1])
        threads = self._threads if len(shares) == 1 else 1

        def backward(number: int) -> List[np.ndarray]:
            return self._backward_share(shares[number], parameters, gradients[number], threads)

        of_shares = in_threads(backward, range(len(shares)), self._threads)
        # Not in place: both biases of a recurrent layer have the same array.
        return [functools.reduce(np.add, arrays) for arrays in zip(*of_shares)]

    def _backward_share(
        self, done: _Forward, parameters: ListParameters, gradient: np.ndarray, threads: int
    ) -> List[np.ndarray]:
        weight = gradient @ done.hidden
        pairs = np.outer(gradient, parameters.weight)
        directions: List[np.ndarray] = []
        if parameters.directions:
            forward = (parameters.directions, done.pairs, done.passes)
            shares, pairs = run_layer_backward(*forward, pairs, done.steps)
            for share in shares:
                directions += share
        questions, candidates = combine_backward(done.questions.texts, done.candidates.texts, pairs)
        question = filter_gradients(
            done.question_words, done.questions, questions, threads, done.sources
        )
        candidate = filter_gradients(done.candidate_words, done.candidates, candidates, threads)
        return [*question, *candidate, *directions, weight, gradient.sum(keepdims=True)]


class _Forward(NamedTuple):
    """What the forward pass leaves for the backward pass."""

    question_words: BatchWords
    candidate_words: BatchWords
    questions: Convolved
    candidates: Convolved
    sources: np.ndarray
    steps: Steps
    pairs: np.ndarray
    passes: List[Pass]
    hidden: np.ndarray
    scores: np.ndarray


def _store(target: Gradient, values: np.ndarray) -> None:
    """Write or add a gradient as MXNet wants."""
    if target.request == NULL:
        return
    memory = view(target.address, values.size)
    if target.request == ADD:
        memory += values.ravel()
    else:
        memory[:] = values.ravel()
