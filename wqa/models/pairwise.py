"""The monolithic transformer ranker (Soldaini and Moschitti 2020, section 4.1).

All layers run for every candidate, and a classifier D reads the first position: y = D(h_0). It is
the baseline that TANDA fine-tunes (Garg et al. 2020).
"""

from __future__ import annotations

from typing import Sequence

from wqa.config import BackboneConfig
from wqa.errors import OptionError
from wqa.models.heads import ExitNetwork, FirstPositionHead


class PairwiseTransformer(ExitNetwork):
    """Ranker with one exit, the last layer by default.

    Parameters
    ----------
    config : BackboneConfig
    exits : sequence of int
        At most one layer; a lower one gives the shallower rankers of Table 2.
    """

    def __init__(self, config: BackboneConfig, exits: Sequence[int] = (), **kwargs) -> None:
        if len(exits) > 1:
            raise OptionError(
                "--exits", ",".join(map(str, exits)), "at most one layer for a monolithic ranker"
            )
        super().__init__(config, exits, **kwargs)

    @staticmethod
    def make_head(config: BackboneConfig) -> FirstPositionHead:
        """Classifier D, in the form of the encoder's family."""
        return FirstPositionHead(config.units, config.head_dropout, config.family)
