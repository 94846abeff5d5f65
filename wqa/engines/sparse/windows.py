"""Convolutions of static word embeddings as products with a sparse matrix.

A filter's output at a position is the sum, over the words of its window, of the word's embedding
times the filter's weights at that place of the window, and of the word's relatedness times a
weight. The first products depend on the word alone: they are rows of a table. So all outputs of
texts are the product of a sparse matrix, with a 1 for each word of a window and its relatedness,
and that table.

Shapes: n texts of P positions in all, k places of a window, F filters, D units of an embedding.

Sequences of different lengths, computed step by step: all of their first items, then all second.

Sequences are sorted by length, longest first, so that those that have a step stand at the start.
The items of a step are contiguous rows, and nothing is padded.
"""

from __future__ import annotations

from typing import Iterator, Tuple

import numpy as np
from scipy.sparse import csr_matrix


class Steps:
    """Order of the items of sequences: by step, then by sequence, longest sequence first.

    Shapes: `lengths` (n,), `order` (n,), `ranks` (items,), `steps` (items,), `starts` (longest +
    1,).
    """

    def __init__(self, lengths: np.ndarray) -> None:
        self.order = np.argsort(-lengths, kind="stable")
        self._lengths = lengths
        shorter = np.cumsum(np.bincount(lengths))[:-1]  # sequences that end before each step
        counts = len(lengths) - shorter
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self.steps = np.repeat(np.arange(len(counts)), counts)
        self.ranks = np.arange(len(self.steps)) - self.starts[self.steps]

    def __iter__(self) -> Iterator[Tuple[int, int]]:
        """First row and end of each step."""
        starts = self.starts.tolist()
        return zip(starts, starts[1:])

    def rows(self, backwards: bool = False) -> np.ndarray:
        """Item of each row, where the sequences stand behind one another.

        Shapes: the result (items,).
        """
        ends = np.cumsum(self._lengths)
        sequences = self.order[self.ranks]
        if backwards:
            return ends[sequences] - 1 - self.steps
        return (ends - self._lengths)[sequences] + self.steps

    def maxima(self, values: np.ndarray) -> np.ndarray:
        """Greatest value of each column over the items of each sequence.

        Shapes: `values` (items, columns), the result (n, columns).
        """
        best = values[: self.starts[1]].copy()
        for start, end in list(self)[1:]:
            first = best[: end - start]
            np.maximum(first, values[start:end], out=first)
        return best


class Windows:
    """Windows around each word of texts, whose ends are padded.

    Shapes: `lengths` (n,), `places` (P, k).
    """

    def __init__(self, lengths: np.ndarray, width: int) -> None:
        self.steps = Steps(lengths)
        margin = width // 2
        # Texts stand behind one another, with `margin` places of padding between them.
        shifts = margin * np.arange(1, len(lengths) + 1)
        self._padded = np.arange(len(self.steps.ranks)) + np.repeat(shifts, lengths)
        self._size = len(self._padded) + margin * (len(lengths) + 1)
        centres = self._padded[self.steps.rows()]
        self.places = centres[:, None] + np.arange(-margin, margin + 1)

    def pad(self, values: np.ndarray) -> np.ndarray:
        """Put a number of each word at its place between padding.

        Shapes: `values` (P,), the result (places,).
        """
        padded = np.zeros(self._size, values.dtype)
        padded[self._padded] = values
        return padded

    def outputs(self, words: np.ndarray, related: np.ndarray, table: np.ndarray) -> np.ndarray:
        """Outputs of all filters at all positions, without the bias.

        Shapes: `words` (P,), `related` (P,), `table` (rows, k, F), the result (P, F).
        """
        count, width = self.places.shape
        indices = np.empty((count, 2, width), np.int32)
        first_rows = np.maximum(self.pad(words), 1) * width
        np.take(first_rows, self.places, out=indices[:, 0], mode="clip")
        indices[:, 1] = 0
        indices += np.arange(width, dtype=np.int32)
        values = np.ones((count, 2, width), np.float32)
        np.take(self.pad(related), self.places, out=values[:, 1], mode="clip")
        ends = np.arange(0, 2 * width * count + 1, 2 * width, dtype=np.int32)
        rows = table.reshape(-1, table.shape[2])
        matrix = csr_matrix((values.ravel(), indices.ravel(), ends), shape=(count, len(rows)))
        return matrix @ rows
