"""The toy on transformer layers: a head and a loss of its own, everything else the package's.

Shapes: B pairs, L positions, C units.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, Type

from wqa.models.runtime import Tensor

import mxnet as mx
from mxnet.gluon import nn

from wqa.models import Head
from wqa.models.exits import ExitConfig, ExitNetwork
from wqa.training import PairTask


class GatedHead(Head):
    """Log-odds from a row whose units are weighted by gates, which the row sets itself.

    The input is (B, C), the output (B,).

    Parameters
    ----------
    units : int
        C, the encoder's width.
    """

    reads = "mean"

    def __init__(self, units: int, **kwargs) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.gates = nn.Dense(units, activation="sigmoid", in_units=units)
            self.out = nn.Dense(1, in_units=units)

    def hybrid_forward(self, F, row: Tensor) -> Tensor:
        return F.reshape(self.out(self.gates(row) * row), (-1,))


class FirstGatedHead(GatedHead):
    """The same on the first position."""

    reads = "first"


class PoolingHead(Head):
    """Log-odds from a weighted mean of all positions, whose weights are learned.

    Inputs are (B, L, C) and the valid lengths, (B,); the output is (B,).

    Parameters
    ----------
    units : int
        C, the encoder's width.
    """

    reads = "all"

    def __init__(self, units: int, **kwargs) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.weight = nn.Dense(1, flatten=False, use_bias=False, in_units=units)
            self.out = nn.Dense(1, in_units=units)

    def hybrid_forward(self, F, hidden: Tensor, valid_length: Tensor) -> Tensor:
        weights = F.SequenceMask(
            self.weight(hidden), valid_length, use_sequence_length=True, value=-1e9, axis=1
        )  # (B, L, 1)
        pooled = F.batch_dot(F.softmax(weights, axis=1), hidden, transpose_a=True)  # (B, 1, C)
        return F.reshape(self.out(F.reshape(pooled, (-3, 0))), (-1,))


@dataclasses.dataclass(frozen=True)
class ToyLayersConfig(ExitConfig):
    """Configuration of the toy on transformer layers.

    Parameters
    ----------
    exits : tuple of int
        Layers after which a head stands; the last one where it is empty.
    margin : float
        Log-odds from which on a pair costs nothing.
    """

    margin: float = dataclasses.field(default=1.0, metadata={"help": "margin of the hinge loss"})


class ToyLayers(ExitNetwork):
    """Gated heads on the mean of the encodings.

    Parameters are those of `wqa.models.exits.ExitNetwork`.
    """

    Config = ToyLayersConfig
    head_type: Type[Head] = GatedHead

    def make_head(self, layer: int) -> Head:
        return self.head_type(self.config.units)


class ToyFirstPosition(ToyLayers):
    """Gated heads on the first position."""

    head_type = FirstGatedHead


class ToyPooling(ToyLayers):
    """Heads that read all encodings, for which oneDNN's engine has no rows."""

    head_type = PoolingHead


class ToyLayersTask(PairTask):
    """Squared hinge loss on labelled pairs."""

    def losses(self, batch: Dict[str, mx.nd.NDArray], update: int) -> Dict[str, mx.nd.NDArray]:
        signs = 2 * batch["labels"] - 1
        margin = self.network.own_config.margin
        return {"hinge": mx.nd.relu(margin - signs * self.scores(batch, update)) ** 2}
