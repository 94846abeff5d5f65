"""Documents that people have: a folder of texts, Markdown and HTML, or a table of texts."""

from __future__ import annotations

import collections
import hashlib
import json
import logging
import os
import pathlib
import re
from typing import Callable, Dict, Iterator, Optional, Set, Tuple

from wqa.data.documents import LONGEST_DOCUMENT, Document, read_documents
from wqa.data.ir_names import is_ir_name
from wqa.data.markup import markdown_text, page_text
from wqa.data.records import check_id
from wqa.data.tables import is_table, read_rows
from wqa.errors import DataError, OptionError, printable, shorten
from wqa.io.files import PathLike, sha256
from wqa.io.lines import UniqueIds, open_bytes, without_mark

LOGGER = logging.getLogger(__name__)

#: Ends of the names of files that are documents, by their form.
FORMS = {".txt": "text", ".md": "markdown", ".html": "html", ".htm": "html"}
#: Files that other programs make texts of.
OFFICE = (".pdf", ".doc", ".docx", ".odt", ".rtf", ".epub")

_SPACE = re.compile(r"\s+")


class _LeftOut(collections.Counter):
    """Counts of files that are no documents, by the reason."""

    def note(self, path: pathlib.Path) -> None:
        """Print them on standard error."""
        if self:
            kinds = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.items()))
            LOGGER.warning(printable(f"{path}: left out: {kinds}"))


def read_folder(path: PathLike) -> Iterator[Document]:
    """Read the documents of a folder and of the folders in it.

    Parameters
    ----------
    path : str or path-like
        The folder. Files whose names end in ``.txt``, ``.md``, ``.html`` or ``.htm`` are
        documents. Others, those without a text and hidden ones are left out, and counted on
        standard error; those that cannot be read are named there, PDFs among them.

    Yields
    ------
    Document
        In the order of their paths. The id is the path in the folder, its white space replaced by
        underscores; the title is that of the page, the first heading, or the name of the file.

    Raises
    ------
    DataError
        If two files have the same id, or no file has a text.
    MissingDependency
        If there is a page of HTML or Markdown, and the extra ``html`` is not installed.
    """
    folder = pathlib.Path(path)
    left_out = _LeftOut()
    known: Dict[str, pathlib.Path] = {}
    refusal: Optional[DataError] = None
    for file, name in _files(folder):
        key = _SPACE.sub("_", name)
        if _form(file) is None and file.suffix.lower() != ".pdf":
            left_out[f"of kind {shorten(file.suffix) if file.suffix else 'without suffix'}"] += 1
            continue
        try:
            title, text = _read(file)
        except DataError as error:
            LOGGER.warning(f"left out: {error}")
            refusal = refusal or error
            continue
        if not text.strip():
            left_out["without a text"] += 1
            LOGGER.info(printable(f"{file}: has no text"))
            continue
        if key in known:
            expected = f"an id of its own; {known[key]} has it too"
            raise DataError(file, f"its id is {shorten(key)}", expected, "rename one of them")
        known[key] = file
        yield Document(key, text, title or _of_name(file))
    left_out.note(folder)
    if refusal and not known:
        raise refusal
    if not known:
        expected = f"a text in a file that ends in {', '.join(FORMS)}"
        raise DataError(folder, "holds no document", expected, "check the path")


def read_text(path: PathLike) -> Iterator[Document]:
    """Read one text, a page of Markdown or one of HTML.

    Parameters
    ----------
    path : str or path-like
        The file, whose name ends as `read_folder` says.

    Yields
    ------
    Document
        A single one. The id is the name of the file.

    Raises
    ------
    DataError
        If it has no text, or as `read_folder` raises it.
    MissingDependency
        If it is HTML or Markdown, and the extra ``html`` is not installed.
    """
    file = pathlib.Path(path)
    title, text = _read(file)
    if not text.strip():
        raise DataError(file, "holds no text", "a text")
    yield Document(_SPACE.sub("_", file.name), text, title or _of_name(file))


def _read(file: pathlib.Path) -> Tuple[str, str]:
    """Title and text of a file."""
    if file.suffix.lower() == ".pdf":
        hint = "convert it, for example with pdftotext"
        raise DataError(file, "is a PDF", "text, Markdown or HTML", hint)
    return _READERS[FORMS[file.suffix.lower()]](_decoded(file))


def _files(folder: pathlib.Path) -> Iterator[Tuple[pathlib.Path, str]]:
    """Files of a folder and those in it, each folder once, with their paths in the folder."""
    seen: Set[str] = set()
    for top, inside, names in os.walk(folder, followlinks=True, onerror=_refuse):
        real = os.path.realpath(top)
        if real in seen:  # a link that runs in a circle
            inside.clear()
            continue
        seen.add(real)
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                file = pathlib.Path(top, name)
                if printable(name) != name:
                    raise DataError(file, "its name cannot be shown", "UTF-8", "rename it")
                yield file, file.relative_to(folder).as_posix()


def _refuse(error: OSError) -> None:
    """Raise an error of `os.walk`."""
    problem = f"cannot be read ({error.strerror})"
    raise DataError(error.filename, problem, hint="check the path") from None


def _decoded(path: pathlib.Path) -> str:
    if not path.is_file():
        raise DataError(path, "cannot be read (a link that leads nowhere, or no file)", "a file")
    with open_bytes(path) as file:
        raw = file.read(LONGEST_DOCUMENT + 1)
    if len(raw) > LONGEST_DOCUMENT:
        expected = f"at most {LONGEST_DOCUMENT:,} bytes"
        raise DataError(path, "a larger document", expected, "divide it into several files")
    try:
        return without_mark(raw).decode("utf-8")
    except UnicodeDecodeError as error:
        problem, hint = f"byte {error.start} is not UTF-8", "convert the file, as by iconv"
        raise DataError(path, problem, "UTF-8 text", hint) from None


def _of_name(path: pathlib.Path) -> str:
    return re.sub(r"[\s_-]+", " ", path.stem).strip()


def _plain(text: str) -> Tuple[str, str]:
    return "", text


_READERS: Dict[str, Callable[[str], Tuple[str, str]]] = {
    "text": _plain,
    "markdown": markdown_text,
    "html": page_text,
}


def read_table(path: PathLike, column: str = "text") -> Iterator[Document]:
    """Read the documents of a table, CSV or, if its name ends in ``.tsv``, with tabs.

    Parameters
    ----------
    path : str or path-like
        The table. Its first row names the columns.
    column : str
        Name of the column of texts. Columns ``id`` and ``title`` are read where there are any; ids
        are the numbers of the rows otherwise.

    Yields
    ------
    Document
        One a row. Rows without a text are left out, and counted on standard error.

    Raises
    ------
    DataError
        If the table cannot be read, has no such column or no text, a row has another number of
        cells, or two rows have the same id.
    """
    left_out, known = _LeftOut(), UniqueIds("document")
    number = 0
    hint = "name the column of texts with --column"
    for where, number, cells in read_rows(path, (column,), hint):
        if not cells.get(column, "").strip():
            left_out["rows without a text"] += 1
            continue
        key = cells.get("id", str(number)).strip()
        check_id(key, where)
        known.add(key, where, number)
        yield Document(key, cells[column], cells.get("title", "").strip())
    if number == sum(left_out.values()):
        raise DataError(path, "holds no text", "a row with a text")
    left_out.note(pathlib.Path(path))


def _form(path: PathLike) -> Optional[str]:
    return FORMS.get(pathlib.Path(path).suffix.lower())


def is_collection(path: PathLike) -> bool:
    """Whether a path is a folder, a table or a text rather than a file of JSON lines."""
    return os.path.isdir(path) or is_table(path) or _form(path) is not None


def collection_digest(path: PathLike, column: str = "text") -> str:
    """SHA-256 of the content of a collection, from which its documents follow."""
    digest = hashlib.sha256()
    try:
        if is_ir_name(path):
            for document in read_documents(path):
                digest.update(json.dumps([document.id, document.text]).encode("ascii"))
        elif not is_collection(path):
            return sha256(path)
        elif not os.path.isdir(path):
            digest.update(json.dumps([column, sha256(path)]).encode("ascii"))
        else:
            for file, name in _files(pathlib.Path(path)):
                if file.suffix.lower() in FORMS and file.is_file() and os.access(file, os.R_OK):
                    digest.update(json.dumps([name, sha256(file)]).encode("ascii"))
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise DataError(error.filename or path, problem, hint="check the path") from None
    return digest.hexdigest()


def read_collection(path: PathLike, column: str = "text") -> Iterator[Document]:
    """Read documents of any form: a folder, a text, a table, JSON lines, or an `ir_datasets` name.

    Parameters
    ----------
    path : str or path-like
        What `read_folder`, `read_text`, `read_table` or `wqa.data.read_documents` reads.
    column : str
        Column of the texts of a table.

    Returns
    -------
    iterator of Document
        The documents in order.

    Raises
    ------
    DataError
        If it is a file of another program, or as those functions raise it.
    OptionError
        If a column is given for what is no table.
    """
    if is_table(path) and not os.path.isdir(path):
        return read_table(path, column)
    if column != "text":
        raise OptionError("column", f"{column} for {path}", "a table, .csv or .tsv")
    if os.path.isdir(path):
        return read_folder(path)
    if _form(path):
        return read_text(path)
    suffix = pathlib.Path(path).suffix.lower()
    if suffix in OFFICE:
        expected = "text, Markdown, HTML, a table (.csv, .tsv) or JSONL"
        hint = "convert it to text, for example with pdftotext or pandoc"
        raise DataError(path, f"is a {suffix} file", expected, hint)
    return read_documents(path)
