"""Backbones from GluonNLP's models, and GluonNLP's models from backbones."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import mxnet as mx
import numpy as np
from gluonnlp.model import GELU, BERTEncoder, BERTModel, RoBERTaModel
from mxnet.gluon import nn

from wqa.config import BackboneConfig
from wqa.errors import EncoderError
from wqa.models import Backbone
from wqa.pretrained.configs import zoo_config
from wqa.pretrained.load import initialize, with_gradients
from wqa.pretrained.names import ZOO, zoo_names
from wqa.pretrained.source import set_rows

#: GluonNLP's names of the activations.
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "approx_gelu", "relu": "relu"}

_POSITIONS, _TYPES = "embeddings.position_weight", "embeddings.token_type.weight"


def from_gluonnlp(model: BERTModel) -> Backbone:
    """Copy the encoder of a GluonNLP model to a backbone.

    At positions that are not padding both have the same outputs. A pooler, a decoder and a
    classifier of the model are left out. In training the two differ: GluonNLP's dropout of the
    embeddings comes before their normalization, the backbone's after it.

    Parameters
    ----------
    model : gluonnlp.model.BERTModel or gluonnlp.model.RoBERTaModel
        Model of any size, with parameters. RoBERTa's padding token has id 1, as in its vocabulary.

    Returns
    -------
    Backbone
        Backbone on the model's devices, with parameters of its own.

    Raises
    ------
    EncoderError
        If the model is of another type, or has an activation or a word embedding of its own.
    """
    if not isinstance(model, BERTModel):
        problem, expected = f"a {type(model).__name__}", "a BERTModel or RoBERTaModel"
        raise EncoderError("model", problem, expected, "of a BERTClassifier take its bert")
    parameters = model._collect_params_with_prefix()
    devices = next(iter(parameters.values())).list_ctx()
    if 0 in parameters["encoder.transformer_cells.0.proj.weight"].shape:
        # Shapes wait for a first input, (L, B, C).
        hidden = mx.nd.zeros((1, 1, model.encoder._units), ctx=devices[0])
        model.encoder(hidden, None, mx.nd.ones(1, ctx=devices[0]))
    config = _read_config(model, {name: array.shape for name, array in parameters.items()})
    backbone = Backbone(config)
    initialize(backbone, mx.init.Zero(), devices)
    names, targets = zoo_names(config), backbone._collect_params_with_prefix()
    for ours, theirs in names.items():
        # GluonNLP's position table lacks the rows before the first position.
        start = config.first_position if ours == _POSITIONS else 0
        for name in theirs:
            if name in parameters:  # a model without token types has none
                rows = parameters[name].list_data()[0].asnumpy()
                set_rows(targets[ours], start, rows)
                start += len(rows)
    with_gradients(backbone)
    return backbone


def to_gluonnlp(backbone: Backbone) -> BERTModel:
    """Copy a backbone to a GluonNLP model.

    At positions that are not padding both have the same outputs.

    Parameters
    ----------
    backbone : Backbone
        An encoder of the BERT or RoBERTa family.

    Returns
    -------
    gluonnlp.model.BERTModel or gluonnlp.model.RoBERTaModel
        Model on the backbone's devices, with parameters of its own, without a pooler, a decoder
        and a classifier.

    Raises
    ------
    EncoderError
        If GluonNLP has no model of the family, or its RoBERTa lacks the backbone's token types.
    """
    config = backbone.config
    if config.layout not in ZOO:
        problem = f"an encoder of the family {config.layout}"
        raise EncoderError("backbone", problem, " or ".join(ZOO))
    if config.layout == "roberta" and config.token_types > 1:
        problem = f"{config.token_types} token types"
        raise EncoderError("backbone", problem, "one, as GluonNLP's RoBERTa has none")
    model, names = _new_model(config), zoo_names(config)
    parameters, tensors = (block._collect_params_with_prefix() for block in (backbone, model))
    values: Dict[str, np.ndarray] = {}
    for ours, theirs in names.items():
        value = parameters[ours].list_data()[0].asnumpy()
        if ours == _POSITIONS:
            value = value[config.first_position :]
        if ours == "embeddings.word.weight" and not names[_TYPES]:
            # GluonNLP's RoBERTa has no token types; all tokens have the one row of the backbone.
            value = value + parameters[_TYPES].list_data()[0].asnumpy()
        if theirs:
            values.update(zip(theirs, np.split(value, len(theirs))))
    for name, value in values.items():
        tensors[name].shape = value.shape  # otherwise it waits for a first input
    model.initialize(mx.init.Zero(), ctx=backbone.embeddings.word.weight.list_ctx())
    for name, value in values.items():
        tensors[name].set_data(mx.nd.array(value))
    return model


def _read_config(model: BERTModel, shapes: Dict[str, Tuple[int, ...]]) -> BackboneConfig:
    """Configuration of the backbone that computes what a model does."""
    kind, encoder = type(model).__name__, model.encoder
    cell = encoder.transformer_cells[0]
    activation = cell.ffn.activation
    name = "relu"
    if isinstance(activation, GELU):
        name = "gelu_tanh" if activation._approximate else "gelu"
    elif getattr(activation, "_act_type", "") != "relu":
        expected = "one of " + ", ".join(ACTIVATIONS.values())
        raise EncoderError(kind, f"the activation {activation}", expected)
    fields: Dict[str, Any] = {
        "units": encoder._units,
        "num_layers": len(encoder.transformer_cells),
        "num_heads": cell.attention_cell._num_heads,
        "layer_norm_eps": encoder._layer_norm_eps,
        "activation": name,
        "dropout": encoder._dropout,
        "attention_dropout": cell.attention_cell._dropout,
    }
    family = "roberta" if isinstance(model, RoBERTaModel) else "bert"
    if family == "bert" and "token_type_embed.0.weight" not in shapes:
        fields["token_types"] = ZOO[family].token_types
    return zoo_config(kind, family, shapes, **fields)


def _new_model(config: BackboneConfig) -> BERTModel:
    """GluonNLP model of the sizes of a backbone, not initialized."""
    encoder = BERTEncoder(
        num_layers=config.num_layers,
        units=config.units,
        hidden_size=config.hidden_size,
        max_length=config.max_positions,
        num_heads=config.num_heads,
        dropout=config.dropout,
        activation=ACTIVATIONS[config.activation],
        layer_norm_eps=config.layer_norm_eps,
    )
    for cell in encoder.transformer_cells:
        # The constructor takes one rate for hidden states and attention weights.
        cell.attention_cell._dropout = config.attention_dropout
        cell.attention_cell.dropout_layer = nn.Dropout(config.attention_dropout)
    sizes = {"vocab_size": config.vocab_size, "units": config.units, "embed_size": config.units}
    if config.layout == "roberta":
        return RoBERTaModel(encoder, use_decoder=False, **sizes)
    parts = {"use_pooler": False, "use_decoder": False, "use_classifier": False}
    return BERTModel(encoder, token_type_vocab_size=config.token_types, **parts, **sizes)
