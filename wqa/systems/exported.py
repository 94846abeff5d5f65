"""Rankers of exported folders, which ONNX Runtime computes; MXNet need not be installed."""

from __future__ import annotations

import functools
import pathlib
import types
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from wqa.config import BackboneConfig, EngineConfig
from wqa.config.runs import ExportConfig, from_dict, read_export_config
from wqa.config.systems import KINDS
from wqa.data.digests import check_digest
from wqa.engines.onnx.sessions import check_runtime
from wqa.errors import EncoderError, OptionError, RunDirectoryError
from wqa.inference.calibrated import Calibration
from wqa.inference.ranker import Ranker
from wqa.systems.registry import find_system
from wqa.text import Tokenizer, load_tokenizer

_HINT = "export the run again"


class ExportedEncoder(NamedTuple):
    """An encoder of single texts whose graph is in an exported folder."""

    folder: pathlib.Path
    graphs: Tuple[str, ...]
    config: Optional[BackboneConfig]
    sha256: str


class ExportedNetwork:
    """What rankers read of a network whose graphs are in an exported folder.

    Parameters
    ----------
    folder : path-like
        The folder.
    config : ExportConfig
        Content of its ``config.json``.
    """

    def __init__(self, folder: pathlib.Path, config: ExportConfig) -> None:
        self.folder, self.graphs = folder, config.stages
        self.computes = config.computes
        self.config: Any = config.backbone
        self.own_config = types.SimpleNamespace(**config.network)
        self.exits, self.num_layers = config.exits, config.num_layers
        self.max_positions = config.max_positions
        self._recorded, digest = config, config.document_encoder
        encoders = [
            ExportedEncoder(folder, (graph,), config.backbone, digest)
            for graph in ("question", "document")
        ]
        self.encoders = encoders if digest else []
        self.document_encoder = encoders[1] if digest else None

    def stage_work(self) -> List[float]:
        """Multiply-adds of each stage for one token, in products with weights."""
        return list(self._recorded.stage_work)

    def full_work(self) -> float:
        """Multiply-adds of the full network for one token."""
        return self._recorded.full_work

    def list_work(self) -> float:
        """Multiply-adds of a candidate beside those for its tokens."""
        return self._recorded.list_work

    def members(self) -> List[Any]:
        """No networks inside this one: a graph has the combined score alone."""
        return []


def load_exported(folder: pathlib.Path, engine: EngineConfig, options: Dict[str, Any]) -> Ranker:
    """Load the ranker of an exported folder.

    ``options`` are keywords of the ranker, and ``calibrated`` and ``long_questions``.
    """
    engine = check_runtime(engine)
    config = read_export_config(folder / "config.json")
    if config.computes != "scores":
        problem = f"an export of the system {config.system}, which is {KINDS[config.computes][0]}"
        hint = "run its graphs by ONNX Runtime itself, or load the run"
        raise RunDirectoryError(folder, problem, KINDS["scores"][0], hint)
    for name in config.sha256:
        if name != "config.json":
            check_digest(folder / name, config.sha256, _HINT)
    path, stages = folder / "config.json", config.stages
    calibration = from_dict(Calibration, config.calibration, f"{path}, field calibration")
    of_stages = (config.stage_work, config.exits or stages, calibration.temperatures or stages)
    if not stages or any(len(values) != len(stages) for values in of_stages):
        problem = "stages, stage_work, exits and temperatures of different lengths"
        raise RunDirectoryError(path, problem, "one of each a stage", _HINT)
    calibrated, long_questions = options.pop("calibrated"), options.pop("long_questions")
    kind = find_system(config.system).part("inputs")
    make = functools.partial(kind, **config.inputs, long_questions=long_questions)
    inputs = load_inputs(folder, config.backbone, make, _HINT)
    network = ExportedNetwork(folder, config)
    build = find_system(config.system).ranker_type()
    ranker = build(network, inputs, system=config.system, engine=engine, **options)
    if calibrated:
        ranker.calibration = calibration
    return ranker


def load_inputs(
    folder: pathlib.Path,
    backbone: Optional[BackboneConfig],
    make: Callable[[Tokenizer], Any],
    hint: str,
) -> Any:
    """Load the tokenizer of a folder, and make the inputs of its network, a `PairInputs`."""
    path = folder / "tokenizer.json"
    try:
        tokenizer = load_tokenizer(folder)
        if backbone is not None:
            tokenizer.check_fits(backbone, path)
    except EncoderError as error:
        raise RunDirectoryError(path, error.found, "the tokenizer of the run", hint) from None
    try:
        return make(tokenizer)
    except (OptionError, TypeError) as error:
        problem = f"inputs that do not fit the system ({error})"
        expected = "those of the installed version of the system"
        raise RunDirectoryError(folder / "config.json", problem, expected, hint) from None
