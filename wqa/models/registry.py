"""Systems by name."""

from __future__ import annotations

from typing import Any, Dict, Optional, Type

from wqa.config import BackboneConfig
from wqa.errors import OptionError, shorten
from wqa.models.cascade import CascadeTransformer
from wqa.models.network import Network
from wqa.models.pairwise import PairwiseTransformer

#: Network of each system. A new system adds its own.
NETWORKS: Dict[str, Type[Network]] = {
    "cascade": CascadeTransformer,
    "pairwise": PairwiseTransformer,
}


def network_type(system: str) -> Type[Network]:
    """Look up a system's network.

    Parameters
    ----------
    system : str
        A key of `NETWORKS`.

    Returns
    -------
    type
        Class of the network, whose ``Config`` is the type of the system's own configuration.

    Raises
    ------
    OptionError
        If the system is unknown.
    """
    if system not in NETWORKS:
        raise OptionError("system", shorten(system), "one of " + ", ".join(NETWORKS))
    return NETWORKS[system]


def build_network(
    system: str, backbone: Optional[BackboneConfig] = None, **options: Any
) -> Network:
    """Build a system's network, its parameters not yet initialised.

    Parameters
    ----------
    system : str
        A key of `NETWORKS`.
    backbone : BackboneConfig, optional
        Sizes of the encoder, for systems that have one.
    **options
        Fields of the system's own configuration, such as ``exits=(2, 4, 6)``.

    Returns
    -------
    Network

    Raises
    ------
    OptionError
        If the system is unknown or an option does not fit it.
    """
    network = network_type(system)
    try:
        config = network.Config(**options)
    except TypeError as error:
        raise OptionError(f"options of {system}", str(error)) from None
    return network(backbone, config)
