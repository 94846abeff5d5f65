"""What a name or a path stands for, where a ranker is expected.

Baselines are rankers that need no training, by a rule or by a pretrained encoder.
"""

from __future__ import annotations

import os
import pathlib
import re
import tarfile
from typing import Any, Dict, NamedTuple, Optional

from wqa.config import read_json
from wqa.config.encoders import SIMILARITIES
from wqa.errors import OptionError, shorten
from wqa.io.encoder_directories import INSTALLED
from wqa.io.files import PathLike

#: Names of the baselines, as they stand where a run is expected.
BASELINE_NAMES = (
    "rr",
    "wo",
    "wo+rr",
    "random:SEED",
    "bm25",
    "maxsim:ENCODER",
    "cosine:ENCODER",
    *INSTALLED,
)

#: Changes whenever the scores of a baseline change.
BASELINES_VERSION = 2

_RANDOM = "random"
_PLAIN = tuple(name for name in BASELINE_NAMES if ":" not in name and name not in INSTALLED)


class BaselineName(NamedTuple):
    """A baseline that is named in place of a run."""

    rule: str
    seed: int = 0
    encoder: str = ""

    @property
    def is_similarity(self) -> bool:
        """Whether it compares encodings of an encoder, which may come from a document cache."""
        return self.rule in SIMILARITIES

    def __str__(self) -> str:
        if self.is_similarity:
            return f"{self.rule}:{self.encoder}"
        return f"{self.rule}:{self.seed}" if self.rule == _RANDOM else self.rule


def parse_baseline(run: PathLike, folder: PathLike = "") -> Optional[BaselineName]:
    """Parse the name of a baseline."""
    name = os.fspath(run)
    rule, colon, argument = name.partition(":")
    if name not in (*_PLAIN, *INSTALLED) and rule not in (_RANDOM, *SIMILARITIES):
        return None
    if os.path.exists(os.path.join(folder, name)):
        return None
    if name in INSTALLED:
        return BaselineName("maxsim", encoder=name)
    if rule in SIMILARITIES:
        return _parse_similarity(rule, argument, pathlib.Path(folder))
    if rule != _RANDOM:
        return BaselineName(name)
    if colon and not re.fullmatch("[0-9]{1,18}", argument):
        raise OptionError("run", shorten(name), "random:SEED, a whole number from 0")
    return BaselineName(rule, int(argument or 0))


def _parse_similarity(rule: str, encoder: str, folder: pathlib.Path) -> BaselineName:
    if not encoder:
        expected = f"{rule}:ENCODER, such as {rule}:{next(iter(INSTALLED))}"
        raise OptionError("run", rule, expected)
    if os.path.exists(folder / encoder):
        encoder = os.fspath(folder / encoder)
    return BaselineName(rule, encoder=encoder)


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
