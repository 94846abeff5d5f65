"""The joint model that MSPP pre-trains (Di Liello et al. 2022, sections 3.2 and 3.3).

One encoder reads a question s_0 and k candidates s_1, ..., s_k at once. Token types 0..k tell the
segments apart. E_i is the encoding of the special token before segment i, and four heads read them:
IE_1 (E_0) and AE_1 (the average of E_0, ..., E_k) give one label to the whole input, IE_k (E_i) and
AE_k (E_0 and E_i) one score to each candidate.

The paper calls its heads linear layers. In the authors' code they are that of RoBERTa's classifier:
dropout, a dense layer with tanh, dropout, an output layer. So are these.

Shapes: B inputs, L positions, n = k + 1 marks, C units.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional

from mxnet.gluon import HybridBlock, nn

from wqa.config import BackboneConfig
from wqa.config.encoders import MOST_LAYERS, check_length
from wqa.errors import OptionError, check_choice, shorten
from wqa.models.backbone import Backbone
from wqa.models.heads import Head, Stage, score
from wqa.models.network import Network, NetworkConfig
from wqa.models.runtime import Tensor
from wqa.text import Tokenizer
from wqa.text.joint import MISSING, ORDERS, POSITIONS, JointEncoder

#: Heads, by the paper's names.
HEADS = ("IE_k", "AE_k", "IE_1", "AE_1")
#: Heads that give one label to the whole input.
SINGLE_LABEL = ("IE_1", "AE_1")
#: How AE_1 aggregates the embeddings of the segments that are there.
AGGREGATIONS = ("mean", "sum")

#: Greatest length of a segment, above the positions of all encoders.
_MOST_LENGTH = 1 << 16


def _option(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class MSPPConfig(NetworkConfig):
    """Configuration of the joint model.

    Parameters
    ----------
    head : {"IE_k", "AE_k", "IE_1", "AE_1"}
        Head (section 3.3). IE_k and AE_k rank, IE_1 and AE_1 classify.
    k : int
        Number of candidates of an input.
    segment_length : int
        L, the most tokens of a question or a candidate, special tokens included.
    positions : {"tokens", "slots"}
        How tokens are numbered, as `wqa.text.joint.POSITIONS` says: as the authors' code, or as the
        paper.
    missing : {"absent", "visible"}
        What stands for a missing candidate, as `wqa.text.joint.MISSING` says.
    order : {"shuffled", "original"}
        Order in which a ranker puts the candidates of a question into groups of k: that of a
        shuffle with seed 0, as the authors' code, or the order in which they were retrieved.
    labels : int
        Number of labels of IE_1 and AE_1.
    aggregation : {"mean", "sum"}
        How AE_1 aggregates: the average of section 3.3, or the sum of the authors' code.
    type_initialisation : float
        Standard deviation of a new row 0 of the token-type table, that of the question; 0 to keep
        the encoder's. The authors' code starts it from 1 where it loads plain RoBERTa, fifty times
        the deviation of the other new rows.

    Raises
    ------
    OptionError
        If a name is unknown, or a number is out of range.
    """

    head: str = _option("IE_k", "IE_k or AE_k to rank, IE_1 or AE_1 for one label an input")
    k: int = _option(5, "candidates of an input")
    segment_length: int = _option(64, "most tokens of a question or a candidate")
    positions: str = _option(
        "tokens", "number the tokens one after another, or in slots of one length a segment"
    )
    missing: str = _option(
        "absent", "a missing candidate: absent, or visible as a segment without a text"
    )
    order: str = _option("shuffled", "order of candidates in ranking: shuffled, or original")
    labels: int = _option(3, "labels of IE_1 and AE_1")
    aggregation: str = _option("mean", "how AE_1 aggregates: the mean, or the authors' sum")
    type_initialisation: float = _option(
        0.0, "standard deviation of a new token-type row of the question, 0 to keep the encoder's"
    )

    #: Values that some fields are limited to.
    CHOICES = {
        "head": HEADS,
        "positions": POSITIONS,
        "missing": MISSING,
        "order": ORDERS,
        "aggregation": AGGREGATIONS,
    }

    def __post_init__(self) -> None:
        for name, known in self.CHOICES.items():
            check_choice(name, getattr(self, name), known)
        limits = {
            "k": (1, MOST_LAYERS),
            "segment_length": (3, _MOST_LENGTH),
            "labels": (2, MOST_LAYERS),
        }
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if not least <= value <= most:
                expected = f"a whole number from {least} to {most}"
                raise OptionError(name, shorten(value), expected)
        if not 0 <= self.type_initialisation < float("inf"):
            raise OptionError("type_initialisation", self.type_initialisation, "a number from 0")

    @property
    def computes(self) -> str:
        return "labels" if self.head in SINGLE_LABEL else "scores"

    def training_defaults(self) -> Dict[str, Any]:
        """Settings of appendix B.1 for WikiQA and TREC-QA, and the patience of the code."""
        return {"epochs": 40, "learning_rate": 2e-6, "warmup_updates": 1000, "patience": 8}


class SegmentHead(Head):
    """Base class of the heads on the embeddings of segments.

    Inputs are E_0, ..., E_k, (B, n, C), and which segments are there, (B, n).

    Parameters
    ----------
    config : MSPPConfig
        Configuration of the model.
    width : int
        Width of what the head classifies.
    outputs : int
        Number of labels.
    dropout : float
        Dropout rate before either layer.
    """

    reads = "marks"

    def __init__(
        self, config: MSPPConfig, width: int, outputs: int, dropout: float, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        self.marks = config.k + 1
        with self.name_scope():
            # New for all families: no encoder is trained to sum up a segment among several here.
            self.dense = nn.Dense(width, activation="tanh", flatten=False, in_units=width)
            self.dropout = nn.Dropout(dropout)
            self.out = nn.Dense(outputs, flatten=False, in_units=width)

    def classify(self, rows: Tensor) -> Tensor:
        """Logits of rows, (..., width): (..., outputs)."""
        return self.out(self.dropout(self.dense(self.dropout(rows))))


class CandidateHead(SegmentHead):
    """IE_k or AE_k: the log-odds of each candidate, (B, k), 0 where it is missing.

    The outputs are two classes. A score is the second less the first.

    Parameters
    ----------
    config : MSPPConfig
        Configuration of the model.
    units : int
        C, the encoder's width.
    dropout : float
        Dropout rate.
    """

    def __init__(self, config: MSPPConfig, units: int, dropout: float, **kwargs) -> None:
        self._joins_question = config.head == "AE_k"
        width = 2 * units if self._joins_question else units
        super().__init__(config, width, 2, dropout, **kwargs)

    def hybrid_forward(self, F, segments: Tensor, present: Tensor) -> Tensor:
        rows = F.slice_axis(segments, axis=1, begin=1, end=None)  # (B, k, C)
        if self._joins_question:
            question = F.slice_axis(segments, axis=1, begin=0, end=1)  # (B, 1, C)
            question = F.broadcast_axis(question, axis=1, size=self.marks - 1)
            rows = F.concat(question, rows, dim=2)  # (B, k, 2 C)
        wrong, right = F.split(self.classify(rows), num_outputs=2, axis=2, squeeze_axis=True)
        return (right - wrong) * F.slice_axis(present, axis=1, begin=1, end=None)  # (B, k)


class InputHead(SegmentHead):
    """IE_1 or AE_1: the logits of the labels of the whole input, (B, labels).

    AE_1 averages the segments that are there, as a missing one has no embedding.

    Parameters
    ----------
    config, units, dropout
        As `CandidateHead` takes them.
    """

    def __init__(self, config: MSPPConfig, units: int, dropout: float, **kwargs) -> None:
        super().__init__(config, units, config.labels, dropout, **kwargs)
        self._aggregates = config.head == "AE_1"
        self._averages = config.aggregation == "mean"

    def hybrid_forward(self, F, segments: Tensor, present: Tensor) -> Tensor:
        if not self._aggregates:
            first = F.slice_axis(present, axis=1, begin=0, end=1)  # 1: the question is there
            row = F.slice_axis(segments, axis=1, begin=0, end=1)  # (B, 1, C)
            return self.classify(F.broadcast_mul(F.reshape(row, (-3, 0)), first))
        row = F.sum(segments, axis=1)  # (B, C)
        if self._averages:
            row = F.broadcast_div(row, F.sum(present, axis=1, keepdims=True))
        return self.classify(row)


class JointTransformer(Network):
    """An encoder of a question and k candidates with one of the four heads.

    Inputs are ``token_ids`` and ``token_types``, (B, L), int32, ``positions``, (B, L), int32, for
    ``positions="slots"`` alone, ``marks``, (B, k + 1), and ``valid_length``, (B,), float32. The
    output is (B, k) log-odds for IE_k and AE_k, and (B, labels) logits for IE_1 and AE_1.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder, of any family. Its token-type table gets k + 1 rows.
    config : MSPPConfig, optional
        Head, and form of the inputs.

    Raises
    ------
    OptionError
        If there is no encoder, or an input may have more tokens than the encoder has positions.
    """

    Config = MSPPConfig

    def __init__(
        self, backbone: BackboneConfig, config: Optional[MSPPConfig] = None, **kwargs
    ) -> None:
        own = self.Config() if config is None else config
        if backbone is None:
            raise OptionError("backbone", "none", "the sizes of the network's encoder")
        _check_positions(own, backbone.max_positions)
        backbone = dataclasses.replace(backbone, token_types=own.k + 1)
        super().__init__(backbone, own, **kwargs)
        self.exits = (backbone.num_layers,)
        head = InputHead if own.head in SINGLE_LABEL else CandidateHead
        with self.name_scope():
            self.backbone = Backbone(backbone)
            self.head = head(own, backbone.units, backbone.head_dropout)

    def text_encoder(
        self, tokenizer: Tokenizer, max_length: int, long_questions: str = "error"
    ) -> JointEncoder:
        """Encoder of joint inputs; ``max_length`` is that of a segment, if it is less than L."""
        check_length(max_length, self.max_positions)
        own = self.own_config
        return JointEncoder(
            tokenizer,
            own.segment_length,
            own.k,
            own.positions,
            own.missing,
            max_length,
            long_questions,
        )

    @property
    def encoders(self) -> List[Backbone]:
        return [self.backbone]

    @property
    def heads(self) -> List[Head]:
        return [self.head]

    def stages(self) -> List[HybridBlock]:
        return list(self.encoder_stages())

    def encoder_stages(self) -> List[Stage]:
        return [Stage(self.backbone.embeddings, self.backbone.layers, self.head, last=True)]

    def stage_work(self) -> List[float]:
        return [float(self.num_layers * self.config.layer_work)]

    def hybrid_forward(self, F, token_ids: Tensor, token_types: Tensor, *inputs: Tensor) -> Tensor:
        *positions, marks, valid_length = inputs
        hidden = self.backbone.embeddings(token_ids, token_types, *positions)
        hidden = self.backbone.layers(hidden, valid_length)  # (B, L, C)
        return score(F, self.head, hidden, valid_length, marks)


def _check_positions(config: MSPPConfig, positions: int) -> None:
    length, segments = config.segment_length, config.k + 1
    if length * segments > positions:
        raise OptionError(
            "segment_length and k",
            f"{length} x ({config.k} + 1) = {length * segments} tokens",
            f"at most {positions}, the positions of the encoder",
            f"take segment_length={positions // segments} or less, or fewer candidates",
        )


class SourceEncoder(Network):
    """The encoder that a training starts from, with the token types that it has there.

    A start of a training fills it; the task then copies its parameters into the joint model.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    config : NetworkConfig, optional
        Nothing.
    """

    def __init__(
        self, backbone: BackboneConfig, config: Optional[NetworkConfig] = None, **kwargs
    ) -> None:
        super().__init__(backbone, config, **kwargs)
        with self.name_scope():
            self.backbone = Backbone(backbone)

    @property
    def encoders(self) -> List[Backbone]:
        return [self.backbone]
