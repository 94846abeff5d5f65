"""The choice of an engine, for ranking and for training: before anything runs, with the reason."""

from __future__ import annotations

from typing import List, Optional

from wqa.config import EngineConfig, TrainingConfig
from wqa.config.training import ENGINES
from wqa.engines.engine import Engine
from wqa.engines.inputs import EngineInputs
from wqa.engines.mxnet import MXNetEngine
from wqa.engines.onednn import GradientEngine
from wqa.engines.onednn.engine import OneDNNEngine
from wqa.engines.onednn.library import available, check_precision, library
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.engines.sparse.engine import SparseEngine
from wqa.engines.threads import MXNET_LOCK, check_process
from wqa.errors import OptionError, check_choice
from wqa.models import Network, parse_devices

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
        branches = [] if stage.head is None else stage.head.branches()
        supported = READ_ROWS if branches else READ_BY_HEADS
        for part in branches or [stage]:
            head = part.head
            if head is not None and (head.reads not in supported or head.branches()):
                return f"a head that reads {head.reads!r}, not one row a pair"
            if embedded and not len(part.layers):
                return "a head without layers before it"
        expected = network.encoders[0].embeddings if embedded and not index else None
        if stage.embeddings is not expected:
            return "stages that are not consecutive layers of one encoder"
    return ""


def choose_engine(config: EngineConfig, obstacle: str = "") -> str:
    """Choose the engine that computes a network.

    Parameters
    ----------
    config : EngineConfig
        Engine, precision and device that the caller wants.
    obstacle : str
        Why oneDNN cannot compute the network; empty where it can.

    Returns
    -------
    {"mxnet", "onednn"}
        Name of the engine.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If the engine, the precision, the devices and the network do not go together, or this
        machine lacks them.
    """
    check_choice("engine", config.engine, ENGINES)
    devices = parse_devices(config.ctx)
    on_one_cpu = [device.device_type for device in devices] == ["cpu"]
    if config.engine != "onednn" and config.precision == "float32":
        by_onednn = config.engine == "auto" and on_one_cpu and not obstacle and available()
        return "onednn" if by_onednn else "mxnet"
    if config.engine == "mxnet" or not on_one_cpu:
        problem = f"{config.engine} and {config.precision} on {config.ctx}"
        hint = "other precisions are computed by oneDNN, on one CPU: ctx cpu, engine onednn or auto"
        raise OptionError("engine and precision", problem, "float32 by MXNet", hint)
    check_precision(config.precision)
    library()  # raises where it is not installed
    if obstacle:
        problem = f"{config.engine} and {config.precision} for {obstacle}"
        hint = "take engine mxnet"
        raise OptionError("engine and precision", problem, "float32 by MXNet", hint)
    return "onednn"


def build_engine(
    inputs: EngineInputs, config: EngineConfig, quantized: Optional[QuantizedLayers] = None
) -> Engine:
    """Build the engine that ranks by a network in memory."""
    check_process()
    network, devices = inputs.network, parse_devices(config.ctx)
    if len(devices) > 1:
        problem = f"{config.ctx}, which is {len(devices)} devices"
        raise OptionError("ctx", problem, "one device to rank on")
    # The engine "onednn" stands for all that the package computes by itself on a CPU.
    is_own = devices[0].device_type == "cpu" and config.engine != "mxnet"
    by_sparse = bool(network.text_filters) and is_own
    if by_sparse and config.precision != "float32":
        problem = f"{config.precision} for convolutions of word vectors"
        hint = "they have no products that another precision would make faster"
        raise OptionError("precision", problem, "float32", hint)
    chosen = "sparse" if by_sparse else choose_engine(config, packing_obstacle(network))
    if config.precision == "int8" and quantized is None:
        problem, hint = "int8 of a model without calibration", "quantize it with `wqa quantize`"
        raise OptionError("precision", problem, "a quantized run", hint)
    with MXNET_LOCK:
        if chosen == "sparse":
            return SparseEngine(network, config)
        if chosen == "mxnet":
            return MXNetEngine(inputs, config)
        return OneDNNEngine(inputs, config, quantized)


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
        for backbone in dict.fromkeys(network.encoders):  # which may share one
            engine = GradientEngine(backbone.config, config.precision, tokens, length)
            backbone.attach(engine)
            engines.append(engine)
    return engines
