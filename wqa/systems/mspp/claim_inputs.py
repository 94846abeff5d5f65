"""Encodes a claim with its evidence as one input (Di Liello et al. 2022, sections 3.1 and 3.2).

Segment 0 is the claim, the others are the first k pieces of evidence that have text. A claim
without evidence is read with the text `wqa.data.claims.NO_EVIDENCE`, as in the corpus.
"""

from __future__ import annotations

import contextlib
from typing import Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from wqa.data import Claim, Question
from wqa.data.claims import NO_EVIDENCE
from wqa.errors import DataError, InputError, shorten
from wqa.systems.mspp.inputs import JointEncoder, JointInput
from wqa.text.long_questions import prepare_questions

#: What a question, and the texts beside it, are called in notes on claims.
OF_CLAIMS = ("claim", "evidence")


class EncodedClaim(NamedTuple):
    """A claim with its evidence as an input, and what the input leaves out."""

    joint: JointInput
    truncated: Tuple[bool, ...]
    unread: int
    claim_truncated: bool


def encode_claim(
    encoder: JointEncoder, claim: str, evidence: Sequence[str], name: str = ""
) -> EncodedClaim:
    """Encode a claim with its evidence."""
    where = f"claim {shorten(name or claim)}"
    texts = () if isinstance(evidence, str) else evidence
    if texts is not evidence or not all(isinstance(text, str) for text in (claim, *texts)):
        raise InputError(
            where, "not a string and a list of strings", "one claim and a list of its evidence"
        )
    filled = [index for index, text in enumerate(texts) if text.strip()]
    read = filled[: encoder.k]
    with _naming_claims():
        segments = encoder.segments(claim, [texts[index] for index in read] or [NO_EVIDENCE], name)
    pairs = [encoder.assemble(segments.question, ids) for ids in segments.candidates]
    # Text without a token, such as a control character, is left out beside other evidence.
    pairs = [pair for pair in pairs if not pair.empty] or pairs[:1]
    truncated = [False] * len(texts)
    for index, was_cut in zip(read, segments.truncated):
        truncated[index] = was_cut
    return EncodedClaim(
        encoder.join(pairs),
        tuple(truncated),
        len(filled) - len(read),
        segments.question_truncated,
    )


class PreparedClaims(NamedTuple):
    """Claims that can be labelled."""

    claims: List[Claim]
    truncated: int = 0
    skipped: int = 0


def prepare_claims(claims: Iterable[Claim], encoder: JointEncoder) -> PreparedClaims:
    """Apply the encoder's rule for over-long questions to claims, before any is labelled."""
    claims = list(claims)
    questions = [Question(claim.id, claim.claim, ()) for claim in claims]
    try:
        with _naming_claims():
            prepared = prepare_questions(questions, [encoder])
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
