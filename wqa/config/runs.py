"""Reading of JSON, whatever a file holds, and ``config.json`` of runs and of exported folders."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import sys
import typing
from typing import Any, Dict, List, Optional, Tuple, Type, TypeVar, Union

from wqa.config.encoders import MOST_LAYERS, MOST_SIZE, BackboneConfig
from wqa.config.systems import KINDS
from wqa.config.training import TrainingConfig
from wqa.errors import OptionError, RunDirectoryError, check_range, shorten

PathLike = Union[str, "os.PathLike[str]"]
C = TypeVar("C")

#: Greatest size of a file in bytes, where a reader does not state its own.
LARGEST = 1 << 26
#: What `ExportConfig.format` says, by which the file is told from that of a run.
FORMAT = "wqa onnx 1"

_HINT = "restore the file from its run"


def parse_json(text: Union[str, bytes]) -> Any:
    """Parse a JSON document, in whose objects no key occurs twice.

    Raises
    ------
    ValueError
        If the text is not UTF-8, is not JSON, is nested more deeply than Python can parse, or has
        a key twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {shorten(twice)} occurs twice in one object")
    return values


def read_json(path: PathLike, largest: int = LARGEST) -> Any:
    """Parse a file that holds one JSON document.

    Parameters
    ----------
    path : str or path-like
        File to read, in UTF-8, with or without a byte order mark.
    largest : int
        Greatest size of the file in bytes, so that a file of another kind does not take all memory.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is larger, or does not hold JSON, as `parse_json` says.
    """
    with open(path, "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"it has more than {largest:,} bytes")
    return parse_json(content.decode("utf-8-sig"))


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """``config.json`` of a run directory, which describes the network and its training.

    Parameters
    ----------
    system : str
        Name of the system, a key of `wqa.systems.SYSTEMS`; ``"encoder"`` for a converted encoder
        without a ranker.
    backbone : BackboneConfig or None
        Sizes of the encoder; None for a system without one.
    network : dict
        Configuration of the system, in types of JSON.
    max_length : int
        Greatest length of an input in tokens.
    training : TrainingConfig, optional
        Settings of the training; None where nothing was trained.
    encoder : str
        Encoder or run that the training started from.
    train_sha256 : str
        SHA-256 of the training questions.
    teachers_sha256 : tuple of str
        SHA-256 of the scores of each teacher.
    versions : dict of str to str
        Versions of the libraries.
    command : str
        Command line that wrote the run.
    sha256 : dict of str to str
        SHA-256 of the run's files, by their names; empty in runs of earlier versions.
    workers : int
        Number of processes that train together, each on the devices of ``training.ctx``.
    data : dict
        What the model card says of the data: for ``"train"`` and ``"dev"`` the ``"file"``, counts
        and, of the latter, ``"sha256"``; ``"metric"``, the figure on dev that chose the parameters.
        Empty in runs of earlier versions.

    Raises
    ------
    OptionError
        If ``max_length`` is out of range.
    """

    system: str
    backbone: Optional[BackboneConfig] = None
    network: Dict[str, Any] = dataclasses.field(default_factory=dict)
    max_length: int = 128
    training: Optional[TrainingConfig] = None
    encoder: str = ""
    train_sha256: str = ""
    teachers_sha256: Tuple[str, ...] = ()
    versions: Dict[str, str] = dataclasses.field(default_factory=dict)
    command: str = ""
    sha256: Dict[str, str] = dataclasses.field(default_factory=dict)
    workers: int = 1
    data: Dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_range("max_length", self.max_length, 1, MOST_SIZE)


@dataclasses.dataclass(frozen=True)
class ExportConfig:
    """``config.json`` of an exported folder: its graphs, and the network that they compute.

    Parameters
    ----------
    system, computes, version : str
        Name of the system; what its network computes, a key of `wqa.config.systems.KINDS`; version
        of the package that wrote the folder.
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
    inputs_type, inputs : str and dict
        Name of the class of what turns texts into token ids, and its settings.
    backbone : BackboneConfig or None
        Sizes of the encoder; None for a system without one.
    network : dict
        Configuration of the system.
    exits : tuple of int
        Layer after which each stage scores; empty where the stages are not layers of an encoder.
    num_layers, max_positions : int
        Layers of the full encoder, and the greatest length of an input; None for any.
    stage_work, full_work : tuple of float, float
        Multiply-adds of each stage and of the full network for one token.
    list_work : float
        Multiply-adds of a candidate beside those for its tokens, of a network on lists.
    document_encoder : str
        SHA-256 of what encodes documents by themselves, by which a document cache is known; empty
        where nothing does.
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


def to_json(config: Any) -> str:
    """Render a configuration as indented JSON that ends in a newline."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def as_json(config: Any) -> Dict[str, Any]:
    """Configuration as ``config.json`` holds it: lists in place of tuples."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def from_dict(kind: Type[C], values: Dict[str, Any], where: str) -> C:
    """Build a configuration from values of JSON.

    Parameters
    ----------
    kind : type
        Dataclass of the configuration.
    values : dict
        Values of its fields.
    where : str
        Name of the file, for errors.

    Raises
    ------
    RunDirectoryError
        If a field is unknown, missing, of another type, or out of range.
    """
    if not isinstance(values, dict):
        raise RunDirectoryError(where, shorten(values), "a JSON object")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    retired = getattr(kind, "RETIRED", {})
    built = {}
    for name, value in values.items():
        if name in retired and retired[name] in (None, value):
            continue
        if name not in fields:
            known = "one of " + ", ".join(sorted(fields))
            hint = "where a newer version of wqa wrote it, load it with that version"
            raise RunDirectoryError(where, f"unknown field {shorten(name)}", known, hint)
        built[name] = _field(hints[name], value, f"{where}, field {name}")
    try:
        return kind(**built)
    except TypeError as error:
        raise RunDirectoryError(where, f"a field is missing ({error})", hint=_HINT) from None
    except OptionError as error:
        problem = f"{error.where}: {error.found}"
        raise RunDirectoryError(where, problem, error.expected, error.hint or _HINT) from None


def _field(hint: Any, value: Any, where: str) -> Any:
    """The value of a field in its type; ``where`` names the field in errors."""
    if hint is Any:
        return value
    if type(None) in typing.get_args(hint):
        if value is None:
            return None
        hint = typing.get_args(hint)[0]
    if dataclasses.is_dataclass(hint):
        return from_dict(hint, value, where)  # type: ignore[arg-type]
    origin = typing.get_origin(hint)
    if origin is tuple:
        # No list is longer than that of the layers.
        if not isinstance(value, (list, tuple)) or len(value) > MOST_LAYERS:
            raise RunDirectoryError(where, shorten(value), f"at most {MOST_LAYERS} values", _HINT)
        return tuple(_field(typing.get_args(hint)[0], entry, where) for entry in value)
    kind = origin or hint
    accepted: Any = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or isinstance(value, bool) != (kind is bool):
        raise RunDirectoryError(where, shorten(value), f"a value of type {kind.__name__}", _HINT)
    # JSON has no NaN and Infinity, but Python reads them; a whole number may exceed every float.
    if kind is float and not abs(value) <= sys.float_info.max:
        raise RunDirectoryError(where, shorten(value), "a finite number", _HINT)
    if origin is dict:
        item, entries = typing.get_args(hint)[1], value.items()
        return {key: _field(item, entry, f"{where}, {shorten(key)}") for key, entry in entries}
    return value


def read_run_config(path: PathLike) -> RunConfig:
    """Read a run's ``config.json``.

    Raises
    ------
    RunDirectoryError
        If the file is missing, truncated, changed or not the configuration of a run.
    """
    if not os.path.exists(path):
        expected = "a run directory as `wqa train` writes it"
        raise RunDirectoryError(path, "the file is missing", expected)
    values = _read(path, _HINT)
    if "hidden_size" in values:
        problem = "the configuration of a Hugging Face directory"
        raise RunDirectoryError(path, problem, "that of a run", "make one: wqa convert SRC OUT")
    if "graphs" in values:
        raise RunDirectoryError(path, "exported graphs", "a run", "name the run that was exported")
    return _checked(RunConfig, values, path, _HINT)


def read_export_config(path: PathLike) -> ExportConfig:
    """Read ``config.json`` of an exported folder.

    Raises
    ------
    RunDirectoryError
        If the file is not the description of an export, or has changed.
    """
    hint = "export the run again"
    values = _read(path, hint)
    stored = values.get("format")
    if stored != FORMAT or values.get("computes") not in KINDS:
        expected = f"{FORMAT}, of this version"
        raise RunDirectoryError(path, f"the format {shorten(stored)}", expected, hint)
    return _checked(ExportConfig, values, path, hint)


def _read(path: PathLike, hint: str) -> Dict[str, Any]:
    try:
        values = read_json(path)
    except (OSError, ValueError) as error:
        raise RunDirectoryError(path, f"cannot be read as JSON ({error})", hint=hint) from None
    if not isinstance(values, dict):
        raise RunDirectoryError(path, shorten(values), "a JSON object", hint)
    return values


def _checked(kind: Type[C], values: Dict[str, Any], path: PathLike, hint: str) -> C:
    """A configuration whose values are those whose digest the file records, if it does."""
    config: Any = from_dict(kind, values, str(path))
    expected = config.sha256.get("config.json")
    if expected is not None and config_digest(values) != expected:
        problem, recorded = "has changed: its SHA-256 is another one", f"{shorten(expected, 16)}"
        hint += "; if you changed it yourself, delete the line config.json of sha256 in it"
        raise RunDirectoryError(path, problem, f"{recorded}, as it records itself", hint)
    return config


def config_digest(values: Dict[str, Any]) -> str:
    """SHA-256 of what ``config.json`` holds, but for its field ``sha256``, which records it."""
    counted = {name: value for name, value in values.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode("ascii")).hexdigest()


def check_finished(folder: pathlib.Path, config: RunConfig) -> None:
    """Check that the training of a run has come to its end.

    Raises
    ------
    RunDirectoryError
        If the training was stopped or still runs; the message has the command that resumes it.
    """
    path = folder / "model.params"
    # A finished run records the digest of its parameters.
    has_ended = config.training is None or path.name in config.sha256
    if path.exists() or (has_ended and not (folder / "checkpoints").is_dir()):
        return
    command = config.command or "train(..., resume=True)"
    if config.command and "--resume" not in config.command.split():
        command += " --resume"
    problem = "the training has not finished, as model.params is missing"
    hint = f"wait until it ends, or resume it: {command}"
    raise RunDirectoryError(folder, problem, "a finished run", hint)
