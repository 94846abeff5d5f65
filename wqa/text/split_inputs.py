"""Token ids of a question and its documents as inputs of their own, ``[CLS] tokens [SEP]``."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.errors import OptionError
from wqa.text.batching import bucketed
from wqa.text.inputs import PairInputs, TextInput, TokenIds, pad_pairs
from wqa.text.tokenizers import Tokenizer

#: Special tokens of a text that is an input by itself.
SPECIALS = 2


class SingleInputs:
    """Token ids of texts by themselves, as ``[CLS] tokens [SEP]`` or ``<s> tokens </s>``.

    Parameters
    ----------
    tokenizer : Tokenizer
        Tokenizes the texts.
    max_length : int
        Greatest length of an input in tokens, special tokens included. Longer texts are cut.

    Raises
    ------
    OptionError
        If an input of this length has no room for a token.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int = 128) -> None:
        if max_length <= SPECIALS:
            raise OptionError("max_length", max_length, f"at least {SPECIALS + 1} tokens")
        self.tokenizer = tokenizer
        self.max_length = max_length

    @property
    def room(self) -> int:
        """Most tokens of a text, without special tokens."""
        return self.max_length - SPECIALS

    def encode(self, texts: Sequence[str]) -> List[TextInput]:
        """Encode texts.

        Parameters
        ----------
        texts : sequence of str
            The texts. An empty or blank one is an input that is flagged ``empty``.

        Returns
        -------
        list of TextInput
            One input a text, in order. Its ``boundary`` is its end.
        """
        inputs = []
        # One id more than fits, so that longer texts are told from those that fit.
        for ids in self.tokenizer.encode(list(texts), self.room + 1):
            inputs.append(self.assemble(ids[: self.room], len(ids) > self.room))
        return inputs

    def assemble(self, ids: TokenIds, truncated: bool = False) -> TextInput:
        """Add the special tokens to a text.

        Parameters
        ----------
        ids : sequence of int
            Token ids of the text, at most `room`.
        truncated : bool
            Whether the text was cut.

        Returns
        -------
        TextInput
            The input with its special tokens.
        """
        token_ids = np.empty(len(ids) + SPECIALS, dtype=np.int32)
        token_ids[0] = self.tokenizer.start_id
        token_ids[1:-1] = ids
        token_ids[-1] = self.tokenizer.separator_id
        return TextInput(token_ids, len(token_ids), truncated, len(ids) == 0)

    def pad(self, inputs: Sequence[TextInput]) -> Tuple[np.ndarray, np.ndarray]:
        """Arrange inputs in the rows of one padded batch.

        Parameters
        ----------
        inputs : sequence of TextInput
            The inputs, one a row.

        Returns
        -------
        token_ids : numpy.ndarray
            (B, L) int32; L is rounded up to a bucket.
        valid_length : numpy.ndarray
            (B,) float32.
        """
        length = bucketed(max(len(encoded.token_ids) for encoded in inputs), self.max_length)
        token_ids, _, valid_length = pad_pairs(inputs, length, self.tokenizer.padding_id, False)
        return token_ids, valid_length


class SplitPair(NamedTuple):
    """A question and a document as inputs of their own.

    Attributes
    ----------
    question, document : TextInput
        Input of each text.
    """

    question: TextInput
    document: TextInput

    @property
    def length(self) -> int:
        """Number of tokens of both texts, special tokens included."""
        return self.question.length + self.document.length

    @property
    def truncated(self) -> bool:
        """Whether the document lost tokens to the length limit."""
        return self.document.truncated

    @property
    def empty(self) -> bool:
        """Whether the document has no token."""
        return self.document.empty


class SplitInputs(PairInputs):
    """Token ids of the question and the candidate of each pair, as inputs of their own.

    A candidate is a document. It is cut to a length that does not depend on its question.

    Parameters
    ----------
    tokenizer : Tokenizer
        Tokenizes the texts.
    max_length : int
        Greatest length of a document in tokens, special tokens included.
    question_length : int
        Greatest length of a question in tokens, special tokens included.
    long_questions : {"error", "truncate", "skip"}
        What to do with a longer question: raise an error, or keep its first tokens. ``skip`` raises
        the error too; what reads a corpus then leaves the question out with all its candidates.

    Attributes
    ----------
    question, document : SingleInputs
        Inputs of the two texts.

    Raises
    ------
    OptionError
        If a length has no room for a token, or ``long_questions`` is unknown.
    """

    names: Tuple[str, ...] = (
        "question_ids",
        "question_valid",
        "document_ids",
        "document_valid",
    )
    joins_pairs = False

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: int = 128,
        question_length: int = 64,
        long_questions: str = "error",
    ) -> None:
        if question_length <= SPECIALS:
            raise OptionError("question_length", question_length, f"at least {SPECIALS + 1} tokens")
        self.document = SingleInputs(tokenizer, max_length)
        self.question = SingleInputs(tokenizer, question_length)
        super().__init__(tokenizer, max_length, long_questions)
        self.question_length = question_length
        self.needed = max(question_length, max_length) - SPECIALS + 1

    def settings(self) -> Dict[str, Any]:
        return {"max_length": self.max_length, "question_length": self.question_length}

    def _most_question_tokens(self) -> int:
        return self.question.room

    def _room(self, question_tokens: int) -> int:
        return self.document.room

    def _too_long(self, tokens: str, room: int) -> Tuple[str, str]:
        expected = f"at most {self.question.room}, and {SPECIALS} special tokens"
        return f"{tokens} tokens", expected

    @property
    def longest(self) -> int:
        return self.question_length + self.max_length

    def assemble(
        self, question_ids: TokenIds, candidate_ids: TokenIds, truncated: bool = False
    ) -> SplitPair:
        """Add the special tokens to both texts.

        Parameters
        ----------
        question_ids, candidate_ids, truncated
            As `PairInputs.assemble` takes them.

        Returns
        -------
        SplitPair
            Both inputs.
        """
        document = self.document.assemble(candidate_ids, truncated)
        return SplitPair(self.question.assemble(question_ids), document)

    def lengths(self, questions: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        return np.stack([questions, candidates], axis=1) + np.uint16(SPECIALS)

    def pad(self, pairs: Sequence[SplitPair], most: int = 0) -> Tuple[np.ndarray, ...]:
        questions = self.question.pad([pair.question for pair in pairs])
        documents = self.document.pad([pair.document for pair in pairs])
        return (*questions, *documents)
