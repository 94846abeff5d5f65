"""Configuration of an encoder, from and to the files of other libraries."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Dict, Iterable, Tuple

from wqa.config import FAMILIES, BackboneConfig, read_json
from wqa.errors import EncoderError, OptionError, shorten
from wqa.pretrained.names import HUGGINGFACE, ZOO, HuggingFaceNames

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

#: Settings of ``config.json`` by the field of a `BackboneConfig` that is read from them.
SETTINGS = {
    "vocab_size": "vocab_size",
    "units": "hidden_size",
    "hidden_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "token_types": "type_vocab_size",
    "max_positions": "max_position_embeddings",
    "layer_norm_eps": "layer_norm_eps",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "head_dropout": "hidden_dropout_prob",
    "embedding_size": "embedding_size",
    "first_position": "pad_token_id",
}


def read_object(path: pathlib.Path) -> Dict[str, Any]:
    """Read a JSON object from an encoder's directory."""
    if not path.exists():
        raise EncoderError(path, "the file is missing", "a Hugging Face directory")
    try:
        values = read_json(path)
    except (OSError, ValueError) as error:
        problem = f"cannot be read as JSON ({error})"
        raise EncoderError(path, problem, hint="fetch the file again") from None
    if not isinstance(values, dict):
        raise EncoderError(path, f"a {type(values).__name__}", "a JSON object")
    return values


def from_huggingface(
    values: Dict[str, Any], path: pathlib.Path, tensors: Iterable[str]
) -> BackboneConfig:
    """Configuration of an encoder in a Hugging Face directory."""
    tensors, name = list(tensors), values.get("model_type")
    if name is None:  # the first directories leave it to the prefix of the tensors
        for family, own in HUGGINGFACE.items():
            if any(tensor.startswith(f"{own.prefix}.") for tensor in tensors):
                name = name or family
    if not isinstance(name, str) or name not in HUGGINGFACE:
        raise EncoderError(path, f"model_type {shorten(name)}", "one of " + ", ".join(HUGGINGFACE))
    names = HUGGINGFACE[name]
    defaults = {names.settings.get(setting, setting): DEFAULTS[setting] for setting in DEFAULTS}
    values = {**defaults, **names.defaults, **values}
    for setting, supported in {**SUPPORTED, **names.supported}.items():
        value = values.get(setting, supported)
        if value != supported:
            problem, hint = f"{setting} {shorten(value)}", "this variant is not supported"
            raise EncoderError(path, problem, shorten(supported), hint)
    settings = _settings_by_field(names)
    if values.get(names.head_dropout) is not None:
        settings["head_dropout"] = names.head_dropout
    try:
        return BackboneConfig(name, **_fields(name, values, settings, path))
    except OptionError as error:
        setting = settings[error.where.rpartition(" ")[2]]
        problem = f"{setting} {error.found}"
        raise EncoderError(path, problem, error.expected, "fetch the file again") from None


def _settings_by_field(names: HuggingFaceNames) -> Dict[str, str]:
    """A family's setting by the field of a `BackboneConfig` that it gives."""
    return {field: names.settings.get(setting, setting) for field, setting in SETTINGS.items()}


def _fields(
    name: str, values: Dict[str, Any], settings: Dict[str, str], path: pathlib.Path
) -> Dict[str, Any]:
    """Values of the fields of a `BackboneConfig`, which checks them."""
    family, names = FAMILIES[name], HUGGINGFACE[name]
    fields: Dict[str, Any] = {field: values.get(setting) for field, setting in settings.items()}
    if not family.has_token_types:
        fields["token_types"] = 1
    fields["shared_layers"] = family.shared_layers
    fields["first_position"] = 0
    if family.positions_after_padding:
        fields["first_position"] = _size(values, settings["first_position"], path, 0) + 1
    positions = _size(values, settings["max_positions"], path, fields["first_position"] + 1)
    fields["max_positions"] = positions - fields["first_position"]
    width = fields["units"]
    if "embedding_size" in names.defaults:
        width = _size(values, settings["embedding_size"], path, 1)
    has_projection = width != fields["units"] or names.always_projects
    fields["embedding_size"] = width if has_projection else 0
    activation = fields["activation"]
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        problem = f"{settings['activation']} {shorten(activation)}"
        raise EncoderError(path, problem, "one of " + ", ".join(ACTIVATIONS))
    fields["activation"] = ACTIVATIONS[activation]
    return fields


def _size(values: Dict[str, Any], setting: str, path: pathlib.Path, least: int) -> int:
    """A whole number of ``config.json`` with which others are computed."""
    value = values.get(setting)
    if type(value) is not int or value < least:
        problem = f"{setting} {shorten(value)}"
        raise EncoderError(path, problem, f"a whole number from {least}", "fetch the file again")
    return value


def to_huggingface(config: BackboneConfig) -> Dict[str, Any]:
    """Hugging Face's ``config.json`` for a classifier with one output."""
    names, family = HUGGINGFACE[config.layout], config.family
    settings = _settings_by_field(names)
    settings["head_dropout"] = names.head_dropout
    values = {setting: getattr(config, field) for field, setting in settings.items()}
    values[settings["max_positions"]] += config.first_position
    values[settings["first_position"]] = config.first_position - 1
    values[settings["embedding_size"]] = config.embedding_size or config.units
    if config.activation == "gelu_tanh":
        values[settings["activation"]] = "gelu_new"
    if not family.has_token_types:
        del values[settings["token_types"]]
    if not family.positions_after_padding:
        del values[settings["first_position"]]
    if "embedding_size" not in names.defaults:
        del values[settings["embedding_size"]]
    return {
        "model_type": family.name,
        "architectures": [f"{names.class_name}ForSequenceClassification"],
        "id2label": {"0": "answer"},
        "label2id": {"answer": 0},
        **values,
        **names.supported,
    }


def from_zoo(path: pathlib.Path, shapes: Dict[str, Tuple[int, ...]]) -> BackboneConfig:
    """Configuration of an encoder of GluonNLP's zoo."""
    match = re.match(rf"({'|'.join(ZOO)})_(\d+)_(\d+)_(\d+)(?=[_.\-])", path.name)
    if not match:
        expected = "the zoo's own, which starts as bert_12_768_12 or roberta_24_1024_16 do"
        raise EncoderError(path, "a name without sizes", expected)
    sizes = dict(zip(("num_layers", "units", "num_heads"), map(int, match.groups()[1:])))
    return zoo_config(path, match[1], shapes, **sizes)


def zoo_config(
    where: object, family: str, shapes: Dict[str, Tuple[int, ...]], **fields: Any
) -> BackboneConfig:
    """Configuration of an encoder of GluonNLP from the shapes of its tensors and further fields."""
    known = ZOO[family]
    sizes: Dict[str, Any] = {
        "vocab_size": _rows(where, shapes, "word_embed.0.weight"),
        "max_positions": _rows(where, shapes, "encoder.position_weight"),
        "hidden_size": _rows(where, shapes, "encoder.transformer_cells.0.ffn.ffn_1.weight"),
        "token_types": known.token_types,
        "layer_norm_eps": known.layer_norm_eps,
    }
    if known.token_types > 1 and "token_types" not in fields:
        sizes["token_types"] = _rows(where, shapes, "token_type_embed.0.weight")
    try:
        return BackboneConfig(
            layout=family, first_position=known.first_position, **{**sizes, **fields}
        )
    except OptionError as error:
        raise EncoderError(where, f"{error.where} {error.found}", error.expected) from None


def _rows(where: object, shapes: Dict[str, Tuple[int, ...]], name: str) -> int:
    """Number of rows of a tensor of the zoo."""
    if not shapes.get(name):
        raise EncoderError(where, f"tensor {name!r} is missing", "an encoder of GluonNLP's zoo")
    return shapes[name][0]
