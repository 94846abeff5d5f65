"""Configuration of an encoder, from and to the files of other libraries."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Dict, Iterable, Optional, Tuple

from wqa.config import FAMILIES, BackboneConfig, read_json
from wqa.errors import EncoderError, OptionError, shorten
from wqa.pretrained.names import HUGGINGFACE, ZOO

#: Activations by Hugging Face's names.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}

#: Values of settings that ``config.json`` leaves out, by Hugging Face's library. A family's own
#: are in `wqa.pretrained.names.HUGGINGFACE`.
DEFAULTS: Dict[str, Any] = {
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}

#: The one value of each setting that is supported.
SUPPORTED = {
    "position_embedding_type": "absolute",
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "is_decoder": False,
}


def read_object(path: pathlib.Path) -> Dict[str, Any]:
    """Read a JSON object from an encoder's directory.

    Parameters
    ----------
    path : pathlib.Path
        Name of the file.

    Returns
    -------
    dict
        Content of the file.

    Raises
    ------
    EncoderError
        If the file is missing or holds something else.
    """
    try:
        values = read_json(path)
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
    """Configuration of an encoder in a Hugging Face directory.

    Parameters
    ----------
    values : dict
        Content of ``config.json``.
    path : pathlib.Path
        Name of that file, for messages.
    tensors : iterable of str
        Names of the tensors. They tell the family where the file does not, as in directories from
        before 2020, TANDA's among them.

    Returns
    -------
    BackboneConfig
        The same configuration in this package's terms.

    Raises
    ------
    EncoderError
        If a setting is missing, or its value is not supported.
    """
    name = _family_name(values, tensors)
    if name not in HUGGINGFACE:
        raise EncoderError(path, f"model_type {shorten(name)}", "one of " + ", ".join(HUGGINGFACE))
    assert name is not None
    values = {**DEFAULTS, **HUGGINGFACE[name].defaults, **values}
    for setting, supported in SUPPORTED.items():
        value = values.get(setting, supported)
        if value != supported:
            raise EncoderError(
                path,
                f"{setting} {shorten(value)}",
                shorten(supported),
                "this variant is not supported",
            )
    if values["hidden_act"] not in ACTIVATIONS:
        raise EncoderError(
            path, f"hidden_act {shorten(values['hidden_act'])}", "one of " + ", ".join(ACTIVATIONS)
        )
    try:
        return _config(name, values)
    except KeyError as error:
        raise EncoderError(
            path, f"no field {error}", f"the configuration of a {name} encoder"
        ) from None
    except (TypeError, ValueError) as error:
        raise EncoderError(
            path, f"a field of the wrong type ({error})", f"the configuration of a {name} encoder"
        ) from None
    except OptionError as error:
        raise EncoderError(path, f"{error.where} {error.found}", error.expected) from None


def _config(name: str, values: Dict[str, Any]) -> BackboneConfig:
    family, names = FAMILIES[name], HUGGINGFACE[name]
    units = values["hidden_size"]
    width = values.get("embedding_size", names.embedding_size) if names.embedding_size else units
    first = values["pad_token_id"] + 1 if family.positions_after_padding else 0
    dropout = float(values["hidden_dropout_prob"])
    head_dropout = values.get(names.head_dropout)
    return BackboneConfig(
        layout=name,
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
        embedding_size=width if width != units or names.always_projects else 0,
        first_position=first,
        shared_layers=family.shared_layers,
    )


def _family_name(values: Dict[str, Any], tensors: Iterable[str]) -> Optional[str]:
    if values.get("model_type") is not None:
        return values["model_type"]
    architectures = values.get("architectures") or [""]
    for name, names in HUGGINGFACE.items():
        if re.match(rf"{names.class_name}(For|Model)", str(architectures[0]), re.IGNORECASE):
            return name
    for tensor in tensors:
        for name, names in HUGGINGFACE.items():
            if tensor.startswith(f"{names.prefix}."):
                return name
    return None


def to_huggingface(config: BackboneConfig) -> Dict[str, Any]:
    """Hugging Face's ``config.json`` for a classifier with one output.

    Parameters
    ----------
    config : BackboneConfig
        Configuration of the classifier's encoder.

    Returns
    -------
    dict
        Content of the file.
    """
    names = HUGGINGFACE[config.layout]
    values = {
        "model_type": config.family.name,
        "architectures": [f"{names.class_name}ForSequenceClassification"],
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
        names.head_dropout: config.head_dropout,
    }
    if names.embedding_size:
        values["embedding_size"] = config.embedding_size or config.units
    if config.family.positions_after_padding:
        values["pad_token_id"] = config.first_position - 1
    return values


def from_zoo(path: pathlib.Path, shapes: Dict[str, Tuple[int, ...]]) -> BackboneConfig:
    """Configuration of an encoder of GluonNLP's zoo.

    Parameters
    ----------
    path : pathlib.Path
        Name of the file as the zoo gives it. It starts with the family, the number of layers,
        units and attention heads, as in
        ``bert_12_768_12_book_corpus_wiki_en_uncased-75cc780f.params``.
    shapes : dict of str to tuple of int
        Shapes of the file's tensors.

    Returns
    -------
    BackboneConfig
        Sizes by the file's name and tensors, and the zoo's settings for the rest.

    Raises
    ------
    EncoderError
        If the name does not tell the sizes, or a tensor of such an encoder is missing.
    """
    match = re.match(rf"({'|'.join(ZOO)})_(\d+)_(\d+)_(\d+)(?=[_.\-])", path.name)
    if not match:
        raise EncoderError(
            path,
            "a name without sizes",
            "the zoo's own, which starts as bert_12_768_12 or roberta_24_1024_16 do",
        )
    known = ZOO[match[1]]
    token_types = known.token_types
    try:
        vocab_size = shapes["word_embed.0.weight"][0]
        max_positions = shapes["encoder.position_weight"][0]
        hidden_size = shapes["encoder.transformer_cells.0.ffn.ffn_1.weight"][0]
        if token_types > 1:
            token_types = shapes["token_type_embed.0.weight"][0]
    except KeyError as error:
        raise EncoderError(
            path,
            f"tensor {error} is missing",
            "an encoder of GluonNLP's zoo",
            "fetch the file again",
        ) from None
    return BackboneConfig(
        layout=match[1],
        vocab_size=vocab_size,
        units=int(match[3]),
        hidden_size=hidden_size,
        num_layers=int(match[2]),
        num_heads=int(match[4]),
        max_positions=max_positions,
        token_types=token_types,
        layer_norm_eps=known.layer_norm_eps,
        first_position=known.first_position,
    )
