"""Names of baselines: rankers by a rule, which have no files of their own."""

from __future__ import annotations

import os
import pathlib
import re
from typing import NamedTuple, Optional, Union

from wqa.errors import OptionError, shorten

#: Names of the baselines, as they stand where a run is expected.
BASELINE_NAMES = ("rr", "wo", "wo+rr", "random:SEED", "bm25")

#: Changes whenever the scores of a baseline change.
BASELINES_VERSION = 1

_RANDOM = "random"
_PLAIN = tuple(name for name in BASELINE_NAMES if ":" not in name)


class BaselineName(NamedTuple):
    """A baseline that is named in place of a run.

    Attributes
    ----------
    rule : {"rr", "wo", "wo+rr", "random", "bm25"}
        The rule.
    seed : int
        Seed of ``random``.
    """

    rule: str
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.rule}:{self.seed}" if self.rule == _RANDOM else self.rule


def parse_baseline(
    run: Union[str, os.PathLike[str]], folder: Union[str, os.PathLike[str]] = ""
) -> Optional[BaselineName]:
    """Parse the name of a baseline.

    Parameters
    ----------
    run : str or path-like
        What stands where a run is expected.
    folder : str or path-like
        Folder that paths are relative to.

    Returns
    -------
    BaselineName or None
        None for any other name, and where a file or folder has the name.

    Raises
    ------
    OptionError
        If ``random`` has a seed that is no whole number.
    """
    name = os.fspath(run)
    rule, colon, seed = name.partition(":")
    if name not in _PLAIN and rule != _RANDOM:
        return None
    if _exists(pathlib.Path(folder) / name):
        return None
    if rule != _RANDOM:
        return BaselineName(name)
    if colon and not re.fullmatch("[0-9]{1,18}", seed):
        raise OptionError("run", shorten(name), "random:SEED, a whole number from 0")
    return BaselineName(rule, int(seed or 0))


def _exists(path: pathlib.Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False
