"""Fact verification by the joint model (Di Liello et al. 2022, sections 3.1 and 4.2, B.1).

A claim with the first k pieces of its evidence is one input of a joint model, the claim in place of
the question, and has one label. The loss is the cross-entropy of a softmax over the labels. A claim
without evidence is read with the text `wqa.data.documents.NO_EVIDENCE`, as in the corpus.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.config import TrainingConfig
from wqa.data import Candidate, Question, read_claims
from wqa.data.documents import LABELS, NO_EVIDENCE, Claim
from wqa.errors import DataError, InputError, OptionError, shorten
from wqa.evaluation import claim_evaluator
from wqa.inference.loop import check_finite, read_ahead, score_inputs
from wqa.io.files import sha256
from wqa.systems.mspp.inputs import JointInput
from wqa.systems.mspp.ranker import JointRanker, check_input
from wqa.systems.mspp.task import MSPPTask, group_candidates, plan_rows
from wqa.text import is_store, naming_file
from wqa.text.split_inputs import SPECIALS
from wqa.training.losses import label_cross_entropy
from wqa.training.pairs import TrainingPairs
from wqa.training.task import Arrays


def pieces_of(claim: Claim, k: int) -> Tuple[List[int], List[str], int]:
    """Indices and texts of the evidence of a claim that is read, and the number of other pieces."""
    non_blank = [index for index, text in enumerate(claim.evidence) if text.strip()]
    read = non_blank[:k]
    texts = [claim.evidence[index] for index in read] or [NO_EVIDENCE]
    return read, texts, len(non_blank) - len(read)


def question_of(claim: Claim, k: int) -> Question:
    """A claim as a question, whose candidates are its evidence with the claim's label."""
    label: Any = LABELS.index(str(claim.label))
    _, texts, _ = pieces_of(claim, k)
    candidates = [Candidate(text, label) for text in texts]
    return Question(claim.id, claim.claim, tuple(candidates))


class ClaimTask(MSPPTask):
    """Claims with their evidence and labels, for a `wqa.systems.mspp.network.ClaimTransformer`.

    A batch has as many claims as fit its tokens if all their segments are full: the paper's 64 are
    24,576 tokens.
    """

    #: Share of the claims whose label is predicted.
    metric = "accuracy"
    computes = "labels"
    candidate = "evidence text"

    @classmethod
    def read_pairs(
        cls, train_file: str, inputs: Any, config: TrainingConfig
    ) -> Tuple[TrainingPairs, str]:
        for name in ("train_filter", "dev_filter"):
            value, default = getattr(config, name), getattr(TrainingConfig, name)
            if value != default:
                raise OptionError(name, value, f"{default}, the default: claims are not filtered")
        if is_store(train_file):
            raise DataError(train_file, "a store, which has no claims", "JSONL of claims")
        claims = list(read_claims(train_file))
        with naming_file(train_file):
            questions = [question_of(claim, inputs.k) for claim in claims]
            pairs = TrainingPairs(questions, inputs, config.shuffle)
        return pairs, sha256(train_file)

    def size(self) -> Dict[str, int]:
        return {"claims": len(np.unique(self.pairs.questions))}

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> List[np.ndarray]:
        groups = group_candidates(self.pairs.questions, self.inputs.k)  # one a claim
        first = groups[:, 0]
        lengths = self.pairs.lengths[first, 0] + self._candidate_tokens(groups)
        if self.network.own_config.missing == "visible":
            missing = (groups < 0).sum(axis=1)
            lengths = lengths + SPECIALS * missing
        size = tokens // self.max_length
        rows = plan_rows(lengths, size, rng)
        return [groups[indices] for indices in rows]

    def losses(self, batch: Arrays, update: int) -> Arrays:
        # All pieces have the label of their claim, of which there is at least one.
        logits = self.scores(batch, update)
        labels = batch["labels"][:, 0]
        return {"loss": label_cross_entropy(logits, labels)}


class Verdict(NamedTuple):
    """What a verifier says of a claim.

    Attributes
    ----------
    label : str
        The label with the greatest probability, of `wqa.data.documents.LABELS`.
    probabilities : dict of str to float
        Probability of each label, in that order; they sum to 1.
    truncated : tuple of bool
        Whether each piece of evidence lost tokens to the length of a segment.
    unread : int
        Number of pieces of evidence beyond the first k, which were not read.
    claim_truncated : bool
        Whether the claim lost tokens.
    """

    label: str
    probabilities: Dict[str, float]
    truncated: Tuple[bool, ...] = ()
    unread: int = 0
    claim_truncated: bool = False


class ClaimInput(NamedTuple):
    """A claim with its evidence as an input, what the input leaves out, and the claim's name."""

    joint: JointInput
    truncated: Tuple[bool, ...]
    unread: int
    claim_truncated: bool
    name: str


class Verifier(JointRanker):
    """Labels claims by a joint model with one label for the whole input.

    It is a ranker that labels in place of ranking: it has the engines and parameters of a
    `wqa.systems.mspp.ranker.JointRanker`, and `label` and `label_all` in place of ``rank`` and
    ``rank_all``.

    Parameters
    ----------
    network : JointTransformer
        Network that computes logits of `wqa.data.documents.LABELS`, with its parameters on the
        engine's device.
    inputs : JointInputs
        Token ids of claims with their evidence.
    **options
        Further parameters of `wqa.inference.exit_ranker.InputsRanker`.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option is out of range, or does not fit the network or this machine.
    """

    def __init__(self, network: Any, inputs: Any, **options: Any) -> None:
        labels = network.own_config.labels
        if labels != len(LABELS):
            expected = f"{len(LABELS)}: {', '.join(LABELS)}"
            raise OptionError("network", f"{labels} labels", expected)
        super().__init__(network, inputs, **options)

    def label(self, claim: str, evidence: Sequence[str] = ()) -> Verdict:
        """Label one claim.

        Parameters
        ----------
        claim : str
            Text of the claim.
        evidence : sequence of str
            Its evidence, the best piece first, of which the first k are read. Without any the claim
            is read with `wqa.data.documents.NO_EVIDENCE`.

        Returns
        -------
        Verdict

        Raises
        ------
        InputError
            If the claim is empty or too long, or a piece of evidence is no text.
        ScoreError
            If a logit is not finite.
        """
        encoded, _ = self._encode(Claim("", claim, evidence))  # type: ignore[arg-type]
        [verdict] = self._rank_group([encoded])
        return verdict

    def label_all(self, claims: Iterable[Claim]) -> Iterator[Verdict]:
        """Label many claims, several at a time.

        Parameters
        ----------
        claims : iterable of Claim
            Claims, read in another thread. Their labels are not read.

        Yields
        ------
        Verdict
            Verdict on each claim, in order.

        Raises
        ------
        InputError, ScoreError
            As `label` raises them; after the verdicts on the claims before it.
        """
        for group in read_ahead(claims, self._encode, self._group_size):
            yield from self._rank_group(group)

    def _encode(self, claim: Any) -> Tuple[Any, int]:
        """Tokenize a claim with its evidence; returns its number of tokens too."""
        name, evidence = f"claim {shorten(claim.id or claim.claim)}", claim.evidence
        are_texts = [isinstance(text, str) for text in (claim.claim, *evidence)]
        if isinstance(evidence, str) or not all(are_texts):
            expected = "one claim and a list of its evidence"
            raise InputError(name, "not a string and a list of strings", expected)
        read, texts, unread = pieces_of(claim, self.inputs.k)
        segments = self.inputs.segments(claim.claim, texts, claim.id)
        pairs = [self.inputs.assemble(segments.question, ids) for ids in segments.candidates]
        # Text without a token, such as a control character, is left out beside other evidence.
        non_empty = [pair for pair in pairs if not pair.empty]
        joint = self.inputs.join(non_empty or pairs[:1])
        check_input(self.network, joint, name)
        truncated = [False] * len(evidence)
        for index, was_cut in zip(read, segments.truncated):
            truncated[index] = was_cut
        encoded = ClaimInput(joint, tuple(truncated), unread, segments.question_truncated, name)
        return encoded, joint.length

    def _rank_group(self, group: Sequence[Any]) -> List[Any]:
        joints = [encoded.joint for encoded in group]
        logits = score_inputs(self._engine, joints, len(LABELS))
        return [_verdict(*pair) for pair in zip(group, logits)]


def _verdict(claim: ClaimInput, logits: np.ndarray) -> Verdict:
    names = [f"the label {label}" for label in LABELS]
    check_finite(logits, lambda index: (f"{claim.name}, logits", names[index]))
    shares = np.exp(logits - logits.max())
    shares = shares / shares.sum()
    probabilities = dict(zip(LABELS, shares.tolist()))
    best = int(logits.argmax())
    label = LABELS[best]
    return Verdict(label, probabilities, claim.truncated, claim.unread, claim.claim_truncated)


def evaluate_labels(dev: Any, inputs: Any) -> Any:
    """Make the evaluator on claims; ``dev`` is a `wqa.systems.development.Development`."""
    claims = dev.prepared(read_claims(dev.data), inputs)
    return claim_evaluator(claims, dev.builder(inputs), dev.is_live)
