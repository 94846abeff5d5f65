"""Answers and labels compared with the right ones.

Exact match and F1 of answers are by SQuAD's official rule (Rajpurkar et al. 2016, section 6.1):
texts are normalised before they are compared: lower case, no ASCII punctuation, no articles, one
space between words. A prediction gets its best figure over the reference answers. Label accuracy is
that of verified claims (Thorne et al. 2018).
"""

from __future__ import annotations

import collections
import json
import re
import string
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from wqa.data import Question
from wqa.data.documents import LABELS, Claim, label_of
from wqa.errors import DataError, shorten
from wqa.evaluation.rankers import built_of
from wqa.evaluation.report import table
from wqa.io.files import PathLike, atomic_writer

_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Normalise an answer as SQuAD's script does."""
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Whether a prediction equals one of the reference answers after normalisation.

    Parameters
    ----------
    prediction : str
        Predicted text; empty for none.
    answers : sequence of str
        Reference answers, at least one.

    Returns
    -------
    float
        1 or 0.
    """
    normalized = normalize_answer(prediction)
    return float(any(normalized == normalize_answer(answer) for answer in answers))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Greatest F1 of the words of a prediction and of a reference answer.

    Parameters
    ----------
    prediction : str
        Predicted text; empty for none.
    answers : sequence of str
        Reference answers, at least one.

    Returns
    -------
    float
        Harmonic mean of precision and recall over words, each word as often as it occurs, in
        [0, 1]. Where the prediction or the answer has no word left, 1 if neither has, else 0, as
        in SQuAD 2.0's script.
    """
    words = normalize_answer(prediction).split()
    best = 0.0
    for answer in answers:
        expected = normalize_answer(answer).split()
        best = max(best, _f1(words, expected))
    return best


def _f1(predicted: List[str], expected: List[str]) -> float:
    if not predicted or not expected:
        return float(predicted == expected)
    shared = collections.Counter(predicted) & collections.Counter(expected)
    return 2 * sum(shared.values()) / (len(predicted) + len(expected))


def score_answers(
    predictions: Mapping[str, str], questions: Iterable[Question]
) -> Dict[str, float]:
    """Mean exact match and F1 of predictions.

    Parameters
    ----------
    predictions : mapping of str to str
        Predicted text by question id. A question without one scores 0.
    questions : iterable of Question
        Questions with their answers.

    Returns
    -------
    dict of str to float
        ``questions``, their number, and ``em`` and ``f1``, in [0, 1].

    Raises
    ------
    DataError
        If there is no question, or a question has no answers.
    """
    count = 0
    matches = overlaps = 0.0
    for question in questions:
        if not question.answers:
            where = f"question {shorten(question.id)}"
            raise DataError(where, "no answers", "the texts of its answers")
        count += 1
        if question.id in predictions:
            prediction = predictions[question.id]
            matches += exact_match(prediction, question.answers)
            overlaps += f1(prediction, question.answers)
    if not count:
        raise DataError("questions", "none", "at least one with answers")
    return {"questions": count, "em": matches / count, "f1": overlaps / count}


def reading_evaluator(
    questions: Sequence[Question],
    build: Callable[[Any], Any],
    live: bool = False,
    read: int = 0,
) -> Callable[[Any], Dict[str, float]]:
    """Evaluator of a network that reads answers, while it trains.

    Parameters
    ----------
    questions : sequence of Question
        Development questions with their answers, and their documents as candidates.
    build : callable
        Takes the network and returns its reader, with the method ``read_all`` of
        `wqa.systems.reader.reader.Reader`.
    live : bool
        Whether readers read the network's current parameters at each call. Such a reader is built
        once; otherwise each evaluation builds a new one.
    read : int
        Number of candidates to read, the first of a question; 0 for all.

    Returns
    -------
    callable
        Takes the network and returns its figures, as `score_answers` does.

    Raises
    ------
    DataError
        If a question has no answers.
    """
    score_answers({}, questions)  # now, not at the first evaluation
    shortened = []
    for question in questions:
        kept = question.candidates[: read or None]
        shortened.append(question._replace(candidates=kept))
    current = built_of(build, live)

    def figures_of(network: Any) -> Dict[str, float]:
        predictions = {}
        for question, answers in zip(shortened, current(network).read_all(shortened)):
            if answers:
                predictions[question.id] = answers[0].text
        return score_answers(predictions, shortened)

    return figures_of


def write_predictions(path: PathLike, predictions: Mapping[str, str]) -> None:
    """Write predictions as SQuAD's script reads them: one JSON object of texts by question id.

    Parameters
    ----------
    path : str or path-like
        The file; it appears when it is whole.
    predictions : mapping of str to str
        Predicted text by question id.

    Raises
    ------
    StorageError
        If the file cannot be written.
    """
    with atomic_writer(path) as file:
        json.dump(dict(predictions), file, ensure_ascii=False)
        file.write("\n")


class LabelScores(NamedTuple):
    """Label accuracy with the counts behind it.

    Attributes
    ----------
    claims : int
        Number of claims.
    accuracy : float
        Share of the claims whose predicted label is theirs, in [0, 1].
    confusion : tuple of tuple of int
        Numbers of claims: a row for each label of `wqa.data.documents.LABELS`, a column for each
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
        rows: List[Dict[str, Any]] = []
        for index, counts in enumerate(self.confusion):
            total = sum(counts)
            share = f"{100 * counts[index] / total:.2f}" if total else "-"
            predicted = zip(LABELS, counts)
            rows.append({"label / predicted": LABELS[index], **dict(predicted), "correct": share})
        return table(rows)


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
    count = correct = 0
    for claim in claims:
        where = f"claim {shorten(claim.id)}"
        if claim.label is None:
            raise DataError(where, "no label", "one of " + ", ".join(LABELS))
        if claim.id not in predictions:
            raise DataError(where, "no prediction", "a predicted label for each claim")
        label = label_of(predictions[claim.id], "label", f"prediction for {where}")
        predicted = LABELS.index(label)
        confusion[LABELS.index(claim.label)][predicted] += 1
        correct += label == claim.label
        count += 1
    if not count:
        raise DataError("claims", "none", "at least one with its label")
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
        `wqa.systems.mspp.claims.Verifier`.
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
