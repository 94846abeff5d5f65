"""Pretrained encoders as backbones and as the start of a training."""

from __future__ import annotations

import pathlib
from typing import List, Union

import mxnet as mx
from mxnet.gluon import Block

from wqa.config import BackboneConfig
from wqa.io.encoder_directories import encoder_directory
from wqa.io.files import PathLike
from wqa.models import Backbone
from wqa.models.network import Network
from wqa.pretrained.names import predictor_names
from wqa.pretrained.source import Source

Devices = Union[mx.Context, List[mx.Context], None]

#: Standard deviation of new weights, as in BERT.
INITIAL_SIGMA = 0.02


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
        _fill(model, folder, ctx)
    # Arrays that the files hold in memory are freed before the gradients take memory.
    with_gradients(model)


def _fill(model: Network, folder: pathlib.Path, ctx: Devices) -> None:
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
        if names and source.holds(names):
            source.fill_parts(model.predictor, names)


def initialize(block: Block, initializer: mx.init.Initializer, ctx: Devices) -> None:
    """Initialize a block whose parameters are read next, without gradients."""
    without_gradients(block)
    block.initialize(initializer, ctx=ctx or mx.cpu())


def without_gradients(block: Block) -> None:
    """Let a block's parameters have no gradients, which saves memory while tensors are read."""
    block.collect_params().setattr("grad_req", "null")


def with_gradients(block: Block) -> None:
    """Let a block's parameters have gradients."""
    block.collect_params().setattr("grad_req", "write")
