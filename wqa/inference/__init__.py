"""The ranker, one interface for every system, and what rankers share."""

from wqa.inference.calibrated import Calibration
from wqa.inference.dropping import Cost, Drop, relative_cost
from wqa.inference.ensemble import EnsembleRanker
from wqa.inference.exit_ranker import CascadeRanker
from wqa.inference.ranker import Capabilities, Ranker
from wqa.inference.ranking import Ranking
from wqa.inference.sequential import SequentialRanker

__all__ = [
    "Calibration",
    "CascadeRanker",
    "Capabilities",
    "Cost",
    "Drop",
    "EnsembleRanker",
    "Ranker",
    "Ranking",
    "SequentialRanker",
    "relative_cost",
]
