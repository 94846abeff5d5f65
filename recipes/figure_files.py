"""Figures by the place where they stand in a file.

A file of results or a log holds tables: tab-separated values, columns of text two spaces apart, as
the commands print them, or Markdown. Lines such as ``# TITLE`` divide a file into sections. What
follows a line such as ``$ COMMAND`` is a section too, but its rows are also those of the section
around it. Every other line counts as a row: its first cell is the line with ``#`` for each number,
and its further columns, ``1``, ``2`` and so on, are the numbers. In a JSON file the rows are the
objects of the list, or of the list ``rows``; columns of an object inside have its name before
theirs.
"""

from __future__ import annotations

import math
import pathlib
import re
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from wqa.errors import DataError, shorten
from wqa.io.files import PathLike
from wqa.io.lines import json_value, text_lines

#: Thousands that a table rounds to.
_UNITS = {"k": 1e3, "M": 1e6}
_NUMBER = re.compile(r"([+-]?\d[\d,]*\.?\d*(?:e[+-]?\d+)?)([kMx]?)(?: \((\d[\d.]*)\))?")
_SHARE = re.compile(_NUMBER.pattern + "( %)?|-")
_IN_TEXT = re.compile(r"(?<![\w.-])[+-]?\d[\d,]*(?:\.\d+)?(?![\w]*_)")
_COLUMNS = re.compile(r" {2,}")
#: Start of a line that is a command of a log.
_COMMAND = "$ "


class Cell(float):
    """The number of a cell of a table, NaN if it has none; as text it is what the cell says.

    Parameters
    ----------
    text : str
        What it says, such as ``78.36 (1.24)``, ``904k`` or ``10.3x``.
    where : str
        File and row, for errors.
    """

    def __new__(cls, text: str, where: str = "") -> Cell:
        match = _NUMBER.fullmatch(text)
        value = float(match[1].replace(",", "")) * _UNITS.get(match[2], 1) if match else math.nan
        cell = super().__new__(cls, value)
        cell.text, cell.where = text, where
        return cell

    def __str__(self) -> str:
        return "" if self.text == "-" else self.text


class Row(NamedTuple):
    """A row of a table.

    Attributes
    ----------
    line : int
        Its line in the file.
    cells : dict of str to str
        Its cells by column.
    """

    line: int
    cells: Dict[str, str]

    def starts_with(self, words: Sequence[str]) -> bool:
        """Whether the first cells are these."""
        return list(self.cells.values())[: len(words)] == list(words)


class TableFile:
    """The tables of a file.

    Parameters
    ----------
    path : str or path-like
        The file.

    Raises
    ------
    DataError
        If it cannot be read.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = pathlib.Path(path)
        self.sections: Dict[str, List[Row]] = {"": []}
        lines = ((number, line.rstrip()) for number, line in text_lines(path))
        if self.path.suffix == ".json":
            text = "\n".join(line for _, line in lines)
            self.sections[""] = _of_json(json_value(text, str(path)), self.path)
        elif self.path.suffix == ".tsv":
            self.sections[""] = list(_tab_separated(lines))
        else:
            self._read_text(lines)

    def __getitem__(self, words: Any) -> Any:
        """A cell by the words in brackets; with a list of columns, a row of Markdown."""
        *keys, column = words
        if isinstance(column, list):
            return " | ".join(str(self.cell([*keys, name])) for name in column)
        return self.cell(words)

    def cell(self, words: Sequence[Any]) -> Cell:
        """A cell by the words in brackets.

        Parameters
        ----------
        words : sequence
            A section, if the file has any, the first cells of a row, and a column. The start of a
            section's title will do, and of a line that is no row of a table.

        Returns
        -------
        Cell
            The cell.

        Raises
        ------
        DataError
            If there is no such cell, or more than one.
        """
        *keys, column = map(str, words)
        rows = self.sections[""]
        section = ""
        if keys and (keys[0].startswith(_COMMAND) or self._has_titles()):
            section = self._section(keys[0])
            rows, keys = self.sections[section], keys[1:]
        matching = [row for row in rows if row.starts_with(keys) and column in row.cells]
        if not matching and len(keys) == 1:
            matching = [row for row in rows if _is_line(row, keys[0]) and column in row.cells]
        if len(matching) != 1:
            where = f"{self.path}, {section}" if section else self.path
            named = ", ".join(map(shorten, [*keys, column]))
            problem = f"{len(matching)} rows and columns of {named}"
            raise DataError(where, problem, "one", self._hint(rows, keys, column))
        row = matching[0]
        kind = "row" if self.path.suffix == ".json" else "line"
        return Cell(row.cells[column], f"{self.path}, {kind} {row.line}")

    def _has_titles(self) -> bool:
        return any(title and not title.startswith(_COMMAND) for title in self.sections)

    def _section(self, start: str) -> str:
        titles = [title for title in self.sections if title and title.startswith(start)]
        exact = [title for title in titles if title == start]
        if len(exact or titles) != 1:
            raise DataError(self.path, f"{len(titles)} sections {shorten(start)}", "one")
        return (exact or titles)[0]

    def _hint(self, rows: Sequence[Row], keys: Sequence[str], column: str) -> str:
        columns: Dict[str, None] = {}
        for row in rows:
            if row.starts_with(keys):
                columns.update(dict.fromkeys(row.cells))
        if columns and column not in columns:
            return "its columns are " + ", ".join(columns)
        return "name more of its first cells" if columns else ""

    def _read_text(self, lines: Iterator[Tuple[int, str]]) -> None:
        section = self.sections[""]
        ours: List[List[Row]] = [section]  # the lists that get a row
        header: List[str] = []
        for number, line in lines:
            if line.startswith("# "):
                header = []
                section = self.sections.setdefault(line[2:], [])
                ours = [section]
                continue
            cells = _cells_of(line)
            if line.startswith(_COMMAND):
                ours = [section, self.sections.setdefault(line, [])]
                cells = [line]
            row = None
            if len(cells) < 2:
                header = []
                row = _line(number, line) if line else None
            elif set("".join(cells)) <= set("-: "):
                continue  # below the header of a Markdown table
            elif len(cells) == len(header) or header and _holds_figures(cells):
                row = Row(number, _by_column(header, cells))
            else:
                header = [cell.replace("-", "_") for cell in cells]
            if row:
                for rows in ours:
                    rows.append(row)


def _tab_separated(lines: Iterator[Tuple[int, str]]) -> Iterator[Row]:
    _, first = next(lines, (0, ""))
    header = first.split("\t")
    for number, line in lines:
        # A row may lack its last cells.
        cells = line.split("\t") + [""] * len(header)
        yield Row(number, dict(zip(header, cells)))


def _of_json(value: Any, path: pathlib.Path) -> List[Row]:
    """Rows of a list of objects, or of the list ``rows`` of an object."""
    objects = value.get("rows") if isinstance(value, dict) else value
    if not isinstance(objects, list) or not all(isinstance(entry, dict) for entry in objects):
        raise DataError(path, "no list of objects", "rows of figures, as commands write them")
    return [Row(number, dict(_flat(entry))) for number, entry in enumerate(objects, 1)]


def _flat(entry: Mapping[str, Any], prefix: str = "") -> Iterator[Tuple[str, str]]:
    for name, value in entry.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name} ")
        elif isinstance(value, float):
            yield prefix + name, f"{value:.6g}"
        else:
            yield prefix + name, "" if value is None else str(value)


def _cells_of(line: str) -> List[str]:
    if line.startswith("| "):
        return [cell.strip() for cell in line.strip("|").split("|")]
    if "\t" in line:
        return line.split("\t")
    return _COLUMNS.split(line.strip())


def _holds_figures(cells: Sequence[str]) -> bool:
    """Whether cells, other in number than the titles, are no titles."""
    if _NUMBER.fullmatch(cells[0]):
        return True
    return len(cells) > 2 and all(map(_SHARE.fullmatch, cells[2:]))


def _by_column(header: Sequence[str], cells: Sequence[str]) -> Dict[str, str]:
    """Cells by column, where they are not as many as the titles.

    The last title may list several, the first column may lack one, and a row its last cells.
    Otherwise the columns have numbers, from 1.
    """
    titles = list(header)
    if len(cells) > len(titles):
        titles[-1:] = titles[-1].split(", ")
    if len(cells) == len(titles) + 1:
        titles.insert(0, "")
    if len(cells) > len(titles):
        titles = [str(number) for number in range(1, len(cells) + 1)]
    return dict(zip(titles, [*cells, *[""] * len(titles)]))


def _line(number: int, line: str) -> Row:
    cells = {"": _IN_TEXT.sub("#", line)}
    for index, text in enumerate(_IN_TEXT.findall(line), 1):
        cells[str(index)] = text
    return Row(number, cells)


def _is_line(row: Row, start: str) -> bool:
    return row.cells.get("", "").startswith(start)
