"""What there is to reproduce of a paper: a file for each of its tables and figures.

``recipes/PAPER/claims/TABLE.yaml`` names the published figures, their units, and what holds at
each scale: ``paper``, that of the paper, and ``small``. It says which command makes the figures and
which files hold them, how far they may be from those expected, and why some cannot be had here.
Expected are at the paper's scale the published figures. At the small scale they are those of the
table of the same name in ``claims/``, which a person copies from ``results/`` to accept it. What
the paper says of a table in words is under ``claims``, each with the tests that decide it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any, Dict, List, Optional, Tuple

from wqa.config.reading import from_dict
from wqa.config.yaml_text import parse_yaml
from wqa.errors import DataError, OptionError, RunDirectoryError, check_choice, shorten
from wqa.io.files import PathLike
from wqa.io.lines import text_lines

#: The scales at which figures can be had.
SCALES = ("paper", "small")
#: Outcomes of the tests of a claim.
OUTCOMES = ("shown", "not shown", "refuted", "not refuted")
#: Greatest size of a file in bytes.
LARGEST = 1 << 20


@dataclasses.dataclass(frozen=True)
class Reason:
    """Cells that are no failure, and why.

    Attributes
    ----------
    why : str
        The reason.
    rows, columns : str
        Patterns of the names of rows and columns, in which ``*`` is any text.
    """

    why: str
    rows: str = "*"
    columns: str = "*"


@dataclasses.dataclass(frozen=True)
class Scale:
    """A table's figures at one scale.

    Attributes
    ----------
    command : str
        Shell command that makes them, in the folder of the checkout.
    results : tuple of str
        Tables that hold them, in the folder of the paper's recipes.
    figures : dict
        Figures that no table holds, as expressions over `TableClaims.files`, by row and column.
    rows : dict of str to str
        Rows that stand for those of the paper, where they have other names; a dash for none.
    corpora : dict of str to str
        Corpora that stand for those of the paper.
    units : dict of str to str
        Units by column, where they are not those of the paper: such figures are shown, and do not
        count.
    runs : dict of str to tuple of str
        TREC runs of rows of the results, in the folder of the paper's recipes.
    tolerance : dict of str to float
        How far a figure may be from the one expected, by a pattern of the column; the deviation
        over seeds where that is greater, and half a unit of the last digit in print.
    cannot : tuple of Reason
        Figures that cannot be had here.
    differs : tuple of Reason
        Figures that differ for a known reason: they are shown, and do not count.
    """

    command: str = ""
    results: Tuple[str, ...] = ()
    figures: Dict[str, Dict[str, str]] = dataclasses.field(default_factory=dict)
    rows: Dict[str, str] = dataclasses.field(default_factory=dict)
    corpora: Dict[str, str] = dataclasses.field(default_factory=dict)
    units: Dict[str, str] = dataclasses.field(default_factory=dict)
    runs: Dict[str, Tuple[str, ...]] = dataclasses.field(default_factory=dict)
    tolerance: Dict[str, float] = dataclasses.field(default_factory=dict)
    cannot: Tuple[Reason, ...] = ()
    differs: Tuple[Reason, ...] = ()


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a paper says of a table in words, and what decides it here.

    Attributes
    ----------
    claim : str
        The claim.
    outcome : {"shown", "not shown", "refuted", "not refuted"}
        What the tests of the committed results say.
    above, no_worse : tuple of tuple of str
        Paired tests, each by a name of ``files``, then the section and the first cells of a row of
        it, with the columns ``difference`` and `test`.
    holds : tuple of str
        Comparisons over cells.
    test : str
        Column of the p-values.
    """

    claim: str
    outcome: str
    above: Tuple[Tuple[str, ...], ...] = ()
    no_worse: Tuple[Tuple[str, ...], ...] = ()
    holds: Tuple[str, ...] = ()
    test: str = "t_test"

    def __post_init__(self) -> None:
        check_choice("outcome", self.outcome, OUTCOMES)
        kinds = [bool(tests) for tests in (self.above, self.no_worse, self.holds)]
        if sum(kinds) != 1:
            raise OptionError("claim", shorten(self.claim), "one of above, no_worse and holds")


@dataclasses.dataclass(frozen=True)
class TableClaims:
    """A table or a figure of a paper.

    Attributes
    ----------
    title : str
        Its name in the paper.
    about : str
        What it shows.
    published : str, optional
        File of the published figures, in the folder of the paper's recipes.
    nothing : str
        Why there is nothing to reproduce, where it has no figures.
    units : dict of str to str
        Units of the published figures, by a pattern of the column.
    files : dict of str to str
        Names of files, for expressions and tests.
    paper, small : Scale
        The figures at both scales.
    claims : dict of str to Claim
        The claims, by a short name.
    """

    title: str
    about: str
    published: Optional[str] = None
    nothing: str = ""
    units: Dict[str, str] = dataclasses.field(default_factory=dict)
    files: Dict[str, str] = dataclasses.field(default_factory=dict)
    paper: Scale = Scale()
    small: Scale = Scale()
    claims: Dict[str, Claim] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.nothing) == bool(self.published):
            raise OptionError("published", self.published, "either it or the key nothing")


@dataclasses.dataclass(frozen=True)
class ClaimsFile:
    """A file of claims.

    Attributes
    ----------
    name : str
        Paper and table, such as ``cascade/table3``.
    folder : pathlib.Path
        Folder of the paper's recipes.
    table : TableClaims
        What the file says.
    """

    name: str
    folder: pathlib.Path
    table: TableClaims

    def scale(self, name: str) -> Scale:
        """The figures at a scale."""
        check_choice("scale", name, SCALES)
        return getattr(self.table, name)


def read_claims(path: PathLike) -> ClaimsFile:
    """Read a file of claims.

    Parameters
    ----------
    path : str or path-like
        ``PAPER/claims/TABLE.yaml`` in the folder of all recipes.

    Returns
    -------
    ClaimsFile
        What it says.

    Raises
    ------
    DataError
        If it cannot be read, or a key is unknown, missing or of another type.
    """
    path = pathlib.Path(path)
    text = "\n".join(line.rstrip("\r\n") for _, line in text_lines(path, largest=LARGEST))
    try:
        values: Any = parse_yaml(text)
        table = from_dict(TableClaims, values, str(path))
    except ValueError as error:
        raise DataError(path, f"cannot be read ({error})", "YAML without aliases") from None
    except RunDirectoryError as error:
        raise DataError(error.where, error.found, error.expected) from None
    folder = path.parent.parent
    return ClaimsFile(f"{folder.name}/{path.stem}", folder, table)


def find_claims(target: str = "", recipes: PathLike = "recipes") -> List[ClaimsFile]:
    """Read the claims of a table, of a paper, or of all papers.

    Parameters
    ----------
    target : str
        ``PAPER/TABLE``, ``PAPER``, or nothing for all.
    recipes : str or path-like
        Folder of all recipes.

    Returns
    -------
    list of ClaimsFile
        By paper, then tables before figures, by their numbers.

    Raises
    ------
    OptionError
        If there is no such table.
    """
    paths = sorted(pathlib.Path(recipes).glob("*/claims/*.yaml"), key=_order)
    names = [f"{path.parts[-3]}/{path.stem}" for path in paths]
    chosen = []
    for name, path in zip(names, paths):
        if target in ("", name, name.partition("/")[0]):
            chosen.append(read_claims(path))
    if not chosen:
        expected = f"PAPER or PAPER/TABLE of the files of claims in {recipes}"
        if names:
            expected = "one of " + ", ".join(names)
        mend = "run it in a checkout, or name its folder with recipes=DIR"
        raise OptionError("table", shorten(target), expected, mend)
    return chosen


def _order(path: pathlib.Path) -> Tuple[str, bool, List[int], str]:
    numbers = list(map(int, re.findall(r"[0-9]+", path.stem)))
    return path.parts[-3], not path.stem.startswith("table"), numbers, path.stem
