"""The ranker, one interface for every system, and what rankers share."""

from importlib import import_module
from typing import Any

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

#: Names of `wqa.systems.load` that programs import from here; each is imported when first used.
_LOADING = ("build_ranker", "load_ranker", "rank_all")


def __getattr__(name: str) -> Any:
    if name not in _LOADING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("wqa.systems.load"), name)
