"""The words of corpora and how often each occurs, of which tables of word vectors are made."""

from __future__ import annotations

import collections
from typing import Iterator, List, NamedTuple, Sequence

import numpy as np

from wqa.data import read_questions
from wqa.data.ir_names import is_ir_name
from wqa.errors import DataError
from wqa.io.files import PathLike
from wqa.io.progress import with_bar
from wqa.text.words import split_words

#: Greatest length of a word of a vocabulary in characters; longer ones stay unknown.
_LONGEST = 256


class WordCounts(NamedTuple):
    """A vocabulary.

    Attributes
    ----------
    words : list of str
        V words, the most frequent first; words of equal frequency in the order of their characters.
    counts : numpy.ndarray
        (V,) int64 number of occurrences of each.
    total : int
        Number of occurrences of all words, of those that are left out too.
    """

    words: List[str]
    counts: np.ndarray
    total: int


def read_texts(paths: Sequence[PathLike], progress: bool = False) -> Iterator[str]:
    """Texts of files of questions: each question, and after it its candidates.

    Labels are not used. A text counts as often as the files hold it.

    Parameters
    ----------
    paths : sequence of str or path-like
        Files of questions, canonical JSONL, labelled or not; candidates are not needed.
    progress : bool
        Show a bar on standard error.

    Yields
    ------
    str
        The texts in their order.

    Raises
    ------
    DataError
        If a file cannot be read.
    """
    for path in paths:
        questions = read_questions(path, with_candidates=is_ir_name(path))
        for question in with_bar(questions, None, "reading texts", progress):
            yield question.question
            yield from question.texts


def count_words(
    paths: Sequence[PathLike], least_count: int = 1, progress: bool = False
) -> WordCounts:
    """Count the words of all texts of corpora.

    Parameters
    ----------
    paths : sequence of str or path-like
        Files of questions, as `read_texts` takes them.
    least_count : int
        Least number of occurrences of a word of the vocabulary.
    progress : bool
        Show a bar on standard error.

    Returns
    -------
    WordCounts
        The vocabulary.

    Raises
    ------
    DataError
        If a file cannot be read, or no word is as frequent.
    """
    counts: collections.Counter[str] = collections.Counter()
    for text in read_texts(paths, progress):
        counts.update(split_words(text))
    kept = [word for word in counts if counts[word] >= least_count and len(word) <= _LONGEST]
    if not kept:
        raise DataError(
            ", ".join(map(str, paths)),
            f"no word occurs {least_count} times",
            "texts with words",
            "lower least_count",
        )
    kept.sort(key=lambda word: (-counts[word], word))
    ordered = np.array([counts[word] for word in kept], np.int64)
    return WordCounts(kept, ordered, sum(counts.values()))


def sif_weights(counts: np.ndarray, total: int, smoothing: float) -> np.ndarray:
    """Weights of words by smooth inverse frequency (Arora, Liang and Ma 2017, section 3).

    Parameters
    ----------
    counts : numpy.ndarray
        (V,) number of occurrences of each word.
    total : int
        Number of occurrences of all words.
    smoothing : float
        ``a`` of ``a / (a + p(w))``; 0 for weights of 1.

    Returns
    -------
    numpy.ndarray
        (V,) float64 weights.
    """
    if not smoothing:
        return np.ones(len(counts))
    return smoothing / (smoothing + counts / total)
