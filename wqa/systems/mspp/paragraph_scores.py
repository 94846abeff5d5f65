"""Scores of examples of paragraphs by a model that is pre-trained, to evaluate it."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence

import mxnet as mx
import numpy as np

from wqa.models import parse_devices
from wqa.systems.mspp.examples import ParagraphExample
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
