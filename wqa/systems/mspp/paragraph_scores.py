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

    Attributes
    ----------
    scores : numpy.ndarray
        (B, k) log-odds of sharing the premise's paragraph.
    kinds : numpy.ndarray
        (B, k) indices in `wqa.systems.mspp.examples.KINDS`.
    tokens : int
        Number of masked tokens.
    predicted : int
        Number of those that the model predicts.
    loss : float
        Sum of the cross-entropies of the masked tokens, in nats.
    """

    scores: np.ndarray
    kinds: np.ndarray
    tokens: int
    predicted: int
    loss: float


class ParagraphScorer:
    """Scores examples by the current parameters of a network.

    Parameters
    ----------
    encoder : ParagraphEncoder
        Encodes the examples.
    examples : sequence of ParagraphExample
        The examples.
    tokens : int
        Most tokens of a micro-batch, padding included.
    ctx : str
        Device of the network's parameters.
    """

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
        """Score all examples.

        Parameters
        ----------
        network : wqa.systems.mspp.network.ParagraphTransformer
            Network on the device.

        Yields
        ------
        ParagraphScores
            Scores of each micro-batch.
        """
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
