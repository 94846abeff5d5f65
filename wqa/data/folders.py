"""Documents that people have: a folder of texts, Markdown and HTML, or a table of texts."""

from __future__ import annotations

import collections
import hashlib
import json
import logging
import os
import pathlib
import re
from typing import Callable, Dict, Iterator, Optional, Tuple

from wqa.data.documents import Document, read_documents
from wqa.data.ir_names import is_ir_name
from wqa.data.markup import markdown_text, page_text
from wqa.data.records import check_id
from wqa.data.tables import is_table, read_rows
from wqa.errors import DataError, OptionError, printable, shorten
from wqa.io.files import PathLike, sha256
from wqa.io.lines import LONGEST_LINE, UniqueIds, damage_errors, decoded, open_bytes, without_mark
from wqa.io.progress import note_counts

LOGGER = logging.getLogger(__name__)

#: Files that other programs make texts of.
OFFICE = (".pdf", ".docx", ".odt", ".epub")

_SPACE = re.compile(r"\s+")


#: Readers of title and text of files that are documents, by the ends of their names.
FORMS: Dict[str, Callable[[str], Tuple[str, str]]] = {
    ".txt": lambda text: ("", text),
    ".md": markdown_text,
    ".html": page_text,
    ".htm": page_text,
}


def read_folder(path: PathLike) -> Iterator[Document]:
    """Read the documents of a folder and of the folders in it.

    Parameters
    ----------
    path : str or path-like
        The folder. Files whose names end in ``.txt``, ``.md``, ``.html`` or ``.htm`` are
        documents. Others, and those without a text, are left out, and counted on standard error;
        those that cannot be read are named there. Hidden files and links to folders are passed
        over.

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
    left_out: collections.Counter[str] = collections.Counter()
    known: Dict[str, pathlib.Path] = {}
    for file, name in _files(folder):
        if file.suffix.lower() in OFFICE:
            LOGGER.warning(f"left out: {_office_error(file)}")
            continue
        if _form(file) is None:
            kind = f"of kind {shorten(file.suffix)}" if file.suffix else "without suffix"
            left_out[f"{kind} left out"] += 1
            continue
        try:
            document = _read(file, name)
        except DataError as error:
            LOGGER.warning(f"left out: {error}")
            continue
        if not document.text.strip():
            left_out["without a text left out"] += 1
            LOGGER.info(printable(f"{file}: has no text"))
            continue
        if document.id in known:
            problem = f"its id is {shorten(document.id)}"
            expected = f"an id of its own; {known[document.id]} has it too"
            raise DataError(file, problem, expected, "rename one of them")
        known[document.id] = file
        yield document
    note_counts(folder, [(count, "file", reason) for reason, count in sorted(left_out.items())])
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
    document = _read(file, file.name)
    if not document.text.strip():
        raise DataError(file, "holds no text", "a text")
    yield document


def _read(file: pathlib.Path, name: str) -> Document:
    """The document of a file, which may have no text."""
    read = FORMS[file.suffix.lower()]
    title, text = read(_decoded(file))
    of_name = re.sub(r"[\s_-]+", " ", file.stem).strip()
    return Document(_SPACE.sub("_", printable(name)), text, printable(title or of_name))


def _files(folder: pathlib.Path) -> Iterator[Tuple[pathlib.Path, str]]:
    """Files of a folder and of those in it, with their paths in the folder."""
    for top, inside, names in os.walk(folder, onerror=_refuse):
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                file = pathlib.Path(top, name)
                yield file, file.relative_to(folder).as_posix()


def _refuse(error: OSError) -> None:
    """Raise an error of `os.walk`."""
    with damage_errors(error.filename, "check the path"):
        raise error


def _decoded(path: pathlib.Path) -> str:
    if not path.is_file():
        raise DataError(path, "cannot be read (a link that leads nowhere, or no file)", "a file")
    with open_bytes(path) as file:
        raw = file.read(LONGEST_LINE + 1)
    if len(raw) > LONGEST_LINE:
        expected = f"at most {LONGEST_LINE:,} bytes"
        raise DataError(path, "a larger document", expected, "divide it into several files")
    return decoded(without_mark(raw), path)


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
    known = UniqueIds("document", "row")
    number = blank = 0
    hint = "name the column of texts with --column"
    for where, number, cells in read_rows(path, (column,), hint):
        if not cells.get(column, "").strip():
            blank += 1
            continue
        key = cells.get("id", str(number)).strip()
        check_id(key, where)
        known.add(key, where, number)
        yield Document(key, cells[column], cells.get("title", "").strip())
    if number == blank:
        raise DataError(path, "holds no text", "a row with a text")
    note_counts(path, [(blank, "row", "without a text left out")])


def _form(path: PathLike) -> Optional[Callable[[str], Tuple[str, str]]]:
    return FORMS.get(pathlib.Path(path).suffix.lower())


def is_collection(path: PathLike) -> bool:
    """Whether a path is a folder, a table or a text rather than a file of JSON lines."""
    return os.path.isdir(path) or is_table(path) or _form(path) is not None


def collection_digest(path: PathLike, column: str = "text") -> str:
    """SHA-256 of the content of a collection, from which its documents follow."""
    digest = hashlib.sha256()
    with damage_errors(path, "check the path"):
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
    if pathlib.Path(path).suffix.lower() in OFFICE:
        raise _office_error(path)
    return read_documents(path)


def _office_error(path: PathLike) -> DataError:
    """The error for a file that another program makes texts of."""
    problem = f"is a {pathlib.Path(path).suffix.lower()} file"
    expected = "text, Markdown, HTML, a table (.csv, .tsv) or JSONL"
    hint = "convert it to text, for example with pdftotext or pandoc"
    return DataError(path, problem, expected, hint)
