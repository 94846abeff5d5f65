"""Starts of a training: a pretrained encoder, another run, or random parameters."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import mxnet as mx
from mxnet.gluon import Block

from wqa.config import BackboneConfig, RunConfig, read_run_config
from wqa.config.runs import check_finished
from wqa.data.digests import check_digest
from wqa.errors import OptionError, RunDirectoryError
from wqa.io.encoder_directories import encoder_directory
from wqa.models import Backbone, Network
from wqa.models.heads import Head
from wqa.pretrained import initialize_from, read_backbone_config
from wqa.pretrained.load import INITIAL_SIGMA, stored_layout, stored_parameter
from wqa.text import Tokenizer, load_tokenizer


class Start:
    """Random parameters; also the base class of the other starts.

    Attributes
    ----------
    name : str
        Name of the encoder or run in the new run's ``config.json``.
    """

    name = ""

    def backbone(self) -> BackboneConfig:
        """Sizes of the encoder.

        Returns
        -------
        BackboneConfig

        Raises
        ------
        OptionError
            If there is no encoder.
        """
        raise OptionError("encoder and init", "neither", "one of the two")

    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the encoder.

        Returns
        -------
        Tokenizer

        Raises
        ------
        OptionError
            If there is no encoder, and so no tokenizer.
        """
        raise OptionError("encoder and init", "neither", "one of the two")

    def run_config(self) -> Optional[RunConfig]:
        """Configuration of the run that the training starts from.

        Returns
        -------
        RunConfig or None
            None for other starts.
        """
        return None

    def has_shape(self, own_config: Any, names: Sequence[str]) -> bool:
        """Whether the start is a run of the same kind of network.

        Parameters
        ----------
        own_config : NetworkConfig
            Configuration of the network to train.
        names : sequence of str
            Fields that all networks of the kind have and that determine their parameters.

        Returns
        -------
        bool
            Whether the run records these fields; False for other starts.

        Raises
        ------
        OptionError
            If one of them has another value in the run.
        """
        run = self.run_config()
        if run is None or not set(names) <= set(run.network):
            return False
        for name in names:
            stored, wanted = run.network[name], getattr(own_config, name)
            if stored != wanted:
                hint = f"give {name}={stored}, or start from an encoder"
                problem, expected = f"a run with {name}={stored}", f"one with {name}={wanted}"
                raise OptionError("init", problem, expected, hint)
        return True

    def holds(self, network: Network, part: str) -> bool:
        """Whether `fill` takes a part of a network from a run.

        Parameters
        ----------
        network : Network
            Network of any system.
        part : str
            Name of a child of the network, such as ``head_6``.

        Returns
        -------
        bool
            Whether the run has all parameters of the part, by name and shape; False for other
            starts.
        """
        return False

    def fill(self, network: Network, devices: Sequence[mx.Context]) -> str:
        """Initialise a network.

        Parameters
        ----------
        network : Network
            Network whose parameters are not initialised.
        devices : sequence of mxnet.Context
            Devices of the parameters.

        Returns
        -------
        str
            Text about the parts taken from a run; empty for other starts.
        """
        network.initialize(mx.init.Normal(INITIAL_SIGMA), ctx=list(devices))
        return ""


class EncoderStart(Start):
    """A pretrained encoder."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        self.name, self._folder = name, folder

    def backbone(self) -> BackboneConfig:
        return read_backbone_config(self._folder)

    def tokenizer(self) -> Tokenizer:
        tokenizer, run = load_tokenizer(self._folder), self.run_config()
        if run is None or run.backbone is not None:
            tokenizer.check_fits(self.backbone(), self._folder)
        return tokenizer

    def fill(self, network: Network, devices: Sequence[mx.Context]) -> str:
        initialize_from(network, self._folder, devices)
        return ""


class RunStart(EncoderStart):
    """Another run (the adapt step of TANDA).

    The encoder is loaded from the run. So is every other part of the network whose parameters the
    run has with the same names and shapes, such as a head at the same layer. Other parts are new.
    """

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        super().__init__(name, folder)
        self._path = folder / "model.params"
        check_finished(folder, self.run_config())

    def run_config(self) -> RunConfig:
        return read_run_config(self._folder / "config.json")

    def holds(self, network: Network, part: str) -> bool:
        return part not in map(_part_of, self._differing(network))

    def _differing(self, network: Network) -> List[str]:
        """Parameters of a network that the run lacks or has in another shape."""
        arrays, differing = stored_layout(self._path), []
        for name, parameter in network._collect_params_with_prefix().items():
            if name not in arrays or arrays[name].shape != parameter.shape:
                differing.append(name)
        return differing

    def tokenizer(self) -> Tokenizer:
        check_digest(self._folder / "tokenizer.json", self.run_config().sha256)
        return super().tokenizer()

    def fill(self, network: Network, devices: Sequence[mx.Context]) -> str:
        source = self.run_config()
        check_digest(self._path, source.sha256)
        arrays, differing = stored_layout(self._path), self._differing(network)
        parameters = network._collect_params_with_prefix()
        encoders: Set[int] = set()
        for backbone in network.encoders:
            encoders.update(map(id, backbone.collect_params().values()))
        for name in differing:  # before memory is taken for an encoder of the sizes of config.json
            if id(parameters[name]) in encoders:
                problem = f"parameter {name} is missing or of another shape"
                expected = "the encoder of its config.json with all layers"
                hint = "start from an encoder, or from a run that has all of its layers"
                raise RunDirectoryError(self._path, problem, expected, hint)
        super(EncoderStart, self).fill(network, devices)
        changed = set(map(_part_of, differing))
        parts: Dict[str, List[str]] = {"kept": [], "new": []}
        for part, group in itertools.groupby(parameters, _part_of):
            names = list(group)
            if any(id(parameters[name]) not in encoders for name in names):
                parts["new" if part in changed else "kept"].append(part)
            if part not in changed:
                for name in names:
                    values = stored_parameter(self._path, name, arrays[name])
                    parameters[name].set_data(mx.nd.array(values, dtype=values.dtype))
        what = "encoder of " if encoders else ""
        described = itertools.starmap(_describe, parts.items())
        return "; ".join(filter(None, [f"{what}{self.name} ({source.system})", *described]))


def _part_of(name: str) -> str:
    """The part of the network that a parameter belongs to: a child, or the parameter itself."""
    return name.split(".")[0]


def _describe(state: str, parts: List[str]) -> str:
    """Say which parts of the network are kept or new, if any."""
    if not parts:
        return ""
    layers = [part[len("head_") :] for part in parts if part.startswith("head_")]
    if len(layers) == len(parts):
        return f"heads {state} at " + ", ".join(layers)
    return f"{state}: " + ", ".join(parts)


@contextlib.contextmanager
def open_start(encoder: str = "", init: str = "") -> Iterator[Start]:
    """Open the encoder or run that a training starts from."""
    if encoder and init:
        raise OptionError("encoder and init", "both", "one of the two")
    if encoder:
        with encoder_directory(encoder) as folder:
            yield EncoderStart(encoder, folder)
    elif init:
        yield RunStart(init, pathlib.Path(init))
    else:
        yield Start()


class Origin(Network):
    """What a network of another shape starts from: a whole encoder, and heads or other parts.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    parts : mapping of str to mxnet.gluon.Block
        Parts by the names that they have in runs, such as ``head_6``.
    """

    def __init__(self, backbone: BackboneConfig, parts: Mapping[str, Block], **kwargs) -> None:
        super().__init__(backbone, **kwargs)
        self.backbone = Backbone(backbone)
        for name, part in parts.items():
            setattr(self, name, part)

    @property
    def heads(self) -> List[Head]:
        return [part for name, part in self._children.items() if name.startswith("head")]


def fill_from(
    origin: Origin,
    network: Network,
    copies: Iterable[Tuple[Block, Block]],
    start: Start,
    devices: Sequence[mx.Context],
) -> str:
    """Initialise a network by parts of another one, which a start fills.

    Parameters
    ----------
    origin : Origin
        Network that the start fills.
    network : Network
        Network to initialise.
    copies : iterable of (mxnet.gluon.Block, mxnet.gluon.Block)
        Parts of the network, each with the part of the origin whose parameters it takes. A table
        with more rows takes those that there are.
    start, devices
        As `Start.fill` takes them.

    Returns
    -------
    str
        As `Start.fill` returns it.
    """
    line = start.fill(origin, devices)
    network.initialize(mx.init.Normal(INITIAL_SIGMA), ctx=list(devices))
    for target, source in copies:
        targets = target._collect_params_with_prefix()
        for name, parameter in source._collect_params_with_prefix().items():
            values, rows = parameter.data(devices[0]), targets[name].data(devices[0]).copy()
            known = min(len(values), len(rows))
            rows[:known] = values[:known]
            targets[name].set_data(rows)
    return line
