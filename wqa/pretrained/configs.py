"""Configuration of an encoder, from and to the files of other libraries."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Dict, Iterable, NoReturn, Tuple

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

#: Greatest size of a JSON file in bytes. The index of 10,000 tensors has a million.
MOST_JSON = 1 << 24


def read_object(path: pathlib.Path) -> Dict[str, Any]:
    """Read a JSON object from an encoder's directory."""
    if not path.exists():
        raise EncoderError(path, "the file is missing", "a Hugging Face directory")
    if not path.is_file():
        raise EncoderError(path, "is no file", "a JSON object")
    try:
        values = read_json(path, MOST_JSON)
    except (OSError, ValueError) as error:
        raise EncoderError(
            path, f"cannot be read as JSON ({error})", mend="fetch the file again"
        ) from None
    if not isinstance(values, dict):
        raise EncoderError(path, f"a {type(values).__name__}", "a JSON object")
    return values


def from_huggingface(
    values: Dict[str, Any], path: pathlib.Path, tensors: Iterable[str]
) -> BackboneConfig:
    """Configuration of an encoder in a Hugging Face directory."""
    tensors = list(tensors)
    name = _family_name(values, tensors)
    if not isinstance(name, str) or name not in HUGGINGFACE:
        raise EncoderError(path, f"model_type {shorten(name)}", "one of " + ", ".join(HUGGINGFACE))
    names = HUGGINGFACE[name]
    defaults = {names.settings.get(setting, setting): DEFAULTS[setting] for setting in DEFAULTS}
    values = {**defaults, **names.defaults, **values}
    for setting, supported in {**SUPPORTED, **names.supported}.items():
        value = values.get(setting, supported)
        if value != supported:
            raise EncoderError(
                path,
                f"{setting} {shorten(value)}",
                shorten(supported),
                "this variant is not supported",
            )
    config = _config(name, _Settings(values, name, path))
    check_layers(config, path, len(tensors))
    return config


def check_layers(config: BackboneConfig, where: object, tensors: int) -> None:
    """Check the number of layers against the tensors, before anything is built for the layers."""
    if config.num_layers > tensors and not config.shared_layers:
        raise EncoderError(
            where,
            f"{config.num_layers} layers",
            f"at most one for each of the {tensors} tensors",
            "check config.json against the weights",
        )


class _Settings:
    """Settings of a ``config.json``, each checked for its type when it is read."""

    def __init__(self, values: Dict[str, Any], name: str, path: pathlib.Path) -> None:
        self._values = values
        self._name = name
        self._path = path

    def size(self, setting: str) -> int:
        """A whole number."""
        return self.take(setting, "a whole number", int)

    def take(self, setting: str, expected: str, *types: type) -> Any:
        """A value of one of some types."""
        if setting not in self._values:
            raise EncoderError(
                self._path, f"no field {setting!r}", f"the configuration of a {self._name} encoder"
            )
        if type(self._values[setting]) not in types:
            self.refuse(setting, expected)
        return self._values[setting]

    def has(self, setting: str) -> bool:
        """Whether the setting has a value."""
        return self._values.get(setting) is not None

    def refuse(self, setting: str, expected: str) -> NoReturn:
        """Refuse the value of a setting."""
        value = self._values[setting]
        raise EncoderError(
            self._path, f"{setting} {shorten(value)}", expected, "fetch the file again"
        )


#: Settings of ``config.json`` by the whole number of a `BackboneConfig` that each one is.
_SIZES = {
    "vocab_size": "vocab_size",
    "units": "hidden_size",
    "hidden_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "token_types": "type_vocab_size",
}
#: The same for the other numbers.
_RATES = {
    "layer_norm_eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "head_dropout": "hidden_dropout_prob",
}
#: Settings by the field that is computed from each one.
_COMPUTED = {
    "max_positions": "max_position_embeddings",
    "first_position": "pad_token_id",
    "embedding_size": "embedding_size",
    "activation": "hidden_act",
}


def _sources(names: HuggingFaceNames) -> Dict[str, str]:
    """A family's name of the setting of each field of a `BackboneConfig`."""
    sources = {**_SIZES, **_RATES, **_COMPUTED}
    return {field: names.settings.get(setting, setting) for field, setting in sources.items()}


def _config(name: str, settings: _Settings) -> BackboneConfig:
    family, names = FAMILIES[name], HUGGINGFACE[name]
    sources = _sources(names)
    if settings.has(names.head_dropout):
        sources["head_dropout"] = names.head_dropout
    sizes = [field for field in _SIZES if family.has_token_types or field != "token_types"]
    fields: Dict[str, Any] = {"token_types": 1}
    fields.update({field: settings.size(sources[field]) for field in sizes})
    for field in _RATES:
        fields[field] = settings.take(sources[field], "a number", int, float)
    first = 0
    if family.positions_after_padding:
        first = settings.size("pad_token_id") + 1
        if first < 1:
            settings.refuse("pad_token_id", "a token id")
    width = _embedding_size(names, settings, fields["units"])
    known = "one of " + ", ".join(ACTIVATIONS)
    activation = settings.take(sources["activation"], known, str)
    if activation not in ACTIVATIONS:
        settings.refuse(sources["activation"], known)
    try:
        return BackboneConfig(
            layout=name,
            max_positions=settings.size("max_position_embeddings") - first,
            activation=ACTIVATIONS[activation],
            embedding_size=width,
            first_position=first,
            shared_layers=family.shared_layers,
            **fields,
        )
    except OptionError as error:
        field = error.where.rpartition(" ")[2]
        expected = error.expected
        if field == "max_positions" and first:
            expected = f"{first} for the padding token, and {expected}"
        settings.refuse(sources[field], expected)


def _embedding_size(names: HuggingFaceNames, settings: _Settings, units: int) -> int:
    """Width of the embedding tables; 0 if no projection follows them."""
    width = units
    if names.embedding_size:
        width = names.embedding_size
        if settings.has("embedding_size"):
            width = settings.size("embedding_size")
            if width < 1:
                settings.refuse("embedding_size", "a width from 1")
    return width if width != units or names.always_projects else 0


def _family_name(values: Dict[str, Any], tensors: Iterable[str]) -> Any:
    if values.get("model_type") is not None:
        return values["model_type"]
    architectures = values.get("architectures")
    if isinstance(architectures, list) and architectures:
        for name, names in HUGGINGFACE.items():
            pattern = rf"{names.class_name}(For|Model)"
            if re.match(pattern, str(architectures[0]), re.IGNORECASE):
                return name
    for tensor in tensors:
        for name, names in HUGGINGFACE.items():
            if tensor.startswith(f"{names.prefix}."):
                return name
    return None


def to_huggingface(config: BackboneConfig) -> Dict[str, Any]:
    """Hugging Face's ``config.json`` for a classifier with one output."""
    names, family = HUGGINGFACE[config.layout], config.family
    sources = _sources(names)
    values = {
        "model_type": family.name,
        "architectures": [f"{names.class_name}ForSequenceClassification"],
        "id2label": {"0": "answer"},
        "label2id": {"answer": 0},
        **{sources[field]: getattr(config, field) for field in _SIZES},
        "max_position_embeddings": config.max_positions + config.first_position,
        "layer_norm_eps": config.layer_norm_eps,
        sources["activation"]: "gelu_new"
        if config.activation == "gelu_tanh"
        else config.activation,
        sources["dropout"]: config.dropout,
        sources["attention_dropout"]: config.attention_dropout,
        names.head_dropout: config.head_dropout,
        **names.supported,
    }
    if not family.has_token_types:
        del values["type_vocab_size"]
    if names.embedding_size:
        values["embedding_size"] = config.embedding_size or config.units
    if family.positions_after_padding:
        values["pad_token_id"] = config.first_position - 1
    return values


def from_zoo(path: pathlib.Path, shapes: Dict[str, Tuple[int, ...]]) -> BackboneConfig:
    """Configuration of an encoder of GluonNLP's zoo."""
    match = re.match(rf"({'|'.join(ZOO)})_(\d+)_(\d+)_(\d+)(?=[_.\-])", path.name)
    if not match:
        raise EncoderError(
            path,
            "a name without sizes",
            "the zoo's own, which starts as bert_12_768_12 or roberta_24_1024_16 do",
        )
    units, num_layers, num_heads = int(match[3]), int(match[2]), int(match[4])
    return zoo_config(
        path, match[1], shapes, units=units, num_layers=num_layers, num_heads=num_heads
    )


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
        config = BackboneConfig(
            layout=family, first_position=known.first_position, **{**sizes, **fields}
        )
    except OptionError as error:
        raise EncoderError(where, f"{error.where} {error.found}", error.expected) from None
    check_layers(config, where, len(shapes))
    return config


def _rows(where: object, shapes: Dict[str, Tuple[int, ...]], name: str) -> int:
    """Number of rows of a tensor of the zoo."""
    if not shapes.get(name):
        raise EncoderError(
            where,
            f"tensor {name!r} is missing",
            "an encoder of GluonNLP's zoo",
            "fetch the file again",
        )
    return shapes[name][0]
