"""The Cascade Transformer (Soldaini and Moschitti 2020, section 4.3).

One encoder has a classifier C after each of its layers rho(1) < rho(2) < ... < rho(N). In ranking,
each classifier drops a share alpha of the remaining candidates, and the next layers run on the
encodings of the survivors alone. In training, each mini-batch draws one of the N rankers R_i, whose
gradient reaches all layers below it and the embeddings.
"""

from __future__ import annotations

import dataclasses
from typing import Tuple

from wqa.config import BackboneConfig
from wqa.config.systems import option
from wqa.errors import OptionError, check_choice, check_range
from wqa.models.exits import TRAINED_EXITS, ExitConfig, ExitNetwork
from wqa.models.heads import MeanHead


@dataclasses.dataclass(frozen=True)
class CascadeConfig(ExitConfig):
    """Configuration of a cascade.

    Parameters
    ----------
    exits : tuple of int
        rho(1), ..., rho(N); if empty, 4, 6, 8, 10, 12 for a base encoder.
    trained_exits : {"uniform", "depth", "all"}
        Exits that an update trains: one, drawn uniformly (section 4.3.1); one, drawn with a
        probability proportional to its layer; or all, by the sum of their losses. The last two are
        beyond the paper.
    distillation : float
        Share of an early exit's loss that is the cross-entropy to the last exit's probabilities, in
        place of the labels. Beyond the paper; it needs all exits in each update.

    Raises
    ------
    OptionError
        If ``trained_exits`` is unknown, or ``distillation`` is outside [0, 1] or needs all exits.
    """

    exits: Tuple[int, ...] = option(
        (),
        "layers with a head, separated by commas (default: every second from the "
        "fourth of twelve, or in proportion)",
    )
    trained_exits: str = option(
        "uniform",
        "exits that an update trains: one drawn uniformly, as in the paper, one drawn "
        "by depth, or all",
    )
    distillation: float = option(
        0.0, "share of an early exit's loss that the last exit's scores teach"
    )

    #: Values that some fields are limited to.
    CHOICES = {"trained_exits": TRAINED_EXITS}

    def __post_init__(self) -> None:
        check_choice("trained_exits", self.trained_exits, self.CHOICES["trained_exits"])
        check_range("distillation", self.distillation, 0.0, 1.0)
        if self.distillation and self.trained_exits != "all":
            problem = f"{self.distillation} with trained_exits {self.trained_exits}"
            raise OptionError("distillation", problem, "trained_exits all")


class CascadeTransformer(ExitNetwork):
    """Rankers R_1, ..., R_N on one shared encoder, each with a classifier on the mean encoding.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    config : CascadeConfig, optional
        Layers of the exits.
    """

    Config = CascadeConfig

    @staticmethod
    def default_exits(backbone: BackboneConfig) -> Tuple[int, ...]:
        # rho(i) = 4 + 2 (i - 1) (section 4.2); encoders of fewer than 12 layers start at a third of
        # their depth.
        depth = backbone.num_layers
        first = max(1, min(4, depth // 3))
        exits = range(depth, first - 1, -2)
        return tuple(reversed(exits))

    def make_head(self, layer: int) -> MeanHead:
        """Classifier C."""
        config = self.config
        return MeanHead(config.units, config.head_dropout)
