"""Documents that people have: a folder of texts, Markdown and HTML, or a table of texts.

Markdown keeps its headings, lists, tables and code, by which `wqa.data.sentences` divides it, and
loses the marks within lines. HTML becomes such Markdown.
"""

from __future__ import annotations

import collections
import csv
import hashlib
import json
import logging
import os
import pathlib
import re
from typing import Callable, Dict, Iterator, Set, Tuple

from wqa.data.documents import LONGEST_DOCUMENT, Document, read_documents
from wqa.data.records import check_id
from wqa.errors import DataError, MissingDependency, how_to_install, printable, shorten
from wqa.io.files import PathLike, sha256
from wqa.io.lines import UniqueIds, open_lines, text_lines, without_mark

LOGGER = logging.getLogger(__name__)

#: Ends of the names of files that are documents, by their form.
FORMS = {".txt": "text", ".md": "markdown", ".html": "html", ".htm": "html"}
TABLES = {".csv": ",", ".tsv": "\t"}

_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\w")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\s+\"[^\"]*\")?\)")
_MARK = re.compile(r"(?<!`)(\*\*|__|`{1,2})(?=[^\s`])(.+?)(?<=[^\s`])\1(?!`)")
_TITLE = re.compile(r"#{1,6}\s+(.*?)\s*#*\s*$", re.M)
_UNDERLINED = re.compile(r"^(?=.*\w)([^\n#|>-].*)\n(?:=+|-+)[ \t]*$", re.M)
_COMMENT = re.compile(r"<!--.*?-->", re.S)
#: Elements of a page that are not part of its text.
_OUTSIDE = "script,style,noscript,template,nav,header,footer,aside,form,button,svg,iframe"
#: Marks of the ends of blocks and of lines, from Unicode's private use area.
_BLOCK, _LINE = "\ue000", "\ue001"
#: What stands before and behind the text of an element.
_AROUND = {f"h{level}": (f"{_BLOCK}{'#' * level} ", _BLOCK) for level in range(1, 7)}
_AROUND.update(dict.fromkeys(("p", "div", "blockquote", "dt", "dd", "table"), (_BLOCK, _BLOCK)))
_AROUND.update(dict.fromkeys(("td", "th"), ("", " | ")))
_AROUND["li"] = (f"{_BLOCK}- ", _BLOCK)
_AROUND["tr"] = (f"{_LINE}| ", "")
_AROUND["pre"] = (f"{_BLOCK}```{_LINE}", f"{_LINE}```{_BLOCK}")
_AROUND["br"] = ("", " ")


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
        standard error, but for PDF, which is refused.

    Yields
    ------
    Document
        In the order of their paths. The id is the path in the folder, its white space replaced by
        underscores; the title is that of the page, the first heading, or the name of the file.

    Raises
    ------
    DataError
        If a file is no UTF-8, is larger than 64 MB or a PDF, two have the same id, or no file has a
        text.
    MissingDependency
        If there is a page of HTML, and the extra ``html`` is not installed.
    """
    folder = pathlib.Path(path)
    left_out = _LeftOut()
    known: Dict[str, pathlib.Path] = {}
    for file, name in _files(folder):
        key = _SPACE.sub("_", name)
        form = FORMS.get(file.suffix.lower())
        if file.suffix.lower() == ".pdf":
            raise DataError(
                file, "is a PDF", "text, Markdown or HTML", "convert it, for example with pdftotext"
            )
        if form is None:
            left_out[f"of kind {shorten(file.suffix) if file.suffix else 'without suffix'}"] += 1
            continue
        title, text = _READERS[form](_decoded(file))
        if not text.strip():
            left_out["without a text"] += 1
            continue
        if key in known:
            expected = f"an id of its own; {known[key]} has it too"
            raise DataError(file, f"its id is {shorten(key)}", expected, "rename one of them")
        known[key] = file
        yield Document(key, text, title or _of_name(file))
    if not known:
        expected = f"a text in a file that ends in {', '.join(FORMS)}"
        raise DataError(folder, "holds no document", expected, "check the path")
    left_out.note(folder)


def _files(folder: pathlib.Path) -> Iterator[Tuple[pathlib.Path, str]]:
    """Files of a folder and those in it, each folder once, with their paths in the folder."""
    seen: Set[Tuple[int, int]] = set()

    def refused(error: OSError) -> None:
        raise DataError(error.filename, f"cannot be read ({error.strerror})", mend="check the path")

    for top, folders, files in os.walk(folder, onerror=refused, followlinks=True):
        state = os.stat(top)
        if (state.st_dev, state.st_ino) in seen:  # a link that runs in a circle
            folders.clear()
            continue
        seen.add((state.st_dev, state.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                file = pathlib.Path(top, name)
                yield file, file.relative_to(folder).as_posix()


def _decoded(path: pathlib.Path) -> str:
    with open_lines(path) as file:
        raw = file.read(LONGEST_DOCUMENT + 1)
    if len(raw) > LONGEST_DOCUMENT:
        expected = f"at most {LONGEST_DOCUMENT:,} bytes"
        raise DataError(path, "a larger document", expected, "divide it into several files")
    try:
        return without_mark(raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            path,
            f"byte {error.start} is not UTF-8",
            "UTF-8 text",
            f"convert it: iconv -f {_encoding_of(raw)} -t UTF-8",
        ) from None


def _encoding_of(raw: bytes) -> str:
    """An encoding that a text which is not UTF-8 may have."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "UTF-16"
    try:
        raw.decode("cp1252")
    except UnicodeDecodeError:
        return "ISO-8859-1"
    return "WINDOWS-1252"


def _of_name(path: pathlib.Path) -> str:
    return re.sub(r"[\s_-]+", " ", path.stem).strip()


def _plain(text: str) -> Tuple[str, str]:
    return "", text


def markdown_text(source: str) -> Tuple[str, str]:
    """Title and text of a Markdown file, without comments, targets of links, and emphasis.

    Parameters
    ----------
    source : str
        The content of the file.

    Returns
    -------
    title, text : str
        The first heading, or an empty text; and the text.
    """
    text = _UNDERLINED.sub(r"# \1", _COMMENT.sub("", source))
    for pattern in (_LINK, _MARK):
        text = pattern.sub(lambda match: match.group(match.lastindex or 0), text)
    heading = _TITLE.search(text)
    return heading.group(1) if heading else "", text


def page_text(source: str) -> Tuple[str, str]:
    """Title and text of a page of HTML.

    Parameters
    ----------
    source : str
        The page.

    Returns
    -------
    title, text : str
        The text is that of the element ``main``, of the only ``article``, or of the body without
        navigation, headers and footers. Blocks are divided by blank lines; headings, items, rows
        of tables and code are as in Markdown.

    Raises
    ------
    MissingDependency
        If selectolax, the extra ``html``, is not installed.
    """
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        raise MissingDependency(
            "selectolax", "is not installed", "the reader of HTML", how_to_install("html")
        ) from None
    for mark in (_BLOCK, _LINE):
        source = source.replace(mark, "")
    page = LexborHTMLParser(source)
    title = page.css_first("title")
    for element in page.css(_OUTSIDE):
        element.decompose()
    articles = page.css("article")
    root = page.css_first("main") or (articles[0] if len(articles) == 1 else page.body)
    if root is None:
        return "", ""
    for name, (before, behind) in _AROUND.items():
        for element in root.css(name):
            element.insert_before(before)
            element.insert_after(behind)
    blocks = []
    for part in root.text().split(_BLOCK):
        lines = [_SPACE.sub(" ", line).strip() for line in part.split(_LINE)]
        block = "\n".join(filter(None, lines))
        if _WORD.search(block):
            blocks.append(block)
    return _SPACE.sub(" ", title.text()).strip() if title else "", "\n\n".join(blocks)


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
    name = pathlib.Path(path)
    rows = csv.reader(
        (line for _, line in text_lines(path)), delimiter=TABLES[name.suffix], strict=True
    )
    csv.field_size_limit(LONGEST_DOCUMENT)
    number = 0
    try:
        header = next(rows, [])
        if column not in header:
            columns = ", ".join(map(shorten, header)) or "none"
            mend = "name the column of texts with --column"
            raise DataError(path, f"has no column {shorten(column)}", f"one of {columns}", mend)
        for number, row in enumerate(rows, 1):
            where = f"{path}, row {number}"
            if len(row) != len(header):
                raise DataError(where, f"{len(row)} cells", f"{len(header)}, as in the first row")
            fields = dict(zip(header, row))
            if not fields[column].strip():
                left_out["rows without a text"] += 1
                continue
            key = fields.get("id", str(number)).strip()
            check_id(key, where)
            known.add(key, where)
            yield Document(key, fields[column], fields.get("title", "").strip())
    except csv.Error as error:
        raise DataError(f"{path}, after row {number}", str(error), "a whole table") from None
    if number == sum(left_out.values()):
        raise DataError(path, "holds no text", "a row with a text")
    left_out.note(name)


def is_collection(path: PathLike) -> bool:
    """Whether a path is a folder or a table rather than a file of JSON lines."""
    return os.path.isdir(path) or pathlib.Path(path).suffix in TABLES


def collection_digest(path: PathLike, column: str) -> str:
    """SHA-256 of the content of a folder or a table, from which its documents follow."""
    digest = hashlib.sha256()
    if not os.path.isdir(path):
        digest.update(json.dumps([column, sha256(path)]).encode("ascii"))
        return digest.hexdigest()
    for file, name in _files(pathlib.Path(path)):
        if file.suffix.lower() in FORMS:
            digest.update(json.dumps([name, sha256(file)]).encode("ascii"))
    return digest.hexdigest()


def read_collection(path: PathLike, column: str = "text") -> Iterator[Document]:
    """Read documents of any form: a folder, a table, JSON lines, or a dataset of `ir_datasets`.

    Parameters
    ----------
    path : str or path-like
        What `read_folder`, `read_table` or `wqa.data.read_documents` reads.
    column : str
        Column of the texts of a table.

    Returns
    -------
    iterator of Document
        The documents in order.
    """
    if os.path.isdir(path):
        return read_folder(path)
    if pathlib.Path(path).suffix in TABLES:
        return read_table(path, column)
    return read_documents(path)
