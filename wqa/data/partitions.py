"""Partitions of a corpus: consecutive questions of about as many tokens, which are scored together.

A partition is read again by the bytes at which it begins and ends. Its size is an estimate from the
numbers of characters, so that no tokenizer needs to read the corpus first: `CHARACTERS` a token,
and `SPECIAL` tokens a pair. The question is read again beside each candidate. Texts that a ranker
truncates count in full, so that a partition of long texts takes less time than others.
"""

from __future__ import annotations

from typing import IO, Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from wqa.data.archives import DAMAGE
from wqa.data.files import PathLike
from wqa.data.formats import LONGEST_QUESTION, parse_question
from wqa.data.lines import bounded_lines, decoded_lines, open_lines
from wqa.data.records import Question
from wqa.errors import DataError

#: Characters of a token. The estimate is 11 % above the tokens of BERT's tokenizer on the built-in
#: training questions, and 18 % above them on WikiQA's test questions.
CHARACTERS = 4
#: Special tokens of a pair.
SPECIAL = 3
#: Estimated tokens of a partition: some thousands of pairs of sentences.
PARTITION_TOKENS = 1 << 18


class Partition(NamedTuple):
    """Consecutive questions of a file.

    Attributes
    ----------
    start, end : int
        Bytes of the unpacked file before the first question, and up to the end of the last.
    line : int
        Number of the first line, from 1.
    read : int
        Number of lines.
    questions, candidates : int
        Number of the questions that pass the filter, and of their candidates.
    tokens : int
        Estimated tokens of their pairs.
    """

    start: int
    end: int
    line: int
    read: int
    questions: int
    candidates: int
    tokens: int


class QuestionGroup(NamedTuple):
    """Questions of a partition, while a corpus is divided.

    Attributes
    ----------
    questions : list of Question
        The questions that pass the filter.
    read : int
        Number of questions, those that do not pass it among them.
    tokens : int
        Estimated tokens of the pairs.
    end : int
        Position after the last question.
    """

    questions: List[Question]
    read: int
    tokens: int
    end: int


def estimated_tokens(question: Question) -> int:
    """Estimate the tokens of the pairs of a question and its candidates.

    Parameters
    ----------
    question : Question
        The question.

    Returns
    -------
    int
        At least `SPECIAL` a candidate.
    """
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

    Parameters
    ----------
    placed : iterable of (Question, int)
        Questions with their positions, as `wqa.data.formats.read_placed_questions` reads them.
    passes : callable
        Whether a question is scored. The others count no tokens.
    limit : int
        Most estimated tokens of a group. A question of more is a group of its own.

    Yields
    ------
    QuestionGroup
        The groups in order. Each question is in one.
    """
    kept: List[Question] = []
    read = total = end = 0
    for question, question_end in placed:
        passed = passes(question)
        tokens = estimated_tokens(question) if passed else 0
        if read and total + tokens > limit:
            yield QuestionGroup(kept, read, total, end)
            kept, read, total = [], 0, 0
        if passed:
            kept.append(question)
        read, total, end = read + 1, total + tokens, question_end
    if read:
        yield QuestionGroup(kept, read, total, end)


def partitions_of(groups: Iterable[QuestionGroup]) -> Iterator[Partition]:
    """Partitions of groups, without the questions.

    Parameters
    ----------
    groups : iterable of QuestionGroup
        All groups of a file, in order.

    Yields
    ------
    Partition
        One for each group.
    """
    start, line = 0, 1
    for group in groups:
        candidates = sum(len(question.candidates) for question in group.questions)
        yield Partition(
            start, group.end, line, group.read, len(group.questions), candidates, group.tokens
        )
        start, line = group.end, line + group.read


class PartitionReader:
    """Reads the questions of partitions from a file, which stays open. It is a context manager.

    A packed file is unpacked up to a partition; one after another, in order, they cost one pass.

    Parameters
    ----------
    path : str or path-like
        Canonical JSONL, plain or ``.gz``.
    """

    def __init__(self, path: PathLike) -> None:
        self._path = path
        self._file: Optional[IO[bytes]] = None

    def __enter__(self) -> PartitionReader:
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self, partition: Partition) -> List[Question]:
        """Read the questions of a partition, those that a filter leaves out among them.

        Parameters
        ----------
        partition : Partition
            The partition.

        Returns
        -------
        list of Question

        Raises
        ------
        DataError
            If the file cannot be read, or a line is not canonical.
        """
        if self._file is None:
            self._file = open_lines(self._path)
        file = self._file
        try:
            file.seek(partition.start)
        except DAMAGE as error:
            raise DataError(
                self._path, f"cannot be read ({error})", "a whole file", "fetch or write it again"
            ) from None
        lines = bounded_lines(file, self._path, LONGEST_QUESTION, first=partition.line)
        questions: List[Question] = []
        for number, line in decoded_lines(lines, self._path):
            questions.append(parse_question(line, f"{self._path}, line {number}"))
            if file.tell() >= partition.end:
                break
        return questions
