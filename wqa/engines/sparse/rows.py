"""Convolutions of static word embeddings as products with a sparse matrix.

A filter's output at a position is the sum, over the words of its window, of the word's embedding
times the filter's weights at that place of the window, and of the word's relatedness times a
weight. The first products depend on the word alone: they are rows of a table, which are computed
when they are needed. So all outputs of texts are the product of a sparse matrix, with a 1 for each
word of a window and its relatedness, and that table.

Sequences of different lengths are computed step by step: all of their first items, then all second.

Shapes: n texts of P positions in all, k places of a window, F filters, D units of an embedding.
"""

from __future__ import annotations

from typing import Any, Iterator, List, Tuple

import numpy as np
from scipy.sparse import csr_matrix


class Steps:
    """Order of the items of sequences: by step, then by sequence, longest sequence first.

    Shapes: `lengths` (n,), `order` (n,), `ranks` (items,), `steps` (items,), `starts` (longest +
    1,).
    """

    def __init__(self, lengths: np.ndarray) -> None:
        self.order = np.argsort(-lengths, kind="stable")
        self.lengths = lengths
        ended = np.bincount(lengths).cumsum()[:-1]  # sequences that end before each step
        counts = len(lengths) - ended
        self.starts = np.append(0, counts.cumsum())
        self.steps = np.arange(len(counts)).repeat(counts)
        starts = self.starts[self.steps]
        self.ranks = np.arange(len(starts)) - starts

    def __iter__(self) -> Iterator[Tuple[int, int]]:
        """First row and end of each step."""
        starts = self.starts.tolist()
        return zip(starts, starts[1:])

    def rows(self, backwards: bool = False) -> np.ndarray:
        """Item of each row, where the sequences stand behind one another.

        Shapes: the result (items,).
        """
        ends = np.cumsum(self.lengths)
        sequences = self.order[self.ranks]
        if backwards:
            return ends[sequences] - 1 - self.steps
        begins = ends - self.lengths
        return begins[sequences] + self.steps

    def maxima(self, values: np.ndarray) -> np.ndarray:
        """Greatest value of each column over the items of each sequence.

        Shapes: `values` (items, columns), the result (n, columns).
        """
        count = self.starts[1]
        best = values[:count].copy()
        for start, end in list(self)[1:]:
            longer = best[: end - start]
            np.maximum(longer, values[start:end], out=longer)
        return best


def window_outputs(
    steps: Steps,
    words: np.ndarray,
    related: np.ndarray,
    table: np.ndarray,
) -> np.ndarray:
    """Outputs of all filters at all positions, without the bias, in the order of the steps.

    Shapes: `words` (P,), `related` (P,), `table` (rows, k, F), the result (P, F).
    """
    count = len(words)
    width = table.shape[1]
    margin = width // 2
    # Texts stand behind one another, with `margin` places of padding between them.
    texts = len(steps.lengths)
    size = count + margin * (texts + 1)
    shifts = np.arange(1, texts + 1).repeat(steps.lengths)
    places = np.arange(count) + margin * shifts
    first_rows = np.full(size, width, words.dtype)  # the row of zeros
    first_rows[places] = words * width
    factors = np.zeros(size, related.dtype)
    factors[places] = related
    centres = places[steps.rows()]
    offsets = np.arange(-margin, margin + 1)
    windows = centres[:, None] + offsets  # (P, k)
    shape = (count, 2, width)
    indices = np.empty(shape, np.int32)
    np.take(first_rows, windows, out=indices[:, 0], mode="clip")
    indices[:, 1] = 0
    indices += np.arange(width, dtype=np.int32)
    values = np.ones(shape, np.float32)
    np.take(factors, windows, out=values[:, 1], mode="clip")
    size_of_row = 2 * width
    ends = np.arange(count + 1, dtype=np.int32) * size_of_row
    rows = table.reshape(-1, table.shape[2])
    parts = (values.ravel(), indices.ravel(), ends)
    matrix = csr_matrix(parts, shape=(count, len(rows)))
    return matrix @ rows


#: Words of candidates whose cosines are computed at once.
WORDS = 4096
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
        self,
        vectors: np.ndarray,
        weights: np.ndarray,
        most_bytes: int = TABLE_BYTES,
    ) -> None:
        filters, _, width = weights.shape
        self._vectors = vectors
        by_place = weights[:, :-1].transpose(2, 0, 1)
        by_place = np.ascontiguousarray(by_place)  # (k, F, D)
        by_place = by_place.reshape(width * filters, -1)
        self._weights = by_place.T  # (D, k F)
        self._related = weights[:, -1].T  # (k, F)
        self._slots = np.zeros(len(vectors), np.int32)  # row of each word; 0 without one
        self._filled = 2
        #: (rows, k, F) table as `window_outputs` takes it.
        most_words = most_bytes // (4 * width * filters)
        self.table = self._allocate(min(len(vectors), most_words))

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Rows of words, which stay where they are until the next call.

        Shapes: `ids` (words,), the result (words,).
        """
        rows = np.take(self._slots, ids, mode="clip")
        if rows.all():
            return rows
        missing = np.unique(ids[rows == 0])
        if self._filled + len(missing) > len(self.table):
            missing = np.unique(ids)
            self._slots[:] = 0
            self._filled = 2
            if len(missing) > len(self.table) - 2:
                self.table = self._allocate(len(missing))
        start = self._filled
        self._filled += len(missing)  # first, so that an interrupt cannot give a row two words
        end = self._filled
        new = self.table[start:end]
        new = new.reshape(len(missing), -1)
        vectors = self._vectors[missing]
        np.matmul(vectors, self._weights, out=new)
        self._slots[missing] = np.arange(start, end)
        return np.take(self._slots, ids, mode="clip")

    def _allocate(self, words: int) -> np.ndarray:
        """Reserve memory, of which the system takes only what is written."""
        shape = (2 + words, *self._related.shape)
        table = np.empty(shape, np.float32)
        table[0] = self._related
        table[1] = 0
        return table


class Relatedness:
    """Greatest cosine of each word with the words of the other text.

    Shapes: `vectors` (V, D).
    """

    def __init__(self, vectors: np.ndarray) -> None:
        squares = np.einsum("vd,vd->v", vectors, vectors)
        norms = np.sqrt(squares)
        # Factors that give embeddings the norm 1; an embedding of zeros keeps its cosines of 0.
        self._factors = 1 / np.maximum(norms, np.float32(1e-12))
        self._vectors = vectors

    def __call__(self, words_of_list: Any) -> Tuple[np.ndarray, np.ndarray]:
        """Relatedness of the question's words, for each candidate, and of the candidates' words.

        Shapes: the results (n N,), (words,).
        """
        question, words, lengths = words_of_list
        # Multiples of 8 words, for which BLAS is up to three times as fast.
        count, units = len(question), self._vectors.shape[1]
        rows = -(-count // 8) * 8
        own = np.zeros((rows, units), np.float32)
        own[:count] = self._vectors[question]
        own[:count] *= self._factors[question, None]
        ends = np.cumsum(lengths)
        begins = ends - lengths
        of_question, of_words = [], []
        for first, last in stretches(begins, WORDS):
            start = begins[first]
            end = ends[last - 1]
            ids = words[start:end]
            cosines = self._vectors[ids] @ own.T
            factors = self._factors[ids, None]
            cosines = cosines[:, :count] * factors
            by_question = cosines.T.copy()  # along the rows it is slower
            of_words.append(by_question.max(axis=0))
            starts = begins[first:last] - start
            greatest = np.maximum.reduceat(cosines, starts, axis=0)
            of_question.append(greatest.ravel())
        return np.concatenate(of_question), np.concatenate(of_words)


def stretches(begins: np.ndarray, length: int) -> List[Tuple[int, int]]:
    """Runs of items that begin in the same stretch of a given length.

    Shapes: `begins` (n,).
    """
    numbers = begins // length
    is_first = np.diff(numbers, prepend=-1)
    bounds = np.flatnonzero(is_first).tolist()
    ends = [*bounds[1:], len(begins)]
    return list(zip(bounds, ends))
