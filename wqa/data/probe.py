"""What a name or a path stands for, where a ranker is expected."""

from __future__ import annotations

import pathlib
import tarfile
from typing import Any, Dict, NamedTuple, Optional

from wqa.config import read_json
from wqa.data.baselines import BaselineName, parse_baseline
from wqa.io.files import PathLike

#: Kinds of rankers, and what messages call them.
DESCRIPTIONS = {
    "baseline": "a baseline, which has no files",
    "file": "a file of several rankers",
    "export": "exported graphs",
    "run": "a run directory",
    "encoder": "an encoder without a ranker",
    "huggingface": "a model of another library",
    "": "no ranker",
}


class Probe(NamedTuple):
    """What stands at a path, by its name and its ``config.json`` alone.

    Attributes
    ----------
    kind : str
        A key of `DESCRIPTIONS`; empty where nothing is recognised. What loads it says what is wrong
        with it then.
    path : pathlib.Path
        The path.
    baseline : BaselineName or None
        The baseline.
    config : dict
        Content of a folder's ``config.json``, which is not checked.
    """

    kind: str
    path: pathlib.Path
    baseline: Optional[BaselineName] = None
    config: Dict[str, Any] = {}


def probe(run: PathLike, folder: PathLike = "") -> Probe:
    """Tell what a name or a path stands for.

    Parameters
    ----------
    run : str or path-like
        Name of a baseline, or a path.
    folder : str or path-like
        Folder that paths are relative to.

    Returns
    -------
    Probe

    Raises
    ------
    OptionError
        If it is the name of a baseline with a wrong seed or without an encoder.
    """
    path = pathlib.Path(folder) / run
    baseline = parse_baseline(run, folder)
    if baseline is not None:
        return Probe("baseline", path, baseline)
    try:
        if path.is_file():
            if path.suffix == ".json":
                return Probe("file", path)
            return Probe("huggingface" if tarfile.is_tarfile(path) else "", path)
        config = read_json(path / "config.json")
    except (OSError, ValueError):  # such as a name that is too long
        return Probe("", path)
    if not isinstance(config, dict):
        return Probe("", path)
    return Probe(_kind(config), path, None, config)


def _kind(config: Dict[str, Any]) -> str:
    """Kind of a folder, by its ``config.json``."""
    if str(config.get("format", "")).startswith("wqa onnx"):
        return "export"
    if "system" in config:
        return "encoder" if config["system"] == "encoder" else "run"
    # Old files of Hugging Face lack the model type.
    return "huggingface" if {"model_type", "hidden_size"} & set(config) else ""
