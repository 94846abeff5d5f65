"""Labelled pairs to train on: encoded once, from questions in memory or from a store on disk."""

from __future__ import annotations

import sys
from typing import Iterable, List, Optional, Tuple

import numpy as np
from tqdm import tqdm

from wqa.data import Question
from wqa.data.filters import FILTERS
from wqa.errors import DataError, OptionError, shorten
from wqa.text import (
    EncodedPair,
    PairEncoder,
    PairStore,
    bucketed,
    pad_pairs,
    plan_batches,
    plan_by_question,
)

#: What an epoch shuffles: all pairs, or blocks of whole questions, which reads a store in long
#: runs.
SHUFFLES = ("pair", "question")


class Pairs:
    """Pairs as one flat list, whose batches the trainer asks for.

    Attributes
    ----------
    lengths : numpy.ndarray
        (N,) tokens of each pair.
    questions : numpy.ndarray
        (N,) number of each pair's question, ascending.
    most : int
        Greatest length of a pair.
    """

    lengths: np.ndarray
    questions: np.ndarray

    def __init__(self, encoder: PairEncoder, shuffle: str = "pair") -> None:
        if shuffle not in SHUFFLES:
            raise OptionError("--shuffle", shorten(shuffle), "one of " + ", ".join(SHUFFLES))
        self._padding_id = encoder.tokenizer.padding_id
        self._typed = encoder.tokenizer.pair_form == "bert"
        self.most, self._shuffle = encoder.max_length, shuffle

    def __len__(self) -> int:
        return len(self.lengths)

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> List[np.ndarray]:
        """Batches of an epoch.

        Parameters
        ----------
        tokens : int
            Budget of a batch, padding included.
        rng : numpy.random.Generator, optional
            Shuffles; how many batches there are does not depend on it.

        Returns
        -------
        list of numpy.ndarray
            Indices of pairs.
        """
        if self._shuffle == "question":
            return plan_by_question(self.lengths, self.questions, tokens, rng)
        return plan_batches(self.lengths, tokens, rng)

    def batch(self, indices: np.ndarray) -> Tuple[np.ndarray, ...]:
        """Lay a batch out.

        Parameters
        ----------
        indices : numpy.ndarray

        Returns
        -------
        token_ids, token_types, valid_length, labels : numpy.ndarray
            (B, L), (B, L), (B,) and (B,); L is bucketed.
        """
        length = bucketed(int(self.lengths[indices].max()), self.most)
        pairs, labels = self.take(indices)
        return (*pad_pairs(pairs, length, self._padding_id, self._typed), labels)

    def take(self, indices: np.ndarray) -> Tuple[List[EncodedPair], np.ndarray]:
        """Pairs and their labels, (B,) float32, by index."""
        raise NotImplementedError


class TrainingPairs(Pairs):
    """Pairs of questions with their labelled candidates, in memory.

    Parameters
    ----------
    questions : iterable of Question
        Labelled; candidates without a token are left out.
    encoder : PairEncoder
    shuffle : {"pair", "question"}

    Raises
    ------
    DataError
        If a candidate has no label, or nothing is left to train on.
    """

    def __init__(
        self, questions: Iterable[Question], encoder: PairEncoder, shuffle: str = "pair"
    ) -> None:
        super().__init__(encoder, shuffle)
        self._pairs: List[EncodedPair] = []
        labels: List[int] = []
        numbers: List[int] = []
        for number, question in enumerate(
            tqdm(questions, desc="encoding", unit="question", delay=2, file=sys.stderr)
        ):
            for pair, label in zip(
                encoder.encode(question.question, question.texts, question.id), question.labels
            ):
                if label is None:
                    raise DataError(
                        f"question {shorten(question.id)}",
                        "a candidate has no label",
                        "a label, 0 or 1, on each candidate to train on",
                    )
                if not pair.empty:
                    self._pairs.append(pair)
                    labels.append(label)
                    numbers.append(number)
        if not self._pairs:
            raise DataError(
                "--train",
                "no labelled candidate is left",
                "at least one question",
                "check --train-filter",
            )
        self._labels = np.array(labels, dtype=np.float32)
        self.questions = np.array(numbers)
        self.lengths = np.array([len(pair.token_ids) for pair in self._pairs])

    def take(self, indices: np.ndarray) -> Tuple[List[EncodedPair], np.ndarray]:
        return [self._pairs[index] for index in indices], self._labels[indices]


class StoredPairs(Pairs):
    """Pairs of a store, read as batches ask for them.

    Parameters
    ----------
    store : PairStore
    encoder : PairEncoder
        That the store was made with.
    filter : str
        Which questions count, as `wqa.data.filter_questions` knows them.
    shuffle : {"pair", "question"}

    Raises
    ------
    DataError
        If the store was made with another encoder, or nothing is left to train on.
    """

    def __init__(
        self, store: PairStore, encoder: PairEncoder, filter: str = "all", shuffle: str = "pair"
    ) -> None:
        super().__init__(encoder, shuffle)
        store.check_fits(encoder)
        if filter not in FILTERS:
            raise OptionError("--train-filter", shorten(filter), "one of " + ", ".join(FILTERS))
        self._store, tokenizer = store, encoder.tokenizer
        self._start, self._middle, self._end = (
            [tokenizer.start_id],
            encoder.middle,
            [tokenizer.separator_id],
        )
        lengths, questions = store.lengths(2 + len(self._middle)), store.question_of
        self._rows: Optional[np.ndarray] = None
        if filter != "all":
            correct = np.bincount(questions, store.labels, minlength=len(store.question_ends))
            counts = np.bincount(questions, minlength=len(store.question_ends))
            kept = (correct > 0) & ((filter != "clean") | (correct < counts))
            self._rows = np.flatnonzero(kept[questions]).astype(np.int32)
            lengths, questions = lengths[self._rows], questions[self._rows]
        self.lengths, self.questions = lengths, questions
        if not len(lengths):
            raise DataError(
                "--train",
                "no labelled candidate is left",
                "at least one question",
                "check --train-filter",
            )

    def take(self, indices: np.ndarray) -> Tuple[List[EncodedPair], np.ndarray]:
        store, rows = self._store, indices if self._rows is None else self._rows[indices]
        pairs = []
        for row in rows:
            question, candidate = store.question(store.question_of[row]), store.candidate(row)
            token_ids = np.concatenate(
                [self._start, question, self._middle, candidate, self._end]
            ).astype(np.int32)
            pairs.append(EncodedPair(token_ids, len(token_ids) - len(candidate) - 1, False, False))
        return pairs, store.labels[rows].astype(np.float32)
