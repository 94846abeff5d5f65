"""Parameters of a list network as arrays, which sparse products read."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

import mxnet as mx
import numpy as np

from wqa.engines.onednn.parameters import shared_memory
from wqa.engines.sparse.recurrence import Direction
from wqa.models.network import Network


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
