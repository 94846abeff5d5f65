"""Filters of questions: all, those with an answer, or those with both kinds of candidate."""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from wqa.data.records import Question
from wqa.errors import DataError, check_choice, shorten

LOGGER = logging.getLogger(__name__)

#: Filter of the questions whose figures every command and evaluation gives by default: those with
#: an answer, as the papers count.
DEFAULT_FILTER = "no-all-negative"

#: Takes the numbers of positive and of negative candidates of a question, or two arrays of them,
#: and returns whether the question is kept.
Rule = Callable[[Any, Any], Any]


def _all(positives: Any, negatives: Any) -> Any:
    return positives + negatives >= 0


def _no_all_negative(positives: Any, negatives: Any) -> Any:
    return positives > 0


def _clean(positives: Any, negatives: Any) -> Any:
    return (positives > 0) & (negatives > 0)


_RULES: Dict[str, Rule] = {
    "all": _all,
    "no-all-negative": _no_all_negative,
    "clean": _clean,
}


def filter_rule(name: str) -> Rule:
    """Look up the rule of a filter."""
    check_choice("filter", name, _RULES)
    return _RULES[name]


def _keeps(rule: Rule, question: Question) -> bool:
    return rule(question.labels.count(1), question.labels.count(0))


#: Filters of questions by the names that the papers use ("w/o ALL-" is ``no-all-negative``).
FILTERS: Dict[str, Callable[[Question], bool]] = {
    name: functools.partial(_keeps, rule) for name, rule in _RULES.items()
}


def filter_questions(questions: Iterable[Question], name: str) -> List[Question]:
    """Keep the questions that pass a filter.

    Parameters
    ----------
    questions : iterable of Question
        Labelled questions.
    name : {"all", "no-all-negative", "clean"}
        ``all`` keeps everything; ``no-all-negative`` needs a positive candidate;
        ``clean`` needs a positive and a negative one.

    Returns
    -------
    list of Question
        The questions that are kept, in their order.

    Raises
    ------
    OptionError
        If the filter is unknown.
    DataError
        If a candidate has no label.
    """
    rule = filter_rule(name)
    kept = []
    for question in questions:
        labels = known_labels(question)
        if rule(labels.count(1), labels.count(0)):
            kept.append(question)
    return kept


def chosen_filter(name: Optional[str], total: int = 0) -> str:
    """The filter of an evaluation."""
    return name or ("all" if total else DEFAULT_FILTER)


def filter_and_note(questions: Iterable[Question], name: str) -> List[Question]:
    """Keep the questions that pass a filter, and log what `note_filter` says of the others."""
    questions = list(questions)
    kept = filter_questions(questions, name)
    answered = filter_questions(questions, DEFAULT_FILTER)
    note_filter(name, len(questions), len(answered), len(kept))
    return kept


def note_filter(name: str, questions: int, answered: int, kept: int) -> None:
    """Log how many questions a filter leaves out, or how many without an answer count as 0."""
    if name == "all" and answered < questions:
        LOGGER.warning(
            f"{questions - answered} of {questions} questions have no correct candidate and count "
            f"as 0; the filter {DEFAULT_FILTER} leaves them out, as papers do"
        )
    elif kept < questions:
        LOGGER.warning(
            f"{questions - kept} of {questions} questions are left out by the filter {name}; under "
            "all, those without a correct candidate count as 0"
        )


def known_labels(question: Question) -> Tuple[int, ...]:
    """Labels of a question all of whose candidates are labelled."""
    labels = []
    for number, label in enumerate(question.labels, 1):
        if label is None:
            raise DataError(
                f"question {shorten(question.id)}",
                f"candidate {number} has no label",
                "a label, 0 or 1, on each",
            )
        labels.append(label)
    return tuple(labels)


def count(questions: Iterable[Question]) -> Dict[str, int]:
    """Count questions, candidates and correct candidates.

    Parameters
    ----------
    questions : iterable of Question
        The questions to count.

    Returns
    -------
    dict
        Keys ``questions``, ``candidates``, ``correct``.
    """
    totals = {"questions": 0, "candidates": 0, "correct": 0}
    for question in questions:
        totals["questions"] += 1
        totals["candidates"] += len(question.candidates)
        totals["correct"] += question.labels.count(1)
    return totals
