"""The words of corpora and how often each occurs, of which tables of word vectors are made.

Word vectors from a corpus alone: positive pointwise mutual information, factorized.

Levy, Goldberg and Dagan 2015 (Improving distributional similarity with lessons learned from word
embeddings): PPMI of co-occurrences in windows whose nearer words weigh more, with a smoothed
distribution of contexts, factorized by a truncated SVD; a word's vector is its row of ``U`` times a
power of the singular values.
"""

from __future__ import annotations

import collections
from typing import Iterable, Iterator, List, NamedTuple, Sequence

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import svds

from wqa.data import read_questions
from wqa.data.ir_names import is_ir_name
from wqa.errors import DataError, OptionError
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
    kept = []
    for word in sorted(counts):
        if counts[word] >= least_count and len(word) <= _LONGEST:
            kept.append(word)
    if not kept:
        raise DataError(
            ", ".join(map(str, paths)),
            f"no word occurs {least_count} times",
            "texts with words",
            "lower least_count",
        )
    kept.sort(key=counts.__getitem__, reverse=True)
    ordered = np.array([counts[word] for word in kept], np.int64)
    total = sum(counts.values())
    return WordCounts(kept, ordered, total)


#: Words to each side of a word that are its contexts.
WINDOW = 5
#: Power of the contexts' frequencies, and of the singular values (Levy et al. 2015, section 7).
_SMOOTHING, _POWER = 0.75, 0.5
#: Words of texts whose co-occurrences are counted at once.
_BLOCK = 1 << 20


def count_pairs(texts: Iterable[str], words: Sequence[str], window: int = WINDOW) -> csr_matrix:
    """Count how often words occur near one another in a text.

    Parameters
    ----------
    texts : iterable of str
        The texts, which are read once.
    words : sequence of str
        The V words that count; others take their positions but are not counted.
    window : int
        W, the number of words to each side. A word at distance d counts (W + 1 - d) / W.

    Returns
    -------
    scipy.sparse.csr_matrix
        (V, V) float64, symmetric.
    """
    size = len(words)
    following = csr_matrix((size, size), dtype=np.float64)
    for ids in _blocks(texts, words, window):
        for distance in range(1, window + 1):
            weight = (window + 1 - distance) / window
            pairs = _pairs_at(ids, distance, size)
            following = following + weight * pairs
    symmetric = following + following.T
    return symmetric.tocsr()


def _pairs_at(ids: np.ndarray, distance: int, size: int) -> csr_matrix:
    """How often the second word of a pair follows the first one at a distance."""
    left = ids[:-distance]
    right = ids[distance:]
    known = (left >= 0) & (right >= 0)
    places = left[known], right[known]
    ones = np.ones(len(places[0]))
    # Pairs that occur several times are added up.
    return csr_matrix((ones, places), shape=(size, size))


def _blocks(texts: Iterable[str], words: Sequence[str], window: int) -> Iterator[np.ndarray]:
    """Indices of the words of whole texts, -1 for others, and ``window`` times -1 after a text."""
    index = {word: number for number, word in enumerate(words)}
    block: List[int] = []
    for text in texts:
        block += [index.get(word, -1) for word in split_words(text)]
        block += [-1] * window
        if len(block) >= _BLOCK:
            yield np.array(block, np.int32)
            block = []
    if block:
        yield np.array(block, np.int32)


def ppmi(pairs: csr_matrix) -> csr_matrix:
    """Positive pointwise mutual information of words and their contexts.

    Parameters
    ----------
    pairs : scipy.sparse.csr_matrix
        (V, V) counts of words, the rows, with contexts, the columns.

    Returns
    -------
    scipy.sparse.csr_matrix
        (V, V) ``max(0, log(P(w, c) / (P(w) P'(c))))``, where ``P'`` is in proportion to the
        contexts' counts to the power of 0.75.
    """
    word_sums = np.asarray(pairs.sum(axis=1)).ravel()
    context_sums = np.asarray(pairs.sum(axis=0)).ravel() ** _SMOOTHING
    entries = pairs.tocoo()
    # P(w, c) / P(w): the number of all pairs cancels out.
    conditional = entries.data / word_sums[entries.row]
    of_contexts = context_sums[entries.col] / context_sums.sum()
    logarithms = np.log(conditional / of_contexts)
    values = np.maximum(logarithms, 0)
    information = csr_matrix((values, (entries.row, entries.col)), shape=pairs.shape)
    information.eliminate_zeros()
    return information


def factorize(information: csr_matrix, units: int) -> np.ndarray:
    """Factorize a matrix of words by contexts.

    Parameters
    ----------
    information : scipy.sparse.csr_matrix
        (V, V), as `ppmi` returns it.
    units : int
        D, the number of singular values to keep, below V.

    Returns
    -------
    numpy.ndarray
        (V, D) float64, the left singular vectors times the roots of the singular values, the
        greatest first. The signs are such that the greatest element of a column is positive.

    Raises
    ------
    OptionError
        If there are not more words than units.
    """
    size = information.shape[0]
    informative = int(np.count_nonzero(information.getnnz(axis=1)))
    most = min(size - 1, informative)  # the rank is no greater
    if units > most:
        raise OptionError(
            "units",
            f"{units} for {size} words, {informative} of which have a context above chance",
            f"at most {most}",
            "take more texts, or fewer units",
        )
    # A fixed start, for the same bits in each run.
    start = np.random.default_rng(0).standard_normal(size)
    left, values, _ = svds(information, k=units, v0=start)
    order = np.argsort(-values, kind="stable")
    scales = values[order] ** _POWER
    vectors = left[:, order] * scales
    greatest = np.abs(vectors).argmax(axis=0)
    columns = np.arange(units)
    signs = np.sign(vectors[greatest, columns])
    return vectors * signs
