"""Labelled pairs to train on, tokenized once, in memory or in a store on disk."""

from __future__ import annotations

import logging
import sys
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

import numpy as np
from tqdm import tqdm

from wqa.data import Question
from wqa.data.records import Rule, filter_rule
from wqa.errors import DataError, check_choice
from wqa.text import (
    PairInputs,
    PairStore,
    TokenizedPairs,
    plan_batches,
    plan_by_question,
    tokenize_pairs,
)

LOGGER = logging.getLogger(__name__)

#: Units that an epoch shuffles: pairs, or blocks of whole questions. A store reads blocks in long
#: sequential runs.
SHUFFLES = ("pair", "question")


class TrainingPairs:
    """Labelled pairs as one flat list, and the batches of an epoch.

    Parameters
    ----------
    source : iterable of Question, or PairStore
        Labelled questions, whose candidates without a token are left out. Or a store of tokenized
        pairs, whose tokens are read when a batch needs them.
    inputs : PairInputs
        Tokenizes the texts, assembles the pairs, and says what to do with over-long questions. It
        must fit a store.
    shuffle : {"pair", "question"}
        Units that an epoch shuffles: pairs, or blocks of whole questions.
    filter : {"all", "no-all-negative", "clean"}
        Filter of questions by the labels of their pairs, which have a token.
    with_keys : bool
        Whether to compute the keys of questions' pairs, which teachers need.

    Attributes
    ----------
    lengths : numpy.ndarray
        Number of tokens of each pair, as `wqa.text.PairInputs.lengths` computes it.
    questions : numpy.ndarray
        (N,) question index of each pair, ascending.
    labels : numpy.ndarray
        (N,) label of each pair, 0 or 1.
    truncated : int
        Number of candidates that lost tokens to the length limit, before the filter.
    truncated_questions, skipped_questions : int
        Number of over-long questions that lost tokens, and that were left out.

    Raises
    ------
    DataError
        If no pair is left to train on, a candidate has no label, or the store was made with other
        inputs or is damaged.
    OptionError
        If the filter or the shuffle is unknown.
    """

    def __init__(
        self,
        source: Union[Iterable[Question], PairStore],
        inputs: PairInputs,
        shuffle: str = "pair",
        filter: str = "all",
        with_keys: bool = False,
    ) -> None:
        rule = filter_rule(filter)
        check_choice("shuffle", shuffle, SHUFFLES)
        tokenized: TokenizedPairs
        if isinstance(source, PairStore):
            source.check(inputs)
            tokenized = source
        else:
            progress = tqdm(source, desc="encoding", unit="question", delay=2, file=sys.stderr)
            tokenized = tokenize_pairs(progress, inputs, with_keys)
        self._tokenized, self._inputs, self._shuffle = tokenized, inputs, shuffle
        self.truncated_questions = tokenized.truncated_questions
        self.skipped_questions = tokenized.skipped_questions
        self.truncated = tokenized.truncated
        self._rows = _rows_of(tokenized, rule)
        kept: Any = slice(None) if self._rows is None else self._rows
        self.lengths = inputs.lengths(*tokenized.text_lengths())[kept]
        self.questions = tokenized.question_of[kept]
        self.labels = tokenized.labels[kept]
        if not len(self):
            problem, expected = "no labelled candidate is left", "at least one question"
            raise DataError("training pairs", problem, expected, "check the filter")
        if np.ptp(self.labels) == 0:
            problem = f"all {len(self):,} training pairs have label {self.labels[0]}"
            LOGGER.warning(f"{problem}: labels teach nothing without the other one")

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def keys(self) -> Optional[np.ndarray]:
        """(N,) key of each pair, as `wqa.data.scores.candidate_keys` computes it.

        None where the keys are not known. A filter's selection of them is made at each call, since
        only teachers need it, and once.
        """
        keys = self._tokenized.keys
        if keys is None or self._rows is None:
            return keys
        return keys[self._rows]

    @property
    def candidates(self) -> np.ndarray:
        """(N,) number of each pair's candidate, the same for candidates of equal tokens.

        They are numbered in the order in which they first occur, at each call.
        """
        rows = range(len(self)) if self._rows is None else self._rows
        numbers: Dict[bytes, int] = {}
        texts = (self._tokenized.candidate(row).tobytes() for row in rows)
        return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int32)

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> List[np.ndarray]:
        """Divide the pairs into the batches of an epoch.

        Parameters
        ----------
        tokens : int
            Token budget of a batch, padding included.
        rng : numpy.random.Generator, optional
            Generator that shuffles. The number of batches does not depend on it.

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
        tuple of numpy.ndarray
            The arrays of the inputs' ``names``, as their ``pad`` returns them, and the (B,) float32
            labels.
        """
        labels = self.labels[indices].astype(np.float32)
        return (*self._inputs.pad(self.assemble(indices)), labels)

    def assemble(self, indices: np.ndarray) -> List[Any]:
        """Assemble pairs, as the inputs do.

        Parameters
        ----------
        indices : numpy.ndarray
            Pair indices.

        Returns
        -------
        list of TextInput
            One pair an index; the inputs of a system may make others.
        """
        rows = indices if self._rows is None else self._rows[indices]
        tokenized, inputs = self._tokenized, self._inputs
        pairs = []
        for row, question in zip(rows, self.questions[indices]):
            pair = inputs.assemble(tokenized.question(question), tokenized.candidate(row))
            pairs.append(pair)
        return pairs


def _rows_of(tokenized: TokenizedPairs, rule: Rule) -> Optional[np.ndarray]:
    """Indices of the pairs whose question passes a filter; None if all do."""
    count = len(tokenized.question_ends)
    # The pairs of a question are neighbours, so that the ends give their number.
    ends = np.searchsorted(tokenized.question_of, np.arange(count, dtype=np.int32), side="right")
    pairs = np.diff(ends, prepend=0)
    positives = np.bincount(tokenized.question_of[tokenized.labels == 1], minlength=count)
    kept = rule(positives, pairs - positives)
    if kept.all():
        return None
    return np.flatnonzero(kept[tokenized.question_of]).astype(np.int32)
