"""Authors' checkpoints in and out, and other libraries' directories, by their layouts."""

from __future__ import annotations

import itertools
import pathlib
import re
from typing import Callable, Collection, Dict, Iterator, List, NoReturn, Optional, Set, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np
from mxnet.gluon import Block

from wqa.config import BackboneConfig
from wqa.errors import EncoderError, OptionError, shorten
from wqa.io.encoder_directories import PathLike, encoder_directory
from wqa.models import Network
from wqa.pretrained.load import Devices, initialize, with_gradients
from wqa.pretrained.names import CheckpointLayout, Names
from wqa.pretrained.source import DirectoryLayout, Source, TensorMap, list_names
from wqa.pretrained.weights import FORMATS, Weights
from wqa.systems.registry import SYSTEMS, build_network, system_config


def checkpoint_layouts() -> Dict[str, CheckpointLayout]:
    """Forms of authors' files of tensors, by system."""
    layouts = {name: system.checkpoint_layout() for name, system in SYSTEMS.items()}
    return {name: layout for name, layout in layouts.items() if layout is not None}


class Checkpoint(TensorMap):
    """An authors' checkpoint: one file with the tensors of a system's network."""

    content = "checkpoint"
    remedy = "name the encoder that the checkpoint was trained from"
    fetch = f"fetch the file again, or {remedy}"

    def __init__(
        self, path: pathlib.Path, encoder: Callable[[Collection[str]], BackboneConfig]
    ) -> None:
        weights = Weights(path)
        layout = _recognize(path, weights)
        plain = layout.plain_names(weights.shapes)
        options = layout.options(path, plain)
        config = encoder(weights.shapes)
        if config.layout != layout.family:
            raise EncoderError(
                "encoder",
                f"an encoder of the family {config.family.name}",
                f"{layout.family}, the family of {path}",
                self.remedy,
            )
        try:
            self.network = build_network(layout.system, config, **options)
        except OptionError as error:
            problem = f"{error.where}: {error.found}"
            raise EncoderError(path, problem, error.expected, self.remedy) from None
        super().__init__(path, weights, plain, layout.names(self.network))
        self.system = layout.system
        self._ignored = layout.ignored
        self.copied: Set[str] = set()
        self._copies = {
            **layout.copies(self.network),
            **layout.further_copies(self.network),
        }

    def check(self, block: Block, names: Optional[Names] = None) -> None:
        """Check all tensors, as `TensorMap.check`; a tensor of no parameter is an error too."""
        super().check(block, names)
        needed = set(itertools.chain.from_iterable(self._names.values()))
        unknown = []
        for plain in sorted(set(self._plain) - needed):
            if not re.fullmatch(self._ignored, plain, re.DOTALL):
                unknown.append(shorten(plain))
        if unknown:
            raise EncoderError(
                self.where,
                f"tensors beside the network's: {list_names(unknown)}",
                f"those of the network of {len(needed)} tensors alone",
                self.fetch,
            )

    def check_copies(self) -> None:
        """Compare the tensors that repeat others with them."""
        for copy, name in self._copies.items():
            if self._plain.get(copy, self._plain[name]) == self._plain[name]:
                continue  # the file lacks the copy, as safetensors do
            if self._shape(copy) != self._shape(name):
                self._refuse_copy(copy, name, f"is of shape {self._shape(copy)}")
            for (row, rows), (_, repeated) in zip(self._read(copy), self._read(name)):
                if not np.array_equal(rows, repeated):
                    self._refuse_copy(copy, name, f"has other numbers from row {row} on")
            self.copied.add(self._plain[copy])

    def unused(self) -> List[str]:
        """Tensors that no parameter has taken and that repeat none, by the file's names."""
        return sorted(set(super().unused()) - self.copied)

    def _read(self, plain: str) -> Iterator[Tuple[int, np.ndarray]]:
        return self.weights.parts(self._plain[plain])

    def _refuse_copy(self, copy: str, name: str, problem: str) -> None:
        raise EncoderError(
            f"{self.where}, tensor {self._plain[copy]}",
            problem,
            f"those of {self._plain[name]}, which it repeats",
            "fetch the file again",
        )


def find_layout(files: Source) -> Optional[DirectoryLayout]:
    """Find the layout of a directory that holds the network of a system."""
    for system in SYSTEMS.values():
        layout = system.directory_layout()
        if layout is not None and layout.recognizes(files):
            return layout
    return None


def build_held(layout: DirectoryLayout, files: Source) -> Network:
    """Build the network that a directory holds, without memory for its parameters yet."""
    try:
        network = build_network(layout.system, files.config, **layout.options(files))
    except OptionError as error:
        problem = f"{error.where}: {error.found}"
        path = files.where / "config.json"
        raise EncoderError(path, problem, error.expected, files.remedy) from None
    files.check(network.encoders[0])
    return network


def fill_held(layout: DirectoryLayout, network: Network, files: Source) -> None:
    """Write a directory's tensors into its network."""
    files.fill(network.encoders[0])
    layout.fill(network, files)


def load_held(directory: PathLike, ctx: Devices = None) -> Tuple[str, Network]:
    """Load the network that scores candidates in a directory; returns its system too."""
    with encoder_directory(directory) as folder:
        files = Source(folder)
        layout = find_layout(files)
        if layout is None or system_config(layout.system, {}).computes != "scores":
            _refuse(directory, files)
        network = build_held(layout, files)
        if network.computes != "scores":  # as its own options say
            _refuse(directory, files)
        initialize(network, mx.init.Zero(), ctx)
        fill_held(layout, network, files)
    with_gradients(network)
    return layout.system, network


def _refuse(directory: PathLike, files: Source) -> NoReturn:
    """Refuse a directory without a network that scores candidates."""
    if files.labels() > 2:
        problem = f"a classifier of {files.labels()} outputs"
        raise EncoderError(directory, problem, "1 or 2: wrong and right candidates")
    raise EncoderError(
        directory,
        "an encoder without a classifier",
        "a fine-tuned classifier, or a run",
        "train a system from this encoder",
    )


def load_classifier(directory: PathLike, ctx: Devices = None) -> Network:
    """Load a fine-tuned classifier, such as TANDA's, as the monolithic ranker.

    The score is the classifier's one output, or the log-odds of the second of two.

    Parameters
    ----------
    directory : str or path-like
        Directory of the classifier, in any form that `wqa.pretrained.load_backbone` takes.
    ctx : mxnet.Context or list of mxnet.Context, optional
        Devices that hold the parameters. The CPU by default.

    Returns
    -------
    Network
        `PairwiseTransformer` with the classifier's parameters. A directory of the authors of
        another system is that system's network.

    Raises
    ------
    EncoderError
        If there is no classifier of one or two outputs, or a tensor is missing or of another shape.
    """
    return load_held(directory, ctx)[1]


def is_tensor_file(path: pathlib.Path) -> bool:
    """Whether a path is a file of tensors by itself."""
    return path.suffix in FORMATS and path.is_file()


def checkpoint_tensors(
    system: str, network: Network
) -> Tuple[CheckpointLayout, Dict[str, np.ndarray], Dict[str, str]]:
    """Parameters of a network by the names of its authors' checkpoint."""
    layout = _layout_of(system, network.config)
    names = layout.names(network)
    parameters = network._collect_params_with_prefix()
    tensors: Dict[str, np.ndarray] = {}
    for ours, parameter in parameters.items():
        if ours not in names:
            raise OptionError(
                "format",
                f"pytorch for a run with {ours}",
                f"a network that is all in {layout.file_name}",
                "take the format mxnet: the authors' code has no such part",
            )
        values = parameter.data(parameter.list_ctx()[0]).asnumpy()
        tensors.update(zip(names[ours], np.split(values, len(names[ours]))))
    return layout, tensors, dict(layout.copies(network))


def _recognize(path: pathlib.Path, weights: Weights) -> CheckpointLayout:
    """Layout of a file, by the names of its tensors."""
    layouts = checkpoint_layouts()
    for layout in layouts.values():
        if layout.recognizes(weights.shapes):
            return layout
    raise EncoderError(
        path,
        "a file of tensors without a configuration",
        "a checkpoint as " + ", ".join(layout.file_name for layout in layouts.values()),
        "convert the directory of an encoder with its config.json, without encoder",
    )


def _layout_of(system: str, config: Optional[BackboneConfig]) -> CheckpointLayout:
    """Layout of a system's checkpoint, for a network on an encoder."""
    hint = "take the format mxnet"
    layouts = checkpoint_layouts()
    if system not in layouts:
        raise OptionError(
            "format",
            f"pytorch for a run of the system {system}",
            "one of the system " + ", ".join(layouts),
            f"{hint}: this system's authors have no checkpoint",
        )
    layout = layouts[system]
    family = config.family.name if config is not None else "none"
    if family != layout.family:
        raise OptionError(
            "format",
            f"pytorch for a run on an encoder of the family {family}",
            f"{layout.family}",
            f"{hint}: the authors' code has the names of that family's tensors alone",
        )
    return layout
