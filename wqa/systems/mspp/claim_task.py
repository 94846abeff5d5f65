"""Training to verify claims (Di Liello et al. 2022, sections 3.1 and 4.2, appendix B.1).

A claim with its evidence is one input and has one label: the loss is the cross-entropy of a softmax
over the labels.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np
from tqdm import tqdm

from wqa.data import read_claims
from wqa.data.claims import LABELS, Claim
from wqa.errors import DataError, OptionError, QuestionTooLong, check_choice
from wqa.evaluation import claim_evaluator
from wqa.io.files import sha256
from wqa.io.streams import note_counts
from wqa.systems.mspp.inputs import JointInput, JointInputs
from wqa.systems.mspp.task import check_start, fill_joint, plan_rows
from wqa.systems.mspp.verifier import OF_CLAIMS, Verifier, encode_claim, prepare_claims
from wqa.text import is_store, naming_file, note_long_questions
from wqa.training.losses import label_cross_entropy
from wqa.training.pairs import SHUFFLES
from wqa.training.start import Start
from wqa.training.task import Setup, Task


class ClaimExamples(NamedTuple):
    """Inputs of claims with their labels, and counts of what they leave out.

    Shapes: `labels` (claims,).
    """

    joints: List[JointInput]
    labels: np.ndarray
    cut: int = 0
    unread: int = 0
    truncated: int = 0
    skipped: int = 0


def encode_claims(claims: Iterable[Claim], inputs: JointInputs) -> ClaimExamples:
    """Tokenize claims to train on."""
    joints: List[JointInput] = []
    labels: List[int] = []
    cut = unread = truncated = skipped = 0
    for claim in claims:
        try:
            encoded = encode_claim(inputs, claim.claim, claim.evidence, claim.id)
        except QuestionTooLong:
            if inputs.long_questions != "skip":
                raise
            skipped += 1
            continue
        joints.append(encoded.joint)
        labels.append(LABELS.index(claim.label))
        cut += sum(encoded.truncated)
        unread += encoded.unread
        truncated += encoded.claim_truncated
    if not joints:
        raise DataError(
            "the claims", f"all {skipped} are over-long, and skipped", "at least one that fits"
        )
    array = np.array(labels, dtype=np.float32)
    return ClaimExamples(joints, array, cut, unread, truncated, skipped)


class ClaimTask(Task):
    """Claims with their evidence and labels, for a `wqa.systems.mspp.network.ClaimTransformer`.

    A batch has as many claims as fit its tokens if all their segments are full: the paper's 64 are
    24,576 tokens.
    """

    #: Share of the claims whose label is predicted.
    metric = "accuracy"

    def __init__(
        self,
        network: Any,
        inputs: JointInputs,
        examples: ClaimExamples,
        shuffle: str = "pair",
        digest: str = "",
    ) -> None:
        check_choice("shuffle", shuffle, SHUFFLES)
        self.network, self.inputs, self.examples = network, inputs, examples
        self.max_length, self.digest = inputs.longest, digest
        self._shuffle = shuffle
        self._lengths = np.array([joint.length for joint in examples.joints])

    @classmethod
    def create(cls, setup: Setup) -> ClaimTask:
        train_file, config = setup.train_file, setup.config
        if is_store(train_file):
            raise DataError(train_file, "a store, which has no claims", "JSONL of claims")
        if config.train_filter != "all":
            expected = "all, as a claim has no right or wrong candidates"
            raise OptionError("train_filter", config.train_filter, expected)
        setup = setup._replace(own_config=_with_names(setup.own_config))
        check_start(setup.start, setup.own_config)
        tokenizer = setup.start.tokenizer()
        network = setup.network()
        inputs = network.text_inputs(tokenizer, setup.max_length, config.long_questions)
        claims = list(read_claims(train_file))
        bar = tqdm(claims, desc="encoding", unit="claim", delay=2, file=sys.stderr)
        with naming_file(train_file):
            examples = encode_claims(bar, inputs)
        counts = [
            (examples.cut, "evidence text", f"cut to {inputs.max_length} tokens"),
            (examples.unread, "evidence text", f"not read, after the first {inputs.k} of a claim"),
            (examples.truncated, "over-long claim", "truncated"),
            (examples.skipped, "over-long claim", "skipped"),
        ]
        note_counts(train_file, counts)
        return cls(network, inputs, examples, config.shuffle, sha256(train_file))

    def initialize(self, start: Start, devices: Sequence[mx.Context]) -> str:
        return fill_joint(self.network, start, devices)

    def size(self) -> Dict[str, int]:
        return {"claims": len(self.examples.joints)}

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> List[np.ndarray]:
        size = max(1, tokens // self.max_length)
        return plan_rows(self._lengths, size, self._shuffle, rng)

    def batch(self, key: np.ndarray) -> Dict[str, np.ndarray]:
        joints = [self.examples.joints[index] for index in key]
        batch = dict(zip(self.inputs.names, self.inputs.pad(joints)))
        return {**batch, "labels": self.examples.labels[key]}

    def pairs_of(self, batch: Dict[str, np.ndarray]) -> int:
        """Count the pieces of evidence of a batch, each of which is a pair with its claim."""
        return int((batch["marks"][:, 1:] >= 0).sum())

    def losses(self, batch: Dict[str, mx.nd.NDArray], update: int) -> Dict[str, mx.nd.NDArray]:
        logits = self.network(*(batch[name] for name in self.inputs.names))  # (rows, labels)
        return {"loss": label_cross_entropy(logits, batch["labels"])}


def _with_names(own_config: Any) -> Any:
    """The configuration with the labels of the data, which the run records."""
    if own_config.labels != len(LABELS):
        expected = f"{len(LABELS)}: " + ", ".join(LABELS)
        raise OptionError("labels", own_config.labels, expected)
    return dataclasses.replace(own_config, label_names=LABELS)


def evaluate_labels(dev: Any) -> Any:
    """Factory of evaluators on claims; ``dev`` is a `wqa.systems.development.Development`."""
    engine = dev.engine

    def evaluator(inputs: Any) -> Any:
        def build(network: Any) -> Any:
            return Verifier(network, inputs, engine)

        # After the task is made, which refuses a head of labels that it does not train.
        claims = list(read_claims(dev.data))
        with naming_file(dev.data):
            prepared = prepare_claims(claims, inputs)
        note_long_questions(prepared.truncated, prepared.skipped, dev.data, OF_CLAIMS)
        return claim_evaluator(prepared.claims, build, engine.engine == "mxnet")

    return evaluator
