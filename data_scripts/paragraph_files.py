"""Documents as paragraphs of sentences: JSONL, one document a line, and which of them are long.

A line is {"id": "d1", "paragraphs": [["A sentence.", "Another one."], ["A third one."]]}.
"""

import json
from typing import NamedTuple

from releases import expecting

from wqa.errors import DataError, shorten
from wqa.io.lines import checked_utf8, json_value, object_of, text_lines, text_of
from wqa.io.progress import note_counts

#: Ends of the names of a folder's files of documents.
SUFFIXES = (".jsonl", ".jsonl.gz")
#: Least numbers of characters, those of the authors of MSPP.
SENTENCE, PARAGRAPH, DOCUMENT = 20, 60, 200
#: Counts of the documents of a split.
FIGURES = ("documents", "paragraphs", "sentences", "characters", "single_paragraphs", "examples")


class ParagraphDocument(NamedTuple):
    """A document as its paragraphs, each of them a tuple of sentences."""

    id: str
    paragraphs: tuple


def to_line(document):
    """Render a document as one line, without its line end."""
    where = f"document {shorten(document.id)}"
    return checked_utf8(json.dumps(document._asdict(), ensure_ascii=False), where)


def paragraph_files(source):
    """Return the files of a source of documents, a file or a folder."""
    if not source.is_dir():
        return [source]
    files = [path for path in sorted(source.glob("[!.]*")) if path.name.endswith(SUFFIXES)]
    if not files:
        hint = "write them with data_scripts/paragraphs.py, or name another folder"
        raise DataError(source, "holds no file of documents", " or ".join(SUFFIXES), hint)
    return files


def read_paragraphs(path):
    """Yield the documents of a file, plain or .gz."""
    for number, line in text_lines(path):
        where = f"{path}, line {number}"
        keys = {"id", "paragraphs"}
        fields = object_of(json_value(line, where), keys, keys, where)
        name = text_of(fields["id"], "id", where)
        with expecting(where, "paragraphs, lists of sentences, none of them empty"):
            paragraphs = tuple(map(_paragraph, fields["paragraphs"]))
            if not paragraphs:
                raise ValueError("no paragraph")
        yield ParagraphDocument(name, paragraphs)


def _paragraph(sentences):
    if not isinstance(sentences, list) or not sentences or not all(map(str.strip, sentences)):
        raise ValueError(f"a paragraph is {shorten(sentences)}")
    return tuple(sentences)


def count(document, counts):
    """Count a document. A paragraph of two sentences or more is an example of an epoch."""
    counts["documents"] += 1
    counts["paragraphs"] += len(document.paragraphs)
    counts["single_paragraphs"] += len(document.paragraphs) == 1
    for paragraph in document.paragraphs:
        counts["sentences"] += len(paragraph)
        counts["examples"] += len(paragraph) > 1
        counts["characters"] += sum(map(len, paragraph))


def keep_long(documents, counts):
    """Yield the documents that are long enough, with their paragraphs and sentences that are."""
    for document in documents:
        lengths = [len(" ".join(paragraph)) for paragraph in document.paragraphs]
        kept = []
        if sum(lengths) + len(lengths) - 1 >= DOCUMENT:
            for paragraph, length in zip(document.paragraphs, lengths):
                long = tuple(sentence for sentence in paragraph if len(sentence) >= SENTENCE)
                if long and length >= PARAGRAPH:
                    kept.append(long)
                    counts["short sentence"] += len(paragraph) - len(long)
        if not kept:
            counts["short document"] += 1
            continue
        counts["short paragraph"] += len(lengths) - len(kept)
        document = ParagraphDocument(document.id, tuple(kept))
        count(document, counts)
        yield document


def note_left_out(counts, where):
    """Print on standard error what is left out, if anything."""
    parts = []
    for kind in ("document", "paragraph", "sentence"):
        parts.append((counts[f"short {kind}"], kind, "too short and left out"))
    single = counts["single_paragraphs"]
    parts.append((single, "document", "of one paragraph, which get no hard negatives"))
    note_counts(where, parts)
