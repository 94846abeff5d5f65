"""Pre-training on paragraphs (Di Liello et al. 2022, section 3.4 and appendix B.1).

The loss is the sum of two: binary cross-entropy of whether a candidate shares the premise's
paragraph, the mean over the k candidates, and cross-entropy of the masked tokens, the mean over the
tokens of a mini-batch. Either can be left out.

In evaluation a candidate is classified right if its score is above 0 and it shares the premise's
paragraph, or neither. Of k candidates one does, so that a model that always says no is right for
k - 1 of k.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Dict, Iterable, Iterator, NamedTuple, Optional, Sequence

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np

from wqa.config import TrainingConfig
from wqa.data.paragraphs import Minima, note_left_out
from wqa.errors import DataError, OptionError
from wqa.models import parse_devices
from wqa.systems.mspp.examples import (
    KINDS,
    POSITIVE,
    ExampleSettings,
    Masking,
    ParagraphExample,
    ParagraphInputs,
)
from wqa.systems.mspp.network import PredictingEncoder
from wqa.systems.mspp.stream import ParagraphStream
from wqa.systems.mspp.task import Spreads, check_start, fill_joint, spread
from wqa.training.losses import cross_entropy
from wqa.training.start import Start
from wqa.training.task import Setup, Task

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
        inputs: ParagraphInputs,
        examples: Sequence[ParagraphExample],
        tokens: int = 2000,
        ctx: str = "cpu",
    ) -> None:
        self._inputs, self._examples = inputs, examples
        self._size = max(1, tokens // inputs.joint.longest)
        self._device = parse_devices(ctx)[0]

    def score(self, network: Any) -> Iterator[ParagraphScores]:
        """Score all examples."""
        for start in range(0, len(self._examples), self._size):
            batch = self._inputs.batch(self._examples[start : start + self._size], SEED, start)
            arrays = {}
            for name, array in batch.items():
                arrays[name] = mx.nd.array(array, ctx=self._device, dtype=array.dtype)
            scores, rows = network(*(arrays[name] for name in self._inputs.names))
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


#: Bytes of the start of each file that its digest covers, beside its name and size.
DIGEST_BYTES = 1 << 20


class Batch(NamedTuple):
    """Key of a batch: the seed of its epoch, its first example, and the number of its examples."""

    seed: int
    start: int
    size: int


class Epoch(Sequence[Batch]):
    """Batches of an epoch, of which none is in memory."""

    def __init__(self, seed: int, examples: int, size: int) -> None:
        self._seed, self._examples, self._size = seed, examples, size

    def __len__(self) -> int:
        return -(-self._examples // self._size)

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = index * self._size
        return Batch(self._seed, start, min(self._size, self._examples - start))


class ParagraphTask(Task):
    """Examples of a source of documents, drawn and masked anew in each epoch.

    A batch has as many examples as fit its tokens if all their segments are full, so that the
    number of batches does not depend on what is drawn.
    """

    watched = ("spread",)

    network: Any

    def __init__(
        self,
        network: Any,
        inputs: ParagraphInputs,
        stream: ParagraphStream,
        examples: int,
        digest: str = "",
    ) -> None:
        self.network, self.paragraphs, self.stream = network, inputs, stream
        self.inputs, self.max_length = inputs.joint, inputs.joint.longest
        self.digest, self._examples = digest, examples
        # The share of examples whose positive has the greatest score; a random one reaches 1 / k.
        self.metric = "p@1" if network.own_config.mspp_weight else "mlm_accuracy"
        self._spreads = Spreads()

    @classmethod
    def create(cls, setup: Setup) -> ParagraphTask:
        _check_unused(setup.config)
        check_start(setup.start, setup.own_config)
        tokenizer = setup.start.tokenizer()
        network = setup.network()
        joint = network.text_inputs(tokenizer, setup.max_length)
        inputs = ParagraphInputs(joint, Masking(tokenizer, network.own_config.mask_rate))
        stream = open_stream(setup.train_file, setup.own_config)
        counts = stream.count()
        note_left_out(counts, setup.train_file)
        return cls(network, inputs, stream, counts.examples, source_digest(stream))

    def initialize(self, start: Start, devices: Sequence[mx.Context]) -> str:
        return fill_joint(self.network, start, devices, PredictingEncoder(start.backbone()))

    def size(self) -> Dict[str, int]:
        return {"examples": self._examples}

    def hybridize(self, active: bool) -> None:
        self.network.hybridize(active)
        self.network.predictor.hybridize(True)  # no engine computes it

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> Epoch:
        seed = 0 if rng is None else int(rng.integers(2**31))
        return Epoch(seed, self._examples, max(1, tokens // self.max_length))

    def batch(self, key: Batch) -> Dict[str, np.ndarray]:
        examples = self.stream.take(key.seed, 0, key.start, key.size)
        return self.paragraphs.batch(examples, key.seed, key.start)

    def losses(self, batch: Dict[str, mx.nd.NDArray], update: int) -> Dict[str, mx.nd.NDArray]:
        scores, rows = self.network(*(batch[name] for name in self.paragraphs.names))
        shared = batch["kinds"] == POSITIVE  # (B, k)
        own = self.network.own_config
        losses = {
            "mspp": own.mspp_weight * cross_entropy(scores, shared).mean(axis=1),
            "spread": spread(scores, mx.nd.ones_like(scores)),
        }
        if own.mask_rate:
            likelihood, _ = self.network.predict_tokens(rows, batch["masked_ids"])  # (B, M)
            losses["mlm"] = -(likelihood * batch["mask_weights"]).sum(axis=1)
        return losses

    def note(self, epoch: int, means: Dict[str, float]) -> None:
        if self.network.own_config.mspp_weight:  # otherwise nothing tells candidates apart
            self._spreads.note(epoch, means["spread"])


def _check_unused(config: TrainingConfig) -> None:
    """Refuse settings of trainings on questions."""
    for name in ("train_filter", "shuffle", "long_questions"):
        value = getattr(config, name)
        if value != getattr(TrainingConfig(), name):
            raise OptionError(name, value, "no such setting, as documents have no questions")


def open_stream(source: str, own_config: Any) -> ParagraphStream:
    """Open a source of documents with the settings of a pre-training."""
    settings = ExampleSettings(
        own_config.hard,
        own_config.easy,
        own_config.other_paragraphs,
        own_config.premise_sentences,
        own_config.candidate_sentences,
    )
    minima = Minima(
        own_config.least_sentence, own_config.least_paragraph, own_config.least_document
    )
    return ParagraphStream([source], settings, minima, own_config.buffer_documents)


def source_digest(stream: ParagraphStream) -> str:
    """Digest of a source: of the name, the size and the start of each file.

    A source may have hundreds of gigabytes, so the files are not read whole.
    """
    digest = hashlib.sha256()
    for path in stream.files:
        digest.update(f"{path.name} {os.path.getsize(path)}\n".encode())
        with open(path, "rb") as file:
            digest.update(file.read(DIGEST_BYTES))
    return digest.hexdigest()


def evaluate_examples(dev: Any) -> Any:
    """Factory of evaluators on the examples of held-out documents, drawn with seed 0.

    ``dev`` is a `wqa.systems.development.Development`.
    """

    def evaluator(inputs: Any) -> Any:
        # After the task is made, which refuses what does not fit the encoder.
        stream = open_stream(dev.data, dev.own_config)
        note_left_out(stream.count(), dev.data)
        examples = list(stream.examples(0))
        masking = Masking(inputs.tokenizer, dev.own_config.mask_rate)
        tokens, ctx = dev.config.tokens_per_batch, dev.engine.ctx
        scorer = ParagraphScorer(ParagraphInputs(inputs, masking), examples, tokens, ctx)
        return lambda network: paragraph_figures(scorer.score(network))

    return evaluator
