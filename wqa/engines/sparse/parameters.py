"""Parameters of a list network as arrays, which sparse products read.

The choice between sparse products and MXNet.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

import mxnet as mx
import numpy as np

from wqa.config import EngineConfig
from wqa.engines.onednn.operations import shared_memory
from wqa.engines.sparse.recurrence import Direction
from wqa.errors import OptionError
from wqa.models import Network, parse_devices


class Filters(NamedTuple):
    """Parameters of the convolution of a text.

    Shapes: `weight` (F, D + 1, k), `bias` (F,).
    """

    weight: np.ndarray
    bias: np.ndarray


class ListParameters(NamedTuple):
    """Parameters of a list network, as arrays.

    Attributes
    ----------
    question, candidate : Filters
        Filters of the questions and of the candidates.
    directions : list of Direction
        Directions of the recurrent layer; empty without one.
    weight, bias : numpy.ndarray
        (1, units) and (1,) float32 of the output.
    """

    question: Filters
    candidate: Filters
    directions: List[Direction]
    weight: np.ndarray
    bias: np.ndarray

    def copied(self) -> ListParameters:
        """A copy, which does not change with the network."""
        directions = [Direction(*map(np.copy, direction)) for direction in self.directions]
        question, candidate = (Filters(*map(np.copy, side)) for side in self[:2])
        return ListParameters(question, candidate, directions, self.weight.copy(), self.bias.copy())


def list_obstacle(network: Network) -> str:
    """Why sparse products cannot compute a network.

    Parameters
    ----------
    network : Network
        Network of any system.

    Returns
    -------
    str
        The reason; empty if they can.
    """
    if network.text_filters:
        return ""
    return "a network that is not made of convolutions of word vectors"


def network_parameters(network: Network) -> List[mx.gluon.Parameter]:
    """Parameters that are trained, in the order in which `list_parameters` takes them.

    Parameters
    ----------
    network : Network
        A network that `list_obstacle` has nothing against.

    Returns
    -------
    list of mxnet.gluon.Parameter
    """
    parameters = []
    for filters in network.text_filters:
        parameters += [filters.weight, filters.bias]
    if network.recurrent is not None:
        for layer in network.recurrent.directions:
            for name in ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias"):
                parameters.append(getattr(layer, f"l0_{name}"))
    return [*parameters, network.out.weight, network.out.bias]


def list_parameters(parameters: Sequence[mx.gluon.Parameter]) -> ListParameters:
    """Views of parameters, whose values MXNet may change later.

    Parameters
    ----------
    parameters : sequence of mxnet.gluon.Parameter
        What `network_parameters` returned. MXNet has finished computing them.

    Returns
    -------
    ListParameters
    """
    arrays = []
    for parameter in parameters:
        arrays.append(shared_memory(parameter.data()).reshape(parameter.shape))
    directions = [Direction(*arrays[first : first + 4]) for first in range(4, len(arrays) - 2, 4)]
    weight, bias = arrays[-2:]
    return ListParameters(Filters(*arrays[:2]), Filters(*arrays[2:4]), directions, weight, bias)


def takes_sparse(config: EngineConfig, network: Network) -> bool:
    """Whether sparse products compute a network.

    They do for a network of convolutions of word vectors on one CPU, unless MXNet is wanted. The
    engine ``onednn`` stands for all that the package computes by itself on a CPU.

    Parameters
    ----------
    config : EngineConfig
        Engine, precision and device that the caller wants.
    network : Network
        Network of any system.

    Returns
    -------
    bool
        False where MXNet computes the network, or `wqa.engines.onednn.choose_engine` has to decide.

    Raises
    ------
    OptionError
        If another precision than float32 is wanted for such a network on a CPU.
    """
    if list_obstacle(network) or config.engine == "mxnet":
        return False
    devices = parse_devices(config.ctx)
    if [device.device_type for device in devices] != ["cpu"]:
        return False
    if config.precision != "float32":
        raise OptionError(
            "precision",
            f"{config.precision} for convolutions of word vectors",
            "float32",
            "they have no products that another precision would make faster",
        )
    return True
