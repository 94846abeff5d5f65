"""Token ids of a question and a candidate as one sequence, in BERT's or RoBERTa's form."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple, Union

import numpy as np

from wqa.config import PAIR_FORMS
from wqa.config.training import LONG_QUESTIONS
from wqa.errors import EncoderError, InputError, OptionError, QuestionTooLong, check_choice, shorten
from wqa.text.batching import bucketed, pad_rows
from wqa.text.tokenizers import Tokenizer

#: Tokens that a question must leave for its candidates. A truncated question leaves as many: it
#: keeps as much as the longest question that is not truncated, so that no longer one keeps less.
LEAST_CANDIDATE_TOKENS = 16

#: Ends of the names of arrays that hold a number for each position; others are valid lengths.
_POSITIONS = ("_ids", "_types")

TokenIds = Union[Sequence[int], np.ndarray]


class TextInput(NamedTuple):
    """Token ids of one input of a network.

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

    @property
    def length(self) -> int:
        """Number of tokens, special tokens included."""
        return len(self.token_ids)


class Segments(NamedTuple):
    """Token ids of a question and its candidates, without special tokens."""

    question: List[int]
    candidates: List[List[int]]
    truncated: List[bool]
    question_truncated: bool = False


class PairInputs:
    """Token ids of pairs, as ``[CLS] q [SEP] c [SEP]`` or ``<s> q </s></s> c </s>``.

    A candidate is cut to the room that its question leaves. A question is whole unless it leaves
    fewer than 16 tokens.

    Parameters
    ----------
    tokenizer : Tokenizer
        Tokenizes the texts, and determines the form.
    max_length : int
        Greatest length of a pair, special tokens included.
    long_questions : {"error", "truncate", "skip"}
        What to do with a question that leaves fewer than 16 tokens for its candidates: raise an
        error, or keep its first tokens, as many as leave 16. ``skip`` raises the error too; what
        reads a corpus then leaves the question out with all its candidates.

    Attributes
    ----------
    form : PairForm
        The form of a pair.
    needed : int
        Number of first token ids of a text that tell whether it fits.

    Raises
    ------
    OptionError
        If a pair of this length has no room for a question and a candidate, or
        ``long_questions`` is unknown.
    EncoderError
        If the tokenizer has no special tokens, such as one of words.
    """

    #: Names of the arrays of `pad`, in the order in which a network takes them.
    names: Tuple[str, ...] = ("token_ids", "token_types", "valid_length")
    #: Whether question and candidate are one input, as in the stores of `wqa tokenize`.
    joins_pairs = True
    #: Whether the inputs have the special tokens of a pretrained encoder.
    has_specials = True

    def __init__(
        self, tokenizer: Tokenizer, max_length: int = 128, long_questions: str = "error"
    ) -> None:
        check_choice("long_questions", long_questions, LONG_QUESTIONS)
        if self.has_specials and tokenizer.pair_form not in PAIR_FORMS:
            problem = f"one of {tokenizer.pair_form}, without special tokens"
            expected = "the tokenizer of a pretrained encoder, or of a run that has one"
            raise EncoderError("tokenizer", problem, expected)
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.long_questions = long_questions
        if self.has_specials:
            self.form = PAIR_FORMS[tokenizer.pair_form]
        self.needed = max_length + 1  # so that longer texts are told from those that fit
        self._longest_question = self._most_question_tokens()

    def _most_question_tokens(self) -> int:
        """Most tokens of a question that is not over-long, without special tokens."""
        reserved = self.form.specials + LEAST_CANDIDATE_TOKENS
        if self.max_length <= reserved:
            expected = f"at least {reserved + 1} tokens"
            raise OptionError("max_length", self.max_length, expected)
        return self.max_length - reserved

    @property
    def longest(self) -> int:
        """Most tokens of all inputs of a pair together."""
        return self.max_length

    def settings(self) -> Dict[str, Any]:
        """Arguments that make such inputs of a tokenizer, other than ``long_questions``.

        Returns
        -------
        dict of str to Any
        """
        return {"max_length": self.max_length}

    def array_types(self) -> Dict[str, str]:
        """Describe the arrays of `names` and the scores of a network that takes them.

        Returns
        -------
        dict of str to str
            Type and shape by name, for readers of an exported network.
        """
        types = {}
        for name in self.names:
            types[name] = "int32 (B, L)" if name.endswith(_POSITIONS) else "float32 (B,)"
        types["scores"] = "float32 (B,), log-odds"
        return types

    def encode(self, question: str, candidates: Sequence[str], name: str = "") -> List[Any]:
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
        list of TextInput
            One pair a candidate, in order, as `assemble` returns it.

        Raises
        ------
        InputError
            If the question is empty, or there is no candidate.
        QuestionTooLong
            If the question is over-long, and is not truncated.
        """
        segments = self.segments(question, candidates, name)
        question_ids = np.array(segments.question, dtype=np.int32)
        pairs = []
        for candidate_ids, truncated in zip(segments.candidates, segments.truncated):
            pairs.append(self.assemble(question_ids, candidate_ids, truncated))
        return pairs

    def network_inputs(self, pairs: Sequence[Any]) -> List[Any]:
        """Inputs of a network for the pairs of one question; by default the pairs themselves.

        Parameters
        ----------
        pairs : sequence of TextInput
            Pairs that `assemble` returned.

        Returns
        -------
        list of TextInput
            What `pad` takes.
        """
        return list(pairs)

    def assemble(
        self, question_ids: TokenIds, candidate_ids: TokenIds, truncated: bool = False
    ) -> Any:
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
        TextInput
            The pair with its special tokens.
        """
        question_end = 1 + len(question_ids)
        boundary = question_end + self.form.separators
        token_ids = np.empty(boundary + len(candidate_ids) + 1, dtype=np.int32)
        separator = self.tokenizer.separator_id
        token_ids[0] = self.tokenizer.start_id
        token_ids[1:question_end] = question_ids
        token_ids[question_end:boundary] = separator
        token_ids[boundary:-1] = candidate_ids
        token_ids[-1] = separator
        return TextInput(token_ids, boundary, truncated, len(candidate_ids) == 0)

    def lengths(self, questions: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """Number of tokens of pairs, special tokens included.

        Parameters
        ----------
        questions, candidates : numpy.ndarray
            (N,) number of tokens of the question and of the candidate of each pair.

        Returns
        -------
        numpy.ndarray
            (N,), or (N, k) for pairs that consist of k inputs, which are padded apart.
        """
        specials = np.uint16(self.form.specials)
        return questions + candidates + specials

    def pad(self, pairs: Sequence[Any], most: int = 0) -> Tuple[np.ndarray, ...]:
        """Arrange pairs in the rows of one padded batch, the arrays that a network takes.

        Parameters
        ----------
        pairs : sequence of TextInput
            Pairs that `assemble` returned, one a row.
        most : int
            Greatest length to which lengths are rounded up; by default `longest`.

        Returns
        -------
        tuple of numpy.ndarray
            The arrays of `names`, as `pad_pairs` returns them. Lengths are rounded up to a bucket.
        """
        lengths = [len(pair.token_ids) for pair in pairs]
        length = bucketed(max(lengths), most or self.longest)
        return pad_pairs(pairs, length, self.tokenizer.padding_id, self.form.typed)

    def segments(self, question: str, candidates: Sequence[str], name: str = "") -> Segments:
        """Tokenize a question and its candidates, and cut candidates to the length limit.

        Parameters
        ----------
        question, candidates, name
            As `encode` takes them.

        Returns
        -------
        Segments
            Token ids, and what was cut.

        Raises
        ------
        InputError, QuestionTooLong
            As `encode` raises them.
        """

        def refused(found: str, expected: str) -> InputError:
            return InputError(f"question {shorten(name or question)}", found, expected)

        if isinstance(candidates, str) or not isinstance(question, str):
            raise refused("not a string and a list of strings", "one question and its candidates")
        if not len(candidates):
            raise refused("the candidate list is empty", "at least one candidate")
        texts = [question, *candidates]
        try:
            whole_ids, *candidate_ids = self.tokenizer.encode(texts, self.needed)
        except InputError as error:
            raise refused(error.found, error.expected) from None
        question_ids = self.fit_question(whole_ids, name or question)
        room = self._room(len(question_ids))
        truncated = [len(ids) > room for ids in candidate_ids]
        candidate_ids = [ids[:room] for ids in candidate_ids]
        is_long = len(question_ids) < len(whole_ids)
        return Segments(question_ids, candidate_ids, truncated, is_long)

    def room_of(self, question: str, name: str = "") -> int:
        """Tell how many tokens of a candidate are read beside a question.

        Parameters
        ----------
        question : str
            The question's text.
        name : str
            Name of the question in errors; its text by default.

        Returns
        -------
        int
            Most tokens of a candidate, without special tokens.

        Raises
        ------
        InputError, QuestionTooLong
            As `fit_question` raises them.
        """
        [question_ids] = self.tokenizer.encode([question], self.needed)
        return self._room(len(self.fit_question(question_ids, name or question)))

    def _room(self, question_tokens: int) -> int:
        """Most tokens of a candidate of a question of so many tokens."""
        return self.max_length - self.form.specials - question_tokens

    def fit_question(self, question_ids: List[int], name: str = "") -> List[int]:
        """Apply the rule for over-long questions to the token ids of a question.

        Parameters
        ----------
        question_ids : list of int
            Token ids of the question; of a long one at least the first ``needed``.
        name : str
            Name of the question in errors.

        Returns
        -------
        list of int
            The ids, or the first of them, if the question is over-long and ``long_questions`` is
            ``"truncate"``.

        Raises
        ------
        InputError
            If the question has no token.
        QuestionTooLong
            If the question is over-long and not truncated.
        """
        count = len(question_ids)
        if not count:
            raise InputError(f"question {shorten(name)}", "the question is empty", "text")
        if count <= self._longest_question:
            return question_ids
        if self.long_questions == "truncate":
            return question_ids[: self._longest_question]
        # Of a long question only the start is tokenized.
        tokens = f"{self.needed} or more" if count >= self.needed else str(count)
        room = max(self._room(count), 0)
        problem, expected = self._too_long(tokens, room)
        hint = 'shorten the question, or set long_questions="truncate"'
        raise QuestionTooLong(f"question {shorten(name)}", problem, expected, hint)

    def _too_long(self, tokens: str, room: int) -> Tuple[str, str]:
        """What is wrong with a question of so many tokens, and what is expected."""
        problem = f"its {tokens} tokens leave {room} of {self.max_length} for candidates"
        return problem, f"at least {LEAST_CANDIDATE_TOKENS}"


def pad_pairs(
    pairs: Sequence[TextInput], length: int, padding_id: int, typed: bool
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrange pairs in the rows of one padded batch.

    Parameters
    ----------
    pairs : sequence of TextInput
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
    token_ids = pad_rows([pair.token_ids for pair in pairs], length, padding_id)
    ends = np.array([len(pair.token_ids) for pair in pairs])
    token_types = np.zeros_like(token_ids)
    if typed:
        for row, pair in enumerate(pairs):
            token_types[row, pair.boundary : ends[row]] = 1
    return token_ids, token_types, ends.astype(np.float32)
