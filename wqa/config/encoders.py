"""Families and sizes of transformer encoders."""

from __future__ import annotations

import dataclasses
import math
from typing import Dict, Optional, Sequence, Tuple

from wqa.errors import OptionError, check_choice, check_range


@dataclasses.dataclass(frozen=True)
class PairForm:
    """Form in which a question and a candidate become one input sequence.

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

#: Similarities of two texts that are encoded apart: of their tokens, and of their means.
SIMILARITIES = ("maxsim", "cosine")


@dataclasses.dataclass(frozen=True)
class Family:
    """Properties that all encoders of a family share.

    Parameters
    ----------
    name : str
        Key in `FAMILIES`, and ``model_type`` in Hugging Face's ``config.json``.
    pair_form : str
        Form of the pair input, a key of `PAIR_FORMS`.
    special_tokens : tuple of str
        Start, separator and padding token of the tokenizers. They identify the pair form of a
        tokenizer, so families with the same tokens have the same pair form.
    has_pooler : bool
        Whether pretraining trains a dense layer on the first position. The first-position head
        then starts from it. Otherwise the head's dense layer is new, and dropout comes before it.
    head_activation : str
        Activation after that dense layer, ``"tanh"``, ``"gelu"`` or ``"relu"``.
    positions_after_padding : bool
        Whether the first rows of the position table belong to the ids up to the padding token's.
        The first token then takes the row after them, and padding tokens have no position.
    shared_layers : bool
        Whether all layers share their parameters.
    mask_token : str
        Token that replaces those that masked language modelling predicts.
    has_token_types : bool
        Whether the encoder tells token types apart. Otherwise all tokens have type 0, whatever the
        pair form.
    relative_buckets : int
        Buckets of the relative positions, by which attention scores are biased; 0 for none.
    """

    name: str
    pair_form: str
    special_tokens: Tuple[str, str, str]
    has_pooler: bool = False
    head_activation: str = "tanh"
    positions_after_padding: bool = False
    shared_layers: bool = False
    mask_token: str = "[MASK]"
    has_token_types: bool = True
    relative_buckets: int = 0


_BERT_TOKENS = ("[CLS]", "[SEP]", "[PAD]")
_ROBERTA_FAMILY = Family(
    "roberta",
    "roberta",
    ("<s>", "</s>", "<pad>"),
    positions_after_padding=True,
    mask_token="<mask>",
)

_FAMILIES = (
    Family("bert", "bert", _BERT_TOKENS, has_pooler=True),
    _ROBERTA_FAMILY,
    dataclasses.replace(_ROBERTA_FAMILY, name="xlm-roberta"),
    # Song et al. 2020 (MPNet); 32 buckets are fixed in the code of its authors and its ports.
    dataclasses.replace(_ROBERTA_FAMILY, name="mpnet", has_token_types=False, relative_buckets=32),
    Family("electra", "bert", _BERT_TOKENS, head_activation="gelu"),
    Family("albert", "bert", ("[CLS]", "[SEP]", "<pad>"), has_pooler=True, shared_layers=True),
    Family("distilbert", "bert", _BERT_TOKENS, head_activation="relu", has_token_types=False),
)

#: Families of encoders by name. A new family is a record here and one in
#: `wqa.pretrained.names.HUGGINGFACE`.
FAMILIES: Dict[str, Family] = {family.name: family for family in _FAMILIES}


#: Greatest size of an encoder's array along one axis: that of MXNet's 32-bit indices.
MOST_SIZE = (1 << 31) - 1
#: Greatest number of layers, ten times that of the largest published encoders.
MOST_LAYERS = 1000
_SIZES = ("vocab_size", "units", "hidden_size", "num_heads", "max_positions", "token_types")
#: Least and greatest value of each number; an epsilon below the least is 0 in float32.
_BOUNDS: Dict[str, Tuple[float, float]] = {
    **dict.fromkeys(_SIZES, (1, MOST_SIZE)),
    **dict.fromkeys(("embedding_size", "first_position"), (0, MOST_SIZE)),
    **dict.fromkeys(("dropout", "attention_dropout", "head_dropout"), (0.0, 0.9999)),
    "num_layers": (1, MOST_LAYERS),
    "layer_norm_eps": (1e-37, 1.0),
}


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
        Width of the embedding tables if a projection to ``units`` follows them. 0 for tables of
        width ``units`` without a projection.
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
        check_choice("backbone layout", self.layout, FAMILIES)
        check_choice("backbone activation", self.activation, ("gelu", "gelu_tanh", "relu"))
        for name, (low, high) in _BOUNDS.items():
            check_range(f"backbone {name}", getattr(self, name), low, high)
        if self.units % self.num_heads:
            expected = f"a multiple of the {self.num_heads} attention heads"
            raise OptionError("backbone units", self.units, expected)

    @property
    def attention_scale(self) -> float:
        """Factor of the attention scores: 1 / sqrt of the width of an attention head."""
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
_ALBERT = BackboneConfig(
    layout="albert",
    vocab_size=30000,
    embedding_size=128,
    shared_layers=True,
    activation="gelu_tanh",
    dropout=0.0,
    attention_dropout=0.0,
)
_BASE, _LARGE = (12, 768, 12), (24, 1024, 16)

#: Published encoders by family, with their layers, units and attention heads. That of BERT with 384
#: units is MiniLM's; ALBERT's are those of its version 2.
_PUBLISHED = (
    (BackboneConfig(), ((6, 384, 12), _BASE, _LARGE)),
    (_ROBERTA, (_BASE, _LARGE)),
    (dataclasses.replace(_ROBERTA, layout="xlm-roberta", vocab_size=250002), (_BASE, _LARGE)),
    (dataclasses.replace(_ROBERTA, layout="mpnet", vocab_size=30527), (_BASE,)),
    (BackboneConfig(layout="distilbert", token_types=1), ((6, 768, 12),)),
    (BackboneConfig(layout="electra", embedding_size=128), ((12, 256, 4),)),
    (BackboneConfig(layout="electra"), (_BASE, _LARGE)),
    (_ALBERT, (_BASE, _LARGE, (24, 2048, 16), (12, 4096, 64))),
)
#: Backbones by family and size: layers, units and attention heads, as GluonNLP names them.
BACKBONES: Dict[str, BackboneConfig] = {
    f"{family.layout}_{layers}_{units}_{heads}": dataclasses.replace(
        family, num_layers=layers, units=units, hidden_size=4 * units, num_heads=heads
    )
    for family, sizes in _PUBLISHED
    for layers, units, heads in sizes
}


def check_length(length: int, positions: Optional[int], name: str = "max_length") -> None:
    """Check that an input has no more tokens than a network has positions."""
    if positions is not None and length > positions:
        raise OptionError(name, length, f"at most {positions}, the positions of the encoder")


def check_exits(exits: Sequence[int], num_layers: int) -> Tuple[int, ...]:
    """Check the layers rho(1), ..., rho(N) of a cascade."""
    exits = tuple(exits)
    are_numbers = bool(exits) and not isinstance(exits[0], str)
    if not are_numbers or exits[0] < 1 or any(low >= high for low, high in zip(exits, exits[1:])):
        text = ",".join(map(str, exits[:20])) or "nothing"
        raise OptionError("exits", text, "increasing layer numbers from 1")
    if exits[-1] > num_layers:
        expected = f"at most {num_layers}, the layers of the encoder"
        raise OptionError("exits", f"layer {exits[-1]}", expected)
    return exits
