"""A network whose graph holds several slices of one encoder's layers.

Shapes: B pairs, L positions, C units.
"""

from __future__ import annotations

from typing import List, Optional

from wqa.models.runtime import Tensor

from toy.layers import GatedHead, PoolingHead
from wqa.config import BackboneConfig
from wqa.models import Backbone, Network, NetworkConfig
from wqa.models.heads import score


class ToyBranches(Network):
    """A body, and on it two branches with a head on either; the log-odds are their sum.

    The short branch is one layer. The long one is all layers above the body, and the last of them
    twice more.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder, of at least three layers.
    config : NetworkConfig, optional
        Nothing.
    """

    def __init__(
        self, backbone: BackboneConfig, config: Optional[NetworkConfig] = None, **kwargs
    ) -> None:
        super().__init__(backbone, config, **kwargs)
        with self.name_scope():
            self.backbone = Backbone(backbone)
            self.short_head = GatedHead(backbone.units)
            self.long_head = PoolingHead(backbone.units)

    @property
    def encoders(self) -> List[Backbone]:
        """The part that starts from a pretrained encoder."""
        return [self.backbone]

    def hybrid_forward(
        self, F, token_ids: Tensor, token_types: Tensor, valid_length: Tensor
    ) -> Tensor:
        layers = self.backbone.layers
        embedded = self.backbone.embeddings(token_ids, token_types)  # (B, L, C)
        body = layers[:1](embedded, valid_length)
        short = layers[1:2](body, valid_length)
        long = layers[1:](body, valid_length)
        last = layers[-1:]
        long = last(last(long, valid_length), valid_length)
        scores = score(F, self.short_head, short, valid_length)  # (B,)
        return scores + score(F, self.long_head, long, valid_length)
