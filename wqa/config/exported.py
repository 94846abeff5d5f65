"""``config.json`` of a folder that `wqa export --format onnx` wrote."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import sys
from typing import Any, Dict, Iterator, Optional, Tuple

from wqa.config.encoders import BackboneConfig
from wqa.config.reading import check_description, from_dict, read_json
from wqa.config.systems import KINDS
from wqa.errors import RunDirectoryError, shorten

#: What `ExportConfig.format` says, by which the file is told from that of a run.
FORMAT = "wqa onnx 1"


@dataclasses.dataclass(frozen=True)
class ExportConfig:
    """Description of exported graphs, and of the network that they compute.

    Parameters
    ----------
    system : str
        Name of the system.
    computes : str
        What the network computes, a key of `wqa.config.systems.KINDS`.
    version : str
        Version of the package that wrote the folder.
    digest : str
        SHA-256 of the run: of the files and settings that its scores depend on.
    opset : int
        Version of ONNX's operators in the graphs.
    graphs : dict of str to dict
        Names of the inputs and outputs of each graph, ``{"inputs": [...], "outputs": [...]}``.
    stages : tuple of str
        Graphs between which candidates can be dropped, in the order in which they run.
    max_length : int
        Greatest length of an input in tokens.
    inputs_type : str
        Name of the class of what turns texts into token ids.
    inputs : dict
        Its settings.
    backbone : BackboneConfig or None
        Sizes of the encoder; None for a system without one.
    network : dict
        Configuration of the system.
    exits : tuple of int
        Layer after which each stage scores; empty where the stages are not layers of an encoder.
    num_layers : int
        Number of layers of the full encoder.
    max_positions : int or None
        Greatest length of an input that the network takes; None for any.
    stage_work : tuple of float
        Multiply-adds of each stage for one token.
    full_work : float
        Multiply-adds of the full network for one token.
    list_work : float
        Multiply-adds of a candidate beside those for its tokens, of a network on lists.
    document_encoder : str
        SHA-256 of the settings and parameters of what encodes documents by themselves, by which a
        document cache is known; empty where nothing does.
    calibration : dict
        ``temperatures`` and ``threshold`` of a calibrated run; empty for others.
    tuned : tuple of float
        Drop ratios that `wqa tune` stored in the run; empty where it did not.
    sha256 : dict of str to str
        SHA-256 of the files, by their names.
    format : str
        `FORMAT`.
    """

    system: str
    computes: str
    version: str
    digest: str
    opset: int
    graphs: Dict[str, Any]
    stages: Tuple[str, ...]
    max_length: int
    inputs_type: str
    inputs: Dict[str, Any]
    backbone: Optional[BackboneConfig]
    network: Dict[str, Any]
    exits: Tuple[int, ...]
    num_layers: int
    max_positions: Optional[int]
    stage_work: Tuple[float, ...]
    full_work: float
    list_work: float = 0.0
    document_encoder: str = ""
    calibration: Dict[str, Any] = dataclasses.field(default_factory=dict)
    tuned: Tuple[float, ...] = ()
    sha256: Dict[str, str] = dataclasses.field(default_factory=dict)
    format: str = FORMAT


def is_export(folder: pathlib.Path) -> bool:
    """Whether a folder was written by `wqa export --format onnx`."""
    try:
        values = read_json(folder / "config.json")
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and str(values.get("format", "")).startswith("wqa onnx")


def read_export_config(path: pathlib.Path) -> ExportConfig:
    """Read ``config.json`` of an exported folder.

    Parameters
    ----------
    path : path-like
        File to read.

    Returns
    -------
    ExportConfig

    Raises
    ------
    RunDirectoryError
        If the file is not the description of an export, or has changed.
    """
    mend = "export the run again"
    try:
        values = read_json(path)
    except (OSError, ValueError) as error:
        raise RunDirectoryError(path, f"cannot be read ({error})", "an export", mend) from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        problem = "another format"
        if isinstance(values, dict):
            problem = f"the format {shorten(values.get('format'))}"
        raise RunDirectoryError(path, problem, f"{FORMAT}, of this version", mend)
    config = from_dict(ExportConfig, values, str(path))
    check_description(path, values, config.sha256, mend)
    if config.computes not in KINDS:
        raise RunDirectoryError(
            path, f"computes is {shorten(config.computes)}", f"one of {', '.join(KINDS)}", mend
        )
    for name, is_right, expected in _demands(config):
        if not is_right:
            found = f"{name} is {shorten(getattr(config, name))}"
            raise RunDirectoryError(path, found, expected, mend)
    return config


def _demands(config: ExportConfig) -> Iterator[Tuple[str, bool, str]]:
    """Fields, whether they fit one another, and what is expected of each."""
    ranks = config.computes == "scores"
    stages, exits = len(config.stages), config.exits
    known = bool(stages) and set(config.stages) <= set(config.graphs)
    if stages > 1:
        known = known and config.stages == tuple(f"exit_{layer}" for layer in exits)
    yield "stages", known or not ranks, "names of graphs, one for each of the exits"
    work = config.stage_work
    is_work = all(math.isfinite(value) and value >= 0 for value in work)
    yield (
        "stage_work",
        (is_work and len(work) == stages) or not ranks,
        f"{stages} numbers from 0 on",
    )
    full, extra = config.full_work, config.list_work
    yield "full_work", math.isfinite(full) and full >= 0 and (full > 0 or not ranks), "a number > 0"
    yield "list_work", math.isfinite(extra) and extra >= 0, "a number from 0 on"
    last = config.backbone.num_layers if config.backbone is not None else 0
    yield "num_layers", config.num_layers == last, f"{last}, as the encoder has"
    in_order = list(exits) == sorted({*exits}) and all(1 <= layer <= last for layer in exits)
    is_stages = not exits or not ranks or len(exits) == stages
    yield "exits", in_order and is_stages, f"{stages} rising layers from 1 to {last}, or none"
    calibration = config.calibration
    if calibration:
        values, threshold = calibration.get("temperatures"), calibration.get("threshold")
        fits = set(calibration) == {"temperatures", "threshold"}
        fits = fits and (threshold is None or _is_number(threshold))
        fits = fits and isinstance(values, list) and len(values) in (0, stages)
        fits = fits and all(_is_number(value) and value > 0 for value in values or ())
        yield "calibration", fits, f"{stages} temperatures above 0, and a threshold or null"


def _is_number(value: Any) -> bool:
    # JSON's whole numbers may be beyond those of floating point.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max
