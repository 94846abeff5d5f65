"""Canonical JSONL: one question a line, checked strictly."""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

from wqa.config import parse_json
from wqa.data.files import PathLike, atomic_writer
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
        question = _question(_json(line, where), where, with_candidates)
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


def _json(line: str, where: str) -> Any:
    """Value of a line, whose objects have unique keys."""

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        keys: Set[str] = set()
        for key, _ in pairs:
            if key in keys:
                raise DataError(
                    where, f"key {shorten(key)} occurs twice in one object", "each key once"
                )
            keys.add(key)
        return dict(pairs)

    try:
        return parse_json(line, object_pairs_hook=unique)
    except ValueError as error:
        problem = f"malformed JSON ({error})" if line.strip() else "an empty line"
        raise DataError(
            where, problem, "one JSON object a line", "mend or delete the line"
        ) from None


def _keys(value: Any, needed: Set[str], optional: Set[str], where: str) -> Dict[str, Any]:
    """The value as an object that has all needed keys, and only needed or optional keys."""
    if not isinstance(value, dict):
        raise DataError(where, shorten(value), "a JSON object with " + ", ".join(sorted(needed)))
    for key in sorted(needed - set(value)):
        raise DataError(where, f"no key {key!r}", "the keys " + ", ".join(sorted(needed)))
    known = needed | optional
    for key in value:
        if key not in known:
            raise DataError(
                where, f"unknown key {shorten(key)}", "only " + ", ".join(sorted(known))
            )
    return value


def _text(value: Any, name: str, where: str) -> str:
    """The value as a string that UTF-8 can represent."""
    if not isinstance(value, str):
        raise DataError(where, f"{name} is {shorten(value)}", "a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(
            where, f"{name} holds half a surrogate pair", "whole characters", "mend its escapes"
        ) from None
    return value


def _question(value: Any, where: str, with_candidates: bool) -> Question:
    needed = {"id", "question"}
    if with_candidates:
        needed.add("candidates")
    fields = _keys(value, needed, {"candidates", "answers"}, where)
    for name in ("id", "question"):
        if not _text(fields[name], name, where).strip():
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
        if not _text(item, f"answer {number}", where).strip():
            raise DataError(where, f"answer {number} is empty", "text")
    return tuple(items)


def _candidate(value: Any, where: str) -> Candidate:
    fields = _keys(value, {"text"}, {"label", "id"}, where)
    text = _text(fields["text"], "text", where)
    label = fields.get("label")
    if "label" in fields and (type(label) is not int or label not in (0, 1)):
        raise DataError(
            where, f"label is {shorten(label)}", "0 or 1, or no label where it is not known"
        )
    document_id = None
    if "id" in fields:
        document_id = _text(fields["id"], "id", where)
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
    lines = map(_to_bytes, questions)
    with atomic_writer(path, "wb") as raw:
        if pathlib.Path(path).suffix == ".gz":
            # No name and no time in the header: the same questions give the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                packed.writelines(lines)
        else:
            raw.writelines(lines)


def _to_bytes(question: Question) -> bytes:
    try:
        return (to_line(question) + "\n").encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(
            f"question {shorten(question.id)}",
            "its texts hold half a surrogate pair",
            "whole characters",
        ) from None
