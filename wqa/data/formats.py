"""Canonical JSONL: one question a line, checked strictly; and the built-in corpus.

Questions are also read from tables and from `ir_datasets`.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
from typing import Any, Dict, Iterable, Iterator, List, Tuple

from wqa.data.ir_names import is_ir_name, read_dataset
from wqa.data.records import Candidate, Question, check_document_ids
from wqa.data.tables import is_table, read_question_table
from wqa.errors import DataError, check_choice, shorten
from wqa.io import lines
from wqa.io.files import PathLike, sha256

#: Greatest length of a line, a question with its candidates, in bytes.
LONGEST_QUESTION = 1 << 28


def read_questions(path: PathLike, with_candidates: bool = True) -> Iterator[Question]:
    """Read questions, one at a time.

    Parameters
    ----------
    path : str or path-like
        Canonical JSONL. Or a table, CSV or, if its name ends in ``.tsv``, with tabs: a row for each
        candidate, in the columns ``question`` and ``candidate``, and perhaps ``label``, 0, 1 or
        empty, and ``id``, of the candidate; rows with the same question need not stand together,
        and the questions are numbered from 1. Files are unpacked if their names end in ``.gz``. Or
        a name of `ir_datasets` after ``ir:``, as `wqa.data.ir_names.read_dataset` reads it.
    with_candidates : bool
        Whether each question must have candidates. Questions to retrieve documents for need none.

    Yields
    ------
    Question
        The questions in the order of their lines, or of their first rows.

    Raises
    ------
    DataError
        At the first line, row or question that does not fit, which the message names. Or if a
        dataset of `ir_datasets` is unknown or cannot be read.
    MissingDependency
        If the name is one of `ir_datasets`, which is not installed.
    """
    if is_ir_name(path) or is_table(path):
        read = read_dataset if is_ir_name(path) else read_question_table
        return read(str(path), with_candidates)
    parse = functools.partial(parse_question, with_candidates=with_candidates)
    return lines.read_records(path, "question", parse, LONGEST_QUESTION)


def data_digest(path: PathLike) -> str:
    """Compute the digest of a corpus, which tells it from any other.

    Parameters
    ----------
    path : str or path-like
        Corpus, as `read_questions` takes it.

    Returns
    -------
    str
        SHA-256 in hexadecimal: of the file, or of the canonical lines of a dataset.

    Raises
    ------
    OSError
        If the file cannot be read.
    DataError, MissingDependency
        If a dataset cannot be read.
    """
    if not is_ir_name(path):
        return sha256(path)
    digest = hashlib.sha256()
    for question in read_questions(path):
        digest.update((to_line(question) + "\n").encode("utf-8"))
    return digest.hexdigest()


def read_candidates(path: PathLike) -> List[Candidate]:
    """Read candidates of one question, each as in canonical JSONL, one a line.

    Parameters
    ----------
    path : str or path-like
        The file; it is unpacked if its name ends in ``.gz``.

    Returns
    -------
    list of Candidate
        The candidates in their order.

    Raises
    ------
    DataError
        At the first line that is no candidate, or if an id repeats or there is no line.
    """
    candidates = []
    for number, line in lines.text_lines(path, LONGEST_QUESTION):
        where = f"{path}, line {number}"
        candidates.append(_candidate(lines.json_value(line, where), where))
    if not candidates:
        raise DataError(path, "the file holds no candidate", "one JSON object a line")
    check_document_ids(Question("", "", tuple(candidates)), str(path))
    return candidates


def _label_of(value: Any, name: str, where: str) -> int:
    if type(value) is not int or value not in (0, 1):
        expected = "0 or 1, or no label where it is not known"
        raise DataError(where, f"{name} is {shorten(value)}", expected)
    return value


_CANDIDATE = {"text": lines.text_of, "label": _label_of, "id": lines.text_of, "meta": lines.meta_of}


def _candidate(value: Any, where: str) -> Candidate:
    return Candidate(**lines.fields_of(value, _CANDIDATE, {"text"}, where))


def _candidates_of(values: Any, name: str, where: str) -> Tuple[Candidate, ...]:
    if not isinstance(values, list) or not values:
        raise DataError(where, f"{name} is {shorten(values)}", "a list of at least one candidate")
    numbered = enumerate(values, 1)
    return tuple(_candidate(value, f"{where}, candidate {number}") for number, value in numbered)


_HINT = "leave answers out where they are not known"
_QUESTION: Dict[str, lines.Check] = {
    "id": lines.filled_text,
    "question": lines.filled_text,
    "candidates": _candidates_of,
    "answers": functools.partial(lines.filled_texts, hint=_HINT),
}


def parse_question(line: str, where: str, with_candidates: bool = True) -> Question:
    """Parse one line of canonical JSONL."""
    needed = {"id", "question", "candidates"} if with_candidates else {"id", "question"}
    fields = lines.fields_of(lines.json_value(line, where), _QUESTION, needed, where)
    question = Question(**{"candidates": (), **fields})
    check_document_ids(question, where)
    return question


def _fields(question: Question, where: str) -> Dict[str, Any]:
    candidates = []
    for candidate in question.candidates:
        values = candidate._replace(rank=None)._asdict()
        candidates.append({name: value for name, value in values.items() if value is not None})
    fields: Dict[str, Any] = {"id": question.id, "question": question.question}
    if candidates:
        fields["candidates"] = candidates
    if question.answers:
        fields["answers"] = list(question.answers)
    lines.fields_of(fields, _QUESTION, set(fields), where)
    check_document_ids(question, where)
    return fields


def to_line(question: Question) -> str:
    """Render a question as one canonical line, without its line end."""
    return next(lines.record_lines([question], "question", _fields))


def write_questions(path: PathLike, questions: Iterable[Question]) -> None:
    """Write canonical JSONL, plain or ``.gz``; the file appears when it is whole.

    Parameters
    ----------
    path : str or path-like
        The file; it is packed if its name ends in ``.gz``.
    questions : iterable of Question
        The questions, one a line.

    Raises
    ------
    DataError
        If `read_questions` would refuse a question, or read the file as a table.
    StorageError
        If the file cannot be written.
    """
    if is_table(path):
        raise DataError(path, "it has the name of a table", "a name such as questions.jsonl")
    lines.write_lines(path, lines.record_lines(questions, "question", _fields))


#: The small corpus that was written for this project: 100 / 25 / 25 questions.
BUILTIN, BUILTIN_SPLITS = pathlib.Path(__file__).with_name("builtin"), ("train", "dev", "test")


def builtin_path(split: str) -> pathlib.Path:
    """Path of a split of the built-in corpus.

    Parameters
    ----------
    split : {"train", "dev", "test"}
        The split.

    Returns
    -------
    pathlib.Path
        A canonical JSONL file.

    Raises
    ------
    OptionError
        If there is no such split.
    """
    check_choice("split", split, BUILTIN_SPLITS)
    return BUILTIN / f"{split}.jsonl"
