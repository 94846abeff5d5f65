"""Encodes a question and a candidate as one token sequence, in BERT's or RoBERTa's form."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple, Union

import numpy as np

from wqa.config import PAIR_FORMS
from wqa.errors import InputError, OptionError, QuestionTooLong, shorten
from wqa.text.tokenizers import Tokenizer

#: Tokens that a question must leave for its candidates.
LEAST_CANDIDATE_TOKENS = 16

TokenIds = Union[Sequence[int], np.ndarray]


class Encoded(NamedTuple):
    """One input of an encoder.

    Attributes
    ----------
    token_ids : numpy.ndarray
        (length,) int32, special tokens included.
    boundary : int
        Position at which the second segment, the candidate's, starts. Positions from it on have
        token type 1 in an encoder that has token types.
    truncated : bool
        Whether the candidate lost tokens to the length limit.
    empty : bool
        Whether the candidate has no token.
    """

    token_ids: np.ndarray
    boundary: int
    truncated: bool
    empty: bool


class Segments(NamedTuple):
    """Token ids of a question and its candidates, without special tokens.

    Attributes
    ----------
    question : list of int
        Token ids of the question.
    candidates : list of list of int
        Token ids of each candidate, cut to the room that the question leaves.
    truncated : list of bool
        Whether each candidate was cut.
    """

    question: List[int]
    candidates: List[List[int]]
    truncated: List[bool]


class PairEncoder:
    """Encodes pairs as ``[CLS] q [SEP] c [SEP]`` or ``<s> q </s></s> c </s>``.

    Only the candidate is ever shortened.

    Parameters
    ----------
    tokenizer : Tokenizer
        Tokenizes the texts, and determines the form.
    max_length : int
        Greatest length of a pair, special tokens included.

    Attributes
    ----------
    form : PairForm
        The form of a pair.

    Raises
    ------
    OptionError
        If a pair of this length has no room for a question and a candidate.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int = 128) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.form = PAIR_FORMS[tokenizer.pair_form]
        least = self.form.specials + 1 + LEAST_CANDIDATE_TOKENS
        if max_length < least:
            raise OptionError("max_length", max_length, f"at least {least} tokens")

    def encode(self, question: str, candidates: Sequence[str], name: str = "") -> List[Encoded]:
        """Encode a question with each of its candidates.

        Parameters
        ----------
        question : str
            The question's text.
        candidates : sequence of str
            The candidates' texts. An empty or blank one becomes a pair that is flagged ``empty``.
        name : str
            Name of the question in errors; its text by default.

        Returns
        -------
        list of Encoded
            One pair a candidate, in order.

        Raises
        ------
        InputError
            If the question is empty, or there is no candidate.
        QuestionTooLong
            If the question leaves fewer than 16 tokens for its candidates.
        """
        segments = self.segments(question, candidates, name)
        question_ids = np.array(segments.question, dtype=np.int32)
        pairs = []
        for candidate_ids, truncated in zip(segments.candidates, segments.truncated):
            pairs.append(self.assemble(question_ids, candidate_ids, truncated))
        return pairs

    def assemble(
        self, question_ids: TokenIds, candidate_ids: TokenIds, truncated: bool = False
    ) -> Encoded:
        """Join the tokens of a question and a candidate to a pair.

        Parameters
        ----------
        question_ids : sequence of int
            Token ids of the question.
        candidate_ids : sequence of int
            Token ids of the candidate, cut to the room that the question leaves.
        truncated : bool
            Whether the candidate was cut.

        Returns
        -------
        Encoded
            The pair with its special tokens.
        """
        question_end = 1 + len(question_ids)
        boundary = question_end + self.form.separators
        token_ids = np.empty(boundary + len(candidate_ids) + 1, dtype=np.int32)
        token_ids[0] = self.tokenizer.start_id
        token_ids[1:question_end] = question_ids
        token_ids[question_end:boundary] = self.tokenizer.separator_id
        token_ids[boundary:-1] = candidate_ids
        token_ids[-1] = self.tokenizer.separator_id
        return Encoded(token_ids, boundary, truncated, len(candidate_ids) == 0)

    def segments(self, question: str, candidates: Sequence[str], name: str = "") -> Segments:
        """Tokenize a question and its candidates, and cut candidates to the length limit.

        Parameters
        ----------
        question, candidates, name
            As `encode` takes them.

        Returns
        -------
        Segments
            Token ids, and which candidates were cut.

        Raises
        ------
        InputError, QuestionTooLong
            As `encode` raises them.
        """
        where = f"question {shorten(name or question)}"
        if isinstance(candidates, str) or not isinstance(question, str):
            raise InputError(
                where, "not a string and a list of strings", "one question and its candidates"
            )
        if not len(candidates):
            raise InputError(where, "the candidate list is empty", "at least one candidate")
        # One id more than fits, so that longer texts are told from those that fit.
        needed = self.max_length + 1
        question_ids, *candidate_ids = self.tokenizer.encode([question, *candidates], needed)
        if not question_ids:
            raise InputError(where, "the question is empty", "text")
        room = self.max_length - self.form.specials - len(question_ids)
        if room < LEAST_CANDIDATE_TOKENS:
            # Of a long question only the start is tokenized.
            tokens = str(min(len(question_ids), needed))
            if len(question_ids) >= needed:
                tokens += " or more"
            raise QuestionTooLong(
                where,
                f"its {tokens} tokens leave {max(room, 0)} of {self.max_length} for candidates",
                f"at least {LEAST_CANDIDATE_TOKENS}",
                "shorten the question or raise max_length",
            )
        truncated = [len(ids) > room for ids in candidate_ids]
        candidate_ids = [ids[:room] for ids in candidate_ids]
        return Segments(question_ids, candidate_ids, truncated)


def pad_pairs(
    pairs: Sequence[Encoded], length: int, padding_id: int, typed: bool
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrange pairs in the rows of one padded batch.

    Parameters
    ----------
    pairs : sequence of Encoded
        The pairs, one a row.
    length : int
        Number of columns; at least the length of the longest pair.
    padding_id : int
        Token id that fills a row behind its pair.
    typed : bool
        Whether the encoder distinguishes the segments by token type.

    Returns
    -------
    token_ids, token_types : numpy.ndarray
        (batch, length), int32.
    valid_length : numpy.ndarray
        (batch,), float32.
    """
    token_ids = np.full((len(pairs), length), padding_id, dtype=np.int32)
    token_types = np.zeros((len(pairs), length), dtype=np.int32)
    valid_length = np.zeros(len(pairs), dtype=np.float32)
    for row, pair in enumerate(pairs):
        end = len(pair.token_ids)
        token_ids[row, :end] = pair.token_ids
        if typed:
            token_types[row, pair.boundary : end] = 1
        valid_length[row] = end
    return token_ids, token_types, valid_length
