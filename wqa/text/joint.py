"""Encodes a question and k candidates as one input (Di Liello et al. 2022, section 3.2).

A segment is ``<start> text <separator>``, at most L tokens; segment 0 is the question, segment s
the s-th candidate. The paper pads each segment to L. Attention never reads padding, so it changes
nothing but the positions, and here the segments are packed one behind another: padding stands at
the end of a row alone. The mark of a segment is its first position, that of its start token, where
heads read the embedding of the segment.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.errors import OptionError, QuestionTooLong, check_choice
from wqa.text.batching import bucketed
from wqa.text.encoding import PairEncoder, TokenIds
from wqa.text.tokenizers import Tokenizer

#: How tokens are numbered. ``tokens``: one after another, as the encoder's family numbers the
#: tokens of a text. The authors' code does so, as RoBERTa does not count padding. ``slots``: token
#: j of segment s has position s L + j, as in the paper, whatever the lengths of the segments.
POSITIONS = ("tokens", "slots")
#: What stands for a candidate that is missing in a group of fewer than k. ``absent``: nothing.
#: ``visible``: a segment without a text, which all others see, as in the authors' code.
MISSING = ("absent", "visible")
#: Order in which candidates are put into groups of k to be ranked.
ORDERS = ("shuffled", "original")
#: Mark of a segment that is absent.
ABSENT = -1


class SegmentPair(NamedTuple):
    """Token ids of a question and of one candidate, without special tokens.

    Attributes
    ----------
    question, candidate : numpy.ndarray
        (length,) int32.
    truncated : bool
        Whether the candidate lost tokens to the length limit.
    """

    question: np.ndarray
    candidate: np.ndarray
    truncated: bool

    @property
    def length(self) -> int:
        """Number of tokens of both texts."""
        return len(self.question) + len(self.candidate)

    @property
    def empty(self) -> bool:
        """Whether the candidate has no token."""
        return len(self.candidate) == 0


class JointInput(NamedTuple):
    """A question and at most k candidates as one input of an encoder.

    Attributes
    ----------
    token_ids : numpy.ndarray
        (length,) int32, special tokens included.
    token_types : numpy.ndarray
        (length,) int32 index of each token's segment.
    positions : numpy.ndarray or None
        (length,) int32; None where the encoder's family numbers the tokens.
    marks : numpy.ndarray
        (k + 1,) int32 position of each segment's first token, `ABSENT` for a missing one.
    candidates : int
        Number of candidates, of which the first segments after the question are.
    """

    token_ids: np.ndarray
    token_types: np.ndarray
    positions: Optional[np.ndarray]
    marks: np.ndarray
    candidates: int

    @property
    def length(self) -> int:
        """Number of tokens, special tokens included."""
        return len(self.token_ids)

    @property
    def empty(self) -> bool:
        """Whether there is no candidate."""
        return self.candidates == 0


class JointEncoder(PairEncoder):
    """Encodes a question with groups of k candidates.

    A text is cut to L tokens with its two special tokens, whatever the others. A longer question
    is over-long.

    Parameters
    ----------
    tokenizer : Tokenizer
        Tokenizes the texts, and determines the special tokens.
    segment_length : int
        L, from which the positions of ``slots`` count.
    k : int
        Number of candidates of an input.
    positions : {"tokens", "slots"}
        How tokens are numbered, of `POSITIONS`.
    missing : {"absent", "visible"}
        What stands for a missing candidate, of `MISSING`.
    max_length : int, optional
        Greatest length of a segment, if that is to be less than L.
    long_questions : {"error", "truncate", "skip"}
        What to do with an over-long question: raise an error, or keep its first tokens. ``skip``
        raises the error too; what reads a corpus then leaves the question out with all its
        candidates.

    Attributes
    ----------
    k : int
        Number of candidates of an input.

    Raises
    ------
    OptionError
        If a segment has no room for a token, ``k`` is below 1, or a name is unknown.
    EncoderError
        If the tokenizer has no special tokens, such as one of words.
    """

    joint = False

    def __init__(
        self,
        tokenizer: Tokenizer,
        segment_length: int = 64,
        k: int = 5,
        positions: str = "tokens",
        missing: str = "absent",
        max_length: Optional[int] = None,
        long_questions: str = "error",
    ) -> None:
        check_choice("positions", positions, POSITIONS)
        check_choice("missing", missing, MISSING)
        if k < 1:
            raise OptionError("k", k, "at least 1 candidate")
        longest = segment_length if max_length is None else min(segment_length, max_length)
        super().__init__(tokenizer, longest, long_questions)
        self.segment_length, self.k = segment_length, k
        self._has_slots, self._shows_missing = positions == "slots", missing == "visible"
        names = ["token_ids", "token_types", "marks", "valid_length"]
        if self._has_slots:
            names.insert(2, "positions")
        self.names = tuple(names)

    def _most_question_tokens(self) -> int:
        room = self.max_length - 2
        if room < 1:
            raise OptionError("segment_length", self.max_length, "at least 3 tokens")
        return room

    def _room(self, question_tokens: int) -> int:
        return self.max_length - 2

    def _too_long(self, where: str, tokens: str, room: int) -> QuestionTooLong:
        return QuestionTooLong(
            where,
            f"{tokens} tokens",
            f"at most {self._room(0)}, as a segment has {self.max_length} with its special tokens",
            'shorten the question, raise segment_length, or set long_questions="truncate"',
        )

    @property
    def longest(self) -> int:
        """Most tokens of an input."""
        return self.max_length * (self.k + 1)

    def array_types(self) -> Dict[str, str]:
        types = dict.fromkeys(self.names, "int32 (B, L)")
        types["marks"] = "float32 (B, k + 1), first position of each segment, -1 if absent"
        types["valid_length"] = "float32 (B,)"
        types["scores"] = "float32 (B, k), log-odds, 0 for a missing candidate"
        return types

    def assemble(
        self, question_ids: TokenIds, candidate_ids: TokenIds, truncated: bool = False
    ) -> SegmentPair:
        """Keep the tokens of a question and a candidate, for `join`.

        Parameters
        ----------
        question_ids, candidate_ids, truncated
            As `PairEncoder.assemble` takes them.

        Returns
        -------
        SegmentPair
        """
        question = np.asarray(question_ids, dtype=np.int32)
        return SegmentPair(question, np.asarray(candidate_ids, dtype=np.int32), truncated)

    def encode(self, question: str, candidates: Sequence[str], name: str = "") -> List[JointInput]:
        """Encode a question with its candidates, k by k in their order.

        Parameters
        ----------
        question, candidates, name
            As `PairEncoder.encode` takes them. A blank candidate is in no input.

        Returns
        -------
        list of JointInput
            One input for k candidates; the last one may have fewer.

        Raises
        ------
        InputError, QuestionTooLong
            As `PairEncoder.encode` raises them.
        """
        segments = self.segments(question, candidates, name)
        filled = [ids for ids in segments.candidates if ids]
        inputs = []
        for start in range(0, len(filled), self.k):
            inputs.append(self.join(segments.question, filled[start : start + self.k]))
        return inputs

    def join(self, question_ids: TokenIds, candidates: Sequence[TokenIds]) -> JointInput:
        """Join the tokens of a question and of candidates to one input.

        Parameters
        ----------
        question_ids : sequence of int
            Token ids of the question, cut to its room, without special tokens.
        candidates : sequence of sequence of int
            Token ids of at most k candidates, cut to their room.

        Returns
        -------
        JointInput
            The input, with the special tokens of each segment.

        Raises
        ------
        OptionError
            If there are more than k candidates.
        """
        if len(candidates) > self.k:
            raise OptionError("candidates", len(candidates), f"at most k={self.k}")
        texts: List[TokenIds] = [question_ids, *candidates]
        if self._shows_missing:
            texts += [()] * (self.k - len(candidates))
        lengths = np.array([len(text) + 2 for text in texts])
        ends = np.cumsum(lengths)
        starts = ends - lengths
        token_ids = np.empty(ends[-1], dtype=np.int32)
        for text, start, end in zip(texts, starts.tolist(), ends.tolist()):
            token_ids[start + 1 : end - 1] = text
        token_ids[starts] = self.tokenizer.start_id
        token_ids[ends - 1] = self.tokenizer.separator_id
        token_types = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
        positions = None
        if self._has_slots:
            first = np.arange(len(texts)) * self.segment_length - starts
            positions = (np.arange(len(token_ids)) + np.repeat(first, lengths)).astype(np.int32)
        marks = np.full(self.k + 1, ABSENT, dtype=np.int32)
        marks[: len(starts)] = starts
        return JointInput(token_ids, token_types, positions, marks, len(candidates))

    def lengths(self, questions: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        return np.stack([questions, candidates], axis=1)

    def pad(self, pairs: Sequence[JointInput]) -> Tuple[np.ndarray, ...]:
        """Arrange inputs in the rows of one padded batch, the arrays that a network takes.

        Parameters
        ----------
        pairs : sequence of JointInput
            Inputs that `join` returned, one a row.

        Returns
        -------
        tuple of numpy.ndarray
            The arrays of `names`, as `pad_inputs` returns them. Lengths are rounded up to a bucket.
        """
        length = bucketed(max(joint.length for joint in pairs), self.longest)
        return pad_inputs(pairs, length, self.tokenizer.padding_id)


def pad_inputs(
    inputs: Sequence[JointInput], length: int, padding_id: int
) -> Tuple[np.ndarray, ...]:
    """Arrange joint inputs in the rows of one padded batch.

    Parameters
    ----------
    inputs : sequence of JointInput
        The inputs, one a row; all of one encoder.
    length : int
        Number of columns; at least the length of the longest input.
    padding_id : int
        Token id that fills a row behind its input.

    Returns
    -------
    token_ids, token_types : numpy.ndarray
        (batch, length), int32.
    positions : numpy.ndarray
        (batch, length), int32; left out where the encoder's family numbers the tokens.
    marks : numpy.ndarray
        (batch, k + 1), float32.
    valid_length : numpy.ndarray
        (batch,), float32.
    """
    shape = (len(inputs), length)
    token_ids = np.full(shape, padding_id, dtype=np.int32)
    token_types = np.zeros(shape, dtype=np.int32)
    positions = np.zeros(shape, dtype=np.int32)
    for row, joint in enumerate(inputs):
        token_ids[row, : joint.length] = joint.token_ids
        token_types[row, : joint.length] = joint.token_types
        if joint.positions is not None:
            positions[row, : joint.length] = joint.positions
    marks = np.stack([joint.marks for joint in inputs]).astype(np.float32)
    valid_length = np.array([joint.length for joint in inputs], dtype=np.float32)
    if inputs[0].positions is None:
        return token_ids, token_types, marks, valid_length
    return token_ids, token_types, positions, marks, valid_length
