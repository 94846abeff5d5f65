"""Reads ``tuned.json`` of a run directory, the drop ratios that `wqa.tuning` chose."""

from __future__ import annotations

import os
import pathlib
from typing import List, Union

from wqa.config import from_dict, read_json, read_run_config
from wqa.errors import OptionError, RunDirectoryError, shorten
from wqa.models import network_type
from wqa.models.cascade import drop_ratios

PathLike = Union[str, "os.PathLike[str]"]


def read_tuned(run: PathLike) -> List[float]:
    """Read the drop ratios that were tuned for a run.

    Parameters
    ----------
    run : str or path-like
        Run directory.

    Returns
    -------
    list of float
        One an exit, the last 0.

    Raises
    ------
    RunDirectoryError
        If the run has no tuned drop ratios, or they do not fit its exits.
    OptionError
        If the run's system is unknown.
    """
    path = pathlib.Path(run) / "tuned.json"
    try:
        values = read_json(path)["drop_ratio"]
    except FileNotFoundError:
        raise RunDirectoryError(
            path,
            "the file is missing",
            "tuned drop ratios",
            f"tune them with `wqa tune {run}`",
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunDirectoryError(
            path, f"cannot be read ({error})", "what `wqa tune` writes", "tune again"
        ) from None
    config = read_run_config(pathlib.Path(run) / "config.json")
    where = f"{pathlib.Path(run) / 'config.json'}, field network"
    own = from_dict(network_type(config.system).Config, config.network, where)
    try:
        return drop_ratios(values, len(getattr(own, "exits", ())))
    except (OptionError, TypeError):
        raise RunDirectoryError(
            path,
            f"drop_ratio is {shorten(values)}",
            "one ratio for each exit of the run",
            "tune again",
        ) from None
