"""Canonical JSONL: one question a line, strict in what it takes."""

from __future__ import annotations

import gzip
import json
import pathlib
import zlib
from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

from wqa.data.files import PathLike, atomic_writer
from wqa.data.records import Candidate, Question
from wqa.errors import DataError, shorten


def read_questions(path: PathLike) -> Iterator[Question]:
    """Read canonical JSONL, plain or ``.gz``, one question at a time.

    Parameters
    ----------
    path : str or path-like
        The file.

    Yields
    ------
    Question

    Raises
    ------
    DataError
        At the first line that is not canonical; the message names file and line.
    """
    seen: Dict[str, int] = {}
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        question = _question(_json(line, where), where)
        if question.id in seen:
            raise DataError(
                where,
                f"question id {shorten(question.id)} stands on line {seen[question.id]} too",
                "ids that are unique in a file",
                "rename one of the two",
            )
        seen[question.id] = number
        yield question
    if not seen:
        raise DataError(path, "the file holds no question", "one JSON object a line")


def _lines(path: PathLike) -> Iterator[Tuple[int, str]]:
    number = 0
    try:
        with (gzip.open if str(path).endswith(".gz") else open)(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    yield number, raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise DataError(
                        f"{path}, line {number}",
                        f"byte {error.start} is not UTF-8",
                        "UTF-8 text",
                        "convert the file, for example with iconv",
                    ) from None
    except FileNotFoundError:
        raise DataError(path, "there is no such file", mend="check the path") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}, after line {number}",
            f"cannot be read ({error})",
            "a whole file",
            "fetch or write it again",
        ) from None


def _json(line: str, where: str) -> Any:
    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        keys: Set[str] = set()
        for key, _ in pairs:
            if key in keys:
                raise DataError(
                    where, f"key {shorten(key)} stands twice in one object", "each key once"
                )
            keys.add(key)
        return dict(pairs)

    try:
        return json.loads(line, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        found = f"malformed JSON ({error})" if line.strip() else "an empty line"
        raise DataError(where, found, "one JSON object a line", "mend or delete the line") from None


def _keys(value: Any, needed: Set[str], optional: Set[str], where: str) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(where, shorten(value), "a JSON object with " + ", ".join(sorted(needed)))
    for key in sorted(needed - set(value)):
        raise DataError(where, f"no key {key!r}", "the keys " + ", ".join(sorted(needed)))
    for key in value:
        if key not in needed | optional:
            raise DataError(
                where, f"unknown key {shorten(key)}", "only " + ", ".join(sorted(needed | optional))
            )
    return value


def _text(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(where, f"{name} is {shorten(value)}", "a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(
            where, f"{name} holds half a surrogate pair", "whole characters", "mend its escapes"
        ) from None
    return value


def _question(value: Any, where: str) -> Question:
    fields = _keys(value, {"id", "question", "candidates"}, set(), where)
    for name in ("id", "question"):
        if not _text(fields[name], name, where).strip():
            raise DataError(where, f"{name} is empty", "text")
    if not isinstance(fields["candidates"], list) or not fields["candidates"]:
        raise DataError(
            where,
            f"candidates is {shorten(fields['candidates'])}",
            "a list of at least one candidate",
        )
    candidates = tuple(
        _candidate(item, f"{where}, candidate {place}")
        for place, item in enumerate(fields["candidates"], 1)
    )
    return Question(fields["id"], fields["question"], candidates)


def _candidate(value: Any, where: str) -> Candidate:
    fields = _keys(value, {"text"}, {"label"}, where)
    label = fields.get("label")
    if "label" in fields and (type(label) is not int or label not in (0, 1)):
        raise DataError(
            where, f"label is {shorten(label)}", "0 or 1, or no label where it is not known"
        )
    return Candidate(_text(fields["text"], "text", where), label)


def to_line(question: Question) -> str:
    """Render a question as one canonical line, without its line end.

    Parameters
    ----------
    question : Question

    Returns
    -------
    str
    """
    candidates = [
        {"text": text} if label is None else {"text": text, "label": label}
        for text, label in question.candidates
    ]
    return json.dumps(
        {"id": question.id, "question": question.question, "candidates": candidates},
        ensure_ascii=False,
    )


def write_questions(path: PathLike, questions: Iterable[Question]) -> None:
    """Write canonical JSONL, plain or ``.gz``; the file appears when it is whole.

    Parameters
    ----------
    path : str or path-like
    questions : iterable of Question

    Raises
    ------
    StorageError
        If the file cannot be written.
    """
    with atomic_writer(path, "wb") as raw:
        if pathlib.Path(path).suffix == ".gz":
            # No name and no time in the header: the same questions give the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                packed.writelines(
                    (to_line(question) + "\n").encode("utf-8") for question in questions
                )
        else:
            raw.writelines((to_line(question) + "\n").encode("utf-8") for question in questions)
