"""Tokenized labelled pairs as flat arrays: the concatenated tokens, and the end of each text.

The tokens of a question are stored once for all of its candidates. The arrays in memory and in a
store on disk are the same.
"""

from __future__ import annotations

import array
import dataclasses
from typing import Dict, Iterable, Mapping, Optional, Tuple

import numpy as np

from wqa.data import Question
from wqa.data.records import known_labels
from wqa.data.scores import TYPES, candidate_keys
from wqa.errors import QuestionTooLong
from wqa.text.inputs import PairInputs

#: Numbers that tokenized pairs count beside their arrays.
COUNTS = ("blank", "truncated", "truncated_questions", "skipped_questions")


def array_types(vocab_size: int) -> Dict[str, np.dtype]:
    """Element types of the arrays of tokenized pairs, by name."""
    token = np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
    return {
        "question_tokens": token,
        "question_ends": np.dtype("<i8"),
        "candidate_tokens": token,
        "candidate_ends": np.dtype("<i8"),
        "question_of": np.dtype("<i4"),
        "labels": np.dtype("i1"),
        "keys": TYPES["keys"],
    }


@dataclasses.dataclass(eq=False)
class TokenizedPairs:
    """Labelled pairs as token ids without special tokens, in flat arrays.

    Parameters
    ----------
    arrays : dict of str to numpy.ndarray
        The attributes of the same names, with the types of `array_types`; ``keys`` may be absent.
    blank : int
        Number of candidates that were left out because they have no token.
    truncated : int
        Number of candidates that lost tokens to the length limit.
    truncated_questions : int
        Number of questions that lost tokens to the length limit.
    skipped_questions : int
        Number of over-long questions that were left out with their candidates.

    Attributes
    ----------
    question_tokens, candidate_tokens : numpy.ndarray
        Token ids of all questions, and of the candidates of all pairs.
    question_ends, candidate_ends : numpy.ndarray
        End of each question's, and of each pair's candidate's, token ids.
    question_of : numpy.ndarray
        (N,) question index of each pair, ascending.
    labels : numpy.ndarray
        (N,) label of each pair, 0 or 1.
    keys : numpy.ndarray or None
        (N,) key of each pair, by which teachers' scores are looked up, as
        `wqa.data.scores.candidate_keys` computes it; None where the keys are not known.
    blank, truncated, truncated_questions, skipped_questions : int
        The counts, as given.
    """

    arrays: Mapping[str, np.ndarray]
    blank: int = 0
    truncated: int = 0
    truncated_questions: int = 0
    skipped_questions: int = 0

    def __post_init__(self) -> None:
        self.question_tokens = self.arrays["question_tokens"]
        self.question_ends = self.arrays["question_ends"]
        self.candidate_tokens = self.arrays["candidate_tokens"]
        self.candidate_ends = self.arrays["candidate_ends"]
        self.question_of = self.arrays["question_of"]
        self.labels = self.arrays["labels"]
        self.keys: Optional[np.ndarray] = self.arrays.get("keys")

    def __len__(self) -> int:
        return len(self.labels)

    def text_lengths(self) -> Tuple[np.ndarray, np.ndarray]:
        """Number of tokens of the question and of the candidate of every pair.

        Returns
        -------
        questions, candidates : numpy.ndarray
            (N,), uint16, without special tokens.
        """
        question_lengths = np.diff(self.question_ends, prepend=0).astype(np.uint16)
        candidate_lengths = np.diff(self.candidate_ends, prepend=0).astype(np.uint16)
        return question_lengths[self.question_of], candidate_lengths

    def question(self, index: int) -> np.ndarray:
        """Tokens of a question, without special tokens.

        Parameters
        ----------
        index : int
            Index of the question.

        Returns
        -------
        numpy.ndarray
            Token ids.
        """
        return _text(self.question_tokens, self.question_ends, index)

    def candidate(self, index: int) -> np.ndarray:
        """Token ids of a candidate, without special tokens.

        Parameters
        ----------
        index : int
            Index of the pair.

        Returns
        -------
        numpy.ndarray
        """
        return _text(self.candidate_tokens, self.candidate_ends, index)


def _text(tokens: np.ndarray, ends: np.ndarray, index: int) -> np.ndarray:
    start = ends[index - 1] if index else 0
    return tokens[start : ends[index]]


def tokenize_pairs(
    questions: Iterable[Question], inputs: PairInputs, with_keys: bool = False
) -> TokenizedPairs:
    """Tokenize labelled questions into pairs in memory.

    Parameters
    ----------
    questions : iterable of Question
        Labelled questions; candidates without a token are left out.
    inputs : PairInputs
        Tokenizes the texts, cuts candidates to its length limit, and says what to do with over-long
        questions.
    with_keys : bool
        Whether to compute the pairs' keys.

    Returns
    -------
    TokenizedPairs
        The pairs in the order of the questions and their candidates.

    Raises
    ------
    DataError
        If a candidate has no label.
    InputError
        If a question is empty, or leaves too few tokens for its candidates and is neither truncated
        nor skipped.
    """
    types = array_types(inputs.tokenizer.vocab_size)
    if not with_keys:
        del types["keys"]
    # Arrays need far less memory than lists of numbers.
    parts = {name: array.array("Q") for name in types}
    counts = dict.fromkeys(COUNTS, 0)
    for question in questions:
        labels = known_labels(question)
        try:
            segments = inputs.segments(question.question, question.texts, question.id)
        except QuestionTooLong:
            if inputs.long_questions != "skip":
                raise
            counts["skipped_questions"] += 1
            continue
        counts["truncated_questions"] += segments.question_truncated
        if with_keys:
            has_tokens = [bool(candidate_ids) for candidate_ids in segments.candidates]
            parts["keys"].frombytes(candidate_keys(question)[has_tokens].tobytes())
        question_index = len(parts["question_ends"])
        parts["question_tokens"].extend(segments.question)
        parts["question_ends"].append(len(parts["question_tokens"]))
        for index, candidate_ids in enumerate(segments.candidates):
            if not candidate_ids:
                counts["blank"] += 1
                continue
            parts["candidate_tokens"].extend(candidate_ids)
            parts["candidate_ends"].append(len(parts["candidate_tokens"]))
            parts["question_of"].append(question_index)
            parts["labels"].append(labels[index])
            counts["truncated"] += segments.truncated[index]
    arrays = {name: np.array(parts[name], dtype=element) for name, element in types.items()}
    return TokenizedPairs(arrays, **counts)
