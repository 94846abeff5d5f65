"""Questions and candidates, the records of all corpora, and filters of questions."""

from __future__ import annotations

import logging
import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from wqa.config.training import QUESTION_FILTERS
from wqa.errors import DataError, check_choice, shorten

LOGGER = logging.getLogger(__name__)


class Candidate(NamedTuple):
    """A sentence that may answer a question.

    Attributes
    ----------
    text : str
        The sentence.
    label : int, optional
        1 if the sentence answers the question, 0 if it does not, None if that is not known.
    id : str, optional
        The document's id in its collection, None if it has none. It holds no white space and is
        unique among the candidates of its question.
    rank : int, optional
        Its index in the order in which the candidates were retrieved, where they are in another
        order or some of them are left out. No file holds it.
    meta : dict of str to Any, optional
        What else is known of it, as values of JSON. No ranker reads it; None where it is absent.
    """

    text: str
    label: Optional[int] = None
    id: Optional[str] = None
    rank: Optional[int] = None
    meta: Optional[Mapping[str, Any]] = None


class Question(NamedTuple):
    """A question with its candidates.

    Attributes
    ----------
    id : str
        The question's id, unique in its corpus.
    question : str
        The question's text.
    candidates : tuple of Candidate
        Its candidates, in the order in which they were retrieved. Empty before a retrieval.
    answers : tuple of str
        Texts that answer the question, such as the spans of a reading corpus. Empty where they are
        not known.
    """

    id: str
    question: str
    candidates: Tuple[Candidate, ...]
    answers: Tuple[str, ...] = ()

    @property
    def labels(self) -> Tuple[Optional[int], ...]:
        """Labels in candidate order."""
        return tuple(candidate.label for candidate in self.candidates)

    @property
    def ranks(self) -> Tuple[int, ...]:
        """Indices in the order in which the candidates were retrieved, in candidate order."""
        return tuple(
            index if candidate.rank is None else candidate.rank
            for index, candidate in enumerate(self.candidates)
        )

    @property
    def original_order(self) -> Tuple[int, ...]:
        """Indices of the candidates, in the order in which they were retrieved.

        A ranker that reads the order takes it from here or from `ranks`: evaluation gives the
        candidates in another order (`wqa.evaluation.by_document_id`).
        """
        ranks = self.ranks
        return tuple(sorted(range(len(ranks)), key=ranks.__getitem__))

    @property
    def texts(self) -> Tuple[str, ...]:
        """Sentences in candidate order."""
        return tuple(candidate.text for candidate in self.candidates)

    @property
    def document_ids(self) -> Tuple[str, ...]:
        """Document ids in candidate order, as TREC files have them.

        A candidate without an id of its own is ``QUESTION-INDEX``, its index counted from 0.
        """
        return tuple(
            f"{self.id}-{index}" if candidate.id is None else candidate.id
            for index, candidate in enumerate(self.candidates)
        )


_CANDIDATE_ID = "text without white space, or no id where the candidate has none"


def check_document_ids(question: Question, where: str) -> None:
    """Check that the ids of candidates are valid in a TREC file."""
    if all(candidate.id is None for candidate in question.candidates):
        return
    numbers: Dict[str, int] = {}
    for number, document_id in enumerate(question.document_ids, 1):
        if question.candidates[number - 1].id is not None:
            check_id(document_id, f"{where}, candidate {number}", _CANDIDATE_ID)
        if document_id in numbers:
            first = numbers[document_id]
            problem = f"document id {shorten(document_id)} belongs to candidate {first} too"
            expected = "unique ids in a question; a candidate without one is QUESTION-INDEX"
            hint = "rename one of the two"
            raise DataError(f"{where}, candidate {number}", problem, expected, hint)
        numbers[document_id] = number


def check_id(value: object, where: str, expected: str = "text without white space") -> None:
    """Check the id of a document."""
    if not isinstance(value, str) or not value or re.search(r"\s", value):
        raise DataError(where, f"id is {shorten(value)}", expected)


#: Filter of the questions whose figures every command and evaluation gives by default: those with
#: an answer, as the papers count.
DEFAULT_FILTER = "no-all-negative"

#: Takes the numbers of positive and of negative candidates of a question, or two arrays of them,
#: and returns whether the question is kept.
Rule = Callable[[Any, Any], Any]


_RULES: Dict[str, Rule] = {
    "all": lambda positives, negatives: positives + negatives >= 0,
    "no-all-negative": lambda positives, negatives: positives > 0,
    "clean": lambda positives, negatives: (positives > 0) & (negatives > 0),
}


def filter_rule(name: str) -> Rule:
    """Look up the rule of a filter."""
    check_choice("filter", name, _RULES)
    return _RULES[name]


def _of_question(rule: Rule) -> Callable[[Question], bool]:
    return lambda question: bool(rule(question.labels.count(1), question.labels.count(0)))


#: Filters of questions by the names that the papers use ("w/o ALL-" is ``no-all-negative``).
FILTERS: Dict[str, Callable[[Question], bool]] = {
    name: _of_question(_RULES[name]) for name in QUESTION_FILTERS
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
    check_choice("filter", name, FILTERS)
    kept = []
    for question in questions:
        known_labels(question)
        if FILTERS[name](question):
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
    if kept and all(0 not in question.labels for question in kept):
        LOGGER.warning("no candidate is wrong: every order of them is perfect")
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
            where = f"question {shorten(question.id)}"
            found, hint = f"candidate {number} has no label", "in a table, its column is 'label'"
            raise DataError(where, found, "a label, 0 or 1, on each", hint)
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
