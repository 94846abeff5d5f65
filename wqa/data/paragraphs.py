"""Documents as paragraphs of sentences, for pre-training: JSONL, one document a line.

`keep_long` leaves out what is short. The least lengths are those of the authors of MSPP: 20, 60 and
200 characters.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, Iterable, Iterator, List, NamedTuple, Tuple

from wqa.data.records import check_id
from wqa.errors import DataError, OptionError, shorten
from wqa.io.files import PathLike
from wqa.io.lines import (
    checked_utf8,
    json_value,
    object_of,
    text_lines,
    text_of,
    write_lines,
)
from wqa.io.progress import note_counts

#: Ends of the names of a folder's files of documents.
SUFFIXES = (".jsonl", ".jsonl.gz")

Paragraph = Tuple[str, ...]


class ParagraphDocument(NamedTuple):
    """A document as its paragraphs.

    Attributes
    ----------
    id : str
        The document's id. It holds no white space.
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
            raise DataError(path, "cannot be read (no such file or folder)", hint="check the path")
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
        At the first line that is no document, or has a blank sentence; the message names file and
        line. Also if there is no line.
    """
    number = 0
    for number, line in text_lines(path):
        yield _parse(line, f"{path}, line {number}")
    if not number:
        raise DataError(path, "the file holds no document", "one JSON object a line")


def _parse(line: str, where: str) -> ParagraphDocument:
    return _document(json_value(line, where), where)


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
        If a document is not valid.
    StorageError
        If the file cannot be written.
    """
    write_lines(path, map(to_line, documents))


@dataclasses.dataclass(frozen=True)
class Minima:
    """Least numbers of characters.

    Parameters
    ----------
    sentence : int
        Of a sentence.
    paragraph : int
        Of a paragraph: its sentences joined by spaces, the short ones among them.
    document : int
        Of a document: its paragraphs joined by line ends, the short ones among them.

    Raises
    ------
    OptionError
        If one is negative.
    """

    sentence: int = 20
    paragraph: int = 60
    document: int = 200

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value < 0:
                raise OptionError(f"minimum of a {field.name}", value, "0 or more characters")


@dataclasses.dataclass
class ParagraphCounts:
    """Counts of a source of documents.

    Attributes
    ----------
    documents, paragraphs, sentences : int
        Numbers of those that are kept.
    short_documents : int
        Documents that are left out whole: they are shorter than the minimum, or nothing of them is
        kept.
    short_paragraphs, short_sentences : int
        Paragraphs of the other documents, and sentences of the other paragraphs, that are left out.
    single_paragraphs : int
        Documents that are kept with one paragraph. They have no hard negatives.
    examples : int
        Paragraphs that are kept with two sentences or more, each of which is an example of an
        epoch.
    characters : int
        Characters of the sentences that are kept.
    """

    documents: int = 0
    paragraphs: int = 0
    sentences: int = 0
    short_documents: int = 0
    short_paragraphs: int = 0
    short_sentences: int = 0
    single_paragraphs: int = 0
    examples: int = 0
    characters: int = 0

    def add(self, document: ParagraphDocument) -> None:
        """Count a document that is kept.

        Parameters
        ----------
        document : ParagraphDocument
            The document.
        """
        self.documents += 1
        self.paragraphs += len(document.paragraphs)
        self.single_paragraphs += len(document.paragraphs) == 1
        for paragraph in document.paragraphs:
            self.sentences += len(paragraph)
            self.examples += len(paragraph) > 1
            self.characters += sum(map(len, paragraph))


def keep_long(
    documents: Iterable[ParagraphDocument], minima: Minima, counts: ParagraphCounts
) -> Iterator[ParagraphDocument]:
    """Leave out what is shorter than the minima.

    Parameters
    ----------
    documents : iterable of ParagraphDocument
        The documents.
    minima : Minima
        Least lengths.
    counts : ParagraphCounts
        Counts that are raised by what is kept and what is left out.

    Yields
    ------
    ParagraphDocument
        The other documents with their other paragraphs and sentences.
    """
    for document in documents:
        lengths = list(map(_length, document.paragraphs))
        kept: List[Paragraph] = []
        if sum(lengths) + len(lengths) - 1 >= minima.document:
            for paragraph, length in zip(document.paragraphs, lengths):
                long = tuple(item for item in paragraph if len(item) >= minima.sentence)
                if long and length >= minima.paragraph:
                    kept.append(long)
                    counts.short_sentences += len(paragraph) - len(long)
        if not kept:
            counts.short_documents += 1
            continue
        counts.short_paragraphs += len(lengths) - len(kept)
        document = ParagraphDocument(document.id, tuple(kept))
        counts.add(document)
        yield document


def _length(paragraph: Paragraph) -> int:
    return sum(map(len, paragraph)) + len(paragraph) - 1


def note_left_out(counts: ParagraphCounts, where: PathLike = "") -> None:
    """Print on standard error, in one line, what the minima leave out, if anything.

    Parameters
    ----------
    counts : ParagraphCounts
        Counts of a source.
    where : str or path-like
        The source; empty where the output names it.
    """
    left_out = "too short and left out"
    single = "of one paragraph, which get no hard negatives"
    parts = (
        (counts.short_documents, "document", left_out),
        (counts.short_paragraphs, "paragraph", left_out),
        (counts.short_sentences, "sentence", left_out),
        (counts.single_paragraphs, "document", single),
    )
    note_counts(where, parts)
