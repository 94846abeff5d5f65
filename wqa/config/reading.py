"""Reading of JSON, whatever a file holds, and the configuration of a run, which is JSON."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import pathlib
import stat
import sys
import typing
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Tuple, Type, TypeVar, Union

from wqa.config.encoders import MOST_LAYERS, MOST_SIZE, BackboneConfig
from wqa.config.training import TrainingConfig
from wqa.errors import OptionError, RunDirectoryError, shorten

#: Builds an object from its keys and values, as `json.loads` calls it.
Hook = Callable[[List[Tuple[str, Any]]], Any]

#: Greatest size of a file in bytes, where a reader does not state its own.
LARGEST = 1 << 26

#: Folders of the process's open files.
_DESCRIPTORS = ("/dev/fd", "/proc/self/fd")


def unique_keys(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """Build an object of which no key occurs twice; a hook for `parse_json`."""
    values: Dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"key {shorten(name)} occurs twice")
        values[name] = value
    return values


def parse_json(text: Union[str, bytes], object_pairs_hook: Optional[Hook] = None) -> Any:
    """Parse a JSON document.

    Parameters
    ----------
    text : str or bytes
        The document.
    object_pairs_hook : callable, optional
        Builds an object from the list of its keys and values.

    Returns
    -------
    dict, list, str, int, float, bool or None
        Value of the document.

    Raises
    ------
    ValueError
        If the text is not UTF-8, is not JSON, or is nested more deeply than Python can parse.
    """
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def open_file(path: Union[str, os.PathLike[str]]) -> BinaryIO:
    """Open a regular file for reading bytes, without waiting for a writer of a named pipe."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    is_pipe = stat.S_ISFIFO(mode) and os.path.dirname(path) in _DESCRIPTORS
    if stat.S_ISREG(mode) or is_pipe:
        os.set_blocking(handle, True)
        return open(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise OSError(errno.EINVAL, "is no regular file", os.fspath(path))


def read_json(
    path: Union[str, os.PathLike[str]],
    largest: int = LARGEST,
    object_pairs_hook: Optional[Hook] = None,
) -> Any:
    """Parse a file that holds one JSON document.

    Parameters
    ----------
    path : str or path-like
        File to read, in UTF-8, with or without a byte order mark.
    largest : int
        Greatest size of the file in bytes, so that a file of another kind does not take all memory.
    object_pairs_hook : callable, optional
        As `parse_json` takes it.

    Returns
    -------
    dict, list, str, int, float, bool or None
        Value of the document.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is larger, or does not hold JSON, as `parse_json` says.
    """
    with open_file(path) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"it has more than {largest:,} bytes")
    return parse_json(content.decode("utf-8-sig"), object_pairs_hook)


C = TypeVar("C")

_MEND = "restore the file from its run"


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
        SHA-256 of each teacher: of the scores in a folder, or of another ranker, as
        `wqa.data.digests.ranker_digest` computes it.
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
        if not 1 <= self.max_length <= MOST_SIZE:
            expected = f"a whole number from 1 to {MOST_SIZE}"
            raise OptionError("max_length", shorten(self.max_length), expected)


def to_json(config: Any) -> str:
    """Render a configuration as indented JSON.

    Parameters
    ----------
    config : dataclass instance
        Configuration to render.

    Returns
    -------
    str
        JSON text that ends in a newline.
    """
    return json.dumps(dataclasses.asdict(config), indent=2, ensure_ascii=False) + "\n"


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

    Returns
    -------
    kind
        Configuration with these values.

    Raises
    ------
    RunDirectoryError
        If a field is unknown, missing, of another type, or out of range.
    """
    if not isinstance(values, dict):
        raise RunDirectoryError(where, shorten(values), "a JSON object")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    built = {}
    for name, value in values.items():
        if name not in fields:
            raise RunDirectoryError(
                where, f"unknown field {shorten(name)}", "one of " + ", ".join(sorted(fields))
            )
        built[name] = _field(hints[name], value, f"{where}, field {name}")
    try:
        return kind(**built)
    except TypeError as error:
        raise RunDirectoryError(where, f"a field is missing ({error})", mend=_MEND) from None
    except OptionError as error:
        problem = f"{error.where}: {error.found}"
        raise RunDirectoryError(where, problem, error.expected, error.mend or _MEND) from None


def _field(hint: Any, value: Any, where: str) -> Any:
    """The value of a field in its type; ``where`` names the field in errors."""
    if hint is Any:
        return value
    if type(None) in typing.get_args(hint):
        if value is None:
            return None
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    if dataclasses.is_dataclass(hint):
        return from_dict(hint, value, where)  # type: ignore[arg-type]
    origin = typing.get_origin(hint)
    if origin is tuple:
        item = typing.get_args(hint)[0]
        if not isinstance(value, (list, tuple)):
            raise RunDirectoryError(where, shorten(value), "a list", _MEND)
        if len(value) > MOST_LAYERS:  # no list is longer than that of the layers
            problem = f"a list of {len(value)} values"
            raise RunDirectoryError(where, problem, f"at most {MOST_LAYERS}", _MEND)
        return tuple(_field(item, entry, where) for entry in value)
    kind = origin or hint
    accepted: Any = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or isinstance(value, bool) != (kind is bool):
        raise RunDirectoryError(where, shorten(value), f"a value of type {kind.__name__}", _MEND)
    # JSON has no NaN and Infinity, but Python reads them; a whole number may exceed every float.
    if kind is float and not abs(value) <= sys.float_info.max:
        raise RunDirectoryError(where, shorten(value), "a finite number", _MEND)
    if origin is dict:
        item = typing.get_args(hint)[1]
        fields = {}
        for key, entry in value.items():
            fields[key] = _field(item, entry, f"{where}, {shorten(key)}")
        return fields
    return value


def read_run_config(path: Union[str, Any]) -> RunConfig:
    """Read a run's ``config.json``.

    Parameters
    ----------
    path : str or path-like
        File to read.

    Returns
    -------
    RunConfig

    Raises
    ------
    RunDirectoryError
        If the file is missing, truncated or not the configuration of a run.
    """
    try:
        values = read_json(path)
    except FileNotFoundError:
        raise RunDirectoryError(
            path, "the file is missing", "a run directory as `wqa train` writes it"
        ) from None
    except (OSError, ValueError) as error:
        raise RunDirectoryError(path, f"cannot be read as JSON ({error})", mend=_MEND) from None
    if isinstance(values, dict) and "hidden_size" in values:
        raise RunDirectoryError(
            path,
            "the configuration of a Hugging Face directory",
            "that of a run",
            "make one of it: wqa convert SRC OUT",
        )
    if isinstance(values, dict) and "graphs" in values:
        raise RunDirectoryError(path, "exported graphs", "a run", "name the run that was exported")
    written = values
    if isinstance(values, dict) and "exits" in values:
        # Version 0.1.0 had one configuration for all systems.
        values = {**values, "network": {"exits": values["exits"]}}
        del values["exits"]
    config = from_dict(RunConfig, values, str(path))
    check_description(path, written, config.sha256, _MEND)
    return config


def check_description(path: Any, values: Any, sha256: Dict[str, str], mend: str) -> None:
    """Check that the values of a ``config.json`` are those whose digest it records, if it does.

    Parameters
    ----------
    path : path-like
        The file.
    values : dict
        What it holds.
    sha256 : dict of str to str
        The digests that it records.
    mend : str
        What to do where it has changed.

    Raises
    ------
    RunDirectoryError
        If the digest is another one.
    """
    expected = sha256.get("config.json")
    if expected is not None and config_digest(values) != expected:
        raise RunDirectoryError(
            path,
            "has changed: its SHA-256 is another one",
            f"{shorten(expected, 16)}, as it records itself",
            f"{mend}; if you changed it yourself, delete the line config.json of sha256 in it",
        )


def check_finished(folder: pathlib.Path, config: RunConfig) -> None:
    """Check that the training of a run has come to its end.

    Parameters
    ----------
    folder : pathlib.Path
        Run directory.
    config : RunConfig
        Content of its ``config.json``.

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
    raise RunDirectoryError(
        folder,
        "the training has not finished, as model.params is missing",
        "a finished run",
        f"wait until it ends, or resume it: {command}",
    )


def config_digest(values: Dict[str, Any]) -> str:
    """Compute the SHA-256 of a run's ``config.json``, which it records itself.

    Parameters
    ----------
    values : dict
        Content of the file. Its field ``sha256`` does not count.

    Returns
    -------
    str
        The digest in hexadecimal.
    """
    counted = {name: value for name, value in values.items() if name != "sha256"}
    text = json.dumps(counted, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
