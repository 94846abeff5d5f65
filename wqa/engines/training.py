"""Engines that compute a network in training in place of MXNet."""

from __future__ import annotations

from typing import List, Union

from wqa.config import TrainingConfig
from wqa.engines.onednn import GradientEngine, choose_engine
from wqa.engines.sparse import ListGradients, count_threads, takes_sparse
from wqa.models import Network

#: An engine that is attached to a network.
TrainingEngine = Union[GradientEngine, ListGradients]


def choose_training_engine(network: Network, config: TrainingConfig) -> str:
    """Choose what computes a network in training."""
    wanted = config.engine_config
    if takes_sparse(wanted, network):
        return "sparse"
    obstacle = "" if network.encoders else "a network without a transformer encoder"
    return choose_engine(wanted, obstacle)


def attach_engines(
    network: Network, config: TrainingConfig, tokens: int, length: int
) -> List[TrainingEngine]:
    """Let an engine compute each encoder of a network, or the network as a whole."""
    chosen = choose_training_engine(network, config)
    engines: List[TrainingEngine] = []
    if chosen == "sparse":
        engines.append(ListGradients(network, config.engine_config.threads or count_threads()))
        network.attach(engines[0])
    if chosen == "onednn":
        for backbone in network.encoders:
            engine = GradientEngine(backbone.config, config.precision, tokens, length)
            backbone.attach(engine)
            engines.append(engine)
    return engines
