"""JSON lines that are checked strictly: documents of a collection, and claims with their evidence.

Questions are searched in a collection of documents. Claims are verified.
"""

from __future__ import annotations

import functools
from typing import Any, Dict, Iterable, Iterator, Mapping, NamedTuple, Optional, Tuple

from wqa.data.ir_names import is_ir_name, read_dataset_documents
from wqa.data.records import check_id
from wqa.errors import DataError, shorten
from wqa.io import lines
from wqa.io.files import PathLike


class Document(NamedTuple):
    """A document of a collection, such as a paragraph of an article.

    Attributes
    ----------
    id : str
        The document's id, unique in its collection. It holds no white space.
    text : str
        The document's text, not blank.
    title : str
        Its title, such as the name of the article; empty where it has none.
    meta : dict of str to Any, optional
        What else is known of it, as values of JSON; None where it is absent. Candidates that
        `wqa.retrieval.collection` makes of documents have it too.
    """

    id: str
    text: str
    title: str = ""
    meta: Optional[Mapping[str, Any]] = None

    @property
    def full_text(self) -> str:
        """What models read: title and text in two lines, or the text where there is no title."""
        if not self.title:
            return self.text
        return f"{self.title}\n{self.text}"


def read_documents(path: PathLike) -> Iterator[Document]:
    """Read a file of documents, plain or ``.gz``, one document at a time.

    Parameters
    ----------
    path : str or path-like
        JSONL; it is unpacked if its name ends in ``.gz``. Or ``ir:`` and the name of a dataset of
        `ir_datasets`, whose documents have no title apart.

    Yields
    ------
    Document
        The documents in the order of their lines.

    Raises
    ------
    DataError
        At the first line that is no document, whose text is blank, or whose id is that of a line
        before; the message names file and line. Also if there is no line.
    """
    if is_ir_name(path):
        for name, text in read_dataset_documents(str(path)):
            check_id(name, f"{path}, document {shorten(name)}")
            yield Document(name, text)
        return
    yield from lines.read_records(path, "document", parse_document)


def _id_of(value: Any, name: str, where: str) -> str:
    """Take a value as the id of a document."""
    check_id(lines.text_of(value, name, where), where)
    return value


_FIELDS = {
    "id": _id_of,
    "text": lines.filled_text,
    "title": lines.filled_text,
    "meta": lines.meta_of,
}
_NEEDED = {"id", "text"}


def parse_document(line: str, where: str) -> Document:
    """Parse one line of a file of documents."""
    return Document(**lines.fields_of(lines.json_value(line, where), _FIELDS, _NEEDED, where))


def write_documents(path: PathLike, documents: Iterable[Document]) -> None:
    """Write a file of documents, plain or ``.gz``; the file appears when it is whole.

    Parameters
    ----------
    path : str or path-like
        The file; it is packed if its name ends in ``.gz``.
    documents : iterable of Document
        The documents, one a line. A blank title is left out.

    Raises
    ------
    DataError
        If a document's id, text or ``meta`` is not valid, or two documents have the same id.
    StorageError
        If the file cannot be written.
    """
    lines.write_lines(path, lines.record_lines(documents, "document", _fields))


def _fields(document: Document, where: str) -> Dict[str, Any]:
    fields: Dict[str, Any] = {"id": document.id, "text": document.text}
    if document.title.strip():
        fields["title"] = document.title
    if document.meta is not None:
        fields["meta"] = document.meta
    return lines.fields_of(fields, _FIELDS, _NEEDED, where)


#: Labels of FEVER (Thorne et al. 2018), in the order of a network's outputs.
LABELS = ("SUPPORTS", "NOT ENOUGH INFO", "REFUTES")
#: The evidence of a claim for which none was retrieved, as the authors of MSPP have it.
NO_EVIDENCE = "no doc. "


class Claim(NamedTuple):
    """A claim with what was retrieved for it.

    Attributes
    ----------
    id : str
        The claim's id, unique in its corpus.
    claim : str
        Its text.
    evidence : tuple of str
        At least one text, the best one first. FEVER's are a title and a sentence; a claim for which
        nothing was retrieved has `NO_EVIDENCE`.
    label : str, optional
        One of `LABELS`; None if it is not known.
    """

    id: str
    claim: str
    evidence: Tuple[str, ...]
    label: Optional[str] = None

    @property
    def question(self) -> str:
        """The claim, which takes the place of a question."""
        return self.claim


def read_claims(path: PathLike, labelled: bool = True) -> Iterator[Claim]:
    """Read a file of claims, plain or ``.gz``, one claim at a time.

    Parameters
    ----------
    path : str or path-like
        JSONL; it is unpacked if its name ends in ``.gz``.
    labelled : bool
        Whether each claim must have a label. Claims to label need none.

    Yields
    ------
    Claim
        The claims in the order of their lines.

    Raises
    ------
    DataError
        At the first line that is no claim, whose label is unknown or missing, or whose id is that
        of a line before; the message names file and line. Also if there is no line.
    """
    return lines.read_records(path, "claim", functools.partial(_parse_claim, labelled=labelled))


def label_of(value: Any, name: str, where: str) -> str:
    """Take a value as the label of a claim."""
    if value not in LABELS:
        raise DataError(where, f"{name} is {shorten(value)}", "one of " + ", ".join(LABELS))
    return value


_HINT = f"give {NO_EVIDENCE!r} where nothing was retrieved"
_CLAIM: Dict[str, lines.Check] = {
    "id": lines.filled_text,
    "claim": lines.filled_text,
    "evidence": functools.partial(lines.filled_texts, hint=_HINT),
    "label": label_of,
}
_UNLABELLED = {"id", "claim", "evidence"}


def _parse_claim(line: str, where: str, labelled: bool) -> Claim:
    needed = set(_CLAIM) if labelled else _UNLABELLED
    return Claim(**lines.fields_of(lines.json_value(line, where), _CLAIM, needed, where))


def write_claims(path: PathLike, claims: Iterable[Claim]) -> None:
    """Write a file of claims, plain or ``.gz``; the file appears when it is whole.

    Parameters
    ----------
    path : str or path-like
        The file; it is packed if its name ends in ``.gz``.
    claims : iterable of Claim
        The claims, one a line; ``label`` is absent where it is not known.

    Raises
    ------
    DataError
        If a claim is not valid, or two claims have the same id.
    StorageError
        If the file cannot be written.
    """
    lines.write_lines(path, lines.record_lines(claims, "claim", _claim_fields))


def _claim_fields(claim: Claim, where: str) -> Dict[str, Any]:
    fields = claim._asdict()
    if claim.label is None:
        del fields["label"]
    return lines.fields_of(fields, _CLAIM, _UNLABELLED, where)
