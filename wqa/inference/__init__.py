"""Rankers: one contract for every system."""

import wqa.models  # noqa: F401 - prepares the process before any module here imports MXNet
from wqa.inference.cascade import CascadeRanker
from wqa.inference.cost import Cost, relative_cost
from wqa.inference.load import load_ranker
from wqa.inference.ranker import Ranker, Ranking
from wqa.inference.sequential import SequentialRanker

__all__ = [
    "CascadeRanker",
    "Cost",
    "Ranker",
    "Ranking",
    "SequentialRanker",
    "load_ranker",
    "relative_cost",
]
