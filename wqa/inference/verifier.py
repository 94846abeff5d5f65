"""Verifiers: a claim and its evidence in, a label out (Di Liello et al. 2022, section 3.1).

A claim with the first k pieces of its evidence is one input of a joint model, whose head gives the
logits of the labels.
"""

from __future__ import annotations

import os
import pathlib
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import numpy as np

from wqa.config import LONG_QUESTIONS, EngineConfig
from wqa.data.claims import LABELS, Claim
from wqa.errors import OptionError, RunDirectoryError, check_choice, shorten
from wqa.inference.engine_choice import build_engine
from wqa.inference.joint_engines import ENGINES, calibrate_joint, check_input, score_inputs
from wqa.inference.lookahead import LookAhead
from wqa.inference.ranking import score_error
from wqa.inference.run_directory import KINDS, load_run
from wqa.models import Network, parse_devices
from wqa.onednn import check_precision
from wqa.onednn.quantize import STRENGTH, QuantizedLayers
from wqa.text import EncodedClaim, PreparedClaims, encode_claim, prepare_claims


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
    encoder : JointEncoder
        Encodes claims with their evidence.
    engine : EngineConfig, optional
        Engine, precision, device and sizes. By default MXNet on the CPU, which reads the current
        parameters at each call; oneDNN reads them once.
    quantized : list of dict, optional
        `wqa.onednn.Quantized` products of each layer, for int8.
    group_tokens : int
        Most tokens of a group of claims.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option is out of range, or does not fit the network or this machine.
    """

    def __init__(
        self,
        network: Any,
        encoder: Any,
        engine: Optional[EngineConfig] = None,
        quantized: Optional[QuantizedLayers] = None,
        group_tokens: int = 65536,
    ) -> None:
        if network.computes != "labels":
            what = KINDS[network.computes][0]
            raise OptionError("network", what, KINDS["labels"][0])
        _check_labels(network.own_config)
        self.network, self.encoder, self._group_tokens = network, encoder, group_tokens
        config = engine or EngineConfig(engine="mxnet")
        self._engine = build_engine(network, encoder.tokenizer, config, quantized, ENGINES)

    @staticmethod
    def calibrate(
        network: Network, pairs: Sequence[Any], strength: float = STRENGTH
    ) -> QuantizedLayers:
        """Quantize the products of all layers of a joint model.

        Parameters
        ----------
        network, pairs, strength
            As `wqa.inference.JointRanker.calibrate` takes them.

        Returns
        -------
        list of dict of str to Quantized
            Products of each layer.
        """
        return calibrate_joint(network, pairs, strength)

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
        return prepare_claims(claims, self.encoder)

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
        encoded = encode_claim(self.encoder, claim, evidence)
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
        with LookAhead(claims, self._encode, self._group_tokens) as groups:
            for group in groups:
                yield from self._label(group)

    def _encode(self, claim: Claim) -> Tuple[_Named, int]:
        """Encode a claim; returns its number of tokens too."""
        encoded = encode_claim(self.encoder, claim.claim, claim.evidence, claim.id)
        return self._checked(encoded, claim.id or claim.claim), encoded.joint.length

    def _checked(self, encoded: EncodedClaim, name: str) -> _Named:
        named = _Named(encoded, f"claim {shorten(name)}")
        check_input(self.network, encoded.joint, named.name)
        return named

    def _label(self, group: Sequence[_Named]) -> List[Verdict]:
        inputs = [named.encoded.joint for named in group]
        logits, _ = score_inputs(self._engine, inputs, len(LABELS))
        return [_verdict(*pair) for pair in zip(group, logits)]


class _Named(NamedTuple):
    """An encoded claim, and what errors call it."""

    encoded: EncodedClaim
    name: str


def _verdict(named: _Named, logits: np.ndarray) -> Verdict:
    for label, value in zip(LABELS, logits):
        if not np.isfinite(value):
            raise score_error(f"{named.name}, logits", f"the label {label}", value)
    shares = np.exp(logits - logits.max())
    probabilities = dict(zip(LABELS, (shares / shares.sum()).tolist()))
    encoded = named.encoded
    return Verdict(
        LABELS[int(logits.argmax())],
        probabilities,
        encoded.truncated,
        encoded.unread,
        encoded.claim_truncated,
    )


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


def load_verifier(
    run: Union[str, os.PathLike[str]],
    ctx: str = "cpu",
    precision: str = "float32",
    threads: Optional[int] = None,
    engine: str = "auto",
    batch_tokens: Optional[int] = None,
    long_questions: str = "error",
    **options: Any,
) -> Verifier:
    """Load the verifier of a run directory.

    Parameters
    ----------
    run : str or path-like
        Run directory of a system that computes labels of claims.
    ctx : str
        Device to compute on.
    precision : {"float32", "bfloat16", "int8"}
        Precision of products. bfloat16 and int8 need a CPU that supports them, int8 also a run that
        `wqa quantize` has calibrated.
    threads : int, optional
        Number of threads on a CPU; by default all that the process may use.
    engine : {"auto", "mxnet", "onednn"}
        ``auto`` takes oneDNN on a CPU where its library is installed, and MXNet otherwise.
    batch_tokens : int, optional
        Tokens of a micro-batch; the default depends on the engine.
    long_questions : {"error", "truncate", "skip"}
        What to do with a claim that does not fit a segment: raise an error, keep its first tokens,
        or leave it out, which `Verifier.prepare` does.
    **options
        Further keywords of `Verifier`.

    Returns
    -------
    Verifier
        The verifier.

    Raises
    ------
    RunDirectoryError
        If a file is missing, truncated, or contradicts another file, or the run is no classifier of
        claims.
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option does not fit the run, or this machine lacks what it needs.
    """
    folder = pathlib.Path(run)
    config = EngineConfig(engine, precision, threads, ctx, batch_tokens)
    parse_devices(ctx)
    check_precision(precision)
    check_choice("long_questions", long_questions, LONG_QUESTIONS)
    if not folder.is_dir():
        expected = "a run directory of `wqa train mspp_claims`"
        raise RunDirectoryError(folder, "there is no such directory", expected)
    loaded = load_run(folder, ctx, precision, long_questions, "labels")
    try:
        _check_labels(loaded.network.own_config)
    except OptionError as error:
        where = f"{folder / 'config.json'}, field network"
        raise RunDirectoryError(where, error.found, error.expected) from None
    keywords: Dict[str, Any] = dict(options)
    if precision == "int8":
        keywords["quantized"] = loaded.quantized
    return Verifier(loaded.network, loaded.encoder, config, **keywords)
