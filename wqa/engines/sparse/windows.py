"""Convolutions of static word embeddings as products with a sparse matrix.

A filter's output at a position is the sum, over the words of its window, of the word's embedding
times the filter's weights at that place of the window, and of the word's relatedness times a
weight. The first products depend on the word alone: they are rows of a table. So all outputs of
texts are the product of a sparse matrix, with a 1 for each word of a window and its relatedness,
and that table.

Shapes: n texts of P positions in all, k places of a window, F filters, D units of an embedding.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from wqa.engines.sparse.steps import Steps


class Windows:
    """Windows around each word of texts, whose ends are padded.

    Parameters
    ----------
    lengths : numpy.ndarray
        (n,) number of words of each text, at least 1.
    width : int
        k, odd.

    Attributes
    ----------
    steps : Steps
        Order of the positions.
    places : numpy.ndarray
        (P, k) indices of the words of each window in what `pad` returns.
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

        Parameters
        ----------
        values : numpy.ndarray
            (P,) one number a word, text behind text.

        Returns
        -------
        numpy.ndarray
            (places,) of the same type; 0 at padding.
        """
        padded = np.zeros(self._size, values.dtype)
        padded[self._padded] = values
        return padded

    def outputs(self, words: np.ndarray, related: np.ndarray, table: np.ndarray) -> np.ndarray:
        """Outputs of all filters at all positions, without the bias.

        Parameters
        ----------
        words : numpy.ndarray
            (P,) index of each word in the table, text behind text; at least 2.
        related : numpy.ndarray
            (P,) float32 relatedness of each word.
        table : numpy.ndarray
            (rows, k, F) float32. Row 0 holds the weights of the relatedness, row 1 zeros, the rows
            from 2 on a word's embedding times the weights of each place.

        Returns
        -------
        numpy.ndarray
            (P, F) float32 in the order of the steps.
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
