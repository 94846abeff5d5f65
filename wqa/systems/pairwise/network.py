"""The monolithic transformer ranker (Soldaini and Moschitti 2020, section 4.1).

All layers run for every candidate, and a classifier D reads the first position: y = D(h_0). It is
the baseline that TANDA fine-tunes (Garg et al. 2020).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Tuple

from wqa.config.systems import option
from wqa.errors import OptionError
from wqa.models import Network
from wqa.models.exits import ExitConfig, ExitNetwork
from wqa.models.heads import FirstPositionHead
from wqa.pretrained.source import DirectoryLayout, Source


@dataclasses.dataclass(frozen=True)
class PairwiseConfig(ExitConfig):
    """Configuration of the monolithic ranker.

    Parameters
    ----------
    exits : tuple of int
        The layer with the head, for the shallower rankers of Table 2; the last layer if empty.

    Raises
    ------
    OptionError
        If there is more than one exit.
    """

    exits: Tuple[int, ...] = option((), "the layer with the head (default: the last)")

    def __post_init__(self) -> None:
        if len(self.exits) > 1:
            expected = "at most one layer for a monolithic ranker"
            raise OptionError("exits", f"{len(self.exits)} layers", expected)


class PairwiseTransformer(ExitNetwork):
    """Ranker with one exit, the last layer by default.

    Parameters
    ----------
    backbone : BackboneConfig
        Sizes of the encoder.
    config : PairwiseConfig, optional
        Layer of the head.
    """

    Config = PairwiseConfig

    def make_head(self, layer: int) -> FirstPositionHead:
        """Classifier D, in the form of the encoder's family."""
        config = self.config
        return FirstPositionHead(config.units, config.head_dropout, config.family)


class ClassifierLayout(DirectoryLayout):
    """A classifier of one output, which is the score, or of two, whose log-odds are."""

    system = "pairwise"

    def recognizes(self, files: Source) -> bool:
        return files.labels() in (1, 2) and not files.has_spans()

    def options(self, files: Source) -> Dict[str, Any]:
        return {"exits": files.exits or (files.config.num_layers,)}

    def fill(self, network: Network, files: Source) -> None:
        files.fill_classifier(network.heads[0])
