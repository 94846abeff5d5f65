"""Labelled pairs, encoded once."""
from __future__ import annotations

import sys
from typing import Iterable, List, Tuple

import numpy as np
from tqdm import tqdm

from wqa.data import Question
from wqa.errors import DataError, shorten
from wqa.text import EncodedPair, PairEncoder, bucketed, pad_pairs


class TrainingPairs:
    """Pairs of questions with their labelled candidates, as one flat list.

    Parameters
    ----------
    questions : iterable of Question
        Labelled; candidates without a token are left out.
    encoder : PairEncoder

    Raises
    ------
    DataError
        If a candidate has no label, or nothing is left to train on.
    """

    def __init__(self, questions: Iterable[Question], encoder: PairEncoder) -> None:
        self._padding_id = encoder.tokenizer.padding_id
        self._typed = encoder.tokenizer.pair_form == "bert"
        self.most = encoder.max_length
        self._pairs: List[EncodedPair] = []
        labels: List[int] = []
        for question in tqdm(questions, desc="encoding", unit="question", delay=2, file=sys.stderr):
            for pair, label in zip(encoder.encode(question.question, question.texts, question.id), question.labels):
                if label is None:
                    raise DataError(f"question {shorten(question.id)}", "a candidate has no label",
                                    "a label, 0 or 1, on each candidate to train on")
                if not pair.empty:
                    self._pairs.append(pair)
                    labels.append(label)
        if not self._pairs:
            raise DataError("--train", "no labelled candidate is left", "at least one question", "check --train-filter")
        self.labels = np.array(labels, dtype=np.float32)
        self.lengths = np.array([len(pair.token_ids) for pair in self._pairs])

    def __len__(self) -> int:
        return len(self._pairs)

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
        pairs = [self._pairs[index] for index in indices]
        return (*pad_pairs(pairs, length, self._padding_id, self._typed), self.labels[indices])
