"""Questions with their candidates as words, text behind text."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Tuple

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


def lists_of_arrays(
    question_ids: np.ndarray,
    question_valid: np.ndarray,
    candidate_ids: np.ndarray,
    candidate_valid: np.ndarray,
    list_valid: np.ndarray,
) -> WordLists:
    """Take the words out of padded arrays."""
    question_lengths = question_valid.astype(np.intp)
    counts = list_valid.astype(np.intp)
    in_question = np.arange(question_ids.shape[1]) < question_lengths[:, None]
    in_list = np.arange(candidate_ids.shape[1]) < counts[:, None]
    lengths = candidate_valid[in_list].astype(np.intp)
    in_candidate = np.arange(candidate_ids.shape[2]) < lengths[:, None]
    candidates = candidate_ids[in_list][in_candidate]
    return WordLists(question_ids[in_question], question_lengths, candidates, lengths, counts)
