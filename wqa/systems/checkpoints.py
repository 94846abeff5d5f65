"""Networks of systems in authors' checkpoints and in other libraries' directories."""

from __future__ import annotations

import pathlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx

from wqa.config import BackboneConfig
from wqa.errors import EncoderError, OptionError
from wqa.io.encoder_directories import PathLike, encoder_directory
from wqa.models import Network
from wqa.pretrained.load import Devices, initialize, with_gradients
from wqa.pretrained.source import Source, TensorMap, read_sizes
from wqa.pretrained.weights import Weights
from wqa.systems.registry import SYSTEMS, build_network

#: Greatest length of an input, for files that record none.
MAX_LENGTH = 128


class Opened(NamedTuple):
    """Files whose tensors were checked, the model that they fill, and how they do it."""

    files: TensorMap
    model: Any
    system: str
    fill: Callable[[], None]
    max_length: int = MAX_LENGTH


class Checkpoint(TensorMap):
    """An authors' checkpoint: one file with the tensors of a system's network."""

    remedy = "name the encoder that the checkpoint was trained from"
    fetch = f"fetch the file again, or {remedy}"


def open_checkpoint(path: pathlib.Path, folder: pathlib.Path) -> Opened:
    """Open an authors' checkpoint, by the configuration of its encoder."""
    weights, remedy = Weights(path), Checkpoint.remedy
    layout = _recognize(path, weights)
    plain = layout.plain_names(weights.shapes)
    options = layout.options(path, plain)
    config = read_sizes(folder, weights.shapes)
    if config.layout != layout.family:
        problem = f"an encoder of the family {config.family.name}"
        expected = f"{layout.family}, the family of {path}"
        raise EncoderError("encoder", problem, expected, remedy)
    network = _build(layout.system, config, options, path, remedy)
    files = Checkpoint(path, weights, plain, layout.names(network))
    files.check(network)
    return Opened(files, network, layout.system, lambda: files.fill(network))


def open_network(files: Source) -> Optional[Opened]:
    """Open the network of a system that a directory holds, if it holds one."""
    layouts = [layout for layout in _layouts("directory") if layout.recognizes(files)]
    if not layouts:
        return None
    layout, path = layouts[0], files.where / "config.json"
    network = _build(layout.system, files.config, layout.options(files), path, files.remedy)
    files.check(network.encoders[0])

    def fill() -> None:
        files.fill(network.encoders[0])
        layout.fill(network, files)

    length = max(MAX_LENGTH, layout.max_length(network))
    return Opened(files, network, layout.system, fill, length)


def _layouts(part: str) -> List[Any]:
    """Layouts of all systems that have one."""
    types = [system.part(part) for system in SYSTEMS.values()]
    return [layout() for layout in types if layout is not None]


def _build(
    system: str, config: BackboneConfig, options: Dict[str, Any], path: pathlib.Path, remedy: str
) -> Network:
    """Build the network that a file describes."""
    try:
        return build_network(system, config, **options)
    except OptionError as error:
        raise EncoderError(path, f"{error.where}: {error.found}", error.expected, remedy) from None


def open_classifier(directory: PathLike, ctx: Devices = None) -> Opened:
    """Load the network that scores candidates in a directory."""
    with encoder_directory(directory) as folder:
        files = Source(folder)
        opened = open_network(files)
        if opened is None or opened.model.computes != "scores":
            problem = "an encoder without a classifier"
            expected = "a fine-tuned classifier, or a run"
            if files.labels() > 2:
                problem = f"a classifier of {files.labels()} outputs"
                expected = "1 or 2: wrong and right candidates"
            raise EncoderError(directory, problem, expected, f"rank by maxsim:{directory}")
        initialize(opened.model, mx.init.Zero(), ctx)
        opened.fill()
    with_gradients(opened.model)
    return opened


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
    return open_classifier(directory, ctx).model


def _recognize(path: pathlib.Path, weights: Weights) -> Any:
    """Layout of a file, by the names of its tensors."""
    layouts = _layouts("checkpoint")
    for layout in layouts:
        if layout.recognizes(weights.shapes):
            return layout
    names = ", ".join(layout.file_name for layout in layouts)
    expected = f"a checkpoint as {names}, or a directory with its config.json"
    raise EncoderError(path, "a file of tensors without a configuration", expected)
