"""Training of the span reader (Devlin et al. 2019, sections 4.2 and 4.3).

Windows without an answer have position 0 as their target, so that the scores of spans in different
documents compare: a reader that sees answers alone learns nothing about documents that hold none
(Clark and Gardner 2018, section 3).
"""

from __future__ import annotations

import sys
from typing import Dict, Optional, Sequence

import mxnet as mx
import numpy as np
from tqdm import tqdm

from wqa.config.encoders import check_length
from wqa.data import filter_questions, read_questions
from wqa.data.formats import data_digest
from wqa.errors import DataError, check_choice
from wqa.models import Network
from wqa.systems.reader.examples import SpanExamples
from wqa.systems.reader.inputs import WindowEncoder
from wqa.text import (
    PairEncoder,
    bucketed,
    is_store,
    naming_file,
    pad_pairs,
    plan_batches,
    plan_by_question,
)
from wqa.training.losses import span_cross_entropy
from wqa.training.pairs import SHUFFLES
from wqa.training.task import Task


class ReaderTask(Task):
    """Windows with the span of an answer, and cross-entropy of its start and its end."""

    metric = "em"

    def __init__(
        self,
        network: Network,
        encoder: PairEncoder,
        examples: SpanExamples,
        shuffle: str = "pair",
        digest: str = "",
    ) -> None:
        check_choice("shuffle", shuffle, SHUFFLES)
        self.network, self.encoder, self.examples = network, encoder, examples
        self.max_length, self.digest = encoder.max_length, digest
        self._shuffle = shuffle
        self._lengths = examples.lengths()
        self._questions = np.array([example.question for example in examples.examples])

    @classmethod
    def create(cls, system, start, own_config, train_file, config, max_length) -> ReaderTask:
        if is_store(train_file):
            raise DataError(
                train_file, "a store, which has no answers", "canonical JSONL with answers"
            )
        tokenizer = start.tokenizer()
        network = system.network_type()(start.backbone(), own_config)
        check_length(max_length, network.max_positions)
        encoder = PairEncoder(tokenizer, max_length, config.long_questions)
        windows = WindowEncoder(encoder, own_config.stride)
        questions = filter_questions(read_questions(train_file), config.train_filter)
        bar = tqdm(questions, desc="encoding", unit="question", delay=2, file=sys.stderr)
        with naming_file(train_file):
            examples = SpanExamples(bar, windows, own_config.negatives, own_config.positives)
        examples.counts.note(train_file)
        return cls(network, encoder, examples, config.shuffle, data_digest(train_file))

    def size(self) -> Dict[str, int]:
        counts = self.examples.counts
        return {"questions": counts.questions, "windows": len(self.examples.examples)}

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> Sequence[np.ndarray]:
        if self._shuffle == "question":
            return plan_by_question(self._lengths, self._questions, tokens, rng)
        return plan_batches(self._lengths, tokens, rng)

    def batch(self, key: np.ndarray) -> Dict[str, np.ndarray]:
        pairs = [self.examples.pair(index) for index in key]
        length = bucketed(int(self._lengths[key].max()), self.max_length)
        encoder = self.encoder
        padded = pad_pairs(pairs, length, encoder.tokenizer.padding_id, encoder.form.typed)
        # The softmax chooses among what can be read: the document's tokens, and position 0 for no
        # answer. BERT's code lets it choose the question and the padding too.
        allowed = np.zeros((len(pairs), length), dtype=np.float32)
        targets = np.zeros((len(pairs), 2), dtype=np.float32)
        for row, (index, pair) in enumerate(zip(key, pairs)):
            allowed[row, 0] = 1
            allowed[row, pair.boundary : len(pair.token_ids) - 1] = 1
            span = self.examples.examples[index].span
            if span is not None:
                targets[row] = pair.boundary + np.array(span)
        names = ("token_ids", "token_types", "valid_length")
        return {**dict(zip(names, padded)), "allowed": allowed, "targets": targets}

    def losses(self, batch: Dict[str, mx.nd.NDArray], update: int) -> Dict[str, mx.nd.NDArray]:
        inputs = (batch["token_ids"], batch["token_types"], batch["valid_length"])
        logits = self.network(*inputs)  # (B, L, 2)
        return {"loss": span_cross_entropy(logits, batch["allowed"], batch["targets"])}
