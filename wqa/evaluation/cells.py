"""Figures by the place where they stand in a file, and arithmetic on them.

A file of results or a log holds tables: tab-separated values, columns of text two spaces apart, as
the commands print them, or Markdown. Lines such as ``# TITLE`` divide a file into sections. Every
other line counts as a row too: its first cell is the line with ``#`` for each number, and its
further columns, ``1``, ``2`` and so on, are the numbers.

A figure is an expression of Python's syntax over cells, such as::

    wikiqa["CT 6 layers", "0.3", "wikiqa_map"] - wikiqa["MT 6 layers", "0", "wikiqa_map"]

A name is a file. The last word in brackets is a column, those before it are a section, if the file
has any, and then the first cells of a row, as many as tell it from all others.
"""

from __future__ import annotations

import ast
import math
import operator
import pathlib
import re
import statistics
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple, Union

from wqa.errors import DataError, shorten
from wqa.io.files import PathLike
from wqa.io.lines import text_lines

#: Greatest size of a file in bytes.
LARGEST = 1 << 26

#: Thousands that a table rounds to.
_UNITS = {"k": 1e3, "M": 1e6}
_NUMBER = re.compile(r"([+-]?\d[\d,]*\.?\d*(?:e[+-]?\d+)?)([kMx]?)(?: \((\d[\d.]*)\))?")
_IN_TEXT = re.compile(r"(?<![\w.-])[+-]?\d[\d,]*(?:\.\d+)?(?![\w]*_)")
_COLUMNS = re.compile(r" {2,}")


class Cell(NamedTuple):
    """A cell of a table.

    Attributes
    ----------
    text : str
        What it says, such as ``78.36 (1.24)``, ``904k`` or ``10.3x``.
    where : str
        File and row, for errors.
    """

    text: str
    where: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing but a dash."""
        return self.text in ("", "-")

    @property
    def value(self) -> float:
        """Its number; NaN if it has none."""
        match = _NUMBER.fullmatch(self.text)
        if not match:
            return math.nan
        return float(match[1].replace(",", "")) * _UNITS.get(match[2], 1)

    @property
    def deviation(self) -> float:
        """The number in brackets behind it; NaN if there is none."""
        match = _NUMBER.fullmatch(self.text)
        return float(match[3]) if match and match[3] else math.nan

    @property
    def rounding(self) -> float:
        """Half a unit of its last digit."""
        match = _NUMBER.fullmatch(self.text)
        if not match:
            return 0.0
        digits = match[1].partition(".")[2]
        return 0.5 * 10.0 ** -len(digits) * _UNITS.get(match[2], 1)


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
        lines = ((number, line.rstrip()) for number, line in text_lines(path, largest=LARGEST))
        if self.path.suffix == ".tsv":
            self.sections[""] = list(_tab_separated(lines))
        else:
            self._read_text(lines)

    def cell(self, words: Sequence[str]) -> Cell:
        """A cell by the words in brackets.

        Parameters
        ----------
        words : sequence of str
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
        *keys, column = words
        rows = self.sections[""]
        section = ""
        if len(self.sections) > 1 and keys:
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
        return Cell(row.cells[column], f"{self.path}, line {row.line}")

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
        rows = self.sections[""]
        header: List[str] = []
        for number, line in lines:
            if line.startswith("# "):
                header = []
                rows = self.sections.setdefault(line[2:], [])
                continue
            cells = _cells_of(line)
            if len(cells) < 2:
                header = []
                if line:
                    rows.append(_line(number, line))
            elif set("".join(cells)) <= set("-: "):
                continue  # below the header of a Markdown table
            elif len(cells) == len(header):
                rows.append(Row(number, dict(zip(header, cells))))
            else:
                header = [cell.replace("-", "_") for cell in cells]


def _tab_separated(lines: Iterator[Tuple[int, str]]) -> Iterator[Row]:
    _, first = next(lines, (0, ""))
    header = first.split("\t")
    for number, line in lines:
        # A row may lack its last cells.
        cells = line.split("\t") + [""] * len(header)
        yield Row(number, dict(zip(header, cells)))


def _cells_of(line: str) -> List[str]:
    if line.startswith("| "):
        return [cell.strip() for cell in line.strip("|").split("|")]
    if "\t" in line:
        return line.split("\t")
    return _COLUMNS.split(line.strip())


def _line(number: int, line: str) -> Row:
    cells = {"": _IN_TEXT.sub("#", line)}
    for index, text in enumerate(_IN_TEXT.findall(line), 1):
        cells[str(index)] = text
    return Row(number, cells)


def _is_line(row: Row, start: str) -> bool:
    return row.cells.get("", "").startswith(start)


Value = Union[float, bool, str, Cell, List[Any]]


def number_of(value: Any) -> float:
    """The number of a value; a cell without one is an error."""
    if isinstance(value, Cell):
        if math.isnan(value.value):
            raise DataError(value.where, shorten(value.text), "a number")
        return value.value
    if isinstance(value, (int, float)):
        return float(value)
    raise ValueError(f"{shorten(value)} is no number")


def _p_value(cell: Any) -> str:
    value = number_of(cell)
    if value < 0.001:
        return "p < 0.001"
    digits = 3 if value < 0.0095 else 2
    return f"p = {value:.{digits}f}"


def _numbers(function: Callable[[List[float]], float]) -> Callable[..., float]:
    return lambda *values: function([number_of(value) for value in values])


#: Functions of expressions.
_FUNCTIONS: Dict[str, Callable] = {
    "abs": lambda value: abs(number_of(value)),
    "deviation": lambda cell: cell.deviation,
    "max": _numbers(max),
    "mean": _numbers(statistics.fmean),
    "min": _numbers(min),
    "p": _p_value,
}
_ARITHMETIC: Dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: Dict[type, Callable] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}

#: What a name in an expression stands for: the words in brackets give a value.
Lookup = Callable[[Sequence[str]], Value]


def compute(expression: str, names: Mapping[str, Lookup]) -> Value:
    """Compute an expression over cells.

    Parameters
    ----------
    expression : str
        The expression: names with words in brackets, numbers, ``+ - * /``, comparisons, and the
        functions abs, deviation, max, mean, min and p. With a list of columns, such as
        ``t["row", ["a", "b"]]``, the value is the list of their cells.
    names : mapping of str to callable
        What each name gives for its words, such as `TableFile.cell`.

    Returns
    -------
    Cell, float, bool, str or list
        Its value.

    Raises
    ------
    DataError
        If the expression is malformed, or a cell of it does not exist or has no number.
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _value(tree.body, names)
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError) as error:
        problem = f"{shorten(expression)} cannot be computed ({error})"
        raise DataError("expression", problem, "arithmetic on cells of files") from None


def _value(node: Any, names: Mapping[str, Lookup]) -> Value:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -number_of(_value(node.operand, names))
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = (number_of(_value(side, names)) for side in (node.left, node.right))
        return _ARITHMETIC[type(node.op)](left, right)
    if isinstance(node, ast.Compare) and {*map(type, node.ops)} <= set(_COMPARISONS):
        values = [number_of(_value(side, names)) for side in (node.left, *node.comparators)]
        steps = zip(node.ops, values, values[1:])
        return all(_COMPARISONS[type(compare)](left, right) for compare, left, right in steps)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id not in _FUNCTIONS:
            raise ValueError(f"{node.func.id} is none of {', '.join(_FUNCTIONS)}")
        return _FUNCTIONS[node.func.id](*(_value(argument, names) for argument in node.args))
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if node.value.id not in names:
            raise ValueError(f"{node.value.id} is none of {', '.join(names)}")
        return _cells(ast.literal_eval(_index(node)), names[node.value.id])
    raise ValueError(f"{type(node).__name__} is no part of one")


def _index(node: ast.Subscript) -> Any:
    """The node in brackets, which Python 3.8 wraps."""
    index: Any = node.slice
    return index.value if type(index).__name__ == "Index" else index


def _cells(words: Any, lookup: Lookup) -> Value:
    if isinstance(words, str):
        words = (words,)
    *keys, column = words
    keys = list(map(str, keys))
    if isinstance(column, list):
        return [lookup([*keys, str(name)]) for name in column]
    return lookup([*keys, str(column)])
