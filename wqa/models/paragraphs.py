"""Pre-training of the joint model on paragraphs (Di Liello et al. 2022, sections 3.4 and 4.1).

The joint model with a head for each candidate, and a predictor of masked tokens beside it. Both
read one pass of the encoder. The predictor is that of BERT's pre-training: a dense layer with GELU,
a normalisation, and a product with the table of word embeddings.

Shapes: B inputs, L positions, k candidates, M masked positions of an input, C units, E the width of
the embeddings' tables, V tokens.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Optional, Tuple

from mxnet.gluon import HybridBlock, nn

from wqa.config import BackboneConfig
from wqa.errors import OptionError
from wqa.models.heads import score
from wqa.models.mspp import SINGLE_LABEL, JointTransformer, MSPPConfig, SourceEncoder
from wqa.models.network import NetworkConfig
from wqa.models.runtime import Tensor


def _option(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


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
        If the candidates are not k, or the head gives one label to the whole input.
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
        """Settings of appendix B.1, but for the number of updates."""
        return {
            "learning_rate": 5e-5,
            "warmup_updates": 10_000,
            "weight_decay": 0.01,
            "clip_norm": 1.0,
        }


class TokenPredictor(HybridBlock):
    """Predicts masked tokens from their encodings (Devlin et al. 2019, section 3.1).

    Inputs are encodings, (N, C), and the table of word embeddings, (V, E); the output is (N, V)
    logits.

    Parameters
    ----------
    config : BackboneConfig
        Sizes of the encoder.
    """

    def __init__(self, config: BackboneConfig, **kwargs) -> None:
        super().__init__(**kwargs)
        width = config.embedding_size or config.units  # E
        self._tokens = config.vocab_size
        with self.name_scope():
            self.dense = nn.Dense(width, in_units=config.units)
            self.layer_norm = nn.LayerNorm(in_channels=width, epsilon=config.layer_norm_eps)
            self.bias = self.params.get("bias", shape=(config.vocab_size,), init="zeros")

    def hybrid_forward(self, F, rows: Tensor, table: Tensor, bias: Tensor) -> Tensor:
        rows = self.layer_norm(F.LeakyReLU(self.dense(rows), act_type="gelu"))  # (N, E)
        return F.FullyConnected(rows, table, bias, num_hidden=self._tokens)


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

    def predict_tokens(self, rows: Tensor) -> Tensor:
        """Logits of the tokens at masked positions.

        Parameters
        ----------
        rows : mxnet.nd.NDArray
            (B, M, C) encodings.

        Returns
        -------
        mxnet.nd.NDArray
            (B * M, V).
        """
        # The table is an input, as a block that shared the parameter would be saved with a copy.
        table = self.backbone.embeddings.word.weight.data(rows.context)
        return self.predictor(rows.reshape((-3, 0)), table)


class PredictingEncoder(SourceEncoder):
    """The encoder that a pre-training starts from, with its predictor of masked tokens.

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
            self.predictor = TokenPredictor(backbone)
