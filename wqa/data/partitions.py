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


def question_size(question: Question) -> Tuple[int, int]:
    """Number of candidates of a question, and estimated tokens of its pairs with them."""
    count = len(question.candidates)
    characters = count * len(question.question) + sum(map(len, question.texts))
    return count, count * SPECIAL + characters // CHARACTERS


def partitions_of(
    placed: Iterable[Tuple[T, int]],
    size_of: Callable[[T], Optional[Tuple[int, int]]],
    limit: int = PARTITION_TOKENS,
) -> Iterator[Tuple[Partition, List[T]]]:
    """Divide a file into partitions of consecutive records; yields each with its records.

    ``size_of`` gives texts and tokens of a record, and None for one that is left out. A partition
    ends before the record that exceeds the limit. So those after one of them do not depend on those
    before it, and a corpus is divided alike from there on.
    """
    start, line, end = 0, 1, 0
    records: List[T] = []
    read = texts = tokens = 0
    for record, record_end in placed:
        size = size_of(record)
        record_texts, record_tokens = size or (0, 0)
        if read and tokens + record_tokens > limit:
            yield Partition(start, end, line, read, len(records), texts, tokens), records
            start, line = end, line + read
            records, read, texts, tokens = [], 0, 0, 0
        if size is not None:
            records.append(record)
        read, end = read + 1, record_end
        texts, tokens = texts + record_texts, tokens + record_tokens
    if read:
        yield Partition(start, end, line, read, len(records), texts, tokens), records


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
