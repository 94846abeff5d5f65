"""Pretrained encoders to backbones and to systems that start from them."""

from __future__ import annotations

import pathlib
from typing import List, Union

import mxnet as mx
from mxnet.gluon import Block

from wqa.config import BackboneConfig
from wqa.errors import EncoderError
from wqa.models import Backbone, PairwiseTransformer
from wqa.models.heads import ExitNetwork
from wqa.pretrained.locate import PathLike, encoder_directory
from wqa.pretrained.source import Source

Devices = Union[mx.Context, List[mx.Context], None]

#: Standard deviation of new weights, as in BERT.
INITIAL_SIGMA = 0.02


def read_backbone_config(directory: PathLike) -> BackboneConfig:
    """Read an encoder's shape.

    Parameters
    ----------
    directory : str or path-like
        As for `load_backbone`, but no archive.

    Returns
    -------
    BackboneConfig

    Raises
    ------
    EncoderError
        If it cannot be read, or is of a family that is not supported.
    """
    return Source(pathlib.Path(directory)).config


def load_backbone(directory: PathLike, ctx: Devices = None) -> Backbone:
    """Build a backbone and load a pretrained encoder's parameters into it.

    Parameters
    ----------
    directory : str or path-like
        A Hugging Face directory (``config.json`` with ``model.safetensors`` or
        ``pytorch_model.bin``, either of them in shards or not) or a tar of one; a directory with a
        GluonNLP zoo file; a directory that ``wqa convert`` or ``wqa train`` wrote; or a key of
        `INSTALLED`.
    ctx : mxnet.Context or list of them, optional
        The CPU by default.

    Returns
    -------
    Backbone

    Raises
    ------
    EncoderError
        If a file or a tensor is missing, cut off, or of another shape.
    """
    with encoder_directory(directory) as folder:
        source = Source(folder)
        backbone = Backbone(source.config)
        without_gradients(backbone)
        backbone.initialize(mx.init.Zero(), ctx=ctx or mx.cpu())
        source.fill(backbone)
    with_gradients(backbone)
    return backbone


def initialize_from(model: ExitNetwork, directory: PathLike, ctx: Devices = None) -> None:
    """Initialise a system: its backbone from a pretrained encoder, its heads afresh.

    A monolithic ranker's dense layer takes the encoder's pooler where there is one.

    Parameters
    ----------
    model : ExitNetwork
        Built with this encoder's configuration.
    directory : str or path-like
        As for `load_backbone`, but no archive.
    ctx : mxnet.Context or list of them, optional
        The CPU by default.

    Raises
    ------
    EncoderError
        If a file or a tensor is missing, cut off, or of another shape.
    """
    source = Source(pathlib.Path(directory))
    without_gradients(model)
    model.initialize(mx.init.Normal(INITIAL_SIGMA), ctx=ctx or mx.cpu())
    source.fill(model.backbone)
    if isinstance(model, PairwiseTransformer) and source.has_pooler():
        source.fill_pooler(model.head(0).dense)
    del source
    with_gradients(model)


def load_classifier(directory: PathLike, ctx: Devices = None) -> PairwiseTransformer:
    """Load a fine-tuned classifier, such as TANDA's, as the monolithic ranker.

    Its score is the log-odds of the second of two labels, or the one output.

    Parameters
    ----------
    directory : str or path-like
        As for `load_backbone`.
    ctx : mxnet.Context or list of them, optional
        The CPU by default.

    Returns
    -------
    PairwiseTransformer

    Raises
    ------
    EncoderError
        If there is no classifier of one or two outputs, or a tensor is missing or of another shape.
    """
    with encoder_directory(directory) as folder:
        source = Source(folder)
        if not source.labels():
            raise EncoderError(
                directory,
                "an encoder without a classifier",
                "a fine-tuned classifier, or a run",
                "train one: wqa train SYSTEM --encoder DIR",
            )
        model = PairwiseTransformer(source.config, source.exits)
        without_gradients(model)
        model.initialize(mx.init.Zero(), ctx=ctx or mx.cpu())
        source.fill(model.backbone)
        source.fill_classifier(model.head(0))
    with_gradients(model)
    return model


def without_gradients(block: Block) -> None:
    """Leave the memory of gradients unclaimed while tensors are being read.

    Parameters
    ----------
    block : mxnet.gluon.Block
    """
    block.collect_params().setattr("grad_req", "null")


def with_gradients(block: Block) -> None:
    """Claim the memory of gradients.

    Parameters
    ----------
    block : mxnet.gluon.Block
    """
    block.collect_params().setattr("grad_req", "write")
