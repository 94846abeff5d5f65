"""Checking of committed figures, and running of the recipes that make them."""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import List, Sequence

from wqa.errors import OptionError, WqaError
from wqa.evaluation.claims import SCALES, ClaimsFile, Scale, find_claims
from wqa.evaluation.judging import Judgement, judge
from wqa.io.files import PathLike


def check(
    table: str = "", recipes: PathLike = "recipes", scales: Sequence[str] = SCALES
) -> List[Judgement]:
    """Judge committed figures, without running anything.

    Parameters
    ----------
    table : str
        ``PAPER/TABLE``, ``PAPER``, or nothing for all.
    recipes : str or path-like
        Folder of all recipes.
    scales : sequence of str
        The scales.

    Returns
    -------
    list of Judgement
        By table and scale; a table is left out at a scale at which it has nothing.

    Raises
    ------
    OptionError
        If there is no such table.
    DataError
        As `judge` raises it.
    """
    judgements = []
    for file in find_claims(table, recipes):
        judgements += [judge(file, scale) for scale in scales if has_figures(file, scale)]
    return judgements


def has_figures(file: ClaimsFile, scale: str) -> bool:
    """Whether a table has figures or claims at a scale."""
    if file.table.claims and scale == "small":
        return True
    return bool(file.table.published) and file.scale(scale) != Scale()


def reproduce(table: str, recipes: PathLike = "recipes", scale: str = "small") -> List[Judgement]:
    """Run the recipes of a table, unless its figures are there, and judge what they make.

    Parameters
    ----------
    table : str
        ``PAPER/TABLE`` or ``PAPER``.
    recipes : str or path-like
        Folder of all recipes, in a checkout. What they write goes to ``runs/reproduced/PAPER``
        beside it. A recipe that was stopped resumes, and skips what is complete.
    scale : {"paper", "small"}
        The scale.

    Returns
    -------
    list of Judgement
        By table.

    Raises
    ------
    OptionError
        If there is no such table, or it has nothing to reproduce at the scale.
    WqaError
        If a recipe fails.
    DataError
        As `judge` raises it.
    """
    judgements = []
    for file in find_claims(table, recipes):
        if not has_figures(file, scale):
            continue
        made = pathlib.Path("runs", "reproduced", file.folder.name)
        checkout = file.folder.parent.parent
        judgement = judge(file, scale, checkout / made)
        if "missing" in judgement.statuses():
            _run_command(file, scale, made)
            judgement = judge(file, scale, checkout / made)
        judgements.append(judgement)
    if not judgements:
        raise OptionError("table", table, f"one with figures at the scale {scale}")
    return judgements


def _run_command(file: ClaimsFile, scale: str, results: pathlib.Path) -> None:
    command = file.scale(scale).command
    if not command:
        raise WqaError(file.name, f"no command at the scale {scale}", "a table of figures")
    variables = {
        "RESULTS": str(results),
        "LOGS": str(results / "logs"),
        "KEPT": str(results / "runs"),
    }
    checkout = file.folder.parent.parent
    done = subprocess.run(
        ["bash", "-euc", command], cwd=checkout, env={**os.environ, **variables}, check=False
    )
    if done.returncode:
        problem = f"{command} ended with status {done.returncode}"
        raise WqaError(file.name, problem, mend="mend what it printed, and run it again")
