"""Learning rates of parts of a network, and the decay of its weights."""

from __future__ import annotations

from typing import Mapping, Set

import mxnet as mx
from mxnet import gluon

from wqa.errors import OptionError
from wqa.models import Network

#: Suffixes of parameters without weight decay.
_UNDECAYED = ("bias", "gamma", "beta")


def set_encoder_rate(
    network: Network, parameters: Mapping[str, gluon.Parameter], share: float
) -> None:
    """Let a network's encoders learn at a share of the learning rate, all else at the whole.

    Layers of a pretrained encoder keep what they know, while the others learn at the rate that they
    need: discriminative fine-tuning (Howard and Ruder 2018, section 3.2), in two groups.
    """
    encoders: Set[int] = set()
    for encoder in network.encoders:
        encoders.update(map(id, encoder.collect_params().values()))
    if share != 1 and not encoders:
        raise OptionError(
            "encoder_rate", share, "1 for a network without an encoder", "leave the option out"
        )
    for parameter in parameters.values():
        parameter.lr_mult = share if id(parameter) in encoders else 1.0


def decay_weights(parameters: Mapping[str, gluon.Parameter], ctx: mx.Context, rate: float) -> None:
    """Decay weights apart from their gradients (Loshchilov and Hutter 2019)."""
    for name, parameter in parameters.items():
        if not name.endswith(_UNDECAYED):
            parameter.data(ctx)[:] *= 1 - rate * parameter.lr_mult
