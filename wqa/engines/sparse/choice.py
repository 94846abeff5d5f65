"""The choice between sparse products and MXNet."""

from __future__ import annotations

from wqa.config import EngineConfig
from wqa.engines.sparse.parameters import list_obstacle
from wqa.errors import OptionError
from wqa.models import Network, parse_devices


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
