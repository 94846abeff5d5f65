"""Ranking by a bi-encoder: the similarity of a question's and a document's encodings.

A bi-encoder encodes both texts independently. ``cosine`` compares the means of their encodings
(Reimers and Gurevych 2019, "Sentence-BERT", section 3). ``maxsim`` is late interaction: for each
token of the question it takes the most similar token of the document (Khattab and Zaharia 2020,
"ColBERT", section 3.3), here the mean over the question's tokens and not their sum, so that
questions of all lengths share one scale. Neither has parameters of its own.

An encoder that was trained to match texts, such as all-MiniLM-L6-v2, ranks without further
training, and labelled pairs train it from there. Questions and candidates are encoded as by
DC-BERT's ranker, and candidates may come from a document cache.

Shapes: B pairs, N positions of a question, M of a document, C units.
"""

from __future__ import annotations

import dataclasses
from typing import Any, List, Mapping, Optional, Sequence

from wqa.models.runtime import Tensor

from mxnet.gluon import HybridBlock

from wqa.config import BackboneConfig
from wqa.config.encoders import MOST_SIZE, SIMILARITIES, check_length
from wqa.config.systems import option
from wqa.errors import OptionError, check_choice, check_range
from wqa.models.backbone import Backbone
from wqa.models.network import GraphPart, Network, NetworkConfig
from wqa.systems.dcbert.interactions import padding_of
from wqa.systems.dcbert.network import LEAST_QUESTION, DecoupledPath, parts_apart
from wqa.systems.dcbert.ranker import SimilarityRanker
from wqa.text import SplitInputs, Tokenizer

#: Log-odds for a unit of similarity: the inverse temperature of the softmax over cosines that
#: sentence-transformers' encoders are trained with.
SCALE = 20.0
#: Similarity of log-odds 0, midway between the means of WikiQA's correct and wrong dev candidates
#: by maxsim:minilm, 0.65 and 0.45 (recipes/cascade/logs/untrained_dev.txt).
MIDPOINT = 0.55


@dataclasses.dataclass(frozen=True)
class SimilarityConfig(NetworkConfig):
    """Configuration of a similarity.

    Parameters
    ----------
    interaction : {"maxsim", "cosine"}
        ``maxsim`` compares the tokens of both texts, ``cosine`` the means of their encodings.
    question_length : int
        Greatest length of a question in tokens, special tokens included.

    Raises
    ------
    OptionError
        If the similarity is unknown, or a question has no room for a token.
    """

    interaction: str = option(SIMILARITIES[0], "what is compared: maxsim tokens, cosine means")
    question_length: int = option(64, "greatest length of a question in tokens")

    #: Values that some fields are limited to.
    CHOICES = {"interaction": SIMILARITIES}

    def __post_init__(self) -> None:
        check_choice("interaction", self.interaction, SIMILARITIES)
        check_range("question_length", self.question_length, LEAST_QUESTION, MOST_SIZE)

    @property
    def starts_as(self) -> str:
        return self.interaction


class SimilarityNetwork(Network):
    """An encoder of both texts, or one of each, and the similarity of their encodings.

    Inputs are ``question_ids``, (B, N), int32, ``question_valid``, (B,), ``document_ids``, (B, M),
    int32, and ``document_valid``, (B,), or each text once, as `DecoupledPath` takes them; the
    output is (B,) log-odds.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoders.
    config : SimilarityConfig, optional
        Similarity, and the greatest length of a question.
    encoders : sequence of Backbone, optional
        Encoders of questions and of documents; by default a new one of both.

    Raises
    ------
    OptionError
        If there is no encoder.
    """

    Config = SimilarityConfig

    def __init__(
        self,
        backbone: BackboneConfig,
        config: Optional[SimilarityConfig] = None,
        encoders: Sequence[Backbone] = (),
        **kwargs,
    ) -> None:
        super().__init__(backbone, config, **kwargs)
        if backbone is None:
            raise OptionError("backbone", "none", "the sizes of the network's encoder")
        with self.name_scope():
            question, self.backbone = encoders or [Backbone(backbone)] * 2
        if question is not self.backbone:
            self.register_child(question, "question")
        self.similarity = Similarity(self.own_config.interaction)

    @property
    def question_encoder(self) -> Backbone:
        """Encoder of questions."""
        return self._children.get("question", self.backbone)

    @property
    def document_encoder(self) -> Backbone:
        return self.backbone

    @property
    def encoders(self) -> List[Backbone]:
        return [self.question_encoder, self.document_encoder]

    def text_inputs(
        self, tokenizer: Tokenizer, max_length: int, long_questions: str = "error"
    ) -> SplitInputs:
        """Inputs of questions and documents apart; ``max_length`` is that of a document."""
        length = self.own_config.question_length
        check_length(max_length, self.max_positions)
        check_length(length, self.max_positions, "question_length")
        return SplitInputs(tokenizer, max_length, length, long_questions)

    def interaction_path(self) -> HybridBlock:
        """The network after the encoders, `Similarity`."""
        return self.similarity

    def graph_parts(self, arrays: Mapping[str, str]) -> List[GraphPart]:
        return parts_apart(self)

    def stage_work(self) -> List[float]:
        return [0.0]  # no product with weights follows the encoders

    def hybrid_forward(self, F, *texts: Tensor) -> Tensor:
        return DecoupledPath(self, self.similarity)(*texts)


class TwoEncoderSimilarity(SimilarityNetwork):
    """The similarity of texts that are read by an encoder each, which no run holds."""


class Similarity(HybridBlock):
    """Similarity of padded encodings, as log-odds.

    Inputs are the encodings of questions, (B, N, C), their valid lengths, (B,), and the same of
    documents, (B, M, C) and (B,); the output is (B,).

    Parameters
    ----------
    interaction : {"maxsim", "cosine"}
        As `SimilarityConfig` takes it.
    """

    def __init__(self, interaction: str, **kwargs) -> None:
        super().__init__(**kwargs)
        self._interaction = interaction

    def hybrid_forward(self, F, *texts: Tensor) -> Tensor:
        compare = _maxsim if self._interaction == "maxsim" else _cosine
        return SCALE * (compare(F, *texts) - MIDPOINT)


def _cosine(F, *texts: Tensor) -> Tensor:
    question, question_valid, document, document_valid = texts
    question = F.L2Normalization(_sum_of_rows(F, question, question_valid))
    document = F.L2Normalization(_sum_of_rows(F, document, document_valid))
    return F.sum(question * document, axis=1)


def _maxsim(F, *texts: Tensor) -> Tensor:
    question, question_valid, document, document_valid = texts
    # `batch_dot` is several times as fast with the documents first.
    cosines = F.batch_dot(document, question, transpose_b=True)  # (B, M, N)
    cosines = F.broadcast_div(cosines, _lengths_of_rows(F, document))
    cosines = F.broadcast_div(cosines, F.swapaxes(_lengths_of_rows(F, question), 1, 2))
    cosines = F.broadcast_add(cosines, padding_of(F, document, document_valid))
    greatest = F.max(cosines, axis=1)  # (B, N)
    # The mean excludes the question's special tokens, as the MAP on WikiQA's dev is higher without
    # them (recipes/cascade/logs/untrained_dev.txt).
    last = question_valid - 1
    greatest = F.SequenceMask(greatest, last, use_sequence_length=True, axis=1)
    of_tokens = F.slice_axis(greatest, axis=1, begin=1, end=None)  # (B, N - 1)
    return F.sum(of_tokens, axis=1) / (last - 1)


def _sum_of_rows(F, rows: Tensor, valid_length: Tensor) -> Tensor:
    """Sum of the real rows of each text, which has the direction of their mean, (B, C)."""
    real = F.ones_like(F.slice_axis(rows, axis=2, begin=0, end=1))  # (B, length, 1)
    real = F.SequenceMask(real, valid_length, use_sequence_length=True, axis=1)
    return F.reshape(F.batch_dot(real, rows, transpose_a=True), (-3, 0))


def _lengths_of_rows(F, rows: Tensor) -> Tensor:
    """Euclidean lengths, (B, length, 1), above zero for padding too.

    The product with ones takes a fraction of the time of a sum over the last axis.
    """
    first = F.slice_axis(F.reshape(rows, (-3, 0)), axis=0, begin=0, end=1)
    ones = F.ones_like(first)  # (1, C)
    squares = F.FullyConnected(F.square(rows), ones, num_hidden=1, no_bias=True, flatten=False)
    return F.sqrt(squares) + 1e-12


def build_similarity(
    rule: str,
    question: Backbone,
    document: Backbone,
    tokenizer: Tokenizer,
    max_length: int,
    long_questions: str = "error",
    **options: Any,
) -> SimilarityRanker:
    """Build the ranker of a similarity from the encoders of both texts."""
    config = SimilarityConfig(rule, max_length)
    kind = SimilarityNetwork if question is document else TwoEncoderSimilarity
    network = kind(document.config, config, [question, document])
    inputs = network.text_inputs(tokenizer, max_length, long_questions)
    return SimilarityRanker(network, inputs, system=rule, **options)
