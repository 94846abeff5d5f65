"""Figures of pre-training on paragraphs, by kind of candidate (Di Liello et al. 2022, section 3.4).

A candidate is classified right if its score is above 0 and it shares the premise's paragraph, or
neither. Of k candidates one does, so that a model that always says no is right for k - 1 of k.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable

import numpy as np

from wqa.errors import DataError
from wqa.systems.mspp.examples import KINDS, POSITIVE


def paragraph_figures(batches: Iterable[Any]) -> Dict[str, float]:
    """Figures of a pre-trained model."""
    seen = list(batches)
    if not seen:
        raise DataError("examples of paragraphs", "none", "at least one")
    scores = np.concatenate([batch.scores for batch in seen])
    kinds = np.concatenate([batch.kinds for batch in seen])
    right = (scores > 0) == (kinds == POSITIVE)
    # Ties count against the positive.
    positives = np.where(kinds == POSITIVE, scores, -np.inf).max(axis=1)
    others = np.where(kinds == POSITIVE, -np.inf, scores).max(axis=1)
    figures: Dict[str, float] = {"examples": len(scores)}
    figures["p@1"] = float((positives > others).mean())
    figures["accuracy"] = float(right.mean())
    for kind, name in enumerate(KINDS):
        if (kinds == kind).any():
            figures[f"accuracy_{name}"] = float(right[kinds == kind].mean())
    tokens = max(sum(batch.tokens for batch in seen), 1)
    figures["mlm_accuracy"] = sum(batch.predicted for batch in seen) / tokens
    figures["mlm_loss"] = sum(batch.loss for batch in seen) / tokens
    return figures
