"""Tables of figures: laid out as text, and in files.

The folder of a paper's recipes has two folders of tables. ``published/tableN.tsv`` is a table of
the paper. Its columns are ``table``, ``row``, ``drop_ratio`` and ``recipe``, then one for each
figure, named CORPUS_METRIC, in per cent as printed; a dash where the paper has none.
``published/tableN.txt``, if there is one, holds remarks on the table. ``results/`` holds the
figures that the recipes reproduced, under the same names, or on another corpus.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence, Union

from wqa.data import tables
from wqa.errors import DataError, printable
from wqa.io.files import PathLike, atomic_writer

Cell = Union[str, float, None]

# Columns of shares, beside metrics at a cut-off; the second line has those of comparisons.
_SHARES = {"map", "mrr", "em", "f1", "cost", "token_cost", "paper_cost"}
_SHARES |= {"first", "second", "difference", "low", "high"}


def table(rows: Sequence[Mapping[str, Cell]]) -> str:
    """Lay rows out as a plain table.

    Parameters
    ----------
    rows : sequence of mapping
        The rows, all with the same keys, which become the header. Metrics in [0, 1], costs, and
        the difference of two metrics with its bounds are in per cent, as in the papers; None is
        shown as a dash.

    Returns
    -------
    str
        The table, without a newline at its end.
    """
    lines = [list(rows[0])]
    for row in rows:
        lines.append([_cell(name, value) for name, value in row.items()])
    columns = []
    for column in zip(*lines):
        cells = list(map(printable, column))
        width = max(map(len, cells))
        columns.append([text.rjust(width) for text in cells])
    return "\n".join(map("  ".join, zip(*columns)))


def _cell(name: str, value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, (str, int)):
        return str(value)
    if name in _SHARES or "@" in name:
        return f"{100 * value:.2f}"
    return f"{value:.3f}"


def read_rows(
    path: PathLike, needed: Sequence[str] = ("row", "drop_ratio")
) -> List[Dict[str, str]]:
    """Read a table of tab-separated values with a header."""
    rows = [cells for _, _, cells in tables.read_rows(path, needed, "name the columns so") if cells]
    if not rows:
        raise DataError(path, "the table has no row", "a line for each row after the header")
    return rows


def write_rows(path: PathLike, rows: Sequence[Mapping[str, str]]) -> None:
    """Write a table of tab-separated values; a row without some column has a dash there."""
    names: Dict[str, None] = dict.fromkeys(name for row in rows for name in row)
    with atomic_writer(path) as file:
        file.write("\t".join(names) + "\n")
        for row in rows:
            file.write("\t".join(row.get(name, "-") for name in names) + "\n")
