"""The registry of systems."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Dict, Optional

from wqa.config import BackboneConfig, from_dict
from wqa.config.systems import System, import_part
from wqa.errors import OptionError, RunDirectoryError, check_choice
from wqa.systems import cascade, cosinet, dcbert, mhs, mspp, pairwise, reader

if TYPE_CHECKING:
    from wqa.models.network import Network

#: Records of the systems by name. A package adds its own by the entry point `wqa.systems`.
SYSTEMS: Dict[str, System] = {
    system.name: system
    for package in (cascade, pairwise, mhs, dcbert, mspp, reader, cosinet)
    for system in package.SYSTEMS
}

#: Full names of what builds rankers that need no training, by the rule of a
#: `wqa.data.baselines.BaselineName`.
BASELINES: Dict[str, str] = {**cosinet.BASELINES, **dcbert.BASELINES}

#: The system that is built where none is named.
DEFAULT = "cascade"


def add_installed_systems() -> None:
    """Add the systems of installed packages to `SYSTEMS`; none takes the name of another.

    Each entry point of the group ``wqa.systems`` is a `System`.
    """
    groups: Any = entry_points()
    if hasattr(groups, "select"):
        points = groups.select(group="wqa.systems")
    else:  # before Python 3.10
        points = groups.get("wqa.systems", ())
    for point in points:
        if point.name not in SYSTEMS:
            SYSTEMS[point.name] = point.load()


def find_system(name: str) -> System:
    """Look up a system.

    Parameters
    ----------
    name : str
        Name of the system, a key of `SYSTEMS`, or of an entry point of an installed package.

    Returns
    -------
    System

    Raises
    ------
    OptionError
        If the system is unknown.
    """
    if name not in SYSTEMS:
        add_installed_systems()
        check_choice("system", name, SYSTEMS)
    return SYSTEMS[name]


def baseline_builder(rule: str) -> Any:
    """Function that builds the ranker of a rule."""
    return import_part(BASELINES[rule])


def system_config(system: str, options: Dict[str, Any]) -> Any:
    """Build the configuration of a system."""
    kind = find_system(system).network_type().Config
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
    return find_system(system).network_type()(backbone, system_config(system, options))
