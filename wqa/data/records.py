"""Questions and candidates, the records of all corpora."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from wqa.errors import DataError, shorten


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
    for number, candidate in enumerate(question.candidates, 1):
        if candidate.id is not None:
            check_id(candidate.id, f"{where}, candidate {number}", _CANDIDATE_ID)
    for number, document_id in enumerate(question.document_ids, 1):
        if document_id in numbers:
            raise DataError(
                f"{where}, candidate {number}",
                f"document id {shorten(document_id)} belongs to candidate "
                f"{numbers[document_id]} too",
                "ids that are unique in a question; a candidate without one is QUESTION-INDEX",
                "rename one of the two",
            )
        numbers[document_id] = number


def check_id(value: object, where: str, expected: str = "text without white space") -> None:
    """Check the id of a document."""
    if not isinstance(value, str) or not value or re.search(r"\s", value):
        raise DataError(where, f"id is {shorten(value)}", expected)
