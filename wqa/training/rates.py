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

    Parameters
    ----------
    network : Network
        Network that is to be trained.
    parameters : dict of str to mxnet.gluon.Parameter
        Its parameters, whose ``lr_mult`` is set. Adam multiplies the learning rate by it.
    share : float
        Share of the learning rate, from 0 to 1.

    Raises
    ------
    OptionError
        If the share is not 1 and the network has no encoder.
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
    """Decay weights apart from their gradients (Loshchilov and Hutter 2019).

    Parameters
    ----------
    parameters : dict of str to mxnet.gluon.Parameter
        Parameters by name; biases and normalisations do not decay.
    ctx : mxnet.Context
        Device whose copies decay.
    rate : float
        Learning rate times weight decay. A weight is multiplied by 1 minus this times its
        ``lr_mult``.
    """
    for name, parameter in parameters.items():
        if not name.endswith(_UNDECAYED):
            parameter.data(ctx)[:] *= 1 - rate * parameter.lr_mult
