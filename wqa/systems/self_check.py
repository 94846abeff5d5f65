"""A ranking by each engine and precision, to see which of them work on this machine."""

from __future__ import annotations

import math
from typing import Dict, List

import numpy as np

from wqa.config import BackboneConfig, EngineConfig
from wqa.errors import WqaError
from wqa.systems.random import random_pairs, random_ranker

#: Engines with the precisions that they may have.
COMBINATIONS = (
    ("mxnet", "float32"),
    ("onednn", "float32"),
    ("onednn", "bfloat16"),
    ("onednn", "int8"),
)

#: An encoder of every kind of layer, at a size that takes milliseconds.
_SMALL = BackboneConfig(
    vocab_size=100, units=32, hidden_size=64, num_layers=2, num_heads=2, max_positions=64
)


def check_engines() -> List[Dict[str, str]]:
    """Rank random pairs by each engine and precision."""
    results = []
    for engine, precision in COMBINATIONS:
        result = {"engine": engine, "precision": precision, "problem": ""}
        try:
            _rank(EngineConfig(engine=engine, precision=precision))
        except WqaError as error:
            result["problem"] = str(error)
        except Exception as error:  # whatever a library that does not fit raises
            text = str(error).strip().partition("\n")[0]
            result["problem"] = f"{type(error).__name__}: {text}"
        results.append(result)
    return results


def _rank(engine: EngineConfig) -> None:
    ranker = random_ranker(_SMALL, exits=(1, 2), engine=engine)
    pairs = random_pairs(np.random.default_rng(0), 4, 8, 24, _SMALL.vocab_size)
    [ranking] = ranker.rank_pairs([pairs])
    if not all(map(math.isfinite, ranking.scores)):
        raise ArithmeticError("a score is not a finite number")
