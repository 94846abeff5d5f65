"""Published figures and claims, judged by what was reproduced."""

from __future__ import annotations

import collections
import fnmatch
import functools
import math
import pathlib
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from wqa.errors import DataError
from wqa.evaluation.cells import Cell, TableFile
from wqa.evaluation.claims import Claim, ClaimsFile, Reason, Scale
from wqa.evaluation.expressions import compute, number_of
from wqa.evaluation.report import KEYS, read_rows
from wqa.io.files import PathLike

#: Statuses of figures and claims. Those in the second row do not count, and the last two fail.
STATUSES = ("OK", "near", "shown", "differs", "cannot", "missing", "FAIL")
#: p-value below which a difference is significant.
SIGNIFICANT = 0.05
#: Statuses for which a check fails.
FAILURES = ("missing", "FAIL")

_OTHERS = "figures of other authors, who printed them"
_NONE = Cell("")


class Figure(NamedTuple):
    """A figure of a table, judged.

    Attributes
    ----------
    row, drop_ratio, column : str
        Its place in the published table.
    unit : str
        Its unit in print.
    published, expected, reproduced : Cell
        The figures; empty where there is none.
    status : str
        One of `STATUSES`.
    why : str
        Reason of the status.
    """

    row: str
    drop_ratio: str
    column: str
    unit: str
    published: Cell
    expected: Cell
    reproduced: Cell
    status: str
    why: str = ""

    @property
    def title(self) -> str:
        """Row and column."""
        ratio = "" if self.drop_ratio in ("0", "-") else f" at {self.drop_ratio}"
        return f"{self.row}{ratio}, {self.column}"


class Verdict(NamedTuple):
    """A claim, judged.

    Attributes
    ----------
    name : str
        Its name in the file.
    claim : str
        The claim in words.
    outcome : str
        What the tests say; empty without their output.
    status : str
        ``OK`` if the file of claims has the same outcome, ``FAIL`` if another, ``missing`` without
        an output.
    why : str
        Reason of the status.
    """

    name: str
    claim: str
    outcome: str
    status: str
    why: str = ""


class Judgement(NamedTuple):
    """A table at one scale.

    Attributes
    ----------
    file : ClaimsFile
        The table.
    scale : str
        The scale.
    figures : list of Figure
        Its figures.
    verdicts : list of Verdict
        Its claims.
    """

    file: ClaimsFile
    scale: str
    figures: List[Figure]
    verdicts: List[Verdict]

    @property
    def failed(self) -> bool:
        """Whether a figure or a claim fails."""
        return any(status in FAILURES for status in self.statuses())

    def statuses(self) -> List[str]:
        """Statuses of the figures, then of the claims."""
        figures = [figure.status for figure in self.figures]
        return figures + [verdict.status for verdict in self.verdicts]

    def counts(self) -> Dict[str, int]:
        """Number of figures of each status that occurs."""
        counted = collections.Counter(figure.status for figure in self.figures)
        return {status: counted[status] for status in STATUSES if counted[status]}

    def reasons(self) -> Dict[str, int]:
        """Why figures cannot be had or differ, with the number of figures."""
        return dict(collections.Counter(figure.why for figure in self.figures if figure.why))

    def as_json(self) -> Dict[str, Any]:
        """The judgement as values of JSON."""
        figures = []
        for figure in self.figures:
            values = figure._asdict()
            for name in ("published", "expected", "reproduced"):
                values[name] = values[name].text
            figures.append(values)
        verdicts = [verdict._asdict() for verdict in self.verdicts]
        return {
            "table": self.file.name,
            "scale": self.scale,
            "figures": figures,
            "claims": verdicts,
        }


def judge(file: ClaimsFile, scale: str, results: Optional[PathLike] = None) -> Judgement:
    """Judge the figures of a table at one scale, and its claims.

    Parameters
    ----------
    file : ClaimsFile
        The table.
    scale : {"paper", "small"}
        The scale. Claims are judged at the small one.
    results : str or path-like, optional
        Folder of the reproduced figures, in place of ``results/`` of the paper's recipes.

    Returns
    -------
    Judgement
        A status for each published figure and each claim. A figure is ``OK`` within its tolerance
        of the one expected, ``near`` within twice that.

    Raises
    ------
    DataError
        If a file is malformed, or the claims name a cell that a file does not have.
    """
    made = pathlib.Path(results or file.folder / "results")
    files = {name: _moved(file, path, made) for name, path in file.table.files.items()}
    names = _Lookups(files)
    figures: List[Figure] = []
    if file.table.published and file.scale(scale) != Scale():
        figures = _judge_figures(file, scale, made, names)
    verdicts = []
    if scale == "small":
        for name, claim in file.table.claims.items():
            verdicts.append(_judge_claim(name, claim, names))
    return Judgement(file, scale, figures, verdicts)


def _moved(file: ClaimsFile, path: str, results: pathlib.Path) -> pathlib.Path:
    """Where a file of results is, which may have been made elsewhere."""
    inside = path.partition("results/")
    return results / inside[2] if path.startswith("results/") else file.folder / path


class _Lookups(Dict[str, Any]):
    """Lookups of cells by the name of their file, which is read when it is first used."""

    def __init__(self, paths: Mapping[str, pathlib.Path]) -> None:
        super().__init__({name: functools.partial(self._cell, name) for name in paths})
        self._paths = paths
        self._read = functools.lru_cache(maxsize=None)(TableFile)

    def _cell(self, name: str, words: Sequence[str]) -> Cell:
        return self._read(self._paths[name]).cell(words)


def _judge_figures(
    file: ClaimsFile, scale_name: str, made: pathlib.Path, names: _Lookups
) -> List[Figure]:
    scale = file.scale(scale_name)
    published = read_rows(file.folder / str(file.table.published), KEYS)
    reproduced = _Tables(scale, [_moved(file, path, made) for path in scale.results])
    expected = reproduced
    if scale_name == "small":
        accepted = [file.folder / "claims" / pathlib.Path(path).name for path in scale.results]
        expected = _Tables(scale, accepted)
    figures = []
    for row in published:
        for column in row:
            if column in KEYS or row[column] == "-":
                continue
            ours = reproduced.cell(row, column)
            if column in scale.figures.get(row["row"], {}):
                ours = _computed(scale.figures[row["row"]][column], names)
            print_cell = Cell(row[column], str(file.table.published))
            goal = print_cell if scale_name == "paper" else expected.cell(row, column)
            unit = _unit(file, column)
            status, why = _status(scale, row, column, unit, goal, ours)
            place = (row["row"], row["drop_ratio"], column)
            figures.append(Figure(*place, unit, print_cell, goal, ours, status, why))
    return figures


def _unit(file: ClaimsFile, column: str) -> str:
    unit = _matching(file.table.units, column)
    if unit is None:
        raise DataError(f"{file.name}, units", f"none for {column}", "a pattern of the column")
    return unit


def _computed(expression: str, names: _Lookups) -> Cell:
    value = compute(expression, names)
    if isinstance(value, Cell):
        return value
    return Cell(f"{number_of(value):.6g}", expression)


class _Tables:
    """Rows of one or several tables, by the names of the published table."""

    def __init__(self, scale: Scale, paths: Iterable[pathlib.Path]) -> None:
        self._scale = scale
        self._rows: Dict[Tuple[str, str], Dict[str, Cell]] = {}
        for path in paths:
            if not path.exists():
                continue
            for row in read_rows(path):
                cells = {name: Cell(text, str(path)) for name, text in row.items()}
                self._rows.setdefault((row["row"], row["drop_ratio"]), {}).update(cells)

    def cell(self, published: Mapping[str, str], column: str) -> Cell:
        """The figure for a published one; one for all corpora is that of the first.

        A dash stands for a row that the scale does not have.
        """
        name = self._scale.rows.get(published["row"], published["row"])
        row = self._rows.get((name, published["drop_ratio"]), {})
        corpus, _, metric = column.partition("_")
        ours = f"{self._scale.corpora.get(corpus, corpus)}_{metric}" if metric else corpus
        if ours in row:
            return row[ours]
        return next((row[key] for key in row if key.endswith("_" + column)), _NONE)


def _status(
    scale: Scale, row: Mapping[str, str], column: str, unit: str, expected: Cell, reproduced: Cell
) -> Tuple[str, str]:
    if row["recipe"] == "-":
        return "cannot", _OTHERS
    if reproduced.is_empty:
        reason = _reason(scale.cannot, row["row"], column)
        return ("cannot", reason) if reason else ("missing", "no figure, and no reason for it")
    own_unit = _matching(scale.units, column)
    if own_unit not in (None, unit):
        return "shown", f"{own_unit} beside {unit}"
    if expected.is_empty:
        return "missing", "no expected figure"
    status, why = _distance(expected, reproduced, _matching(scale.tolerance, column) or 0.0)
    reason = _reason(scale.differs, row["row"], column)
    return ("differs", reason) if reason and status != "OK" else (status, why)


def _distance(expected: Cell, reproduced: Cell, tolerance: float) -> Tuple[str, str]:
    deviation = 0.0 if math.isnan(expected.deviation) else expected.deviation
    tolerance = max(tolerance, deviation, expected.rounding)
    distance = abs(number_of(reproduced) - number_of(expected))
    if distance <= tolerance + 1e-9:
        return "OK", ""
    why = f"{reproduced.text}, expected {expected.text} within {tolerance:g}"
    return ("near", why) if distance <= 2 * tolerance + 1e-9 else ("FAIL", why)


def _matching(patterns: Mapping[str, Any], column: str) -> Any:
    """Value of the first pattern that the column, or its metric, has."""
    for pattern, value in patterns.items():
        if fnmatch.fnmatchcase(column, pattern) or column.endswith("_" + pattern):
            return value
    return None


def _reason(reasons: Iterable[Reason], row: str, column: str) -> str:
    for reason in reasons:
        if fnmatch.fnmatchcase(row, reason.rows) and fnmatch.fnmatchcase(column, reason.columns):
            return reason.why
    return ""


def _judge_claim(name: str, claim: Claim, names: _Lookups) -> Verdict:
    try:
        outcome = _outcome(claim, names)
    except DataError as error:
        return Verdict(name, claim.claim, "", "missing", str(error))
    if outcome == claim.outcome:
        return Verdict(name, claim.claim, outcome, "OK")
    return Verdict(name, claim.claim, outcome, "FAIL", f"{outcome}, expected {claim.outcome}")


def _outcome(claim: Claim, names: _Lookups) -> str:
    """Outcome of all tests of a claim; one that they do not share shows nothing."""
    if claim.holds:
        holds = [compute(expression, names) for expression in claim.holds]
        return "shown" if all(holds) else "not shown"
    outcomes = set()
    for test in claim.above or claim.no_worse:
        outcomes.add(_of_test(test, claim, names))
    undecided = "not shown" if claim.above else "not refuted"
    return outcomes.pop() if len(outcomes) == 1 else undecided


def _of_test(test: Sequence[str], claim: Claim, names: _Lookups) -> str:
    file, *words = test
    if file not in names:
        raise DataError(f"claim {claim.claim}", f"file {file}", f"one of {', '.join(names)}")
    difference = number_of(names[file]([*words, "difference"]))
    significant = number_of(names[file]([*words, claim.test])) < SIGNIFICANT
    if claim.no_worse:
        return "refuted" if significant and difference < 0 else "not refuted"
    if not significant:
        return "not shown"
    return "shown" if difference > 0 else "refuted"
