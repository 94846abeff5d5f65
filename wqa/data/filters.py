"""Which questions count: all, those with an answer, or those with both kinds of candidate."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List

from wqa.data.records import Question
from wqa.errors import DataError, OptionError, shorten

#: Filters by the names that the papers use ("w/o ALL-" is ``no-all-negative``).
FILTERS: Dict[str, Callable[[Question], bool]] = {
    "all": lambda question: True,
    "no-all-negative": lambda question: 1 in question.labels,
    "clean": lambda question: 1 in question.labels and 0 in question.labels,
}


def filter_questions(questions: Iterable[Question], name: str) -> List[Question]:
    """Keep the questions that a filter names.

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

    Raises
    ------
    OptionError
        If the filter is unknown.
    DataError
        If a candidate has no label.
    """
    if name not in FILTERS:
        raise OptionError("--filter", shorten(name), "one of " + ", ".join(FILTERS))
    kept = []
    for question in questions:
        if None in question.labels:
            raise DataError(
                f"question {shorten(question.id)}",
                f"candidate {question.labels.index(None) + 1} has no label",
                "a label, 0 or 1, on each",
            )
        if FILTERS[name](question):
            kept.append(question)
    return kept


def count(questions: Iterable[Question]) -> Dict[str, int]:
    """Count questions, candidates and correct candidates.

    Parameters
    ----------
    questions : iterable of Question

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
