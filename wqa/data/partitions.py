"""Partitions of a file: consecutive records of about as many tokens, which are computed together.

A partition is read again by the bytes at which it begins and ends. Its size is an estimate from the
numbers of characters, so that no tokenizer needs to read the corpus first. Of questions that is
`CHARACTERS` a token, and `SPECIAL` tokens a pair; the question is read again beside each candidate.
Texts that a ranker truncates count in full, so that a partition of long texts takes less time than
others.
"""

from __future__ import annotations

import itertools
from typing import IO, Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Tuple, TypeVar

from wqa.data.formats import LONGEST_QUESTION, parse_question, read_questions
from wqa.data.records import Question
from wqa.io.files import PathLike
from wqa.io.lines import bounded_lines, damage_errors, decoded_lines, open_bytes

#: Characters of a token. The estimate is 11 % above the tokens of BERT's tokenizer on the built-in
#: training questions, and 18 % above them on WikiQA's test questions.
CHARACTERS = 4
#: Special tokens of a pair.
SPECIAL = 3
#: Estimated tokens of a partition: some thousands of pairs of sentences.
PARTITION_TOKENS = 1 << 18

T = TypeVar("T")


class Partition(NamedTuple):
    """Consecutive records of a file, such as questions or documents."""

    start: int
    end: int
    line: int
    read: int
    records: int
    texts: int
    tokens: int


class QuestionGroup(NamedTuple):
    """Questions of a partition, while a corpus is divided."""

    questions: List[Question]
    read: int
    tokens: int
    end: int


def estimated_tokens(question: Question) -> int:
    """Estimate the tokens of the pairs of a question and its candidates."""
    count = len(question.candidates)
    characters = count * len(question.question) + sum(map(len, question.texts))
    return count * SPECIAL + characters // CHARACTERS


def group_questions(
    placed: Iterable[Tuple[Question, int]],
    passes: Callable[[Question], bool],
    limit: int = PARTITION_TOKENS,
) -> Iterator[QuestionGroup]:
    """Divide a corpus into groups of consecutive questions.

    A group ends before the question that exceeds the limit. So the groups after one of them do not
    depend on those before it, and a corpus is divided alike from there on.
    """
    for questions, tokens, end in bounded_groups(_counted(placed, passes), limit):
        kept = [question for question in questions if question is not None]
        yield QuestionGroup(kept, len(questions), tokens, end)


def _counted(
    placed: Iterable[Tuple[Question, int]], passes: Callable[[Question], bool]
) -> Iterator[Tuple[Optional[Question], int, int]]:
    """Questions with their tokens and positions; None for one that does not pass."""
    for question, end in placed:
        if passes(question):
            yield question, estimated_tokens(question), end
        else:
            yield None, 0, end


def bounded_groups(
    counted: Iterable[Tuple[T, int, int]], limit: int
) -> Iterator[Tuple[List[T], int, int]]:
    """Divide items into groups of consecutive ones, each of a bounded number of tokens."""
    group: List[T] = []
    total = end = 0
    for item, tokens, item_end in counted:
        if group and total + tokens > limit:
            yield group, total, end
            group, total = [], 0
        group.append(item)
        total, end = total + tokens, item_end
    if group:
        yield group, total, end


def partitions_of(
    groups: Iterable[QuestionGroup],
) -> Iterator[Tuple[Partition, QuestionGroup]]:
    """The partition of each group."""
    start, line = 0, 1
    for group in groups:
        candidates = sum(len(question.candidates) for question in group.questions)
        size = (group.read, len(group.questions), candidates, group.tokens)
        yield Partition(start, group.end, line, *size), group
        start, line = group.end, line + group.read


class PartitionReader:
    """Reads the records of partitions from a file, which stays open.

    A packed file is unpacked up to a partition, and records without positions, such as those of a
    table, are read up to it; one after another, in order, they cost one pass.
    """

    def __init__(
        self,
        path: PathLike,
        parse: Callable[[str, str], Any] = parse_question,
        longest: int = LONGEST_QUESTION,
        read_all: Callable[[PathLike], Iterator[Any]] = read_questions,
    ) -> None:
        self._path, self._parse, self._longest = path, parse, longest
        self._read_all = read_all
        self._file: Optional[IO[bytes]] = None
        self._records: Optional[Iterator[Any]] = None  # those without positions
        self._next = 0  # index of the next of them

    def read(self, partition: Partition) -> List[Any]:
        """Read the records of a partition, those that a filter leaves out among them."""
        if not partition.end:
            return self._read_in_order(partition)
        if self._file is None:
            self._file = open_bytes(self._path)
        file = self._file
        with damage_errors(self._path):
            file.seek(partition.start)
        lines = bounded_lines(file, self._path, self._longest, first=partition.line)
        records: List[Any] = []
        for number, line in decoded_lines(lines, self._path):
            records.append(self._parse(line, f"{self._path}, line {number}"))
            if file.tell() >= partition.end:
                break
        return records

    def _read_in_order(self, partition: Partition) -> List[Any]:
        """Read records without positions."""
        first = partition.line - 1
        if self._records is None or first < self._next:
            self._records, self._next = self._read_all(self._path), 0
        records = list(itertools.islice(self._records, first - self._next + partition.read))
        self._next = first + partition.read
        return records[-partition.read :]
