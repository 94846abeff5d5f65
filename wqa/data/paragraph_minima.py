"""Least lengths of sentences, paragraphs and documents for pre-training, and what they leave out.

The lengths are those of the authors of MSPP: 20, 60 and 200 characters.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Iterable, Iterator, List

from wqa.data.paragraphs import Paragraph, ParagraphDocument
from wqa.errors import OptionError, printable
from wqa.io.files import PathLike

LOGGER = logging.getLogger(__name__)


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
                long = _long_sentences(paragraph, minima) if length >= minima.paragraph else ()
                if long:
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


def _long_sentences(paragraph: Paragraph, minima: Minima) -> Paragraph:
    return tuple(sentence for sentence in paragraph if len(sentence) >= minima.sentence)


def note_left_out(counts: ParagraphCounts, where: PathLike = "") -> None:
    """Print on standard error, in one line, what the minima leave out, if anything.

    Parameters
    ----------
    counts : ParagraphCounts
        Counts of a source.
    where : str or path-like
        The source; empty where the output names it.
    """
    parts = []
    for name in ("document", "paragraph", "sentence"):
        count = getattr(counts, f"short_{name}s")
        if count:
            parts.append(f"{_counted(count, name)} too short and left out")
    if counts.single_paragraphs:
        number = _counted(counts.single_paragraphs, "document")
        parts.append(f"{number} of one paragraph, which get no hard negatives")
    if parts:
        name = f"{where}: " if str(where) else ""
        LOGGER.warning(printable(f"{name}{', '.join(parts)}"))


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'s' if count > 1 else ''}"
