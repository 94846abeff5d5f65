"""Engines of joint models: MXNet's and oneDNN's on joint inputs, and their quantization."""

from __future__ import annotations

from typing import List, Sequence, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np

from wqa.config import STRENGTH
from wqa.engines.mxnet import HybridEngine
from wqa.engines.onednn import PackedBatch, PackedLayers, quantize_layers
from wqa.engines.onednn.engine import PackedEngine
from wqa.engines.onednn.quantize import QuantizedLayers
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

    def _begin(self, layers: PackedLayers, pairs: Sequence[JointInput], batch: PackedBatch) -> None:
        _embed(layers, pairs, batch)


def _embed(layers: PackedLayers, joints: Sequence[JointInput], batch: PackedBatch) -> None:
    """Compute the embeddings of joint inputs."""
    types = np.concatenate([joint.token_types for joint in joints])
    positions = None
    if joints[0].positions is not None:
        positions = np.concatenate([joint.positions for joint in joints])
    layers.embed(joints, batch, types, positions)


def quantize_joint(
    network: Network, pairs: Sequence[JointInput], strength: float = STRENGTH
) -> QuantizedLayers:
    """Quantize the products of all layers of a joint model.

    Parameters
    ----------
    network : JointTransformer
        Network with its parameters on the CPU.
    pairs : sequence of JointInput
        Inputs to measure the inputs of layers on.
    strength : float
        SmoothQuant's alpha.

    Returns
    -------
    list of dict of str to Quantized
        Products of each layer.
    """
    [backbone] = network.encoders
    layers = list(backbone.layers)
    return quantize_layers(
        network.config, backbone.embeddings, layers, pairs, strength, begin=_embed
    )
