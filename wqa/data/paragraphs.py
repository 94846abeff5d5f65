"""Documents as paragraphs of sentences, for pre-training: JSONL, one document a line."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Iterable, Iterator, List, NamedTuple, Tuple

from wqa.data.records import check_id
from wqa.errors import DataError, shorten
from wqa.io.files import PathLike
from wqa.io.lines import (
    UniqueIds,
    checked_utf8,
    json_value,
    object_of,
    text_lines,
    text_of,
    write_lines,
)

#: Ends of the names of a folder's files of documents.
SUFFIXES = (".jsonl", ".jsonl.gz")
#: Number of documents before a document that its id is compared with. Sources for pre-training hold
#: more documents than their ids fit in memory.
RECENT_IDS = 1 << 16

Paragraph = Tuple[str, ...]


class ParagraphDocument(NamedTuple):
    """A document as its paragraphs.

    Attributes
    ----------
    id : str
        The document's id, unique in its file. It holds no white space.
    paragraphs : tuple of tuple of str
        The sentences of each paragraph, at least one, none of them blank.
    """

    id: str
    paragraphs: Tuple[Paragraph, ...]


def paragraph_files(source: PathLike) -> List[pathlib.Path]:
    """Files of a source of documents."""
    path = pathlib.Path(source)
    if not path.is_dir():
        if not path.exists():
            raise DataError(path, "cannot be read (no such file or folder)", mend="check the path")
        return [path]
    files = []
    for entry in sorted(path.iterdir()):
        if entry.name.endswith(SUFFIXES) and not entry.name.startswith(".") and entry.is_file():
            files.append(entry)
    if not files:
        raise DataError(
            path,
            "the folder holds no file of documents",
            "files whose names end in " + " or ".join(SUFFIXES),
            "write them with data_scripts/paragraphs.py, or name another folder",
        )
    return files


def read_paragraphs(path: PathLike) -> Iterator[ParagraphDocument]:
    """Read a file of documents, plain or ``.gz``, one document at a time.

    Parameters
    ----------
    path : str or path-like
        JSONL; it is unpacked if its name ends in ``.gz``.

    Yields
    ------
    ParagraphDocument
        The documents in the order of their lines.

    Raises
    ------
    DataError
        At the first line that is no document, that has a blank sentence, or whose id is that of one
        of the `RECENT_IDS` lines before; the message names file and line. Also if there is no line.
    """
    ids = UniqueIds("document", RECENT_IDS)
    number = 0
    for number, line in text_lines(path):
        where = f"{path}, line {number}"
        document = _document(json_value(line, where), where)
        ids.add(document.id, where, number)
        yield document
    if not number:
        raise DataError(path, "the file holds no document", "one JSON object a line")


def _document(value: Any, where: str) -> ParagraphDocument:
    fields = object_of(value, {"id", "paragraphs"}, set(), where)
    check_id(text_of(fields["id"], "id", where), where)
    paragraphs = []
    for number, sentences in enumerate(_list(fields["paragraphs"], "paragraphs", where), 1):
        paragraphs.append(_paragraph(sentences, f"{where}, paragraph {number}"))
    return ParagraphDocument(fields["id"], tuple(paragraphs))


def _paragraph(value: Any, where: str) -> Paragraph:
    sentences = tuple(_list(value, "sentences", where))
    for number, sentence in enumerate(sentences, 1):
        if not text_of(sentence, f"sentence {number}", where).strip():
            raise DataError(where, f"sentence {number} is blank", "text", "delete the sentence")
    return sentences


def _list(value: Any, name: str, where: str) -> List[Any]:
    if not isinstance(value, (list, tuple)) or not value:
        raise DataError(where, f"{name} is {shorten(value)}", "a list that is not empty")
    return list(value)


def to_line(document: ParagraphDocument) -> str:
    """Render a document as one line, without its line end."""
    fields = {"id": document.id, "paragraphs": [list(item) for item in document.paragraphs]}
    where = f"document {shorten(document.id)}"
    _document(fields, where)
    return checked_utf8(json.dumps(fields, ensure_ascii=False), where)


def write_paragraphs(path: PathLike, documents: Iterable[ParagraphDocument]) -> None:
    """Write a file of documents, plain or ``.gz``; the file appears when it is whole.

    Parameters
    ----------
    path : str or path-like
        The file; it is packed if its name ends in ``.gz``.
    documents : iterable of ParagraphDocument
        The documents, one a line.

    Raises
    ------
    DataError
        If a document is not valid, or has the id of one of the `RECENT_IDS` documents before.
    StorageError
        If the file cannot be written.
    """
    write_lines(path, _lines(documents))


def _lines(documents: Iterable[ParagraphDocument]) -> Iterator[str]:
    ids = UniqueIds("document", RECENT_IDS)
    for number, document in enumerate(documents, 1):
        ids.add(document.id, f"document {shorten(document.id)}", number)
        yield to_line(document)
