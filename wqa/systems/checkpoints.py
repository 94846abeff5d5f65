"""Networks of systems in authors' checkpoints and in other libraries' directories."""

from __future__ import annotations

import pathlib
from typing import Any, Callable, Collection, Dict, List, Optional, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx

from wqa.config import BackboneConfig
from wqa.errors import EncoderError, OptionError
from wqa.io.encoder_directories import PathLike, encoder_directory
from wqa.models import Network
from wqa.pretrained.load import Devices, initialize, with_gradients
from wqa.pretrained.source import DirectoryLayout, Source, TensorMap
from wqa.pretrained.weights import Weights
from wqa.systems.registry import SYSTEMS, build_network


class Checkpoint(TensorMap):
    """An authors' checkpoint: one file with the tensors of a system's network."""

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
            problem = f"an encoder of the family {config.family.name}"
            expected = f"{layout.family}, the family of {path}"
            raise EncoderError("encoder", problem, expected, self.remedy)
        self.network = _build(layout.system, config, options, path, self.remedy)
        super().__init__(path, weights, plain, layout.names(self.network))
        self.system = layout.system


def find_layout(files: Source) -> Optional[DirectoryLayout]:
    """Find the layout of a directory that holds the network of a system."""
    for layout in _layouts("directory"):
        if layout.recognizes(files):
            return layout
    return None


def _layouts(part: str) -> List[Any]:
    """Layouts of all systems that have one."""
    types = [system.part(part) for system in SYSTEMS.values()]
    return [layout() for layout in types if layout is not None]


def build_held(layout: DirectoryLayout, files: Source) -> Network:
    """Build the network that a directory holds, without memory for its parameters yet."""
    options, path = layout.options(files), files.where / "config.json"
    network = _build(layout.system, files.config, options, path, files.remedy)
    files.check(network.encoders[0])
    return network


def _build(
    system: str, config: BackboneConfig, options: Dict[str, Any], path: pathlib.Path, remedy: str
) -> Network:
    """Build the network that a file describes."""
    try:
        return build_network(system, config, **options)
    except OptionError as error:
        raise EncoderError(path, f"{error.where}: {error.found}", error.expected, remedy) from None


def fill_held(layout: DirectoryLayout, network: Network, files: Source) -> None:
    """Write a directory's tensors into its network."""
    files.fill(network.encoders[0])
    layout.fill(network, files)


def load_held(directory: PathLike, ctx: Devices = None) -> Tuple[str, Network]:
    """Load the network that scores candidates in a directory; returns its system too."""
    with encoder_directory(directory) as folder:
        files = Source(folder)
        layout = find_layout(files)
        network = None if layout is None else build_held(layout, files)
        if layout is None or network is None or network.computes != "scores":
            problem = "an encoder without a classifier"
            expected = "a fine-tuned classifier, or a run"
            if files.labels() > 2:
                problem = f"a classifier of {files.labels()} outputs"
                expected = "1 or 2: wrong and right candidates"
            raise EncoderError(directory, problem, expected)
        initialize(network, mx.init.Zero(), ctx)
        fill_held(layout, network, files)
    with_gradients(network)
    return layout.system, network


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


def _recognize(path: pathlib.Path, weights: Weights) -> Any:
    """Layout of a file, by the names of its tensors."""
    layouts = _layouts("checkpoint")
    for layout in layouts:
        if layout.recognizes(weights.shapes):
            return layout
    names = ", ".join(layout.file_name for layout in layouts)
    expected = f"a checkpoint as {names}, or a directory with its config.json"
    raise EncoderError(path, "a file of tensors without a configuration", expected)
