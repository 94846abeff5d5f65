"""Fine-tuning of the joint model for answer sentence selection (Di Liello et al. 2022, B.1).

In each epoch the candidates of a question are shuffled and cut into groups of k, so that a
candidate meets others in every epoch. What remains is a smaller group. Each candidate is in one
group, and each weighs the same: the loss of a group is the sum of the two-class cross-entropies of
its candidates, divided by k. With the score as the log-odds of the two classes that is their binary
cross-entropy.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np

from wqa.errors import OptionError
from wqa.io.progress import note_counts
from wqa.systems.mspp.network import TokenPredictor
from wqa.text import bucketed
from wqa.text.batching import BUCKET
from wqa.text.split_inputs import SPECIALS
from wqa.training.losses import cross_entropy
from wqa.training.start import Origin, Start, fill_from
from wqa.training.task import Arrays, PairTask, Setup

#: Label of a candidate that is missing in a group.
MISSING_LABEL = -1


class MSPPTask(PairTask):
    """Groups of k labelled candidates for a `wqa.systems.mspp.network.JointTransformer`.

    It takes the parameters of `PairTask`. It does not learn from teachers.
    """

    network: Any
    inputs: Any
    shape = ("k", "segment_length")
    #: What the network computes.
    computes = "scores"
    #: Name of what is labelled.
    candidate = "candidate"

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        if self.network.computes != self.computes:
            expected = "IE_k or AE_k, which give a score to each candidate"
            raise OptionError("head", self.network.own_config.head, expected)

    def _longest_group(self) -> int:
        """Bound of a group's tokens, whatever the shuffle: the k longest candidates of a question.

        The number of batches of an epoch follows from it, so that it does not depend on the
        shuffle.
        """
        questions, candidates = self.pairs.lengths.T.astype(np.int64)
        order = np.lexsort((-candidates, self.pairs.questions))
        rank = _rank_in_question(self.pairs.questions)
        k = self.inputs.k
        counted = np.where(rank < k, candidates[order], 0)
        starts = np.flatnonzero(rank == 0)
        sums = np.add.reduceat(counted, starts)
        # A missing candidate has its special tokens where it is visible.
        missing = np.maximum(k - np.diff(starts, append=len(rank)), 0) * SPECIALS
        longest = int((sums + missing + questions[order][starts]).max())
        return bucketed(longest, self.max_length)

    @classmethod
    def create(cls, setup: Setup) -> MSPPTask:
        task: Any = super().create(setup)
        done = f"cut to {task.inputs.max_length} tokens"
        note_counts(setup.train_file, [(task.pairs.truncated, cls.candidate, done)])
        return task

    @classmethod
    def make_network(cls, setup: Setup) -> Any:
        sigma = setup.own_config.type_initialisation
        if setup.start.has_shape(setup.own_config, cls.shape) and sigma:
            problem = f"{sigma} with a run of a joint model, whose row is trained"
            raise OptionError("type_initialisation", problem, "0, or an encoder to start from")
        if setup.config.shuffle != "pair":
            expected = "pair: joint models shuffle groups of candidates"
            raise OptionError("shuffle", setup.config.shuffle, expected)
        return super().make_network(setup)

    def initialize(self, start: Start, devices: Sequence[mx.Context]) -> str:
        """Initialise the network, and extend the token types of the encoder that it starts from.

        An encoder with k + 1 token types, such as that of a run of a joint model, is taken as it
        is. Of any other the rows that it has are those of the first segments: BERT's rows 0 and 1
        stay those of the question and of the first candidate, as they told two texts apart. The
        rows after them are drawn from N(0, 0.02).
        """
        network, backbone = self.network, start.backbone()
        if backbone.token_types == network.config.token_types:
            line = start.fill(network, devices)
        else:
            parts = {}
            if network.predictor is not None:
                parts["predictor"] = TokenPredictor(backbone)
            origin = Origin(backbone, parts)
            copies = [(network.backbone, origin.backbone)]
            copies += [(network.predictor, predictor) for predictor in parts.values()]
            line = fill_from(origin, network, copies, start, devices)
            if line:
                line += f"; new: token types from {backbone.token_types}, head"
        sigma = network.own_config.type_initialisation
        if sigma:
            weight = network.backbone.embeddings.token_type.weight
            rows = weight.data(devices[0]).copy()
            rows[0] = mx.nd.random.normal(0, sigma, shape=rows.shape[1:], ctx=devices[0])
            weight.set_data(rows)
        return line

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> List[np.ndarray]:
        """Plan the batches of an epoch."""
        groups = group_candidates(self.pairs.questions, self.inputs.k, rng)
        lengths = self._candidate_tokens(groups)
        rows = plan_rows(lengths, tokens // self._longest_group(), rng)
        return [groups[indices] for indices in rows]

    def _candidate_tokens(self, groups: np.ndarray) -> np.ndarray:
        """Tokens of the candidates of each group. Shapes: `groups` (N, k), the result (N,)."""
        return (self.pairs.lengths[:, 1][groups] * (groups >= 0)).sum(axis=1)

    def batch(self, key: Any) -> Dict[str, np.ndarray]:
        joints = []
        labels = np.full(key.shape, MISSING_LABEL, dtype=np.float32)
        for row, indices in enumerate(key):
            indices = indices[indices >= 0]
            joints.append(self.inputs.join(self.pairs.assemble(indices)))
            labels[row, : len(indices)] = self.pairs.labels[indices]
        batch = dict(zip(self.inputs.names, self.inputs.pad(joints)))
        return {**batch, "labels": labels}

    def pairs_of(self, batch: Dict[str, np.ndarray]) -> int:
        """Count the candidates of a batch."""
        return int((batch["labels"] != MISSING_LABEL).sum())

    def losses(self, batch: Arrays, update: int) -> Arrays:
        return self.score_losses(self.scores(batch, update), batch["labels"])

    def score_losses(self, scores: mx.nd.NDArray, labels: mx.nd.NDArray) -> Dict[str, Any]:
        """Loss of the scores of each group. Shapes: `scores, labels` (B, k)."""
        real = labels != MISSING_LABEL
        losses = cross_entropy(scores, labels * real) * real
        return {"loss": losses.sum(axis=1) / self.inputs.k}


def plan_rows(
    lengths: np.ndarray, size: int, rng: Optional[np.random.Generator] = None
) -> List[np.ndarray]:
    """Divide inputs into batches of one size, of similar lengths so that little is padding.

    Shapes: `lengths` (N,).
    """
    size = max(1, size)
    cuts = np.arange(size, len(lengths), size)
    if rng is None:
        return np.split(np.arange(len(lengths)), cuts)
    order = np.lexsort((rng.random(len(lengths)), lengths // BUCKET))
    batches = np.split(order, cuts)
    return [batches[index] for index in rng.permutation(len(batches))]


def group_candidates(
    questions: np.ndarray, k: int, rng: Optional[np.random.Generator] = None
) -> np.ndarray:
    """Divide the candidates of each question into groups of k and one of what remains.

    Shapes: `questions` (N,), the result (groups, k).
    """
    count = len(questions)
    order = np.arange(count)
    if rng is not None:
        order = np.lexsort((rng.random(count), questions))
    rank = _rank_in_question(questions)
    groups = np.cumsum(rank % k == 0) - 1
    out = np.full((int(groups[-1]) + 1 if count else 0, k), -1, dtype=np.int32)
    out[groups, rank % k] = order
    return out


def _rank_in_question(questions: np.ndarray) -> np.ndarray:
    """Rank of each candidate among those of its question, from 0; question indices ascend."""
    starts = np.flatnonzero(np.diff(questions, prepend=-1))
    counts = np.diff(starts, append=len(questions))
    return np.arange(len(questions)) - np.repeat(starts, counts)
