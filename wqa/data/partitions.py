"""Partitions of a file: consecutive records of about as many tokens, which are computed together.

The size of a partition is an estimate from the numbers of characters, so that no tokenizer needs to
read the corpus first. Of questions that is `CHARACTERS` a token, and `SPECIAL` tokens a pair; the
question is read again beside each candidate. Texts that a ranker truncates count in full, so that
a partition of long texts takes less time than others.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Tuple, TypeVar

from wqa.data.formats import LONGEST_QUESTION, parse_question, read_questions
from wqa.data.ir_names import is_ir_name
from wqa.data.records import Question
from wqa.data.tables import is_table
from wqa.io.files import PathLike
from wqa.io.lines import bounded_lines, decoded_lines, open_bytes

#: Characters of a token. The estimate is 11 % above the tokens of BERT's tokenizer on the built-in
#: training questions, and 18 % above them on WikiQA's test questions.
CHARACTERS = 4
#: Special tokens of a pair.
SPECIAL = 3
#: Estimated tokens of a partition: some thousands of pairs of sentences.
PARTITION_TOKENS = 1 << 18

T = TypeVar("T")


class Partition(NamedTuple):
    """Consecutive records of a file: index of the first, their number, and that of their texts."""

    start: int
    read: int
    texts: int


def question_size(question: Question) -> Tuple[int, int]:
    """Number of candidates of a question, and estimated tokens of its pairs with them."""
    count = len(question.candidates)
    characters = count * len(question.question) + sum(map(len, question.texts))
    return count, count * SPECIAL + characters // CHARACTERS


def partitions_of(
    records: Iterable[T],
    size_of: Callable[[T], Optional[Tuple[int, int]]],
    limit: int = PARTITION_TOKENS,
) -> Iterator[Tuple[Partition, List[T]]]:
    """Divide a file into partitions of consecutive records; yields each with its records.

    ``size_of`` gives texts and tokens of a record, and None for one that is left out. A partition
    ends before the record that exceeds the limit. So those after one of them do not depend on those
    before it, and a corpus is divided alike from there on.
    """
    start = read = texts = tokens = 0
    kept: List[T] = []
    for record in records:
        size = size_of(record)
        record_texts, record_tokens = size or (0, 0)
        if read and tokens + record_tokens > limit:
            yield Partition(start, read, texts), kept
            start += read
            kept, read, texts, tokens = [], 0, 0, 0
        if size is not None:
            kept.append(record)
        read, texts, tokens = read + 1, texts + record_texts, tokens + record_tokens
    if read:
        yield Partition(start, read, texts), kept


class PartitionReader:
    """Reads the records of partitions from a file, which stays open.

    Partitions in order cost one pass. Lines between them are not parsed; records of tables and
    of `ir_datasets` are read.
    """

    def __init__(
        self,
        path: PathLike,
        parse: Callable[[str, str], Any] = parse_question,
        longest: int = LONGEST_QUESTION,
        read_all: Callable[[PathLike], Iterator[Any]] = read_questions,
    ) -> None:
        self._path, self._parse, self._longest = path, parse, longest
        self._read_all = None
        if is_ir_name(path) or is_table(path):
            self._read_all = read_all
        self._items: Optional[Iterator[Any]] = None  # records, or lines with their numbers
        self._next = 0  # index of the next of them

    def read(self, partition: Partition) -> List[Any]:
        """Read the records of a partition, those that a filter leaves out among them."""
        if self._items is None or partition.start < self._next:
            self._items, self._next = self._open(), 0
        skipped = partition.start - self._next
        items = list(itertools.islice(self._items, skipped, skipped + partition.read))
        self._next = partition.start + partition.read
        if self._read_all is not None:
            return items
        lines = decoded_lines(items, self._path)
        return [self._parse(line, f"{self._path}, line {number}") for number, line in lines]

    def _open(self) -> Iterator[Any]:
        if self._read_all is not None:
            return self._read_all(self._path)
        return bounded_lines(open_bytes(self._path), self._path, self._longest)
