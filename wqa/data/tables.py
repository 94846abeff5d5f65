"""Tables, CSV or with tabs, whose first row names the columns; and questions in one."""

from __future__ import annotations

import csv
import logging
import pathlib
import re
from typing import Dict, Iterator, List, Sequence, Tuple

from wqa.data.records import Candidate, Question, check_document_ids
from wqa.errors import DataError, printable, shorten
from wqa.io.files import PathLike
from wqa.io.lines import text_lines
from wqa.io.progress import note_counts

LOGGER = logging.getLogger(__name__)

#: What divides the cells, by the end of a file's name.
TABLES = {".csv": ",", ".tsv": "\t"}
#: Greatest length of a cell in characters.
LONGEST_CELL = 1 << 26

#: Between two lines that a carriage return alone divides.
_BEHIND_RETURN = re.compile(r"(?<=\r)(?!\n|$)")

#: A column of whole numbers with empty cells is one of fractions to many programs.
_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "": None}


def suffix_of(path: PathLike) -> str:
    """End of a file's name in lower case, without that of a packed file."""
    name = pathlib.Path(path)
    return (name.with_suffix("") if name.suffix == ".gz" else name).suffix.lower()


def is_table(path: PathLike) -> bool:
    """Whether the name of a file is that of a table."""
    return suffix_of(path) in TABLES


def read_rows(
    path: PathLike, columns: Sequence[str], hint: str
) -> Iterator[Tuple[str, int, Dict[str, str]]]:
    """Read the rows of a table that have all of some columns.

    Yields the name of each row, for messages, its number, counted from 1 behind the first, and its
    cells by column; a row without text has none. ``hint`` is what to do where a column is missing.
    """
    suffix = suffix_of(path)
    if suffix not in TABLES:
        raise DataError(path, f"ends in {suffix or 'nothing'}", f"a table, {' or '.join(TABLES)}")
    delimiter = TABLES[suffix]
    csv.field_size_limit(LONGEST_CELL)
    if delimiter == "\t" and not _is_quoted(path):  # quotation marks are text there
        rows = csv.reader(_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    else:
        rows = csv.reader(_lines(path), delimiter=delimiter, strict=True)
    number = 0
    try:
        header = next(filter(None, rows), [])
        if not header:
            raise DataError(path, "is empty", "a first row with the names of the columns")
        for column in columns:
            _check_column(path, header, column, f"{hint}; {delimiter!r} divides them")
        for column in header:
            _check_column(path, header, column, "name each column once")
        for number, row in enumerate(rows, 1):
            where = f"{path}, row {number}"
            if not any(map(str.strip, row)):
                row = []
            if row and len(row) != len(header):
                raise DataError(where, f"{len(row)} cells", f"{len(header)}, as in the first row")
            yield where, number, dict(zip(header, row))
    except csv.Error as error:
        hint = "close the quotation mark, or double one that belongs to a text"
        raise DataError(f"{path}, after row {number}", str(error), "a whole table", hint) from None


def _lines(path: PathLike) -> Iterator[str]:
    """Lines of a table, whatever ends them."""
    for _, line in text_lines(path):
        yield from _BEHIND_RETURN.split(line)


def _is_quoted(path: PathLike) -> bool:
    """Whether a table with tabs has quoted cells, and all that begin so end so (RFC 4180)."""
    if not any(line.startswith('"') or '\t"' in line for line in _lines(path)):
        return False
    try:
        rows = csv.reader(_lines(path), delimiter="\t", strict=True)
        widths = {0}
        for row in rows:
            # A quotation may begin in a text, and end in that of another row.
            if any("\n" in cell and "\t" in cell for cell in row):
                return False
            widths.add(len(row))
    except csv.Error:
        return False
    if len(widths) != 2:
        return False
    LOGGER.warning(printable(f"{path}: quotation marks around cells are no part of their texts"))
    return True


def _check_column(path: PathLike, header: List[str], column: str, hint: str) -> None:
    if header.count(column) == 1:
        return
    if len(header) == 1 and ";" in header[0]:
        hint = "save it with commas, or with tabs as .tsv"
    has = f"has {header.count(column) or 'no'} column {shorten(column)}"
    raise DataError(path, has, f"one of {', '.join(map(shorten, header))}", hint)


def read_question_table(path: PathLike, with_candidates: bool = True) -> Iterator[Question]:
    """Read the questions of a table, which has a row for each candidate.

    `wqa.data.read_questions` says what the columns are. The whole table is held in memory.
    """
    columns = ("question", "candidate") if with_candidates else ("question",)
    candidates: Dict[str, List[Candidate]] = {}
    blank = 0
    others: List[str] = []
    for where, _, cells in read_rows(path, columns, "name the columns so"):
        if not cells:
            blank += 1
            continue
        if not cells["question"].strip():
            raise DataError(where, "question is empty", "text")
        of_question = candidates.setdefault(cells["question"], [])
        if "candidate" in cells:
            if "label" not in cells:
                others = [name for name in cells if name not in ("question", "candidate", "id")]
            label = cells.get("label", "").strip()
            if label not in _LABELS:
                found = f"label is {shorten(label)}"
                raise DataError(where, found, "0 or 1, or an empty cell where it is not known")
            key = cells.get("id", "").strip() or None
            of_question.append(Candidate(cells["candidate"], _LABELS[label], key))
    if not candidates:
        raise DataError(path, "holds no question", "a row with one")
    note_counts(path, [(blank, "row", "without a text left out")])
    if others:
        unread = ", ".join(map(shorten, others))
        LOGGER.warning(
            printable(f"{path}: no column 'label', whose values are 0 and 1; not {unread}")
        )
    for number, (text, of_question) in enumerate(candidates.items(), 1):
        question = Question(str(number), text, tuple(of_question))
        check_document_ids(question, f"{path}, question {shorten(text)}")
        yield question
