"""What a run's small files say, without its weights: its system, and its tuned drop ratios."""

from __future__ import annotations

import pathlib
from typing import Any, List

from wqa.config import RunConfig, from_dict, read_json, read_run_config
from wqa.config.runs import read_export_config
from wqa.data.probe import probe
from wqa.errors import OptionError, RunDirectoryError, shorten
from wqa.inference.dropping import drop_ratios
from wqa.io.files import PathLike
from wqa.systems.registry import find_system

_HINT = "restore the file from its run"


def own_config(folder: pathlib.Path, config: RunConfig) -> Any:
    """Configuration of a run's system, from ``config.json``."""
    path = folder / "config.json"
    try:
        kind = find_system(config.system).network_type()
    except OptionError as error:
        where = f"{path}, field system"
        raise RunDirectoryError(where, error.found, error.expected, _HINT) from None
    return from_dict(kind.Config, config.network, f"{path}, field network")


def run_kind(run: PathLike) -> str:
    """Tell what the network of a run computes, by its ``config.json`` alone."""
    folder = pathlib.Path(run)
    try:
        return own_config(folder, read_run_config(folder / "config.json")).computes
    except (RunDirectoryError, OSError):
        return ""


def read_tuned(run: PathLike) -> List[float]:
    """Read the drop ratios that were tuned for a run, or for an export or its run."""
    folder = pathlib.Path(run)
    path, described = folder / "tuned.json", folder / "config.json"
    exported = read_export_config(described) if probe(folder).kind == "export" else None
    try:
        values = read_json(path)["drop_ratio"]
    except FileNotFoundError:
        if exported is not None and exported.tuned:
            return list(exported.tuned)
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
    own: Any = exported
    if exported is None:
        own = own_config(folder, read_run_config(described))
    try:
        return drop_ratios(values, len(getattr(own, "exits", ())))
    except (OptionError, TypeError):
        raise RunDirectoryError(
            path,
            f"drop_ratio is {shorten(values)}",
            "one ratio for each exit of the run",
            "tune again",
        ) from None
