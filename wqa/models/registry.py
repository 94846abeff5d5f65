"""Systems by name."""

from __future__ import annotations

from typing import Dict, Sequence, Type

from wqa.config import BackboneConfig
from wqa.errors import OptionError, shorten
from wqa.models.cascade import CascadeTransformer
from wqa.models.heads import ExitNetwork
from wqa.models.pairwise import PairwiseTransformer

SYSTEMS: Dict[str, Type[ExitNetwork]] = {
    "cascade": CascadeTransformer,
    "pairwise": PairwiseTransformer,
}


def build_model(system: str, config: BackboneConfig, exits: Sequence[int] = ()) -> ExitNetwork:
    """Build a system's network, its parameters not yet initialised.

    Parameters
    ----------
    system : str
        A key of `SYSTEMS`.
    config : BackboneConfig
    exits : sequence of int
        The system's default where it is empty.

    Returns
    -------
    ExitNetwork

    Raises
    ------
    OptionError
        If the system is unknown or the exits do not fit it.
    """
    if system not in SYSTEMS:
        raise OptionError("system", shorten(system), "one of " + ", ".join(SYSTEMS))
    return SYSTEMS[system](config, exits)
