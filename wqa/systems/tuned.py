"""Reads ``tuned.json`` of a run directory, the drop ratios that `wqa.tuning` chose."""

from __future__ import annotations

import os
import pathlib
from typing import List, Union

from wqa.config import read_json, read_run_config
from wqa.errors import OptionError, RunDirectoryError, shorten
from wqa.inference.dropping import drop_ratios
from wqa.systems.run_directory import own_config

PathLike = Union[str, "os.PathLike[str]"]


def read_tuned(run: PathLike) -> List[float]:
    """Read the drop ratios that were tuned for a run."""
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
    own = own_config(path.parent, read_run_config(path.parent / "config.json"))
    try:
        return drop_ratios(values, len(getattr(own, "exits", ())))
    except (OptionError, TypeError):
        raise RunDirectoryError(
            path,
            f"drop_ratio is {shorten(values)}",
            "one ratio for each exit of the run",
            "tune again",
        ) from None
