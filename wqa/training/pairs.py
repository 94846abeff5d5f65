"""Labelled pairs to train on, tokenized once, in memory or in a store on disk."""

from __future__ import annotations

import sys
from typing import Iterable, List, Optional, Tuple

import numpy as np
from tqdm import tqdm

from wqa.data import Question
from wqa.data.filters import filter_rule
from wqa.errors import DataError, OptionError, shorten
from wqa.text import (
    PairEncoder,
    PairStore,
    TokenizedPairs,
    bucketed,
    pad_pairs,
    plan_batches,
    plan_by_question,
    tokenize_pairs,
)

#: What an epoch shuffles: all pairs, or blocks of whole questions. The blocks make long runs of
#: what is read from a store.
SHUFFLES = ("pair", "question")


class Pairs:
    """Labelled pairs as one flat list, and the batches of an epoch.

    Parameters
    ----------
    tokenized : TokenizedPairs
        The pairs' tokens, in memory or in a store.
    encoder : PairEncoder
        Assembles the pairs; the one that the texts were tokenized by.
    filter : {"all", "no-all-negative", "clean"}
        Which questions count, by the labels of their pairs.
    shuffle : {"pair", "question"}
        What an epoch shuffles: all pairs, or blocks of whole questions.

    Attributes
    ----------
    lengths : numpy.ndarray
        (N,) number of tokens of each pair.
    questions : numpy.ndarray
        (N,) question index of each pair, ascending.
    most : int
        Greatest length of a pair.

    Raises
    ------
    DataError
        If no pair is left to train on.
    OptionError
        If the filter or the shuffle is unknown.
    """

    def __init__(
        self,
        tokenized: TokenizedPairs,
        encoder: PairEncoder,
        filter: str = "all",
        shuffle: str = "pair",
    ) -> None:
        _check_options(filter, shuffle)
        self._tokenized = tokenized
        self._encoder = encoder
        self._shuffle = shuffle
        self.most = encoder.max_length
        self.lengths = tokenized.lengths(encoder.form.specials)
        self.questions = tokenized.question_of
        self._rows = _rows_of(tokenized, filter)
        if self._rows is not None:
            self.lengths = self.lengths[self._rows]
            self.questions = self.questions[self._rows]
        if not len(self):
            raise DataError(
                "training pairs",
                "no labelled candidate is left",
                "at least one question",
                "check the filter",
            )

    def __len__(self) -> int:
        return len(self.lengths)

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> List[np.ndarray]:
        """Group the pairs into the batches of an epoch.

        Parameters
        ----------
        tokens : int
            Token budget of a batch, padding included.
        rng : numpy.random.Generator, optional
            Shuffles. The number of batches does not depend on it.

        Returns
        -------
        list of numpy.ndarray
            Pair indices of each batch.
        """
        if self._shuffle == "question":
            return plan_by_question(self.lengths, self.questions, tokens, rng)
        return plan_batches(self.lengths, tokens, rng)

    def batch(self, indices: np.ndarray) -> Tuple[np.ndarray, ...]:
        """Assemble the pairs of a batch.

        Parameters
        ----------
        indices : numpy.ndarray
            Pair indices.

        Returns
        -------
        token_ids, token_types : numpy.ndarray
            (B, L), int32; L is bucketed.
        valid_length, labels : numpy.ndarray
            (B,), float32.
        """
        length = bucketed(int(self.lengths[indices].max()), self.most)
        rows = indices if self._rows is None else self._rows[indices]
        tokenized, encoder = self._tokenized, self._encoder
        pairs = []
        for row, question in zip(rows, self.questions[indices]):
            pair = encoder.assemble(tokenized.question(question), tokenized.candidate(row))
            pairs.append(pair)
        padded = pad_pairs(pairs, length, encoder.tokenizer.padding_id, encoder.form.typed)
        return (*padded, tokenized.labels[rows].astype(np.float32))


def _check_options(filter: str, shuffle: str) -> None:
    filter_rule(filter)
    if shuffle not in SHUFFLES:
        raise OptionError("shuffle", shorten(shuffle), "one of " + ", ".join(SHUFFLES))


def _rows_of(tokenized: TokenizedPairs, filter: str) -> Optional[np.ndarray]:
    """Indices of the pairs whose question a filter keeps; None if they are all."""
    rule = filter_rule(filter)
    count = len(tokenized.question_ends)
    # The pairs of a question are neighbours, so where it ends says how many it has.
    ends = np.searchsorted(tokenized.question_of, np.arange(count, dtype=np.int32), side="right")
    pairs = np.diff(ends, prepend=0)
    positives = np.bincount(tokenized.question_of[tokenized.labels == 1], minlength=count)
    kept = rule(positives, pairs - positives)
    if kept.all():
        return None
    return np.flatnonzero(kept[tokenized.question_of]).astype(np.int32)


class TrainingPairs(Pairs):
    """Pairs of questions with their labelled candidates, in memory.

    Parameters
    ----------
    questions : iterable of Question
        Labelled questions; candidates without a token are left out.
    encoder : PairEncoder
        Tokenizes the texts, and assembles the pairs.
    shuffle : {"pair", "question"}
        What an epoch shuffles: all pairs, or blocks of whole questions.
    filter : {"all", "no-all-negative", "clean"}
        Which questions count, by the labels of the candidates that have a token.

    Raises
    ------
    DataError
        If a candidate has no label, or no pair is left to train on.
    OptionError
        If the filter or the shuffle is unknown.
    """

    def __init__(
        self,
        questions: Iterable[Question],
        encoder: PairEncoder,
        shuffle: str = "pair",
        filter: str = "all",
    ) -> None:
        _check_options(filter, shuffle)  # before the questions are tokenized
        progress_bar = tqdm(questions, desc="encoding", unit="question", delay=2, file=sys.stderr)
        super().__init__(tokenize_pairs(progress_bar, encoder), encoder, filter, shuffle)


class StoredPairs(Pairs):
    """Pairs of a store; their tokens are read when a batch needs them.

    Parameters
    ----------
    store : PairStore
        The store.
    encoder : PairEncoder
        Assembles the pairs; the one that the store was made with.
    filter : {"all", "no-all-negative", "clean"}
        Which questions count, by the labels of the candidates that have a token.
    shuffle : {"pair", "question"}
        What an epoch shuffles: all pairs, or blocks of whole questions.

    Raises
    ------
    DataError
        If the store was made with another encoder, or no pair is left to train on.
    OptionError
        If the filter or the shuffle is unknown.
    """

    def __init__(
        self, store: PairStore, encoder: PairEncoder, filter: str = "all", shuffle: str = "pair"
    ) -> None:
        store.check_fits(encoder)
        super().__init__(store, encoder, filter, shuffle)
