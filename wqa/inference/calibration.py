"""8-bit products of the stages of a network."""

from __future__ import annotations

from typing import Any, List, Sequence

from wqa.engines.onednn.quantize import QuantizedLayers, calibrate
from wqa.models import EncoderLayer, Network


def calibrate_stages(network: Network, pairs: Sequence[Any], strength: float) -> QuantizedLayers:
    """Quantize the products of all stages of a network, those of their heads' branches included."""
    layers: List[EncoderLayer] = []
    branches: List[range] = []
    for stage in network.encoder_stages():
        start = len(layers) + len(stage.layers)
        for branch in stage.head.branches():
            branches.append(range(start, start + len(branch.layers)))
            start += len(branch.layers)
        layers += stage.all_layers()
    embeddings = network.encoders[0].embeddings
    return calibrate(network.config, embeddings, layers, pairs, strength, branches)
