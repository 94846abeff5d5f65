"""Scores of lists for ranking, from tables of words' products with the filters."""

from __future__ import annotations

from typing import List, NamedTuple

import numpy as np

from wqa.engines.sparse.lists import Relatedness, WordLists, stretches
from wqa.engines.sparse.parameters import Filters, ListParameters
from wqa.engines.sparse.recurrence import run_layer
from wqa.engines.sparse.rows import TABLE_BYTES, Steps, Windows, WordRows, combine
from wqa.engines.threads import in_threads

#: Positions whose outputs are computed at once, so that they stay in a processor's cache.
_POSITIONS = 2560
#: Words of the texts of a pass, so that a table of fewer rows than a vocabulary holds them all.
_PASS_WORDS = 1 << 15


class ListScorer:
    """Scores the candidates of questions by the parameters of a list network.

    It is not safe in several threads at once.

    Parameters
    ----------
    vectors : numpy.ndarray
        (V, D) float32 embeddings of all ids.
    parameters : ListParameters
        Parameters of the network; they are not read again.
    threads : int
        Number of threads that compute.
    most_bytes : int
        Most bytes of the tables of words.
    """

    def __init__(
        self,
        vectors: np.ndarray,
        parameters: ListParameters,
        threads: int = 1,
        most_bytes: int = TABLE_BYTES,
    ) -> None:
        self._relatedness = Relatedness(vectors)
        self._parameters, self._threads = parameters, threads
        # The words of questions are fewer than those of candidates.
        self._questions = _Side(vectors, parameters.question, most_bytes // 4)
        self._candidates = _Side(vectors, parameters.candidate, most_bytes - most_bytes // 4)

    def scores(self, lists: WordLists) -> np.ndarray:
        """Score candidates.

        Parameters
        ----------
        lists : WordLists
            Questions with their candidates, in the order in which a recurrent layer reads them.

        Returns
        -------
        numpy.ndarray
            (n,) float32.
        """
        groups = lists.groups(_PASS_WORDS)
        return np.concatenate([self._score_group(group) for group in groups])

    def _score_group(self, lists: WordLists) -> np.ndarray:
        if len(lists.counts) == 1:
            return self._score(lists, self._threads)
        # Then the threads only read the tables.
        self._questions.rows.rows(lists.question_ids)
        self._candidates.rows.rows(lists.candidate_ids)
        shares = lists.groups(-(-len(lists.candidate_ids) // self._threads))
        return np.concatenate(in_threads(self._score, shares, self._threads))

    def _score(self, lists: WordLists, threads: int = 1) -> np.ndarray:
        of_questions, of_candidates = self._relatedness(lists)
        words, lengths = lists.repeated_questions()
        question_texts = _Texts(lists.question_ids[words], lengths, of_questions)
        candidate_texts = _Texts(lists.candidate_ids, lists.candidate_lengths, of_candidates)
        questions = self._questions.encode(question_texts, threads)
        candidates = self._candidates.encode(candidate_texts, threads)
        hidden = combine(questions, candidates)
        if self._parameters.directions:
            hidden = run_layer(self._parameters.directions, hidden, Steps(lists.counts))
        return hidden @ self._parameters.weight[0] + self._parameters.bias


class _Texts(NamedTuple):
    """Texts behind one another."""

    ids: np.ndarray  # (words,)
    lengths: np.ndarray  # (n,)
    related: np.ndarray  # (words,)

    def parts(self, words: int) -> List[_Texts]:
        """Runs of texts of about so many words."""
        ends = np.cumsum(self.lengths)
        begins = ends - self.lengths
        parts = []
        for first, last in stretches(begins, words):
            own = slice(begins[first], ends[last - 1])
            parts.append(_Texts(self.ids[own], self.lengths[first:last], self.related[own]))
        return parts


class _Side:
    """The convolution of questions or of candidates."""

    def __init__(self, vectors: np.ndarray, filters: Filters, most_bytes: int) -> None:
        self._bias = filters.bias
        self._width = filters.weight.shape[2]
        self.rows = WordRows(vectors, filters.weight, most_bytes)

    def encode(self, texts: _Texts, threads: int) -> np.ndarray:
        """Encode texts, (n, F)."""
        encoded = []
        for part in texts.parts(_PASS_WORDS):
            encoded += self._encode(part, threads)
        return np.concatenate(encoded)

    def _encode(self, texts: _Texts, threads: int) -> List[np.ndarray]:
        """Encode texts whose words the table holds at once."""
        rows = self.rows.rows(texts.ids)
        # Below two parts the work takes less time than a second thread does to begin.
        parts = texts._replace(ids=rows).parts(_POSITIONS)
        return in_threads(self._greatest, parts, threads if len(rows) > 2 * _POSITIONS else 1)

    def _greatest(self, texts: _Texts) -> np.ndarray:
        windows = Windows(texts.lengths, self._width)
        outputs = windows.outputs(texts.ids, texts.related, self.rows.table)
        greatest = np.empty((len(texts.lengths), outputs.shape[1]), np.float32)
        greatest[windows.steps.order] = windows.steps.maxima(outputs)
        greatest += self._bias
        return np.maximum(greatest, 0, out=greatest)
