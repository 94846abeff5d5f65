"""The predictor of masked tokens, as in BERT's pre-training, with the encoder's activation.

Shapes: N masked positions, C units, E the width of the embeddings' tables, V tokens.

Encoders that a training starts from, where it extends what they hold.
"""

from __future__ import annotations

from typing import List, Optional

from mxnet.gluon import HybridBlock, nn

from wqa.config import BackboneConfig
from wqa.models.backbone import Backbone, activate
from wqa.models.network import Network, NetworkConfig
from wqa.models.runtime import Tensor


class TokenPredictor(HybridBlock):
    """Predicts masked tokens from their encodings (Devlin et al. 2019, section 3.1).

    Inputs are encodings, (N, C), and the table of word embeddings, (V, E); the output is (N, V)
    logits.
    """

    def __init__(self, config: BackboneConfig, **kwargs) -> None:
        super().__init__(**kwargs)
        width = config.embedding_size or config.units  # E
        self._tokens, self._activation = config.vocab_size, config.activation
        with self.name_scope():
            self.dense = nn.Dense(width, in_units=config.units)
            self.layer_norm = nn.LayerNorm(in_channels=width, epsilon=config.layer_norm_eps)
            self.bias = self.params.get("bias", shape=(config.vocab_size,), init="zeros")

    def hybrid_forward(self, F, rows: Tensor, table: Tensor, bias: Tensor) -> Tensor:
        rows = self.layer_norm(activate(F, self.dense(rows), self._activation))  # (N, E)
        return F.FullyConnected(rows, table, bias, num_hidden=self._tokens)


class SourceEncoder(Network):
    """The encoder that a training starts from, with the token types that it has there.

    A start of a training fills it; the task then copies its parameters into the joint model.
    """

    #: Whether it has the encoder's predictor of masked tokens.
    predicts = False

    def __init__(
        self, backbone: BackboneConfig, config: Optional[NetworkConfig] = None, **kwargs
    ) -> None:
        super().__init__(backbone, config, **kwargs)
        with self.name_scope():
            self.backbone = Backbone(backbone)
            if self.predicts:
                self.predictor = TokenPredictor(backbone)

    @property
    def encoders(self) -> List[Backbone]:
        return [self.backbone]


class PredictingEncoder(SourceEncoder):
    """The encoder that a pre-training starts from, with its predictor of masked tokens."""

    predicts = True
