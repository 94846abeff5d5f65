"""Engines on joint inputs, whose network gives scores to k candidates, or logits to the input."""

from __future__ import annotations

from typing import List, Sequence, Tuple

import mxnet as mx
import numpy as np

from wqa.engines.mxnet import HybridEngine
from wqa.engines.onednn import PackedBatch, PackedLayers, quantize_layers
from wqa.engines.onednn.engine import PackedEngine
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.errors import InputError
from wqa.inference.loop import Names, check_ids
from wqa.models import Network
from wqa.systems.mspp.inputs import JointInput, pad_inputs
from wqa.text import bucketed


class JointHybridEngine(HybridEngine):
    """MXNet's engine on joint inputs."""

    def _begin(self, pairs: Sequence[JointInput]) -> Tuple[List[mx.nd.NDArray], int]:
        length = bucketed(max(joint.length for joint in pairs), self._network.max_positions)
        return self._arrays(pad_inputs(pairs, length, self._padding_id)), length


class JointPackedEngine(PackedEngine):
    """oneDNN's engine on joint inputs, whose last layer runs for the marks alone."""

    def _batch(self, pairs: Sequence[JointInput]) -> PackedBatch:
        lengths = np.array([joint.length for joint in pairs])
        return PackedBatch(lengths, np.stack([joint.marks for joint in pairs]))

    def _begin(self, pairs: Sequence[JointInput], batch: PackedBatch) -> None:
        _embed(self._layers, pairs, batch)


def _embed(layers: PackedLayers, inputs: Sequence[JointInput], batch: PackedBatch) -> None:
    """Compute the embeddings of joint inputs."""
    types = np.concatenate([joint.token_types for joint in inputs])
    positions = None
    if inputs[0].positions is not None:
        positions = np.concatenate([joint.positions for joint in inputs])
    layers.embed(inputs, batch, types, positions)


#: Types of MXNet's engine and of oneDNN's, for `wqa.engines.choice.build_engine`.
ENGINES = (JointHybridEngine, JointPackedEngine)


def quantize_joint(
    network: Network, inputs: Sequence[JointInput], strength: float
) -> QuantizedLayers:
    """Quantize the products of all layers of a joint model."""
    [backbone] = network.encoders
    layers = list(backbone.layers)
    return quantize_layers(
        network.config, backbone.embeddings, layers, inputs, strength, begin=_embed
    )


def check_input(network: Network, joint: JointInput, names: Names) -> None:
    """Check positions and token ids, which the engines use as indices; errors name the question."""
    limit = network.config.max_positions
    length = joint.length
    if joint.positions is not None:
        length = max(length, int(joint.positions.max()) + 1)
    if length > limit:
        expected = f"at most {limit}, the positions of the network"
        raise InputError(names.question, f"{length} positions with candidates", expected)
    check_ids([joint.token_ids], network.config.vocab_size, lambda _: (names.question, ""))
