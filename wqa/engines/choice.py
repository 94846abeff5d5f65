"""The choice of an engine, for ranking and for training: before anything runs, with the reason."""

from __future__ import annotations

from typing import List, Optional

from wqa.config import PAIR_FORMS, EngineConfig, TrainingConfig
from wqa.config.systems import import_part
from wqa.engines.engine import MXNET_LOCK, Engine, EngineTypes
from wqa.engines.onednn import GradientEngine, choose_engine
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.engines.sparse import takes_sparse
from wqa.errors import OptionError
from wqa.models import Network, parse_devices
from wqa.text import Tokenizer

#: Values of `wqa.models.Head.reads` that oneDNN's engine supports for branches, and for heads.
READ_ROWS = ("first", "mean")
READ_BY_HEADS = (*READ_ROWS, "tokens", "marks")


def packing_obstacle(network: Network) -> str:
    """Why oneDNN's engine cannot run a network."""
    stages = network.encoder_stages()
    if not stages:
        return "a network that is not made of stages of transformer layers"
    # A network whose first stage has no embeddings begins with encodings, which its ranker gives.
    embedded = stages[0].embeddings is not None
    for index, stage in enumerate(stages):
        branches = stage.head.branches()
        supported = READ_ROWS if branches else READ_BY_HEADS
        for part in branches or [stage]:
            if part.head.reads not in supported or part.head.branches():
                return f"a head that reads {part.head.reads!r}, not one row a pair"
            if embedded and not len(part.layers):
                return "a head without layers before it"
        expected = network.encoders[0].embeddings if embedded and not index else None
        if stage.embeddings is not expected:
            return "stages that are not consecutive layers of one encoder"
    return ""


def choose_ranking_engine(network: Network, config: EngineConfig) -> str:
    """Choose what computes a network in ranking: ``"sparse"``, ``"onednn"`` or ``"mxnet"``."""
    count = len(parse_devices(config.ctx))
    if count > 1:
        raise OptionError("ctx", f"{config.ctx}, which is {count} devices", "one device to rank on")
    if takes_sparse(config, network):
        return "sparse"
    return choose_engine(config, packing_obstacle(network))


def build_engine(
    network: Network,
    tokenizer: Tokenizer,
    config: EngineConfig,
    quantized: Optional[QuantizedLayers] = None,
    engines: EngineTypes = EngineTypes(),  # noqa: B008 - it is immutable
) -> Engine:
    """Build the engine of a ranker."""
    chosen = choose_ranking_engine(network, config)
    shared = (network, PAIR_FORMS[tokenizer.pair_form].typed, tokenizer.padding_id, config)
    if chosen == "mxnet":
        with MXNET_LOCK:
            return import_part(engines.mxnet)(*shared)
    if config.precision == "int8" and quantized is None:
        raise OptionError(
            "precision",
            "int8 of a model without calibration",
            "a quantized run",
            "quantize the run with `wqa quantize`",
        )
    with MXNET_LOCK:
        return import_part(engines.onednn)(*shared, quantized=quantized)


def choose_training_engine(network: Network, config: TrainingConfig) -> str:
    """Choose what computes a network in training."""
    obstacle = "" if network.encoders else "a network without a transformer encoder"
    return choose_engine(config.engine_config, obstacle)


def attach_engines(
    network: Network, config: TrainingConfig, tokens: int, length: int
) -> List[GradientEngine]:
    """Let an engine compute each encoder of a network, or the network as a whole."""
    engines: List[GradientEngine] = []
    if choose_training_engine(network, config) == "onednn":
        for backbone in network.encoders:
            engine = GradientEngine(backbone.config, config.precision, tokens, length)
            backbone.attach(engine)
            engines.append(engine)
    return engines
