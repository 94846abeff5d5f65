"""The shape of an encoder, from what its directory says of itself."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any, Dict, Iterable, Optional

from wqa.config import BACKBONES, LAYOUTS, BackboneConfig
from wqa.errors import EncoderError, OptionError, shorten

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}

#: What a field of config.json is where it is left out: the reference library's defaults.
DEFAULTS: Dict[str, Any] = {
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}
ALBERT_DEFAULTS = {
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def read_json(path: pathlib.Path) -> Dict[str, Any]:
    """Read a JSON object of an encoder's directory.

    Parameters
    ----------
    path : pathlib.Path

    Returns
    -------
    dict

    Raises
    ------
    EncoderError
        If it is missing or holds something else.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EncoderError(path, "the file is missing", "a Hugging Face directory") from None
    except (OSError, ValueError) as error:
        raise EncoderError(
            path, f"cannot be read as JSON ({error})", mend="fetch the file again"
        ) from None
    if not isinstance(values, dict):
        raise EncoderError(path, shorten(values), "a JSON object")
    return values


def from_huggingface(
    values: Dict[str, Any], path: pathlib.Path, tensors: Iterable[str]
) -> BackboneConfig:
    """Shape of an encoder by Hugging Face's ``config.json``.

    Parameters
    ----------
    values : dict
        Its content.
    path : pathlib.Path
        Its name, for messages.
    tensors : iterable of str
        Names of the weights: configurations from before 2020, TANDA's among them, do not name the
        family, but the weights do.

    Returns
    -------
    BackboneConfig

    Raises
    ------
    EncoderError
        If a field is missing, or asks for what the layouts here do not have.
    """
    layout = _layout(values, tensors)
    if layout not in LAYOUTS:
        raise EncoderError(path, f"model_type {shorten(layout)}", "one of " + ", ".join(LAYOUTS))
    values = {**DEFAULTS, **(ALBERT_DEFAULTS if layout == "albert" else {}), **values}
    for field, needed in (
        ("position_embedding_type", "absolute"),
        ("num_hidden_groups", 1),
        ("inner_group_num", 1),
        ("is_decoder", False),
    ):
        if values.get(field, needed) != needed:
            raise EncoderError(
                path,
                f"{field} {shorten(values[field])}",
                shorten(needed),
                "this variant is not supported",
            )
    if values["hidden_act"] not in ACTIVATIONS:
        raise EncoderError(
            path, f"hidden_act {shorten(values['hidden_act'])}", "one of " + ", ".join(ACTIVATIONS)
        )
    try:
        return _config(layout, values)
    except KeyError as error:
        raise EncoderError(
            path, f"no field {error}", f"the configuration of a {layout} encoder"
        ) from None
    except (TypeError, ValueError) as error:
        raise EncoderError(
            path, f"a field of the wrong type ({error})", f"the configuration of a {layout} encoder"
        ) from None
    except OptionError as error:
        raise EncoderError(path, f"{error.where} {error.found}", error.expected) from None


def _config(layout: str, values: Dict[str, Any]) -> BackboneConfig:
    units, dropout = values["hidden_size"], float(values["hidden_dropout_prob"])
    width = values.get("embedding_size", 128) if layout in ("albert", "electra") else units
    first = (
        values.get("pad_token_id", 1) + 1 if layout == "roberta" else 0
    )  # the reference starts after the padding's row
    head_dropout = (
        values.get("classifier_dropout_prob", 0.1)
        if layout == "albert"
        else values.get("classifier_dropout")
    )
    return BackboneConfig(
        layout=layout,
        vocab_size=values["vocab_size"],
        units=units,
        hidden_size=values["intermediate_size"],
        num_layers=values["num_hidden_layers"],
        num_heads=values["num_attention_heads"],
        token_types=values["type_vocab_size"],
        max_positions=values["max_position_embeddings"] - first,
        layer_norm_eps=float(values["layer_norm_eps"]),
        activation=ACTIVATIONS[values["hidden_act"]],
        dropout=dropout,
        attention_dropout=float(values["attention_probs_dropout_prob"]),
        head_dropout=dropout if head_dropout is None else float(head_dropout),
        # ALBERT always projects, also where the sizes are equal.
        embedding_size=width if width != units or layout == "albert" else 0,
        first_position=first,
        shared_layers=layout == "albert",
    )


def _layout(values: Dict[str, Any], tensors: Iterable[str]) -> Optional[str]:
    if values.get("model_type") is not None:
        return values["model_type"]
    architectures = values.get("architectures") or [""]
    for name in (str(architectures[0]).lower(), *tensors):
        for layout in LAYOUTS:
            if re.match(rf"{layout}(\.|for|model)", name):
                return layout
    return None


def to_huggingface(config: BackboneConfig) -> Dict[str, Any]:
    """Hugging Face's ``config.json`` of a classifier with one output on this encoder.

    Parameters
    ----------
    config : BackboneConfig

    Returns
    -------
    dict
    """
    names = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra", "albert": "Albert"}
    values = {
        "model_type": config.layout,
        "architectures": [f"{names[config.layout]}ForSequenceClassification"],
        "id2label": {"0": "answer"},
        "label2id": {"answer": 0},
        "vocab_size": config.vocab_size,
        "hidden_size": config.units,
        "intermediate_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "max_position_embeddings": config.max_positions + config.first_position,
        "type_vocab_size": config.token_types,
        "layer_norm_eps": config.layer_norm_eps,
        "hidden_act": "gelu_new" if config.activation == "gelu_tanh" else config.activation,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "classifier_dropout_prob"
        if config.layout == "albert"
        else "classifier_dropout": config.head_dropout,
    }
    if config.layout in ("albert", "electra"):
        values["embedding_size"] = config.embedding_size or config.units
    if config.layout == "roberta":
        values["pad_token_id"] = config.first_position - 1
    return values


def from_zoo(path: pathlib.Path, shapes: Dict[str, Any]) -> BackboneConfig:
    """Shape of an encoder of GluonNLP's zoo, by its file's name and its tensors.

    Parameters
    ----------
    path : pathlib.Path
        Named as the zoo names it: layout, layers, units and heads come first, as in
        ``bert_12_768_12_book_corpus_wiki_en_uncased-75cc780f.params``.
    shapes : dict of str to tuple of int

    Returns
    -------
    BackboneConfig

    Raises
    ------
    EncoderError
        If the name does not say the sizes, or the tensors are no such encoder's.
    """
    match = re.match(r"(bert|roberta)_(\d+)_(\d+)_(\d+)(?=[_.\-])", path.name)
    if not match:
        raise EncoderError(
            path,
            "a name without sizes",
            "the zoo's own, which starts as bert_12_768_12 or roberta_24_1024_16 do",
        )
    layout, layers, units, heads = match[1], *map(int, match.groups()[1:])
    try:
        vocab_size, positions = (
            shapes["word_embed.0.weight"][0],
            shapes["encoder.position_weight"][0],
        )
        hidden_size = shapes["encoder.transformer_cells.0.ffn.ffn_1.weight"][0]
        token_types = shapes["token_type_embed.0.weight"][0] if layout == "bert" else 1
    except KeyError as error:
        raise EncoderError(
            path,
            f"tensor {error} is missing",
            "an encoder of GluonNLP's zoo",
            "fetch the file again",
        ) from None
    return BackboneConfig(
        layout=layout,
        vocab_size=vocab_size,
        units=units,
        hidden_size=hidden_size,
        num_layers=layers,
        num_heads=heads,
        max_positions=positions,
        token_types=token_types,
        layer_norm_eps=BACKBONES[f"{layout}_12_768_12"].layer_norm_eps,
        first_position=BACKBONES[f"{layout}_12_768_12"].first_position,
    )
