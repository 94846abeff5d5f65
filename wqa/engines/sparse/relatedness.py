"""Word relatedness (Bonadiman and Moschitti 2020, section 4.1.1) of lists of candidates.

All cosines of a question's words with those of its candidates are one product.
"""

from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np

from wqa.engines.sparse.lists import WordLists

#: Words of candidates whose cosines are computed at once.
_WORDS = 4096
#: Below every cosine.
_LEAST = -2.0


def inverse_norms(vectors: np.ndarray) -> np.ndarray:
    """Factors that give embeddings the norm 1; an embedding of zeros keeps its cosines of 0.

    Shapes: `vectors` (V, D), the result (V,).
    """
    norms = np.sqrt(np.einsum("vd,vd->v", vectors, vectors))
    return 1 / np.maximum(norms, np.float32(1e-12))


class Relatedness:
    """Greatest cosine of each word with the words of the other text.

    Shapes: `vectors` (V, D).
    """

    def __init__(self, vectors: np.ndarray) -> None:
        self._vectors, self._factors = vectors, inverse_norms(vectors)

    def __call__(self, lists: WordLists) -> Tuple[np.ndarray, np.ndarray]:
        """Relatedness of all words of lists.

        Shapes: `of_questions` (words,), `of_candidates` (words,).
        """
        questions, begins = self._questions(lists)
        lengths = np.repeat(lists.question_lengths, lists.counts)
        ends = np.concatenate([[0], np.cumsum(lists.candidate_lengths)])
        of_questions: List[np.ndarray] = []
        of_candidates = np.empty(len(lists.candidate_ids), np.float32)
        most = max(_WORDS, int(lists.candidate_lengths.max()))
        memory = np.empty((min(most, len(of_candidates)), self._vectors.shape[1]), np.float32)
        for runs in lists.batches(_WORDS):
            first, last = runs[0].first, runs[-1].last
            start, end = ends[first], ends[last]
            ids = lists.candidate_ids[start:end]
            vectors = np.take(self._vectors, ids, axis=0, out=memory[: len(ids)], mode="clip")
            factors = self._factors[ids, None]
            longest = int(lengths[first:last].max())
            cosines = np.full((len(ids), longest), _LEAST, np.float32)  # (M, N)
            for run in runs:
                rows = slice(ends[run.first] - start, ends[run.last] - start)
                words = int(lists.question_lengths[run.question])
                begin = begins[run.question]
                own = questions[begin : begin + _padded(words)]
                products = vectors[rows] @ own.T
                np.multiply(products[:, :words], factors[rows], out=cosines[rows, :words])
            np.max(cosines.T.copy(), axis=0, out=of_candidates[start:end])
            related = np.maximum.reduceat(cosines, ends[first:last] - start, axis=0)  # (n, N)
            is_word = np.arange(related.shape[1]) < lengths[first:last, None]
            of_questions.append(related[is_word])
        return np.concatenate(of_questions), of_candidates

    def _questions(self, lists: WordLists) -> Tuple[np.ndarray, np.ndarray]:
        """Words of questions, of norm 1, with zeros behind each question, and its first row."""
        lengths, ids = lists.question_lengths, lists.question_ids
        sizes = _padded(lengths)
        begins = np.cumsum(sizes) - sizes
        shifts = begins - (np.cumsum(lengths) - lengths)
        words = np.zeros((int(sizes.sum()), self._vectors.shape[1]), np.float32)
        places = np.arange(len(ids)) + np.repeat(shifts, lengths)
        words[places] = self._vectors[ids] * self._factors[ids, None]
        return words, begins


def _padded(words: Any) -> Any:
    """Multiples of 8 words, for which BLAS is up to three times as fast."""
    return -(-words // 8) * 8
