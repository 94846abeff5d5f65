"""The predictor of masked tokens, as in BERT's pre-training, with the encoder's activation.

Shapes: N masked positions, C units, E the width of the embeddings' tables, V tokens.
"""

from __future__ import annotations

from mxnet.gluon import HybridBlock, nn

from wqa.config import BackboneConfig
from wqa.models.backbone import activate
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
