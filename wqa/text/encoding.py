"""Question and candidate to one token sequence, in BERT's or RoBERTa's form."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.errors import InputError, OptionError, QuestionTooLong, shorten
from wqa.text.tokenizers import Tokenizer

#: Tokens that a question must leave for its candidates.
LEAST_CANDIDATE_TOKENS = 16


class EncodedPair(NamedTuple):
    """One pair: its token ids, where the second segment starts, and what became of the
    candidate."""

    token_ids: np.ndarray  # (length,), int32
    boundary: int  # positions from here on are of type 1, where the encoder has types
    truncated: bool  # the candidate lost tokens to the length limit
    empty: bool  # the candidate has no tokens at all


class PairEncoder:
    """Encodes pairs as ``[CLS] q [SEP] c [SEP]`` or ``<s> q </s></s> c </s>``.

    Only the candidate is ever shortened.

    Parameters
    ----------
    tokenizer : Tokenizer
        Settles the form.
    max_length : int
        Greatest length of a pair, special tokens included.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int = 128) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length
        self._specials = 3 if tokenizer.pair_form == "bert" else 4
        if max_length < self._specials + 1 + LEAST_CANDIDATE_TOKENS:
            raise OptionError(
                "--max-length",
                max_length,
                f"at least {self._specials + 1 + LEAST_CANDIDATE_TOKENS} tokens",
            )

    def encode(self, question: str, candidates: Sequence[str], name: str = "") -> List[EncodedPair]:
        """Encode a question with each of its candidates.

        Parameters
        ----------
        question : str
        candidates : sequence of str
            An empty or blank one becomes a pair that is flagged ``empty``.
        name : str
            How messages call the question; its text by default.

        Returns
        -------
        list of EncodedPair
            One a candidate, in order.

        Raises
        ------
        InputError
            If the question is empty, or there is no candidate.
        QuestionTooLong
            If it leaves fewer than 16 tokens for its candidates.
        """
        first, rest, cut = self.segments(question, candidates, name)
        start, separator = self.tokenizer.start_id, self.tokenizer.separator_id
        head = [start, *first, *self.middle]
        return [
            EncodedPair(
                np.array([*head, *second, separator], dtype=np.int32),
                len(head),
                was_cut,
                not second,
            )
            for second, was_cut in zip(rest, cut)
        ]

    @property
    def middle(self) -> List[int]:
        """Separators between the question and the candidate."""
        separator = self.tokenizer.separator_id
        return [separator] if self.tokenizer.pair_form == "bert" else [separator, separator]

    def segments(
        self, question: str, candidates: Sequence[str], name: str = ""
    ) -> Tuple[List[int], List[List[int]], List[bool]]:
        """Tokens of a question and of its candidates, these cut to the room that the question
        leaves them.

        Parameters
        ----------
        question, candidates, name
            As `encode` takes them.

        Returns
        -------
        question : list of int
        candidates : list of list of int
        truncated : list of bool
            Which candidates lost tokens.

        Raises
        ------
        InputError, QuestionTooLong
            As `encode`.
        """
        name = f"question {shorten(name or question)}"
        if isinstance(candidates, str) or not isinstance(question, str):
            raise InputError(
                name, "not a string and a list of strings", "one question and its candidates"
            )
        if not len(candidates):
            raise InputError(name, "the candidate list is empty", "at least one candidate")
        first, *rest = self.tokenizer.encode([question, *candidates])
        if not first:
            raise InputError(name, "the question is empty", "text")
        room = self.max_length - self._specials - len(first)
        if room < LEAST_CANDIDATE_TOKENS:
            raise QuestionTooLong(
                name,
                f"its {len(first)} tokens leave {max(room, 0)} of {self.max_length} for candidates",
                f"at least {LEAST_CANDIDATE_TOKENS}",
                "shorten the question or raise --max-length",
            )
        return first, [second[:room] for second in rest], [len(second) > room for second in rest]


def pad_pairs(
    pairs: Sequence[EncodedPair], length: int, padding_id: int, typed: bool
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lay pairs out as one padded batch.

    Parameters
    ----------
    pairs : sequence of EncodedPair
    length : int
        Columns; at least that of the longest pair.
    padding_id : int
    typed : bool
        Whether the encoder tells the segments apart by token type.

    Returns
    -------
    token_ids, token_types : numpy.ndarray
        (batch, length), int32.
    valid_length : numpy.ndarray
        (batch,), float32.
    """
    token_ids = np.full((len(pairs), length), padding_id, dtype=np.int32)
    token_types = np.zeros((len(pairs), length), dtype=np.int32)
    for row, pair in enumerate(pairs):
        token_ids[row, : len(pair.token_ids)] = pair.token_ids
        if typed:
            token_types[row, pair.boundary : len(pair.token_ids)] = 1
    return (
        token_ids,
        token_types,
        np.array([len(pair.token_ids) for pair in pairs], dtype=np.float32),
    )
