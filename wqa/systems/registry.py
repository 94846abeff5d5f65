"""The registry of systems, and what the small files of a run say by it, without its weights."""

from __future__ import annotations

import pathlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

from wqa.config import BackboneConfig, RunConfig, from_dict, read_json, read_run_config
from wqa.config.runs import read_export_config
from wqa.config.systems import System
from wqa.data.probe import Probe, probe
from wqa.errors import OptionError, RunDirectoryError, check_choice
from wqa.inference.dropping import check_drops
from wqa.io.files import PathLike
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
#: `wqa.data.probe.BaselineName`.
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


def own_config(folder: pathlib.Path, config: RunConfig) -> Any:
    """Configuration of a run's system, from ``config.json``."""
    path = folder / "config.json"
    try:
        kind = find_system(config.system).network_type()
    except OptionError as error:
        where = f"{path}, field system"
        raise RunDirectoryError(where, error.found, error.expected) from None
    return from_dict(kind.Config, config.network, f"{path}, field network")


def run_kind(run: PathLike) -> str:
    """Tell what the network of a run computes, by its ``config.json`` alone."""
    folder = pathlib.Path(run)
    try:
        return own_config(folder, read_run_config(folder / "config.json")).computes
    except (RunDirectoryError, OSError):
        return ""


def read_tuned(run: Union[PathLike, Probe]) -> List[float]:
    """Read the drop ratios that were tuned for a run, or for an export or its run."""
    source = run if isinstance(run, Probe) else probe(run)
    if source.baseline is not None or source.kind == "file":
        expected = "numbers, as only a run stores drop ratios that were tuned"
        raise OptionError("drop_ratio", "tuned", expected)
    folder = source.path
    path, described = folder / "tuned.json", folder / "config.json"
    own: Any = None
    if source.kind == "export":
        own = read_export_config(described)
        if own.tuned and not path.exists():
            return list(own.tuned)
    if not path.exists():
        hint = f"tune them with `wqa tune {folder} --data FILE --max-loss 0`"
        raise RunDirectoryError(path, "the file is missing", "tuned drop ratios", hint)
    own = own or own_config(folder, read_run_config(described))
    try:
        ratios = list(read_json(path)["drop_ratio"])
        count = getattr(own, "exit_count", len(getattr(own, "exits", ())))
        return [drop.ratio for drop in check_drops(count, ratios)]
    except (OSError, ValueError, KeyError, TypeError, OptionError) as error:
        problem, expected = f"cannot be read ({error})", "one ratio for each exit of the run"
        raise RunDirectoryError(path, problem, expected, "tune again") from None
