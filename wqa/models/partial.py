"""Training of a part of a network."""

from __future__ import annotations

from mxnet.gluon import Block, ParameterDict

from wqa.errors import OptionError
from wqa.models.network import Network


def train_only(network: Network, part: Block) -> ParameterDict:
    """Let only a part of a network have gradients.

    A `mxnet.gluon.Trainer` of all parameters raises a ``UserWarning`` about stale gradients, those
    of parameters that no loss depends on. One of the parameters that this function returns steps
    without it.

    Parameters
    ----------
    network : Network
        Network, initialised or not.
    part : mxnet.gluon.Block
        Part of the network, such as ``network.path(0)``, the ranker of the first exit, or a head.
        The network itself lets all parameters train again.

    Returns
    -------
    mxnet.gluon.ParameterDict
        Parameters of the part. The other parameters of the network, and its constants, have no
        gradients, which saves their memory.

    Raises
    ------
    OptionError
        If the part has a parameter that the network does not have.
    """
    parameters = network.collect_params().values()
    chosen = part.collect_params()
    known = {id(parameter) for parameter in parameters}
    for name, parameter in chosen.items():
        if id(parameter) not in known:
            raise OptionError(
                "part",
                f"parameter {name} is none of the network's",
                "a part of this network, such as network.path(0)",
            )
    trained = {id(parameter) for parameter in chosen.values()}
    trained -= {id(parameter) for parameter in network.constants()}
    for parameter in parameters:
        parameter.grad_req = "write" if id(parameter) in trained else "null"
    return chosen
