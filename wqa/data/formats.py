"""Canonical JSONL: one question a line, checked strictly."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, Iterator, List, Tuple

from wqa.data.files import PathLike
from wqa.data.json_lines import checked_utf8, json_value, object_of, text_of, write_lines
from wqa.data.lines import text_lines
from wqa.data.records import Candidate, Question, check_document_ids
from wqa.errors import DataError, shorten

#: Greatest length of a line, a question with its candidates, in bytes.
LONGEST_QUESTION = 1 << 28


def read_questions(path: PathLike, with_candidates: bool = True) -> Iterator[Question]:
    """Read canonical JSONL, plain or ``.gz``, one question at a time.

    Parameters
    ----------
    path : str or path-like
        The file; it is unpacked if its name ends in ``.gz``.
    with_candidates : bool
        Whether each question must have candidates. Questions to retrieve documents for need none.

    Yields
    ------
    Question
        The questions in the order of their lines.

    Raises
    ------
    DataError
        At the first line that is not canonical; the message names file and line.
    """
    lines_of_ids: Dict[str, int] = {}
    for number, line in text_lines(path, LONGEST_QUESTION):
        where = f"{path}, line {number}"
        question = _question(json_value(line, where), where, with_candidates)
        if question.id in lines_of_ids:
            raise DataError(
                where,
                f"question id {shorten(question.id)} is on line {lines_of_ids[question.id]} too",
                "ids that are unique in a file",
                "rename one of the two",
            )
        lines_of_ids[question.id] = number
        yield question
    if not lines_of_ids:
        raise DataError(path, "the file holds no question", "one JSON object a line")


def _question(value: Any, where: str, with_candidates: bool) -> Question:
    needed = {"id", "question"}
    if with_candidates:
        needed.add("candidates")
        if isinstance(value, dict) and needed - set(value) == {"candidates"}:
            raise DataError(
                where,
                "no key 'candidates'",
                "a question with its candidates",
                "add them, or let `wqa retrieve` find them in documents",
            )
    fields = object_of(value, needed, {"candidates", "answers"}, where)
    for name in ("id", "question"):
        if not text_of(fields[name], name, where).strip():
            raise DataError(where, f"{name} is empty", "text")
    candidates: List[Candidate] = []
    if "candidates" in fields:
        items = fields["candidates"]
        if not isinstance(items, list) or not items:
            expected = "a list of at least one candidate"
            raise DataError(where, f"candidates is {shorten(items)}", expected)
        for number, item in enumerate(items, 1):
            candidates.append(_candidate(item, f"{where}, candidate {number}"))
    answers: Tuple[str, ...] = ()
    if "answers" in fields:
        answers = _answers(fields["answers"], where)
    question = Question(fields["id"], fields["question"], tuple(candidates), answers)
    check_document_ids(question, where)
    return question


def _answers(items: Any, where: str) -> Tuple[str, ...]:
    if not isinstance(items, list) or not items:
        raise DataError(
            where,
            f"answers is {shorten(items)}",
            "a list of at least one text, or no answers where they are not known",
        )
    for number, item in enumerate(items, 1):
        if not text_of(item, f"answer {number}", where).strip():
            raise DataError(where, f"answer {number} is empty", "text")
    return tuple(items)


def _candidate(value: Any, where: str) -> Candidate:
    fields = object_of(value, {"text"}, {"label", "id"}, where)
    text = text_of(fields["text"], "text", where)
    label = fields.get("label")
    if "label" in fields and (type(label) is not int or label not in (0, 1)):
        raise DataError(
            where, f"label is {shorten(label)}", "0 or 1, or no label where it is not known"
        )
    document_id = None
    if "id" in fields:
        document_id = text_of(fields["id"], "id", where)
    return Candidate(text, label, document_id)


def to_line(question: Question) -> str:
    """Render a question as one canonical line, without its line end.

    Parameters
    ----------
    question : Question
        The question to render.

    Returns
    -------
    str
        A JSON object. ``label`` and ``id`` are absent where a candidate has none, ``candidates``
        and ``answers`` where the question has none.

    Raises
    ------
    DataError
        If the ids of its candidates are not canonical.
    """
    check_document_ids(question, f"question {shorten(question.id)}")
    candidates = []
    for candidate in question.candidates:
        fields: Dict[str, Any] = {"text": candidate.text}
        if candidate.label is not None:
            fields["label"] = candidate.label
        if candidate.id is not None:
            fields["id"] = candidate.id
        candidates.append(fields)
    fields = {"id": question.id, "question": question.question}
    if candidates:
        fields["candidates"] = candidates
    if question.answers:
        fields["answers"] = list(question.answers)
    return json.dumps(fields, ensure_ascii=False)


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
        If the ids of a question's candidates are not canonical, or a text is not valid Unicode.
    StorageError
        If the file cannot be written.
    """
    write_lines(path, map(_checked_line, questions))


def _checked_line(question: Question) -> str:
    return checked_utf8(to_line(question), f"question {shorten(question.id)}")
