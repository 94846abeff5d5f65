"""Run directories of networks that were trained elsewhere, and the model cards of all.

A card is the ``README.md`` of a run or an export in the Hugging Face hub's form. It is made from
``config.json`` of the run, by the templates of ``cards``. Nothing reads it.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shlex
import string
from typing import Any, Dict

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import numpy as np
from mxnet.gluon import Block

from wqa.config import RunConfig, TrainingConfig
from wqa.config.runs import as_json, to_json
from wqa.data.digests import record_digests
from wqa.errors import OptionError, printable, shorten
from wqa.io.files import PathLike, atomic_writer, new_directory
from wqa.models import Network, library_versions
from wqa.pretrained.load import write_parameters
from wqa.systems.registry import SYSTEMS, add_installed_systems
from wqa.text import PairInputs, Tokenizer
from wqa.training.checkpoint import MetricsFile

#: Name of the file.
CARD = "README.md"
#: A card with this line is written anew; one without it is somebody's own.
MARK = "<!-- Written by wqa. Delete this line, and wqa keeps what you write here. -->"
#: ``card.md``, and how what is described is loaded: by what a run computes, or by the format of an
#: export.
TEMPLATES = pathlib.Path(__file__).parent / "cards"

_LICENCES = {
    "minilm": "`minilm` is all-MiniLM-L6-v2, under Apache-2.0. Its authors trained it on a billion "
    "pairs of texts, which have licences of their own.",
    "": "It starts from no encoder.",
}


def save_run(
    model: Network, inputs: PairInputs, folder: PathLike, command: str = ""
) -> pathlib.Path:
    """Write a network as a run directory, which `load_ranker` and every command take.

    Parameters
    ----------
    model : Network
        Network of a system of `wqa.systems.SYSTEMS`, with float32 parameters.
    inputs : PairInputs
        Its token ids. The run records their tokenizer and their greatest length.
    folder : str or path-like
        New directory to write.
    command : str
        Command line or note to record in ``config.json``.

    Returns
    -------
    pathlib.Path
        The directory.

    Raises
    ------
    OptionError
        If the network is of no system, a parameter is not float32 or not finite, the greatest
        length exceeds the encoder's positions, or the directory exists already.
    EncoderError
        If the tokenizer does not fit the network.
    StorageError
        If the directory cannot be written.
    """
    system = _system_of(model)
    _check_parameters(model)
    model.text_inputs(inputs.tokenizer, inputs.max_length)  # checks the length
    if model.config is not None:
        inputs.tokenizer.check_fits(model.config, "encoder")
    record = RunConfig(
        system=system,
        backbone=model.config,
        network=as_json(model.own_config),
        max_length=inputs.max_length,
        versions=library_versions(),
        command=command,
    )
    write_run(folder, model, record, inputs.tokenizer)
    return pathlib.Path(folder)


def write_run(folder: PathLike, model: Block, record: RunConfig, tokenizer: Tokenizer) -> None:
    """Write a network, or an encoder alone, as a run directory."""
    with new_directory(folder) as target:
        write_parameters(model, target / "model.params")
        tokenizer.save(target / "tokenizer.json")
        (target / "config.json").write_text(to_json(record), encoding="utf-8")
        record_digests(target)
        use = getattr(model, "computes", "encoder")
        write_model_card(target, record, use, pathlib.Path(folder).absolute().name)


def _system_of(model: Network) -> str:
    """Name under which the network's class is registered."""
    add_installed_systems()
    for name, system in SYSTEMS.items():
        if type(model) is system.network_type():
            return name
    problem = f"a {type(model).__name__}, which is no system"
    raise OptionError("model", problem, "a network of one of " + ", ".join(SYSTEMS))


def _check_parameters(model: Network) -> None:
    """Refuse parameters that `load_ranker` would refuse."""
    for name, parameter in model._collect_params_with_prefix().items():
        values = parameter.data(parameter.list_ctx()[0]).asnumpy()
        if values.dtype != "float32" or not np.isfinite(values).all():
            problem = f"parameter {shorten(name)} of {values.dtype}"
            raise OptionError("model", problem, "float32 numbers, all finite")


def write_model_card(folder: PathLike, config: RunConfig, use: str, name: str = "") -> None:
    """Write the model card of a folder, unless it has one that is not marked by `MARK`.

    Parameters
    ----------
    folder : str or path-like
        Folder of the card.
    config : RunConfig
        Configuration of the run that is described.
    use : str
        How it is loaded, the name of a file of `TEMPLATES`.
    name : str
        Name of the model; by default that of the folder.

    Raises
    ------
    StorageError
        If the card cannot be written.
    """
    path = pathlib.Path(folder) / CARD
    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
        return
    title = _plain(name or path.absolute().parent.name)
    unknown = f"Encoder {_code(config.encoder)}: unknown; fill in its licence."
    card = _template("card").substitute(
        system=json.dumps(config.system),  # a string of JSON is one of YAML
        name=title,
        system_name=config.system,
        version=f" {config.versions.get('wqa', '')}".rstrip(),
        use=_template(use).substitute(name=title, shell=shlex.quote(title)),
        settings=_settings(config),
        comparison=_comparison(path.parent / "metrics.jsonl"),
        licence=_LICENCES.get(config.encoder, unknown),
    )
    with atomic_writer(path) as file:
        file.write(card)


def _template(name: str) -> string.Template:
    return string.Template((TEMPLATES / f"{name}.md").read_text(encoding="utf-8"))


def _settings(config: RunConfig) -> str:
    """The data, all settings of the system, and those of the training but the defaults."""
    settings: Dict[str, Any] = {"encoder": config.encoder or "none"}
    for part in ("train", "dev"):
        for name, value in config.data.get(part, {}).items():
            settings[f"{part} {name}"] = value
    settings["max_length"] = config.max_length
    settings.update(config.network)
    if config.training is not None:
        defaults = dataclasses.asdict(TrainingConfig())
        training = dataclasses.asdict(config.training).items()
        settings.update({name: value for name, value in training if value != defaults[name]})
    rows = ["| setting | value |", "| --- | --- |"]
    rows += [f"| {name} | {_code(value)} |" for name, value in settings.items()]
    command = f"\n```sh\n{printable(config.command)}\n```\n" if config.command else ""
    return "\n".join(rows) + f"\n{command}"


def _comparison(path: pathlib.Path) -> str:
    """MAP on the development questions beside that of what ranks without a training."""
    for line in reversed(MetricsFile(path).lines()):
        compared = line.get("compared")
        if compared:
            count = compared["run"]["questions"]
            rows = [
                f"## MAP on {count} development questions\n",
                "| ranker | MAP |",
                "| --- | --- |",
            ]
            for name, figures in compared.items():
                rows.append(f"| {_code(name)} | {100 * figures['map']:.2f} |")
            return "\n".join(rows) + "\n\n"
    return ""


def _plain(value: Any) -> str:
    """A value as one line without what Markdown's code and tables end at."""
    return printable(str(value)).replace("`", "'").replace("|", "\\|")


def _code(value: Any) -> str:
    return f"`{_plain(value)}`"
