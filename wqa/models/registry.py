"""Systems by name."""

from __future__ import annotations

from typing import Any, Dict, Optional, Type

from wqa.config import BackboneConfig, from_dict
from wqa.errors import OptionError, RunDirectoryError, check_choice
from wqa.models.cascade import CascadeTransformer
from wqa.models.compare_aggregate import CompareAggregate
from wqa.models.cosinet import Cosinet
from wqa.models.dcbert import DecoupledTransformer
from wqa.models.mhs import MultipleHeadsStudent
from wqa.models.mspp import ClaimTransformer, JointTransformer, ParagraphTransformer
from wqa.models.network import Network
from wqa.models.pairwise import PairwiseTransformer
from wqa.models.reader import SpanReader

#: Network of each system; a new system adds an entry.
NETWORKS: Dict[str, Type[Network]] = {
    "cascade": CascadeTransformer,
    "pairwise": PairwiseTransformer,
    "mhs": MultipleHeadsStudent,
    "dcbert": DecoupledTransformer,
    "mspp": JointTransformer,
    "mspp_pretraining": ParagraphTransformer,
    "mspp_claims": ClaimTransformer,
    "reader": SpanReader,
    "cosinet": Cosinet,
    "compare_aggregate": CompareAggregate,
}


def network_type(system: str) -> Type[Network]:
    """Class of a system's network.

    Parameters
    ----------
    system : str
        Name of the system, a key of `NETWORKS`.

    Returns
    -------
    type
        Subclass of `Network`, whose ``Config`` is the type of the system's own configuration.

    Raises
    ------
    OptionError
        If the system is unknown.
    """
    check_choice("system", system, NETWORKS)
    return NETWORKS[system]


def system_config(system: str, options: Dict[str, Any]) -> Any:
    """Build the configuration of a system.

    Parameters
    ----------
    system : str
        Name of the system.
    options : dict of str to Any
        Fields of its configuration.

    Returns
    -------
    NetworkConfig

    Raises
    ------
    OptionError
        If the system is unknown or an option does not fit it.
    """
    kind = network_type(system).Config
    try:
        return kind(**options)
    except TypeError:
        pass
    try:  # as values of a file, whose errors name the field that is unknown or of another type
        return from_dict(kind, options, f"options of {system}")
    except RunDirectoryError as error:
        raise OptionError(error.where, error.found, error.expected) from None


def build_network(
    system: str, backbone: Optional[BackboneConfig] = None, **options: Any
) -> Network:
    """Build the network of a system.

    Parameters
    ----------
    system : str
        Name of the system.
    backbone : BackboneConfig, optional
        Sizes of the encoder, for systems that have an encoder.
    **options
        Fields of the system's own configuration, such as ``exits=(2, 4, 6)``.

    Returns
    -------
    Network
        Network whose parameters are not initialised.

    Raises
    ------
    OptionError
        If the system is unknown or an option does not fit it.
    """
    return network_type(system)(backbone, system_config(system, options))
