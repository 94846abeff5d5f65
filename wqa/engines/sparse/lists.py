"""Questions with their candidates as words, text behind text, and their words' relatedness."""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple, Tuple

import numpy as np


class Run(NamedTuple):
    """Candidates of one question, from ``first`` to before ``last``."""

    question: int
    first: int
    last: int


class WordLists(NamedTuple):
    """Questions with their candidates, none of them without a word.

    Attributes
    ----------
    question_ids : numpy.ndarray
        (words,) integer ids of the words of all questions.
    question_lengths : numpy.ndarray
        (Q,) number of words of each question.
    candidate_ids : numpy.ndarray
        (words,) integer ids of the words of all candidates.
    candidate_lengths : numpy.ndarray
        (n,) number of words of each candidate.
    counts : numpy.ndarray
        (Q,) number of candidates of each question.
    """

    question_ids: np.ndarray
    question_lengths: np.ndarray
    candidate_ids: np.ndarray
    candidate_lengths: np.ndarray
    counts: np.ndarray

    def groups(self, words: int) -> List[WordLists]:
        """Questions in groups of about so many words of candidates.

        Parameters
        ----------
        words : int
            Words of the candidates of a group; a longer list is a group of its own, and a group may
            end with a list that does not fit as a whole.

        Returns
        -------
        list of WordLists
            The groups, in order.
        """
        ends = np.cumsum(self.counts)
        word_ends = np.concatenate([[0], np.cumsum(self.candidate_lengths)])
        question_ends = np.concatenate([[0], np.cumsum(self.question_lengths)])
        begins = word_ends[ends - self.counts]
        groups = []
        for first, last in stretches(begins, words):
            candidates = slice(ends[first] - self.counts[first], ends[last - 1])
            groups.append(
                WordLists(
                    self.question_ids[question_ends[first] : question_ends[last]],
                    self.question_lengths[first:last],
                    self.candidate_ids[word_ends[candidates.start] : word_ends[candidates.stop]],
                    self.candidate_lengths[candidates],
                    self.counts[first:last],
                )
            )
        return groups

    def batches(self, words: int) -> Iterator[List[Run]]:
        """Candidates in batches of at most so many words.

        Parameters
        ----------
        words : int
            Most words of the candidates of a batch; a longer candidate is a batch of its own.

        Yields
        ------
        list of Run
            Candidates of each question.
        """
        lengths = self.candidate_lengths.tolist()
        last = total = 0
        runs: List[Run] = []
        for question, count in enumerate(self.counts.tolist()):
            first, end = last, last + count
            while last < end:
                total += lengths[last]
                if total > words and (runs or last > first):
                    if last > first:
                        runs.append(Run(question, first, last))
                    yield runs
                    runs, first, total = [], last, lengths[last]
                last += 1
            runs.append(Run(question, first, end))
        yield runs

    def repeated_questions(self) -> Tuple[np.ndarray, np.ndarray]:
        """Words of each candidate's question, candidate by candidate.

        Returns
        -------
        words : numpy.ndarray
            (words,) index in ``question_ids``.
        lengths : numpy.ndarray
            (n,) number of words.
        """
        lengths = np.repeat(self.question_lengths, self.counts)
        firsts = np.cumsum(self.question_lengths) - self.question_lengths
        begins = np.cumsum(lengths) - lengths
        shifts = np.repeat(np.repeat(firsts, self.counts) - begins, lengths)
        return np.arange(len(shifts)) + shifts, lengths


def stretches(begins: np.ndarray, length: int) -> List[Tuple[int, int]]:
    """Runs of items that begin in the same stretch of a given length.

    Shapes: `begins` (n,).
    """
    bounds = np.flatnonzero(np.diff(begins // length, prepend=-1)).tolist()
    return list(zip(bounds, [*bounds[1:], len(begins)]))


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
