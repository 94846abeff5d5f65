"""Verifiers: a claim and its evidence in, a label out (Di Liello et al. 2022, sections 3.1, 3.2).

A claim with the first k pieces of its evidence that have text is one input of a joint model, whose
head gives the logits of the labels. Segment 0 is the claim. A claim without evidence is read with
the text `wqa.data.claims.NO_EVIDENCE`, as in the corpus.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.config.systems import KINDS
from wqa.data import Claim, Question
from wqa.data.claims import LABELS, NO_EVIDENCE
from wqa.engines.choice import build_engine
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.errors import DataError, InputError, OptionError, shorten
from wqa.inference.loop import Names, check_finite, score_in_groups, score_inputs
from wqa.systems.mspp.engines import JointEngineInputs
from wqa.systems.mspp.inputs import JointInput, JointInputs
from wqa.systems.mspp.ranker import check_input
from wqa.text.long_questions import prepare_questions

#: What a question, and the texts beside it, are called in notes on claims.
OF_CLAIMS = ("claim", "evidence")


class ClaimInput(NamedTuple):
    """A claim with its evidence as an input, and what the input leaves out."""

    joint: JointInput
    truncated: Tuple[bool, ...]
    unread: int
    claim_truncated: bool


def encode_claim(
    inputs: JointInputs, claim: str, evidence: Sequence[str], name: str = ""
) -> ClaimInput:
    """Encode a claim with its evidence."""
    where = f"claim {shorten(name or claim)}"
    texts = () if isinstance(evidence, str) else evidence
    if texts is not evidence or not all(isinstance(text, str) for text in (claim, *texts)):
        raise InputError(
            where, "not a string and a list of strings", "one claim and a list of its evidence"
        )
    filled = [index for index, text in enumerate(texts) if text.strip()]
    read = filled[: inputs.k]
    with _naming_claims():
        segments = inputs.segments(claim, [texts[index] for index in read] or [NO_EVIDENCE], name)
    pairs = [inputs.assemble(segments.question, ids) for ids in segments.candidates]
    # Text without a token, such as a control character, is left out beside other evidence.
    pairs = [pair for pair in pairs if not pair.empty] or pairs[:1]
    truncated = [False] * len(texts)
    for index, was_cut in zip(read, segments.truncated):
        truncated[index] = was_cut
    unread = len(filled) - len(read)
    joint = inputs.join(pairs)
    return ClaimInput(joint, tuple(truncated), unread, segments.question_truncated)


class PreparedClaims(NamedTuple):
    """Claims that can be labelled."""

    claims: List[Claim]
    truncated: int = 0
    skipped: int = 0


def prepare_claims(claims: Iterable[Claim], inputs: JointInputs) -> PreparedClaims:
    """Apply the rule for over-long questions to claims, before any is labelled."""
    claims = list(claims)
    questions = [Question(claim.id, claim.claim, ()) for claim in claims]
    try:
        with _naming_claims():
            prepared = prepare_questions(questions, [inputs])
    except DataError:
        raise DataError(
            "the claims",
            f"all {len(claims):,} are over-long",
            "a claim that fits a segment",
            'raise segment_length, or set long_questions="truncate"',
        ) from None
    kept = {id(question) for question in prepared.questions}
    pairs = zip(claims, questions)
    return PreparedClaims(
        [claim for claim, question in pairs if id(question) in kept],
        prepared.truncated,
        prepared.skipped,
    )


@contextlib.contextmanager
def _naming_claims() -> Iterator[None]:
    """Call the question of an error a claim."""
    try:
        yield
    except InputError as error:
        parts = []
        for text in (error.where, error.found, error.expected, error.mend):
            parts.append(text.replace("question", "claim", 1))
        raise type(error)(*parts) from None


class Verdict(NamedTuple):
    """What a verifier says of a claim.

    Attributes
    ----------
    label : str
        The label with the greatest probability, of `wqa.data.claims.LABELS`.
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


class Verifier:
    """Labels claims by a joint model with one label for the whole input.

    Parameters
    ----------
    network : JointTransformer
        Network that computes logits of `wqa.data.claims.LABELS`, with its parameters on the
        engine's device.
    inputs : JointInputs
        Token ids of claims with their evidence.
    engine : EngineConfig, optional
        Engine, precision, device and sizes. By default MXNet on the CPU, which reads the current
        parameters at each call; oneDNN reads them once.
    quantized : list of dict, optional
        `wqa.engines.onednn.Quantized` products of each layer, for int8.
    group_tokens : int
        Most tokens of a group of claims.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option is out of range, or does not fit the network or this machine.
    """

    #: What notes call a question, and the texts beside it.
    texts = OF_CLAIMS
    #: How the engines read claims.
    engine_inputs = JointEngineInputs

    def __init__(
        self,
        network: Any,
        inputs: Any,
        engine: Optional[EngineConfig] = None,
        quantized: Optional[QuantizedLayers] = None,
        group_tokens: int = 65536,
    ) -> None:
        if network.computes != "labels":
            what = KINDS[network.computes][0]
            raise OptionError("network", what, KINDS["labels"][0])
        _check_labels(network.own_config)
        self.network, self.inputs, self._group_tokens = network, inputs, group_tokens
        config = engine or EngineConfig(engine="mxnet")
        self._engine = build_engine(self.engine_inputs(network, inputs), config, quantized)

    def prepare(self, claims: Iterable[Claim]) -> PreparedClaims:
        """Apply the rule for over-long questions to claims, before they are labelled.

        Parameters
        ----------
        claims : iterable of Claim
            Claims.

        Returns
        -------
        PreparedClaims
            The claims to label, and the number of those that are truncated and skipped.

        Raises
        ------
        QuestionTooLong
            If a claim does not fit a segment, and is neither truncated nor skipped.
        DataError
            If all claims are skipped.
        """
        return prepare_claims(claims, self.inputs)

    def label(self, claim: str, evidence: Sequence[str] = ()) -> Verdict:
        """Label one claim.

        Parameters
        ----------
        claim : str
            Text of the claim.
        evidence : sequence of str
            Its evidence, the best piece first, of which the first k are read. Without any the claim
            is read with `wqa.data.claims.NO_EVIDENCE`.

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
        encoded = encode_claim(self.inputs, claim, evidence)
        [verdict] = self._label([self._checked(encoded, claim)])
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
        yield from score_in_groups(claims, self._encode, self._label, self._group_tokens)

    def _encode(self, claim: Claim) -> Tuple[_Named, int]:
        """Tokenize a claim; returns its number of tokens too."""
        encoded = encode_claim(self.inputs, claim.claim, claim.evidence, claim.id)
        return self._checked(encoded, claim.id or claim.claim), encoded.joint.length

    def _checked(self, encoded: ClaimInput, name: str) -> _Named:
        named = _Named(encoded, f"claim {shorten(name)}")
        check_input(self.network, encoded.joint, Names(named.name))
        return named

    def _label(self, group: Sequence[_Named]) -> List[Verdict]:
        joints = [named.encoded.joint for named in group]
        logits, _ = score_inputs(self._engine, joints, len(LABELS))
        return [_verdict(*pair) for pair in zip(group, logits)]


class _Named(NamedTuple):
    """An encoded claim, and what errors call it."""

    encoded: ClaimInput
    name: str


def _verdict(named: _Named, logits: np.ndarray) -> Verdict:
    check_finite(logits, lambda index: (f"{named.name}, logits", f"the label {LABELS[index]}"))
    shares = np.exp(logits - logits.max())
    probabilities = dict(zip(LABELS, (shares / shares.sum()).tolist()))
    label, claim = LABELS[int(logits.argmax())], named.encoded
    return Verdict(label, probabilities, claim.truncated, claim.unread, claim.claim_truncated)


def _check_labels(own_config: Any) -> None:
    """Check that the outputs are the labels of claims, in their order."""
    # A network that was converted has no names.
    names = getattr(own_config, "label_names", ()) or LABELS
    if tuple(names) != LABELS or own_config.labels != len(LABELS):
        raise OptionError(
            "network",
            f"{own_config.labels} labels, {', '.join(names)}",
            f"{len(LABELS)}: " + ", ".join(LABELS),
        )
