"""Hugging Face directories (``config.json`` and ``model.safetensors``) to backbone parameters."""
from __future__ import annotations

import json
import os
import pathlib
from typing import Dict, Iterator, List, Tuple, Union

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock
from safetensors import SafetensorError, safe_open

from wqa.config import BackboneConfig
from wqa.errors import EncoderError, shorten
from wqa.models import Backbone, PairwiseTransformer
from wqa.models.heads import ExitNetwork

PathLike = Union[str, "os.PathLike[str]"]
Arrays = Dict[str, np.ndarray]

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}

#: RoBERTa's position table starts with two rows that no token uses (padding index 1, plus one).
FIRST_POSITION = {"bert": 0, "roberta": 2}

#: Standard deviation of new weights, as in BERT.
INITIAL_SIGMA = 0.02


def read_backbone_config(directory: PathLike) -> BackboneConfig:
    """Read an encoder's shape from its ``config.json``.

    Parameters
    ----------
    directory : str or path-like

    Returns
    -------
    BackboneConfig

    Raises
    ------
    EncoderError
        If the file is missing, or describes an encoder of another family.
    """
    path = pathlib.Path(directory) / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        layout = values.get("model_type")
        if layout not in FIRST_POSITION:
            raise EncoderError(path, f"model_type {shorten(layout)}", "one of " + ", ".join(FIRST_POSITION))
        activation = values.get("hidden_act", "gelu")
        if activation not in ACTIVATIONS:
            raise EncoderError(path, f"hidden_act {shorten(activation)}", "one of " + ", ".join(ACTIVATIONS))
        return BackboneConfig(
            layout=layout, vocab_size=values["vocab_size"], units=values["hidden_size"],
            hidden_size=values["intermediate_size"], num_layers=values["num_hidden_layers"],
            num_heads=values["num_attention_heads"], token_types=values["type_vocab_size"],
            max_positions=values["max_position_embeddings"] - FIRST_POSITION[layout],
            layer_norm_eps=float(values["layer_norm_eps"]), activation=ACTIVATIONS[activation],
            dropout=float(values.get("hidden_dropout_prob", 0.1)),
            attention_dropout=float(values.get("attention_probs_dropout_prob", 0.1)))
    except FileNotFoundError:
        raise EncoderError(path, "the file is missing", "a Hugging Face directory") from None
    except KeyError as error:
        raise EncoderError(path, f"no field {error}", "a BERT or RoBERTa configuration") from None
    except (OSError, ValueError, AttributeError) as error:
        raise EncoderError(path, f"cannot be read as JSON ({error})", mend="fetch the file again") from None


def load_backbone(directory: PathLike, ctx: Union[mx.Context, List[mx.Context], None] = None) -> Backbone:
    """Build a backbone and load a pretrained encoder's parameters into it.

    Parameters
    ----------
    directory : str or path-like
        Holds ``config.json`` and ``model.safetensors``.
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
    backbone = Backbone(read_backbone_config(directory))
    backbone.initialize(ctx=ctx or mx.cpu())
    _fill(backbone, _backbone_arrays(_read(directory), backbone.config, str(directory)))
    return backbone


def initialize_from(model: ExitNetwork, directory: PathLike, ctx: Union[mx.Context, List[mx.Context], None] = None) -> None:
    """Initialise a system: its backbone from a pretrained encoder, its heads afresh.

    A monolithic ranker's dense layer takes the encoder's pooler where there is one.

    Parameters
    ----------
    model : ExitNetwork
        Built with this encoder's configuration.
    directory : str or path-like
        Holds ``config.json`` and ``model.safetensors``.
    ctx : mxnet.Context or list of them, optional
        The CPU by default.

    Raises
    ------
    EncoderError
        If a file or a tensor is missing, cut off, or of another shape.
    """
    tensors = _read(directory)
    model.initialize(mx.init.Normal(INITIAL_SIGMA), ctx=ctx or mx.cpu())
    _fill(model.backbone, _backbone_arrays(tensors, model.config, str(directory)))
    if isinstance(model, PairwiseTransformer) and "pooler.dense.weight" in tensors:
        _fill(model.head(0).dense, {"weight": tensors["pooler.dense.weight"], "bias": tensors["pooler.dense.bias"]})


def _read(directory: PathLike) -> Arrays:
    """Tensors by name, without the prefix of the encoder's family."""
    path = pathlib.Path(directory) / "model.safetensors"
    if not path.exists():
        raise EncoderError(path, "the file is missing", "a Hugging Face directory with its weights")
    try:
        with safe_open(str(path), framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - the file object is no dict
    except (SafetensorError, OSError, TypeError) as error:
        raise EncoderError(path, f"cannot be read ({error})", mend="fetch the file again") from None
    prefixes = tuple(f"{layout}." for layout in FIRST_POSITION)
    return {name.split(".", 1)[1] if name.startswith(prefixes) else name: value for name, value in tensors.items()}


def _backbone_arrays(tensors: Arrays, config: BackboneConfig, where: str) -> Arrays:
    """Backbone parameters by structural name, mapped from Hugging Face's."""
    first, arrays = FIRST_POSITION[config.layout], {}
    for ours, theirs in _names(config):
        missing = [name for name in theirs if name not in tensors]
        if missing:
            raise EncoderError(where, f"tensor {missing[0]} is missing", "all tensors of the encoder", "fetch the file again")
        value = np.concatenate([tensors[name] for name in theirs]).astype(np.float32)
        arrays[ours] = value[first:] if ours == "embeddings.position_weight" else value
    return arrays


def _names(config: BackboneConfig) -> Iterator[Tuple[str, List[str]]]:
    yield "embeddings.word.weight", ["embeddings.word_embeddings.weight"]
    yield "embeddings.token_type.weight", ["embeddings.token_type_embeddings.weight"]
    yield "embeddings.position_weight", ["embeddings.position_embeddings.weight"]
    norms = [("embeddings.layer_norm", "embeddings.LayerNorm")]
    for number in range(config.num_layers):
        ours, theirs = f"layers.{number}", f"encoder.layer.{number}"
        for kind in ("weight", "bias"):
            yield f"{ours}.qkv.{kind}", [f"{theirs}.attention.self.{part}.{kind}" for part in ("query", "key", "value")]
            yield f"{ours}.proj.{kind}", [f"{theirs}.attention.output.dense.{kind}"]
            yield f"{ours}.ffn_1.{kind}", [f"{theirs}.intermediate.dense.{kind}"]
            yield f"{ours}.ffn_2.{kind}", [f"{theirs}.output.dense.{kind}"]
        norms += [(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm"),
                  (f"{ours}.ffn_norm", f"{theirs}.output.LayerNorm")]
    for ours, theirs in norms:
        yield f"{ours}.gamma", [f"{theirs}.weight"]
        yield f"{ours}.beta", [f"{theirs}.bias"]


def _fill(block: HybridBlock, arrays: Arrays) -> None:
    parameters = block._collect_params_with_prefix()
    for name, parameter in parameters.items():
        if parameter.shape != arrays[name].shape:
            raise EncoderError(f"tensor {name}", f"shape {arrays[name].shape}", f"{parameter.shape}",
                               "check config.json against the weights")
        parameter.set_data(mx.nd.array(arrays[name]))
