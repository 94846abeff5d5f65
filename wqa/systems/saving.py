"""Run directories of networks that were trained outside `wqa.training`."""

from __future__ import annotations

import pathlib

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np
from mxnet.gluon import Block

from wqa.config import RunConfig, to_json
from wqa.config.runs import as_json
from wqa.data.digests import record_digests
from wqa.errors import OptionError, shorten
from wqa.io.files import PathLike, new_directory
from wqa.models import Network, library_versions
from wqa.pretrained.load import write_parameters
from wqa.systems.model_card import write_model_card
from wqa.systems.registry import SYSTEMS, add_installed_systems
from wqa.text import PairInputs, Tokenizer


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
        If the network is of no system, a parameter is not initialised, not float32 or not finite,
        the greatest length exceeds the encoder's positions, or the directory exists already.
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
    raise OptionError(
        "model",
        f"a {type(model).__name__}, which is no system",
        "a network of one of the classes of " + ", ".join(SYSTEMS),
        "add its record to wqa.systems.SYSTEMS, also where the run is loaded",
    )


def _check_parameters(model: Network) -> None:
    """Refuse parameters that `load_ranker` would refuse."""
    for name, parameter in model._collect_params_with_prefix().items():
        hint = ""
        try:
            values = parameter.data(parameter.list_ctx()[0]).asnumpy()
        except (RuntimeError, mx.gluon.parameter.DeferredInitializationError):
            problem, expected = "is not initialised", "parameters of a trained network"
        else:
            if values.dtype != "float32":
                problem, expected = f"is {values.dtype}", "float32"
                hint = 'call model.cast("float32")'
            elif not np.isfinite(values).all():
                problem, expected = "holds NaN or infinity", "finite numbers"
            else:
                continue
        raise OptionError("model", f"parameter {shorten(name)} {problem}", expected, hint)
