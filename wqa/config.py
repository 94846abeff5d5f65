"""Frozen configurations, read from and written to JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import typing
from typing import Any, Dict, Optional, Sequence, Tuple, Type, TypeVar, Union

from wqa.errors import OptionError, RunDirectoryError, shorten

C = TypeVar("C")


@dataclasses.dataclass(frozen=True)
class PairForm:
    """How a question and a candidate become one input sequence.

    Parameters
    ----------
    separators : int
        Number of separator tokens between the question and the candidate.
    typed : bool
        Whether the candidate's tokens are of token type 1. Otherwise all tokens are of type 0.
    """

    separators: int
    typed: bool

    @property
    def specials(self) -> int:
        """Number of special tokens in a pair: the start token and all separators."""
        return self.separators + 2


#: Pair forms by name: ``[CLS] q [SEP] c [SEP]`` and ``<s> q </s></s> c </s>``.
PAIR_FORMS: Dict[str, PairForm] = {
    "bert": PairForm(separators=1, typed=True),
    "roberta": PairForm(separators=2, typed=False),
}


@dataclasses.dataclass(frozen=True)
class Family:
    """What all encoders of a family have in common, whatever their size.

    Parameters
    ----------
    name : str
        Key in `FAMILIES`, and ``model_type`` in Hugging Face's ``config.json``.
    pair_form : str
        Form of the pair input, a key of `PAIR_FORMS`.
    special_tokens : tuple of str
        Start, separator and padding token of the tokenizers. They tell the pair form of a
        tokenizer, so families with the same tokens have the same pair form.
    has_pooler : bool
        Whether pretraining trains a dense layer on the first position. The first-position head
        then starts from it. Otherwise the head's dense layer is new, and dropout comes before it.
    head_activation : str
        Activation after that dense layer, ``"tanh"`` or ``"gelu"``.
    positions_after_padding : bool
        Whether the position table starts with the rows of the ids up to the padding token's, so
        that the first token takes the row after them. Padding tokens then have no position.
    shared_layers : bool
        Whether all layers share their parameters.

    Raises
    ------
    OptionError
        If the pair form or the activation is unknown.
    """

    name: str
    pair_form: str
    special_tokens: Tuple[str, str, str]
    has_pooler: bool = False
    head_activation: str = "tanh"
    positions_after_padding: bool = False
    shared_layers: bool = False

    def __post_init__(self) -> None:
        if self.pair_form not in PAIR_FORMS:
            raise OptionError(
                "family pair_form", shorten(self.pair_form), "one of " + ", ".join(PAIR_FORMS)
            )
        if self.head_activation not in ("tanh", "gelu"):
            raise OptionError(
                "family head_activation", shorten(self.head_activation), "tanh or gelu"
            )


_FAMILIES = (
    Family("bert", "bert", ("[CLS]", "[SEP]", "[PAD]"), has_pooler=True),
    Family("roberta", "roberta", ("<s>", "</s>", "<pad>"), positions_after_padding=True),
    Family("electra", "bert", ("[CLS]", "[SEP]", "[PAD]"), head_activation="gelu"),
    Family("albert", "bert", ("[CLS]", "[SEP]", "<pad>"), has_pooler=True, shared_layers=True),
)

#: Families of encoders by name. A new family is a record here and one in
#: `wqa.pretrained.names.HUGGINGFACE`.
FAMILIES: Dict[str, Family] = {family.name: family for family in _FAMILIES}


@dataclasses.dataclass(frozen=True)
class BackboneConfig:
    """Sizes of a transformer encoder.

    Parameters
    ----------
    layout : str
        Name of the family, a key of `FAMILIES`.
    vocab_size : int
        Rows of the word table.
    units, hidden_size : int
        Width of the hidden states and of the feed-forward layers.
    num_layers, num_heads : int
        Number of layers, and of attention heads in a layer. The heads divide ``units``.
    max_positions : int
        Greatest length of an input, in tokens.
    token_types : int
        Rows of the token-type table.
    layer_norm_eps : float
        Epsilon of the layer normalizations.
    activation : str
        ``"gelu"``, ``"gelu_tanh"`` (its approximation by tanh) or ``"relu"``, in the feed-forward
        layers.
    dropout, attention_dropout, head_dropout : float
        Dropout rate of the hidden states, of the attention weights and in the heads.
    embedding_size : int
        Width of the embedding tables where a projection to ``units`` follows them. 0: the tables
        are ``units`` wide and there is no projection.
    first_position : int
        Row of the position table that the first token takes.
    shared_layers : bool
        Whether all layers share their parameters.

    Raises
    ------
    OptionError
        If a value is outside its range.
    """

    layout: str = "bert"
    vocab_size: int = 30522
    units: int = 768
    hidden_size: int = 3072
    num_layers: int = 12
    num_heads: int = 12
    max_positions: int = 512
    token_types: int = 2
    layer_norm_eps: float = 1e-12
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    head_dropout: float = 0.1
    embedding_size: int = 0
    first_position: int = 0
    shared_layers: bool = False

    def __post_init__(self) -> None:
        if self.layout not in FAMILIES:
            raise OptionError(
                "backbone layout", shorten(self.layout), "one of " + ", ".join(FAMILIES)
            )
        if self.activation not in ("gelu", "gelu_tanh", "relu"):
            raise OptionError(
                "backbone activation", shorten(self.activation), "gelu, gelu_tanh or relu"
            )
        sizes = ("vocab_size", "units", "hidden_size", "num_layers", "num_heads")
        for name in (*sizes, "max_positions", "token_types"):
            if getattr(self, name) < 1:
                raise OptionError(f"backbone {name}", getattr(self, name), "a whole number above 0")
        for name in ("embedding_size", "first_position"):
            if getattr(self, name) < 0:
                raise OptionError(f"backbone {name}", getattr(self, name), "a whole number from 0")
        if self.units % self.num_heads:
            raise OptionError(
                "backbone units", self.units, f"a multiple of the {self.num_heads} attention heads"
            )

    @property
    def attention_scale(self) -> float:
        """By which queries, or attention scores, are multiplied: 1 / sqrt of a head's width."""
        return 1 / math.sqrt(self.units // self.num_heads)

    @property
    def layer_work(self) -> int:
        """Multiply-adds of one layer's products with weights, for one token."""
        return self.units * (4 * self.units + 2 * self.hidden_size)

    @property
    def family(self) -> Family:
        """The family's record in `FAMILIES`."""
        return FAMILIES[self.layout]

    @property
    def pair_form(self) -> str:
        """Form of the family's pair input, a key of `PAIR_FORMS`."""
        return self.family.pair_form


_ROBERTA = BackboneConfig(
    layout="roberta", vocab_size=50265, token_types=1, layer_norm_eps=1e-5, first_position=2
)
_ELECTRA = BackboneConfig(layout="electra")
_ALBERT = BackboneConfig(
    layout="albert",
    vocab_size=30000,
    embedding_size=128,
    shared_layers=True,
    activation="gelu_tanh",
    dropout=0.0,
    attention_dropout=0.0,
)
_LARGE = {"units": 1024, "hidden_size": 4096, "num_layers": 24, "num_heads": 16}

#: Backbones by family and size: layers, units and attention heads, as GluonNLP names them. ALBERT's
#: are those of its version 2.
BACKBONES: Dict[str, BackboneConfig] = {
    "bert_6_384_12": BackboneConfig(units=384, hidden_size=1536, num_layers=6),  # MiniLM
    "bert_12_768_12": BackboneConfig(),
    "bert_24_1024_16": BackboneConfig(**_LARGE),  # type: ignore[arg-type]
    "roberta_12_768_12": _ROBERTA,
    "roberta_24_1024_16": dataclasses.replace(_ROBERTA, **_LARGE),  # type: ignore[arg-type]
    "electra_12_256_4": dataclasses.replace(
        _ELECTRA, units=256, hidden_size=1024, num_heads=4, embedding_size=128
    ),
    "electra_12_768_12": _ELECTRA,
    "electra_24_1024_16": dataclasses.replace(_ELECTRA, **_LARGE),  # type: ignore[arg-type]
    "albert_12_768_12": _ALBERT,
    "albert_24_1024_16": dataclasses.replace(_ALBERT, **_LARGE),  # type: ignore[arg-type]
    "albert_24_2048_16": dataclasses.replace(
        _ALBERT, units=2048, hidden_size=8192, num_layers=24, num_heads=16
    ),
    "albert_12_4096_64": dataclasses.replace(_ALBERT, units=4096, hidden_size=16384, num_heads=64),
}


#: Who computes: MXNet's operators, oneDNN's, or oneDNN where it can.
ENGINES = ("auto", "mxnet", "onednn")
#: What products compute in.
PRECISIONS = ("float32", "bfloat16", "int8")


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise OptionError(name, shorten(value), "one of " + ", ".join(known))


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """How a network is computed.

    Parameters
    ----------
    engine : {"auto", "mxnet", "onednn"}
        ``auto`` takes oneDNN on a single CPU where its library is installed and the network is made
        of transformer layers, and MXNet otherwise.
    precision : {"float32", "bfloat16", "int8"}
        What products compute in. Other than float32 is oneDNN's.
    threads : int, optional
        Threads on a CPU; all that the process may use by default.
    ctx : str
        Device, as `wqa.models.parse_devices` takes it.
    batch_tokens : int, optional
        Tokens of a micro-batch; the engine's own default where it is left out.
    hidden_bytes : int
        Bytes of encodings that wait in memory between two exits; more go to a temporary file.

    Raises
    ------
    OptionError
        If a value is out of range.
    """

    engine: str = "auto"
    precision: str = "float32"
    threads: Optional[int] = None
    ctx: str = "cpu"
    batch_tokens: Optional[int] = None
    hidden_bytes: int = 1 << 29

    def __post_init__(self) -> None:
        _check_choice("engine", self.engine, ENGINES)
        _check_choice("precision", self.precision, PRECISIONS)
        most = len(os.sched_getaffinity(0))
        if self.threads is not None and not 1 <= self.threads <= most:
            limit = f"1 to {most}, the processors that this process may use"
            raise OptionError("threads", self.threads, limit)
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise OptionError("batch_tokens", self.batch_tokens, "a whole number above 0")


def _option(default: Any, text: str) -> Any:
    """A field with the text of its option on the command line."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training loop, by default those of Soldaini and Moschitti 2020, section 5.2.

    Parameters
    ----------
    epochs : int
        Passes over the training data.
    max_updates : int
        Updates after which training ends; 0 for no limit.
    seed : int
        Seed of Python, NumPy and MXNet.
    learning_rate : float
        Peak of the triangular schedule.
    warmup_updates : int
        Updates up to the peak.
    tokens_per_batch : int
        Padded tokens of a mini-batch on each device.
    accumulate : int
        Mini-batches of an update. Its gradient is that of the mean loss over all their rows.
    weight_decay : float
        Share of each weight that an update takes away, times the learning rate (Loshchilov and
        Hutter 2019). Biases and normalisations do not decay.
    clip_norm : float
        Greatest norm of the gradient; 0 for no limit.
    checkpoint_every : int
        Updates between two checkpoints.
    eval_every : int
        Updates between two evaluations on the development questions; 0 for once an epoch.
    patience : int
        Evaluations without a better figure before training stops early; 0 for never.
    log_every : int
        Updates between two lines of ``metrics.jsonl``.
    ctx : str
        Devices, as `wqa.models.parse_devices` takes them.
    engine : {"auto", "mxnet", "onednn"}
        ``auto`` has oneDNN compute transformer layers on a single CPU where it is installed.
    precision : {"float32", "bfloat16"}
        What products compute in; bfloat16 is oneDNN's.
    shuffle : {"pair", "question"}
        Shuffle all pairs, or blocks of whole questions, which reads a store in long runs.
    train_filter, dev_filter : str
        Which questions count, a key of `wqa.data.filters.FILTERS`.

    Raises
    ------
    OptionError
        If a value is out of range.
    """

    epochs: int = _option(3, "passes over the training data")
    max_updates: int = _option(0, "updates after which training ends, 0 for no limit")
    seed: int = _option(0, "seed of Python, NumPy and MXNet")
    learning_rate: float = _option(1e-6, "peak of the triangular schedule")
    warmup_updates: int = _option(4000, "updates up to the peak")
    tokens_per_batch: int = _option(2000, "padded tokens of a mini-batch on each device")
    accumulate: int = _option(1, "mini-batches of an update")
    weight_decay: float = _option(0.0, "decoupled weight decay, 0 for none")
    clip_norm: float = _option(0.0, "greatest norm of the gradient, 0 for no limit")
    checkpoint_every: int = _option(500, "updates between two checkpoints")
    eval_every: int = _option(0, "updates between two evaluations, 0 for once an epoch")
    patience: int = _option(0, "evaluations without a better figure before stopping, 0 for never")
    log_every: int = _option(50, "updates between two lines of metrics.jsonl")
    ctx: str = _option("cpu", "devices: cpu, gpu:0, or a range such as gpu:0-7")
    engine: str = _option("auto", "auto takes oneDNN on a single CPU where it is installed")
    precision: str = _option("float32", "what products compute in: float32, or bfloat16 by oneDNN")
    shuffle: str = _option("pair", "shuffle all pairs, or blocks of questions")
    train_filter: str = _option("all", "training questions: all, no-all-negative or clean")
    dev_filter: str = _option("no-all-negative", "development questions, likewise")

    #: Values of the fields that have a choice.
    CHOICES = {
        "engine": ENGINES,
        "precision": ("float32", "bfloat16"),
        "shuffle": ("pair", "question"),
    }

    def __post_init__(self) -> None:
        least = {"epochs": 1, "tokens_per_batch": 1, "checkpoint_every": 1, "log_every": 1}
        least.update({"accumulate": 1, "max_updates": 0, "seed": 0, "warmup_updates": 0})
        least.update({"eval_every": 0, "patience": 0})
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise OptionError(name, getattr(self, name), f"a whole number from {smallest}")
        for name, known in self.CHOICES.items():
            _check_choice(name, getattr(self, name), known)
        if not 0 < self.learning_rate < float("inf"):
            raise OptionError("learning_rate", self.learning_rate, "a number above 0")
        for name in ("clip_norm", "weight_decay"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise OptionError(name, getattr(self, name), "0 (off) or a number above 0")

    @property
    def engine_config(self) -> EngineConfig:
        """Engine, precision and devices together."""
        return EngineConfig(self.engine, self.precision, ctx=self.ctx)


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """``config.json`` of a run directory: all that rebuilds the network, and where it comes from.

    Parameters
    ----------
    system : str
        Name of the system, a key of `wqa.models.NETWORKS`; ``"encoder"`` for a converted encoder
        without a ranker.
    backbone : BackboneConfig or None
        Sizes of the encoder; None for a system without one.
    network : dict
        The system's own configuration, as JSON holds it.
    max_length : int
        Greatest length of an input in tokens.
    training : TrainingConfig, optional
        Settings of the training; None where nothing was trained.
    encoder : str
        Encoder or run that the training started from.
    train_sha256 : str
        SHA-256 of the training questions.
    versions : dict of str to str
        Versions of the libraries.
    command : str
        Command line that wrote the run.
    """

    system: str
    backbone: Optional[BackboneConfig] = None
    network: Dict[str, Any] = dataclasses.field(default_factory=dict)
    max_length: int = 128
    training: Optional[TrainingConfig] = None
    encoder: str = ""
    train_sha256: str = ""
    versions: Dict[str, str] = dataclasses.field(default_factory=dict)
    command: str = ""


def to_json(config: Any) -> str:
    """Render a configuration as indented JSON.

    Parameters
    ----------
    config : dataclass instance

    Returns
    -------
    str
        JSON text that ends in a newline.
    """
    return json.dumps(dataclasses.asdict(config), indent=2, ensure_ascii=False) + "\n"


def from_dict(kind: Type[C], values: Dict[str, Any], where: str) -> C:
    """Build a configuration, refusing fields that are unknown, missing or of another type.

    Parameters
    ----------
    kind : type
        The dataclass.
    values : dict
        Its fields.
    where : str
        The file, for messages.

    Returns
    -------
    kind

    Raises
    ------
    RunDirectoryError
        For any field that does not fit.
    """
    if not isinstance(values, dict):
        raise RunDirectoryError(where, shorten(values), "a JSON object")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    built = {}
    for name, value in values.items():
        if name not in fields:
            raise RunDirectoryError(
                where, f"unknown field {shorten(name)}", "one of " + ", ".join(sorted(fields))
            )
        built[name] = _field(hints[name], value, f"{where}, field {name}")
    try:
        return kind(**built)
    except TypeError as error:
        raise RunDirectoryError(
            where, f"a field is missing ({error})", mend="restore the file from its run"
        ) from None


def _field(hint: Any, value: Any, where: str) -> Any:
    """A field's value in its type, or an error that names where it stands."""
    if type(None) in typing.get_args(hint):
        if value is None:
            return None
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    if dataclasses.is_dataclass(hint):
        return from_dict(hint, value, where)  # type: ignore[arg-type]
    origin = typing.get_origin(hint)
    if origin is tuple:
        item = typing.get_args(hint)[0]
        if not isinstance(value, (list, tuple)):
            raise RunDirectoryError(where, shorten(value), "a list")
        return tuple(_field(item, entry, where) for entry in value)
    kind = origin or hint
    accepted: Tuple[type, ...] = (int, float) if kind is float else (kind,)
    if not isinstance(value, accepted) or isinstance(value, bool) != (kind is bool):
        raise RunDirectoryError(where, shorten(value), f"a value of type {kind.__name__}")
    return value


def read_run_config(path: Union[str, Any]) -> RunConfig:
    """Read a run's ``config.json``.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    RunConfig

    Raises
    ------
    RunDirectoryError
        If the file is missing, cut off or does not fit.
    """
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except FileNotFoundError:
        raise RunDirectoryError(
            path, "the file is missing", "a run directory as `wqa train` writes it"
        ) from None
    except (OSError, ValueError) as error:
        raise RunDirectoryError(
            path, f"cannot be read as JSON ({error})", mend="restore the file from its run"
        ) from None
    if isinstance(values, dict) and "hidden_size" in values:
        raise RunDirectoryError(
            path,
            "the configuration of a Hugging Face directory",
            "that of a run",
            "make one of it: wqa convert SRC OUT",
        )
    if isinstance(values, dict) and "exits" in values:
        # Written by version 0.1.0 before systems had configurations of their own.
        values = {**values, "network": {"exits": values["exits"]}}
        del values["exits"]
    return from_dict(RunConfig, values, str(path))
