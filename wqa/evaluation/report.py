"""Published figures beside reproduced ones.

Beside the recipes of a paper, ``published/tableN.tsv`` holds its tables: the columns ``table``,
``row``, ``drop_ratio`` and ``recipe``, then one a figure, named CORPUS_METRIC, in per cent as
printed; a dash where the paper has none. ``results/tableN.tsv`` holds what the recipes gave, with
the same names; any further table under ``results/`` is of another scale, and shown as it is.
"""

from __future__ import annotations

import pathlib
from typing import Dict, List, Mapping, Sequence

from wqa.data import atomic_writer
from wqa.data.files import PathLike
from wqa.errors import DataError, OptionError, shorten

#: Columns that are no figures.
KEYS = ("table", "row", "drop_ratio", "recipe")


def read_rows(path: PathLike) -> List[Dict[str, str]]:
    """Read a table of tab-separated values with a header.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    list of dict of str to str

    Raises
    ------
    DataError
        If it cannot be read, a line has too few or too many columns, or a needed column is absent.
    """
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            path, f"cannot be read ({error})", "a table of tab-separated values"
        ) from None
    header = lines[0].split("\t") if lines else []
    if not {"row", "drop_ratio"} <= set(header) or len(set(header)) < len(header):
        raise DataError(
            f"{path}, line 1",
            shorten(lines[0] if lines else ""),
            "column names, row and drop_ratio among them",
        )
    rows = []
    for number, line in enumerate(lines[1:], 2):
        values = line.split("\t")
        if len(values) != len(header):
            raise DataError(f"{path}, line {number}", f"{len(values)} columns", f"{len(header)}")
        rows.append(dict(zip(header, values)))
    return rows


def write_rows(path: PathLike, rows: Sequence[Mapping[str, str]]) -> None:
    """Write a table of tab-separated values; a row without some column has a dash there.

    Parameters
    ----------
    path : str or path-like
    rows : sequence of mapping
    """
    names: Dict[str, None] = dict.fromkeys(name for row in rows for name in row)
    with atomic_writer(path) as file:
        file.write("\t".join(names) + "\n")
        file.writelines("\t".join(row.get(name, "-") for name in names) + "\n" for row in rows)


def lay_out(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows under their column names, padded.

    Parameters
    ----------
    rows : sequence of mapping
        The same keys in each.

    Returns
    -------
    str
    """
    lines = [list(rows[0]), *([row[name] for name in rows[0]] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )


def beside(
    published: Sequence[Mapping[str, str]], reproduced: Sequence[Mapping[str, str]]
) -> List[Dict[str, str]]:
    """Lay reproduced figures beside published ones.

    Parameters
    ----------
    published, reproduced : sequence of mapping
        Rows of one table.

    Returns
    -------
    list of dict of str to str
        A row for each published one: figures as ``PUBLISHED | REPRODUCED``, with ``not run`` for
        the second where nothing stands; and the recipe.
    """
    found = {(row["row"], row["drop_ratio"]): row for row in reproduced}
    rows = []
    for row in published:
        mine = found.get((row["row"], row["drop_ratio"]), {})
        figures = {
            name: value
            if value == "-" or row["recipe"] == "-"
            else f"{value} | {_figure(mine, name)}"
            for name, value in row.items()
            if name not in KEYS
        }
        rows.append(
            {"row": row["row"], "drop_ratio": row["drop_ratio"], **figures, "recipe": row["recipe"]}
        )
    return rows


def _figure(row: Mapping[str, str], name: str) -> str:
    """A reproduced figure; one that the paper gives for all corpora is that of the first."""
    value = row.get(name) or next(
        (value for key, value in row.items() if key.endswith("_" + name)), "-"
    )
    return "not run" if value == "-" else value


def report(paper: str, recipes: PathLike = "recipes") -> str:
    """Everything that is known of a paper's tables.

    Parameters
    ----------
    paper : str
        Folder of its recipes, such as ``cascade``.
    recipes : str or path-like
        Folder of all recipes.

    Returns
    -------
    str

    Raises
    ------
    OptionError
        If there is no such paper; the message lists those that there are.
    DataError
        If a table is malformed.
    """
    folder = pathlib.Path(recipes)
    known = sorted(path.parent.name for path in folder.glob("*/published"))
    if paper not in known:
        raise OptionError(
            "PAPER",
            shorten(paper),
            "one of " + ", ".join(known) if known else f"published tables in {folder}",
            "run it in a checkout, or name its folder with --recipes",
        )
    parts, run, figures = [], 0, 0
    for path in sorted((folder / paper / "published").glob("*.tsv")):
        published, results = read_rows(path), folder / paper / "results" / path.name
        rows = beside(published, read_rows(results) if results.exists() else [])
        shown = [
            value
            for row in rows
            for name, value in row.items()
            if name not in KEYS and " | " in value
        ]
        missing = sum(value.endswith("not run") for value in shown)
        run, figures = run + len(shown) - missing, figures + len(shown)
        parts.append(
            f"Table {published[0]['table']}, published | reproduced ({len(shown) - missing} "
            f"of {len(shown)} figures)\n" + lay_out(rows)
        )
    for path in sorted((folder / paper / "results").glob("*.tsv")):
        if not (folder / paper / "published" / path.name).exists():
            parts.append(f"Of another scale: {path}\n" + lay_out(read_rows(path)))
    parts.append(f"{run} of {figures} published figures have been run at the paper's scale")
    return "\n\n".join(parts)
