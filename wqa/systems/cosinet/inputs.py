"""Word ids of a question and its candidates, for networks that score a whole list at once."""

from __future__ import annotations

import itertools
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.engines.inputs import EngineInputs
from wqa.errors import check_range
from wqa.text.batching import BUCKET, bucketed, order_of, pad_rows
from wqa.text.inputs import PairInputs, TokenIds


class WordPair(NamedTuple):
    """Word ids of a question and of a candidate.

    Shapes: `question, candidate` (length,).
    """

    question: np.ndarray
    candidate: np.ndarray
    truncated: bool

    @property
    def length(self) -> int:
        """Number of words of both texts."""
        return len(self.question) + len(self.candidate)

    @property
    def empty(self) -> bool:
        """Whether the candidate has no word."""
        return len(self.candidate) == 0

    def pairs(self) -> List[WordPair]:
        """The pair, as a list of one candidate."""
        return [self]


class WordList(NamedTuple):
    """Word ids of a question and of its candidates that are not blank, text behind text.

    Shapes: `question` (N,), `words` (words,), `lengths` (n,).
    """

    question: np.ndarray
    words: np.ndarray
    lengths: np.ndarray

    @property
    def length(self) -> int:
        """Number of words of the question with each candidate, padded to the longest."""
        return len(self.lengths) * (len(self.question) + int(self.lengths.max()))

    def pairs(self) -> List[WordPair]:
        """Pairs of the question with each candidate."""
        texts = np.split(self.words, np.cumsum(self.lengths)[:-1])
        return [WordPair(self.question, text, False) for text in texts]


class ListInputs(PairInputs):
    """Word ids of questions and candidates, without special tokens.

    Each text is cut to the same number of words, which does not depend on the other one.
    """

    names: Tuple[str, ...] = (
        "question_ids",
        "question_valid",
        "candidate_ids",
        "candidate_valid",
        "list_valid",
    )
    joins_pairs = False
    has_specials = False

    def _most_question_tokens(self) -> int:
        check_range("max_length", self.max_length, 1)
        return self.max_length

    def _room(self, question_tokens: int) -> int:
        return self.max_length

    def _too_long(self, tokens: str, room: int) -> Tuple[str, str]:
        return f"{tokens} words", f"at most {self.max_length}"

    @property
    def longest(self) -> int:
        return 2 * self.max_length

    def array_types(self) -> Dict[str, str]:
        return {
            "question_ids": "int32 (Q, N)",
            "question_valid": "float32 (Q,), number of words",
            "candidate_ids": "int32 (Q, n, M)",
            "candidate_valid": "float32 (Q, n), number of words",
            "list_valid": "float32 (Q,), number of candidates",
            "scores": "float32 (Q, n), 0 at padding",
        }

    def assemble(
        self, question_ids: TokenIds, candidate_ids: TokenIds, truncated: bool = False
    ) -> WordPair:
        """Join the words of a question and a candidate to a pair."""
        question = np.asarray(question_ids, dtype=np.int32)
        return WordPair(question, np.asarray(candidate_ids, dtype=np.int32), truncated)

    def encode_list(
        self, question: str, candidates: Sequence[str], name: str = ""
    ) -> Tuple[WordList, np.ndarray, np.ndarray]:
        """Encode a question and its candidates without an object for each candidate.

        Shapes: `non_blank` (candidates,), `truncated` (candidates,).
        """
        segments = self.segments(question, candidates, name)
        lengths = np.fromiter(map(len, segments.candidates), np.intp, len(segments.candidates))
        non_blank = lengths > 0
        ids = itertools.chain.from_iterable(segments.candidates)
        words = np.fromiter(ids, np.int32, int(lengths.sum()))
        of_list = WordList(np.array(segments.question, np.int32), words, lengths[non_blank])
        return of_list, non_blank, np.array(segments.truncated)

    def lengths(self, questions: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        return np.stack([questions, candidates], axis=1)

    def pad(self, pairs: Sequence[WordPair], most: int = 0) -> Tuple[np.ndarray, ...]:
        """Arrange pairs in the rows of one padded batch, each as a list of one candidate."""
        return self.pad_lists([[pair] for pair in pairs])

    def pad_lists(self, lists: Sequence[Sequence[WordPair]]) -> Tuple[np.ndarray, ...]:
        """Arrange lists in the rows of one padded batch.

        Shapes: `question_ids` (Q, N), `question_valid` (Q,), `candidate_ids` (Q, n, M),
        `candidate_valid` (Q, n), `list_valid` (Q,).
        """
        counts = [len(pairs) for pairs in lists]
        lengths = [[len(pair.candidate) for pair in pairs] for pairs in lists]
        width = bucketed(max(map(max, lengths)))
        questions = [pairs[0].question for pairs in lists]
        question_ids = pad_rows(questions, bucketed(max(map(len, questions))))
        candidate_ids = np.zeros((len(lists), max(counts), width), dtype=np.int32)
        candidate_valid = np.zeros((len(lists), max(counts)), dtype=np.float32)
        for row, pairs in enumerate(lists):
            candidate_valid[row, : counts[row]] = lengths[row]
            candidate_ids[row, : counts[row]] = pad_rows([pair.candidate for pair in pairs], width)
        return (
            question_ids,
            np.array([len(ids) for ids in questions], dtype=np.float32),
            candidate_ids,
            candidate_valid,
            np.array(counts, dtype=np.float32),
        )


class ListEngineInputs(EngineInputs):
    """Lists of candidates, or pairs as lists of one, padded to the longest of a micro-batch."""

    def __init__(self, network: Any, inputs: Any = None) -> None:
        super().__init__(network, inputs)
        self.is_traced = network.own_config.recurrent == "none"

    def blocks(self) -> List[Any]:
        return super().blocks() if self.is_traced else [self.network.by_pairs]

    def arrays(self, pairs: Sequence[Any]) -> Dict[str, np.ndarray]:
        lists = [one.pairs() for one in pairs]
        return dict(zip(self.inputs.names, self.inputs.pad_lists(lists)))

    def positions(self, arrays: Mapping[str, np.ndarray]) -> int:
        _, candidates, width = arrays["candidate_ids"].shape
        return candidates * (arrays["question_ids"].shape[1] + width)


def plan_lists(
    candidates: np.ndarray,
    lengths: np.ndarray,
    tokens: int,
    rng: Optional[np.random.Generator] = None,
) -> List[np.ndarray]:
    """Group lists into batches of at most ``tokens`` padded tokens; every list once.

    Batches are filled from the shortest lists up, first by the number of candidates, so that little
    of a batch is padding. A list that exceeds the budget alone is a batch of its own.

    Shapes: `candidates` (Q,), `lengths` (Q, 2).
    """
    if not len(candidates):
        return []
    order = order_of(len(candidates), rng)
    widths = np.asarray(lengths, dtype=np.int64)
    widths = -(-widths // BUCKET) * BUCKET
    counts = np.asarray(candidates, dtype=np.int64)
    keys = np.stack([widths[order, 0], widths[order, 1], counts[order]])
    order = order[np.lexsort(keys)]
    batches = []
    start = 0
    first = second = 0  # widths of the batch's questions and candidates
    sizes = zip(counts[order].tolist(), *widths[order].T.tolist())
    for end, (count, question, candidate) in enumerate(sizes):
        # The numbers of candidates ascend.
        width = max(first, question) + max(second, candidate)
        if end > start and (end + 1 - start) * count * width > tokens:
            batches.append(order[start:end])
            start = end
            first = second = 0
        first, second = max(first, question), max(second, candidate)
    batches.append(order[start:])
    return [batches[index] for index in order_of(len(batches), rng)]
