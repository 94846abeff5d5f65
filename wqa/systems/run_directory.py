"""Networks of run directories and of fine-tuned classifiers, checked as they are loaded.

Sizes are compared with the file's layout before the network is built, shapes before memory is
taken, and digests while the parameters are read.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, NamedTuple, Optional

from wqa.config import EngineConfig, RunConfig, read_run_config
from wqa.config.runs import as_json, check_finished
from wqa.config.systems import KINDS
from wqa.data.digests import check_digest
from wqa.data.probe import BASELINE_NAMES, DESCRIPTIONS, Probe, probe
from wqa.engines.choice import packing_obstacle
from wqa.engines.onednn.library import check_precision
from wqa.engines.onednn.quantize import QuantizedLayers, read_quantized
from wqa.errors import OptionError, RunDirectoryError
from wqa.io.encoder_directories import encoder_directory
from wqa.io.files import PathLike, sha256
from wqa.models import Network, library_versions, parse_devices
from wqa.pretrained.load import load_parameters
from wqa.systems.checkpoints import open_classifier
from wqa.systems.exported import load_inputs
from wqa.systems.registry import find_system, own_config
from wqa.text import PairInputs, load_tokenizer

#: File of a run's 8-bit weights.
QUANTIZED = "int8.safetensors"
_HINT = "restore the file from its run"


class LoadedRun(NamedTuple):
    """A run in memory, and the engine that is to compute it."""

    config: RunConfig
    inputs: PairInputs
    network: Network
    engine: EngineConfig
    quantized: Optional[QuantizedLayers]  # for int8

    @property
    def options(self) -> Dict[str, Any]:
        """Keywords of what computes the network: a ranker, a reader or a verifier."""
        quantized = {"quantized": self.quantized} if self.engine.precision == "int8" else {}
        return {"engine": self.engine, **quantized}


def load_run(
    run: PathLike,
    engine: Optional[EngineConfig] = None,
    long_questions: str = "error",
    computes: str = "",
    expected: str = "a run directory as `wqa train` writes it",
) -> LoadedRun:
    """Load a run directory, or a fine-tuned classifier, a directory or an archive of one.

    `computes` is what its network has to compute, a key of `wqa.config.systems.KINDS`, or empty;
    `expected` is what a message names where there is no directory.
    """
    source, engine = probe(run), engine or EngineConfig()
    check_engine(engine)
    folder = source.path
    if source.kind == "huggingface":
        _check_kind(folder, "a fine-tuned classifier", "scores", computes or "scores")
        return _load_classifier(folder, engine, long_questions)
    if source.kind != "run":
        raise _no_run(source, expected)
    config = read_run_config(folder / "config.json")
    if computes:
        actual = own_config(folder, config).computes
        _check_kind(folder, f"a run of the system {config.system}", actual, computes)
    check_finished(folder, config)
    with ThreadPoolExecutor(1) as thread:
        weights = thread.submit(check_digest, folder / "model.params", config.sha256)
        check_digest(folder / "tokenizer.json", config.sha256)
        network = load_network(folder, config, engine.ctx)
        weights.result()
    is_quantized = engine.precision == "int8"
    quantized = _load_quantized(folder, config, network) if is_quantized else None
    make = functools.partial(
        network.text_inputs, max_length=config.max_length, long_questions=long_questions
    )
    inputs = load_inputs(folder, config.backbone, make, _HINT)
    return LoadedRun(config, inputs, network, engine, quantized)


def _check_kind(folder: pathlib.Path, found: str, actual: str, computes: str) -> None:
    """Check that a network computes what it has to, both keys of `KINDS`."""
    if actual != computes:
        what, use = KINDS[actual]
        problem, hint = f"{found}, which is {what}", f"{use}, or name another run"
        raise RunDirectoryError(folder, problem, KINDS[computes][0], hint)


def _no_run(source: Probe, expected: str) -> RunDirectoryError:
    """Error of what is neither a run nor a classifier."""
    path = source.path
    if source.kind == "encoder":
        hint = "train a system with this directory as encoder"
        return RunDirectoryError(path, DESCRIPTIONS["encoder"], expected, hint)
    if source.kind:
        return RunDirectoryError(path, DESCRIPTIONS[source.kind], expected, "name a single run")
    if os.path.isfile(path):
        return RunDirectoryError(path, "is a file", expected)
    if os.path.isdir(path):
        read_run_config(path / "config.json")  # says what is wrong with it
        return RunDirectoryError(path / "config.json", "the configuration of no run", expected)
    near = difflib.get_close_matches(str(path), BASELINE_NAMES, 1)
    hint = f"did you mean {near[0]}?" if near else ""
    return RunDirectoryError(path, "there is no such directory", expected, hint)


def _load_classifier(path: pathlib.Path, engine: EngineConfig, long_questions: str) -> LoadedRun:
    """Load a fine-tuned classifier, a directory or an archive of one."""
    if engine.precision == "int8":
        problem = f"int8 of {path}, another library's directory"
        raise OptionError("precision", problem, "a run of `wqa convert` and `wqa quantize`")
    with encoder_directory(path) as folder:
        opened = open_classifier(folder, parse_devices(engine.ctx))
        network = opened.model
        tokenizer = load_tokenizer(folder)
        tokenizer.check_fits(network.config, path)
    max_length = min(opened.max_length, network.config.max_positions)
    inputs = network.text_inputs(tokenizer, max_length, long_questions)
    config = RunConfig(
        system=opened.system,
        backbone=network.config,
        network=as_json(network.own_config),
        max_length=max_length,
        encoder=str(path),
        versions=library_versions(),
    )
    return LoadedRun(config, inputs, network, engine, None)


def check_engine(engine: EngineConfig) -> None:
    """Check that this machine has the device and the precision of an engine."""
    parse_devices(engine.ctx)
    check_precision(engine.precision)


def load_network(folder: pathlib.Path, config: RunConfig, ctx: str) -> Network:
    """Load the network of a run directory."""
    own, path = own_config(folder, config), folder / "model.params"
    if not path.exists():
        raise RunDirectoryError(path, "the file is missing", "the parameters of the run", _HINT)
    try:
        network = find_system(config.system).network_type()(config.backbone, own)
    except OptionError as error:
        problem = f"{error.where}: {error.found}"
        where = folder / "config.json"
        raise RunDirectoryError(where, problem, error.expected, _HINT) from None
    load_parameters(network, path, parse_devices(ctx))
    return network


def _load_quantized(
    folder: pathlib.Path, config: RunConfig, network: Network
) -> Optional[QuantizedLayers]:
    path, hint = folder / QUANTIZED, f"quantize the run with `wqa quantize {folder}`"
    if packing_obstacle(network):
        return None  # the engine says why it cannot compute the network
    depth = len(network.quantized_layers())
    check_digest(path, config.sha256, hint)
    layers, record = read_quantized(path, network.config, depth, hint)
    weights = folder / "model.params"
    if record.get("model_sha256") != (config.sha256.get(weights.name) or sha256(weights)):
        problem = "was computed from other weights than model.params"
        raise RunDirectoryError(path, problem, "the calibration of this run", hint)
    return layers


def load_reader(run: PathLike, **options: Any) -> Any:
    """Load the reader of a run directory.

    Parameters
    ----------
    run : str or path-like
        Run directory of a system that computes spans.
    **options
        ``ctx``, ``precision``, ``threads``, ``engine``, ``batch_tokens`` and ``long_questions``, as
        `wqa.load_ranker` takes them, and keywords of the reader, such as ``max_answer_tokens``. A
        question is too long where it leaves fewer than 16 tokens for a document.

    Returns
    -------
    Reader
        The reader of the run's system, a `wqa.systems.reader.reader.Reader`.

    Raises
    ------
    RunDirectoryError
        If a file is missing, truncated, or contradicts another file, or the run is no reader.
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option does not fit the run, or this machine lacks what it needs.
    """
    return _load_user(run, "spans", "wqa train reader", **options)


def load_verifier(run: PathLike, **options: Any) -> Any:
    """Load the verifier of a run directory, a `wqa.systems.mspp.claims.Verifier`.

    It takes a run of a system that computes labels of claims, the options of `load_reader`, and
    keywords of the verifier, and raises the same. A claim is too long where it does not fit a
    segment; ``"truncate"`` keeps its first tokens.
    """
    return _load_user(run, "labels", "wqa train mspp_claims", **options)


def _load_user(
    run: PathLike, computes: str, command: str, long_questions: str = "error", **options: Any
) -> Any:
    """Load what uses a network that computes `computes`, such as `command` trains."""
    of_engine = {field.name for field in dataclasses.fields(EngineConfig)}.intersection(options)
    engine = EngineConfig(**{name: options.pop(name) for name in of_engine})
    loaded = load_run(run, engine, long_questions, computes, f"a run directory of `{command}`")
    build = find_system(loaded.config.system).ranker_type(computes)
    return build(loaded.network, loaded.inputs, **loaded.options, **options)
