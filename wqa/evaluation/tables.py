"""Rows of figures as plain text."""

from __future__ import annotations

from typing import Mapping, Sequence, Union

from wqa.errors import printable

Cell = Union[str, float, None]

# Columns of shares, beside metrics at a cut-off; the last five are those of a comparison.
_SHARES = ("map", "mrr", "em", "f1", "first", "second", "difference", "low", "high")


def table(rows: Sequence[Mapping[str, Cell]]) -> str:
    """Lay rows out as a plain table.

    Parameters
    ----------
    rows : sequence of mapping
        The rows, all with the same keys, which become the header. Metrics in [0, 1], and the
        difference of two of them with its bounds, are shown times 100, as in the papers; None is
        shown as a dash.

    Returns
    -------
    str
        The table, without a newline at its end.
    """
    lines = [list(rows[0])]
    for row in rows:
        cells = [_cell(name, value) for name, value in row.items()]
        lines.append(cells)
    return align(lines)


def align(lines: Sequence[Sequence[str]], left: int = 0) -> str:
    """Pad the cells of every column to one width."""
    columns = []
    for number, column in enumerate(zip(*lines)):
        cells = list(map(printable, column))
        width = max(map(len, cells))
        side = ">"
        if number < left:
            side = "<"
        columns.append([f"{text:{side}{width}}" for text in cells])
    rows = map("  ".join, zip(*columns))
    return "\n".join(map(str.rstrip, rows))


def _cell(name: str, value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, (str, int)):
        return str(value)
    if name in _SHARES or "@" in name:
        return f"{100 * value:.2f}"
    return f"{value:.3f}"
