"""Parameters of blocks from and to files, and pretrained encoders as the start of a training."""

from __future__ import annotations

import functools
import pathlib
import stat
from typing import Any, Callable, Dict, List, Union

import mxnet as mx
import numpy as np
from mxnet.gluon import Block
from safetensors import SafetensorError
from safetensors.numpy import save_file

from wqa.config import BackboneConfig
from wqa.errors import RunDirectoryError, shorten
from wqa.io.encoder_directories import encoder_directory
from wqa.io.files import PathLike
from wqa.io.parameter_files import StoredArray, read_array, read_layout
from wqa.models import Backbone
from wqa.models.network import Network
from wqa.pretrained.names import predictor_names
from wqa.pretrained.pickled import reading
from wqa.pretrained.source import Source

Devices = Union[mx.Context, List[mx.Context], None]

#: Standard deviation of new weights, as in BERT.
INITIAL_SIGMA = 0.02

_HINT = "restore the file from its run"


#: Converts what a damaged file raises into a `RunDirectoryError`.
_reading = functools.partial(reading, expected="parameters of a run", kind=RunDirectoryError)


def stored_layout(path: PathLike) -> Dict[str, StoredArray]:
    """Read the layout of a run's ``model.params``, as `wqa.io.parameter_files.read_layout`."""
    with _reading(path):
        return read_layout(path)


def stored_parameter(path: PathLike, name: str, stored: StoredArray) -> np.ndarray:
    """Read a parameter of a run."""
    with _reading(path):
        values = read_array(path, stored)
    if not np.isfinite(values).all():
        problem = f"parameter {name} holds NaN or infinity"
        raise RunDirectoryError(path, problem, "finite numbers", _HINT)
    return values


def load_parameters(block: Block, path: PathLike, ctx: Devices = None) -> None:
    """Load the parameters of a block, which are compared with the file before they are read."""
    layout, parameters = stored_layout(path), block._collect_params_with_prefix()
    for name in {**layout, **parameters}:
        stored, expected = _described(layout.get(name)), _described(parameters.get(name))
        if stored != expected:
            problem = f"parameter {shorten(name)}: {stored}"
            raise RunDirectoryError(path, problem, f"{expected}, by config.json", _HINT)
    for name, parameter in parameters.items():
        values = stored_parameter(path, name, layout[name])
        parameter._load_init(mx.nd.from_numpy(values), ctx)


def _described(array: Any) -> str:
    """Type and shape of a parameter, in a file or in a network."""
    return "none" if array is None else f"{np.dtype(array.dtype)} of shape {array.shape}"


def write_tensors(
    tensors: Dict[str, np.ndarray], path: pathlib.Path, metadata: Dict[str, str]
) -> None:
    """Write a safetensors file with the permissions that the umask gives; the library gives
    0600.
    """
    path.touch()
    permissions = stat.S_IMODE(path.stat().st_mode)
    try:
        save_file(tensors, str(path), metadata)
    except SafetensorError as error:
        raise OSError(str(error)) from None
    path.chmod(permissions)


def write_parameters(block: Block, path: pathlib.Path) -> None:
    """Write a block's parameters."""
    write_checked(block.save_parameters, path)


def write_checked(write: Callable[[str], None], path: pathlib.Path) -> None:
    """Write a file by MXNet, which does not check its last write, and check it."""
    try:
        write(str(path))
        read_layout(path)
    except (mx.base.MXNetError, ValueError) as error:
        raise OSError(str(error).strip().splitlines()[-1]) from None


def read_backbone_config(directory: PathLike) -> BackboneConfig:
    """Read the configuration of a pretrained encoder.

    Parameters
    ----------
    directory : str or path-like
        The encoder, in any form that `load_backbone` takes.

    Returns
    -------
    BackboneConfig
        Sizes and settings of the encoder.

    Raises
    ------
    EncoderError
        If the directory cannot be read, or its family is not supported.
    """
    with encoder_directory(directory) as folder:
        return Source(folder).config


def load_backbone(directory: PathLike, ctx: Devices = None) -> Backbone:
    """Load a pretrained encoder as a backbone.

    Parameters
    ----------
    directory : str or path-like
        A Hugging Face directory (``config.json`` with ``model.safetensors`` or
        ``pytorch_model.bin``, in shards or not) or a tar of one; a directory with a file of
        GluonNLP's zoo; a directory that ``wqa convert`` or ``wqa train`` wrote; a key of
        `INSTALLED`; a name of the Hugging Face hub, such as ``FacebookAI/roberta-base``; or one of
        GluonNLP's zoo, such as ``gluonnlp:bert_12_768_12/book_corpus_wiki_en_uncased``.
    ctx : mxnet.Context or list of mxnet.Context, optional
        Devices that hold the parameters. The CPU by default.

    Returns
    -------
    Backbone
        Backbone with the encoder's parameters.

    Raises
    ------
    EncoderError
        If a file or a tensor is missing, cut off or of another shape.
    """
    with encoder_directory(directory) as folder:
        source = Source(folder)
        backbone = Backbone(source.config)
        source.check(backbone)
        initialize(backbone, mx.init.Zero(), ctx)
        source.fill(backbone)
    with_gradients(backbone)
    return backbone


def initialize_from(model: Network, directory: PathLike, ctx: Devices = None) -> None:
    """Initialize a network for training, its backbone from a pretrained encoder.

    Heads are random, but a head with a ``pooler`` takes the encoder's pooler if the files hold one,
    and so does a predictor of masked tokens.

    Parameters
    ----------
    model : Network
        Network built with this encoder's configuration.
    directory : str or path-like
        The encoder, in any form that `load_backbone` takes.
    ctx : mxnet.Context or list of mxnet.Context, optional
        Devices that hold the parameters. The CPU by default.

    Raises
    ------
    EncoderError
        If a file or a tensor is missing, cut off or of another shape.
    """
    with encoder_directory(directory) as folder:
        source = Source(folder)
        for backbone in model.encoders:
            source.check(backbone)
        initialize(model, mx.init.Normal(INITIAL_SIGMA), ctx)
        for backbone in model.encoders:
            source.fill(backbone)
        for head in model.heads:
            pooler = getattr(head, "pooler", None)
            if pooler is not None and source.has_pooler():
                source.fill_pooler(pooler)
        if model.predictor is not None:
            names = predictor_names(source.config)
            if names and not source.missing(names):
                source.fill(model.predictor, names)
    with_gradients(model)


def initialize(block: Block, initializer: mx.init.Initializer, ctx: Devices = None) -> None:
    """Initialize a block whose parameters are read next, without the memory of gradients."""
    block.collect_params().setattr("grad_req", "null")
    block.initialize(initializer, ctx=ctx or mx.cpu())


def with_gradients(block: Block) -> None:
    """Let a block's parameters have gradients."""
    block.collect_params().setattr("grad_req", "write")
