"""The joint model that MSPP pre-trains (Di Liello et al. 2022, sections 3.2 and 3.3).

One encoder reads a question s_0 and k candidates s_1, ..., s_k at once. Token types 0..k tell the
segments apart. E_i is the encoding of the special token before segment i, and four heads read them:
IE_1 (E_0) and AE_1 (the average of E_0, ..., E_k) give one label to the whole input, IE_k (E_i) and
AE_k (E_0 and E_i) one score to each candidate.

Pre-training (sections 3.4 and 4.1) trains the joint model, with a head for each candidate, and a
predictor of masked tokens beside it. Both read one pass of the encoder.

Fact verification (section 3.1) puts a claim in place of the question and its evidence in place of
the candidates. IE_1 or AE_1 tells whether the evidence supports the claim or refutes it.

Shapes: B inputs, L positions, k candidates, M masked positions of an input, C units, V tokens.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional, Tuple

import mxnet as mx
from mxnet.gluon import HybridBlock

from wqa.config import BackboneConfig
from wqa.config.encoders import MOST_LAYERS, check_length
from wqa.errors import OptionError, check_choice, shorten
from wqa.models.backbone import Backbone
from wqa.models.heads import Head, Stage, score
from wqa.models.joint_heads import CandidateHead, InputHead
from wqa.models.network import Network, NetworkConfig
from wqa.models.predictor import TokenPredictor
from wqa.models.runtime import Tensor
from wqa.text import Tokenizer
from wqa.text.joint import MISSING, ORDERS, POSITIONS, JointEncoder

#: Heads, by the paper's names.
HEADS = ("IE_k", "AE_k", "IE_1", "AE_1")
#: Heads that give one label to the whole input.
SINGLE_LABEL = ("IE_1", "AE_1")
#: How AE_1 aggregates the embeddings of the segments that are there.
AGGREGATIONS = ("mean", "sum")

#: Claims of an update (appendix B.1).
CLAIMS_AN_UPDATE = 64
#: Groups of k candidates of an update (appendix B.1).
GROUPS_AN_UPDATE = 32
#: Greatest length of a segment, above the positions of all encoders.
_MOST_LENGTH = 1 << 16


def _option(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


def _without_option(default: Any) -> Any:
    return dataclasses.field(default=default, metadata={"option": False})


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
        return {
            "epochs": 40,
            "learning_rate": 2e-6,
            "warmup_updates": 1000,
            "patience": 8,
            "tokens_per_update": GROUPS_AN_UPDATE * self.segment_length * (self.k + 1),
        }


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
        """Encoder of joint inputs, whose segments have L tokens; ``max_length`` is at least L."""
        check_length(max_length, self.max_positions)
        own = self.own_config
        if max_length < own.segment_length:
            raise OptionError(
                "max_length",
                f"{max_length}, and segments have segment_length={own.segment_length}",
                f"at least {own.segment_length}",
                f"give max_length={own.segment_length}, or a smaller segment_length",
            )
        return JointEncoder(
            tokenizer,
            own.segment_length,
            own.k,
            own.positions,
            own.missing,
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


#: Least values of numbers of the pre-training.
_LEAST = {
    "hard": 0,
    "easy": 0,
    "other_paragraphs": 1,
    "premise_sentences": 1,
    "candidate_sentences": 1,
    "least_sentence": 0,
    "least_paragraph": 0,
    "least_document": 0,
    "buffer_documents": 2,
}


@dataclasses.dataclass(frozen=True)
class ParagraphConfig(MSPPConfig):
    """Configuration of the pre-training: that of the joint model, and of its examples.

    Parameters
    ----------
    hard, easy : int
        Numbers of hard and of easy negatives, k_2 and k_3; with one positive they are k.
    other_paragraphs : int
        Greatest number of other paragraphs of a document that hard negatives come from.
    premise_sentences, candidate_sentences : int
        Greatest number of sentences of a premise and of a candidate.
    least_sentence, least_paragraph, least_document : int
        Characters of a sentence, a paragraph and a document below which it is left out.
    buffer_documents : int
        Documents in memory, among which an epoch shuffles.
    mask_rate : float
        Probability that a token is predicted.

    Raises
    ------
    OptionError
        If the candidates are not k, a number is too small, or the head gives one label to the whole
        input.
    """

    hard: int = _option(2, "hard negatives of an example, of the premise's document")
    easy: int = _option(2, "easy negatives of an example, of other documents")
    other_paragraphs: int = _option(4, "most other paragraphs that hard negatives come from")
    premise_sentences: int = _option(1, "most sentences of a premise")
    candidate_sentences: int = _option(2, "most sentences of a candidate")
    least_sentence: int = _option(20, "characters below which a sentence is left out")
    least_paragraph: int = _option(60, "characters below which a paragraph is left out")
    least_document: int = _option(200, "characters below which a document is left out")
    buffer_documents: int = _option(10_000, "documents in memory, among which an epoch shuffles")
    mask_rate: float = _option(0.15, "probability that a token is masked and predicted")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value < least:
                raise OptionError(name, value, f"{least} or more")
        if not 0 < self.mask_rate <= 1:
            raise OptionError("mask_rate", self.mask_rate, "a number above 0 and at most 1")
        if self.head in SINGLE_LABEL:
            expected = "IE_k or AE_k, which give a score to each candidate"
            raise OptionError("head", self.head, expected)
        candidates = 1 + self.hard + self.easy
        if candidates != self.k:
            raise OptionError(
                "k",
                f"{self.k}, and hard={self.hard} with easy={self.easy} is {candidates}",
                "one positive and the negatives",
                f"give k={candidates}, or other numbers of negatives",
            )

    @property
    def computes(self) -> str:
        return "paragraphs"

    def training_defaults(self) -> Dict[str, Any]:
        """Settings of appendix B.1, but for its 100,000 updates of 4,096 examples.

        The warm-up is a tenth of the updates, as there, by the default of all trainings.
        """
        return {"learning_rate": 5e-5, "weight_decay": 0.01, "clip_norm": 1.0}


class ParagraphTransformer(JointTransformer):
    """A joint model that is pre-trained.

    Inputs are those of the joint model and, behind them, ``masked``, (B, M), the positions to be
    predicted. The outputs are (B, k) log-odds of sharing the paragraph of the premise, and the
    encodings of these positions, (B, M, C), for `predict_tokens`.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    config : ParagraphConfig, optional
        Configuration of the joint model and of the examples.
    """

    Config = ParagraphConfig

    def __init__(
        self, backbone: BackboneConfig, config: Optional[ParagraphConfig] = None, **kwargs
    ) -> None:
        super().__init__(backbone, config, **kwargs)
        with self.name_scope():
            self.predictor = TokenPredictor(self.config)

    def hybrid_forward(
        self, F, token_ids: Tensor, token_types: Tensor, *inputs: Tensor
    ) -> Tuple[Tensor, Tensor]:
        *positions, marks, valid_length, masked = inputs
        hidden = self.backbone.embeddings(token_ids, token_types, *positions)
        hidden = self.backbone.layers(hidden, valid_length)  # (B, L, C)
        scores = score(F, self.head, hidden, valid_length, marks)
        rows = F.contrib.arange_like(masked, axis=0)  # (B,)
        rows = F.broadcast_like(F.expand_dims(rows, axis=1), masked)  # (B, M)
        return scores, F.gather_nd(hidden, F.stack(rows, masked, axis=0))

    def predict_tokens(self, rows: Any, masked_ids: Any) -> Tuple[Any, Any]:
        """Predict the tokens at masked positions.

        Parameters
        ----------
        rows : mxnet.nd.NDArray
            (B, M, C) encodings.
        masked_ids : mxnet.nd.NDArray
            (B, M) float32 ids of the tokens that stood there.

        Returns
        -------
        likelihoods : mxnet.nd.NDArray
            (B, M) logarithms of the probabilities of these tokens.
        predicted : mxnet.nd.NDArray
            (B, M) float32, 1 where such a token is the most probable one.
        """
        # The table is an input, as a block that shared the parameter would be saved with a copy.
        table = self.backbone.embeddings.word.weight.data(rows.context)
        logits = self.predictor(rows.reshape((-3, 0)), table)  # (B M, V)
        ids = masked_ids.reshape((-1,))
        likelihoods = mx.nd.pick(mx.nd.log_softmax(logits, axis=-1), ids)
        predicted = logits.argmax(axis=-1) == ids
        return likelihoods.reshape(masked_ids.shape), predicted.reshape(masked_ids.shape)


@dataclasses.dataclass(frozen=True)
class ClaimConfig(MSPPConfig):
    """Configuration of the joint model of claims.

    Parameters
    ----------
    head : {"IE_1", "AE_1"}
        Head (section 3.3).
    label_names : tuple of str
        Names of the labels in the order of the outputs, which the training fills in; empty before.

    Raises
    ------
    OptionError
        If the head gives no label to the whole input, or the names are not as many as the labels.
    """

    head: str = _option("IE_1", "IE_1 or AE_1, which give one label to a claim")
    order: str = _without_option("original")  # nothing is ranked
    labels: int = _without_option(3)
    label_names: Tuple[str, ...] = _without_option(())

    CHOICES = {**MSPPConfig.CHOICES, "head": SINGLE_LABEL}

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.label_names) not in (0, self.labels):
            problem = f"{len(self.label_names)} names of {self.labels} labels"
            raise OptionError("label_names", problem, "a name for each label")

    def training_defaults(self) -> Dict[str, Any]:
        """Settings of appendix B.1, the epochs of ASNQ there, and the patience of the code."""
        return {
            "epochs": 6,
            "learning_rate": 1e-5,
            "warmup_updates": 1000,
            "patience": 8,
            "tokens_per_update": CLAIMS_AN_UPDATE * self.segment_length * (self.k + 1),
        }


class ClaimTransformer(JointTransformer):
    """A joint model that gives a label to a claim with its evidence.

    Inputs are those of the joint model. The output is (B, labels) logits.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    config : ClaimConfig, optional
        Head, form of the inputs, and names of the labels.
    """

    Config = ClaimConfig
