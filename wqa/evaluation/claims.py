"""Label accuracy of verified claims (Thorne et al. 2018), and which labels are taken for which."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from wqa.data.claims import LABELS, Claim, check_label
from wqa.errors import DataError, shorten
from wqa.evaluation.rankers import built_of
from wqa.evaluation.report import align


class LabelScores(NamedTuple):
    """Label accuracy with the counts behind it.

    Attributes
    ----------
    claims : int
        Number of claims.
    accuracy : float
        Share of the claims whose predicted label is theirs, in [0, 1].
    confusion : tuple of tuple of int
        Numbers of claims: a row for each label of `wqa.data.claims.LABELS`, a column for each
        predicted one.
    """

    claims: int
    accuracy: float
    confusion: Tuple[Tuple[int, ...], ...]

    def table(self) -> str:
        """Lay the confusion out as plain text.

        Returns
        -------
        str
            A line for each label, with a column for each predicted one and, last, the share of the
            label's claims that have it predicted, in per cent.
        """
        lines: List[List[str]] = [["label / predicted", *LABELS, "correct"]]
        for index, counts in enumerate(self.confusion):
            share = "-"
            if sum(counts):
                share = f"{100 * counts[index] / sum(counts):.2f}"
            lines.append([LABELS[index], *map(str, counts), share])
        return align(lines, left=1)


def label_accuracy(predictions: Mapping[str, str], claims: Iterable[Claim]) -> LabelScores:
    """Compare predicted labels with those of claims.

    Parameters
    ----------
    predictions : mapping of str to str
        Predicted label by claim id. Those of other claims are not read.
    claims : iterable of Claim
        Claims with their labels.

    Returns
    -------
    LabelScores

    Raises
    ------
    DataError
        If there is no claim, or a claim has no label or no prediction, or the prediction is no
        label.
    """
    confusion = [[0] * len(LABELS) for _ in LABELS]
    count = 0
    for claim in claims:
        where = f"claim {shorten(claim.id)}"
        if claim.label is None:
            raise DataError(where, "no label", "one of " + ", ".join(LABELS))
        if claim.id not in predictions:
            raise DataError(where, "no prediction", "a predicted label for each claim")
        check_label(predictions[claim.id], f"prediction for {where}")
        confusion[LABELS.index(claim.label)][LABELS.index(predictions[claim.id])] += 1
        count += 1
    if not count:
        raise DataError("claims", "none", "at least one with its label")
    correct = sum(confusion[index][index] for index in range(len(LABELS)))
    return LabelScores(count, correct / count, tuple(map(tuple, confusion)))


def claim_evaluator(
    claims: Sequence[Claim], build: Callable[[Any], Any], live: bool = False
) -> Callable[[Any], Dict[str, float]]:
    """Evaluator of a network that labels claims, while it trains.

    Parameters
    ----------
    claims : sequence of Claim
        Development claims with their labels.
    build : callable
        Takes the network and returns its verifier, with the method ``label_all`` of
        `wqa.systems.mspp.verifier.Verifier`.
    live : bool
        Whether verifiers read the network's current parameters at each call. Such a verifier is
        built once; otherwise each evaluation builds a new one.

    Returns
    -------
    callable
        Takes the network and returns ``claims``, their number, and ``accuracy``, in [0, 1].

    Raises
    ------
    DataError
        If there is no claim, or a claim has no label.
    """
    label_accuracy({claim.id: LABELS[0] for claim in claims}, claims)  # now, not after an epoch
    current = built_of(build, live)

    def figures_of(network: Any) -> Dict[str, float]:
        verdicts = current(network).label_all(claims)
        predictions = {claim.id: verdict.label for claim, verdict in zip(claims, verdicts)}
        scores = label_accuracy(predictions, claims)
        return {"claims": scores.claims, "accuracy": scores.accuracy}

    return figures_of
