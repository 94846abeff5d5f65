"""Scores of examples of paragraphs by a model that is pre-trained, to evaluate it."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence

import mxnet as mx
import numpy as np

from wqa.data.paragraph_examples import ParagraphExample
from wqa.models import parse_devices
from wqa.text.paragraphs import ParagraphEncoder

#: Seed of the masks, so that each evaluation predicts the same tokens.
SEED = 0


class ParagraphScores(NamedTuple):
    """What a model says of a batch of examples.

    Attributes
    ----------
    scores : numpy.ndarray
        (B, k) log-odds of sharing the premise's paragraph.
    kinds : numpy.ndarray
        (B, k) indices in `wqa.data.paragraph_examples.KINDS`.
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
        network : wqa.models.mspp.ParagraphTransformer
            Network on the device.

        Yields
        ------
        ParagraphScores
            Scores of each micro-batch.
        """
        rng = np.random.default_rng(SEED)
        for start in range(0, len(self._examples), self._size):
            batch = self._encoder.batch(self._examples[start : start + self._size], rng)
            inputs = []
            for name in self._encoder.names:
                array = batch[name]
                inputs.append(mx.nd.array(array, ctx=self._device, dtype=array.dtype))
            scores, rows = network(*inputs)
            logits = network.predict_tokens(rows)  # (B M, V)
            is_masked = batch["mask_weights"].ravel() > 0
            ids = batch["masked_ids"].ravel()
            likelihoods = mx.nd.log_softmax(logits, axis=-1)
            likelihood = mx.nd.pick(likelihoods, mx.nd.array(ids, ctx=self._device)).asnumpy()
            predicted = logits.argmax(axis=-1).asnumpy() == ids
            yield ParagraphScores(
                scores.asnumpy(),
                batch["kinds"],
                int(is_masked.sum()),
                int(predicted[is_masked].sum()),
                float(-likelihood[is_masked].sum()),
            )
