"""Scores of examples of paragraphs by a model that is pre-trained, to evaluate it.

Figures of pre-training on paragraphs, by kind of candidate (Di Liello et al. 2022, section 3.4).

A candidate is classified right if its score is above 0 and it shares the premise's paragraph, or
neither. Of k candidates one does, so that a model that always says no is right for k - 1 of k.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, NamedTuple, Sequence

import mxnet as mx
import numpy as np

from wqa.errors import DataError
from wqa.models import parse_devices
from wqa.systems.mspp.examples import KINDS, POSITIVE, ParagraphExample
from wqa.systems.mspp.paragraph_batches import ParagraphEncoder

#: Seed of the masks, so that each evaluation predicts the same tokens.
SEED = 0


class ParagraphScores(NamedTuple):
    """What a model says of a batch of examples.

    Shapes: `scores` (B, k), `kinds` (B, k).
    """

    scores: np.ndarray
    kinds: np.ndarray
    tokens: int
    predicted: int
    loss: float


class ParagraphScorer:
    """Scores examples by the current parameters of a network."""

    def __init__(
        self,
        encoder: ParagraphEncoder,
        examples: Sequence[ParagraphExample],
        tokens: int = 2000,
        ctx: str = "cpu",
    ) -> None:
        self._encoder, self._examples = encoder, examples
        self._size = max(1, tokens // encoder.joint.longest)
        self._device = parse_devices(ctx)[0]

    def score(self, network: Any) -> Iterator[ParagraphScores]:
        """Score all examples."""
        for start in range(0, len(self._examples), self._size):
            batch = self._encoder.batch(self._examples[start : start + self._size], SEED, start)
            arrays = {}
            for name, array in batch.items():
                arrays[name] = mx.nd.array(array, ctx=self._device, dtype=array.dtype)
            scores, rows = network(*(arrays[name] for name in self._encoder.names))
            likelihoods, predicted = network.predict_tokens(rows, arrays["masked_ids"])
            is_masked = batch["mask_weights"] > 0
            yield ParagraphScores(
                scores.asnumpy(),
                batch["kinds"],
                int(is_masked.sum()),
                int(predicted.asnumpy()[is_masked].sum()),
                float(-likelihoods.asnumpy()[is_masked].sum()),
            )


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
    tokens = sum(batch.tokens for batch in seen)
    if tokens:
        figures["mlm_accuracy"] = sum(batch.predicted for batch in seen) / tokens
        figures["mlm_loss"] = sum(batch.loss for batch in seen) / tokens
    return figures
