"""Encoders that a training starts from, where it extends what they hold."""

from __future__ import annotations

from typing import List, Optional

from wqa.config import BackboneConfig
from wqa.models.backbone import Backbone
from wqa.models.network import Network, NetworkConfig
from wqa.models.predictor import TokenPredictor


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
