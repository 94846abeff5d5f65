"""The order of candidates that tie, in evaluation: trec_eval's rule, or the pessimistic one.

trec_eval ranks documents with equal scores by their ids, descending. The order of a file may depend
on the labels: TREC-QA's files list the correct candidates first, so that a ranker with constant
scores would have a MAP of 100 in that order.

Rankers break ties by the order in which they get the candidates, also where they drop some of them.
Evaluation therefore gives them the candidates by descending id (`by_document_id`). `break_ties`
applies the rule to a ranking of candidates in any other order.

The pessimistic rule ranks the correct candidates last among those that tie. Its figures are the
lowest that an order of the ties can have. No ranker could follow it, as it reads the labels, and
no ranker gets the candidates in its order: it applies to finished rankings.
"""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Sequence

import numpy as np

from wqa.data import Question
from wqa.errors import check_choice

#: Rules for candidates that tie.
TIES = ("trec", "pessimistic")


def document_key(document_id: str) -> bytes:
    """Key by which trec_eval compares document ids, byte by byte.

    Parameters
    ----------
    document_id : str
        Id of a document in TREC files.

    Returns
    -------
    bytes
        The id in UTF-8.
    """
    return document_id.encode("utf-8", "surrogatepass")


def by_document_id(questions: Iterable[Question]) -> List[Question]:
    """Sort the candidates of each question by their document ids, descending.

    A ranker breaks ties by the order of the candidates, so that its rankings of these questions
    follow trec_eval's rule, at drops too.

    Parameters
    ----------
    questions : iterable of Question
        Questions with their candidates, in any order.

    Returns
    -------
    list of Question
        The same questions. Each candidate has its document id as its id, and its ``rank``.
    """
    return [_sorted(question) for question in questions]


def _sorted(question: Question) -> Question:
    document_ids = question.document_ids
    ranks = question.ranks
    candidates = []
    for index in _descending(range(len(document_ids)), document_ids):
        candidate = question.candidates[index]
        candidates.append(candidate._replace(id=document_ids[index], rank=ranks[index]))
    return question._replace(candidates=tuple(candidates))


def _descending(indices: Iterable[int], document_ids: Sequence[str]) -> List[int]:
    """Candidate indices by document id: the rule for candidates that tie."""
    return sorted(indices, key=lambda index: document_key(document_ids[index]), reverse=True)


def ties_of(ranker: Any, ties: Optional[str] = None) -> str:
    """Rule by which candidates that tie are ordered.

    Parameters
    ----------
    ranker : Ranker
        The ranker, whose attribute ``ties`` is its own rule.
    ties : {"trec", "pessimistic"}, optional
        Rule to take in place of it.

    Returns
    -------
    str
        A name of `TIES`.

    Raises
    ------
    OptionError
        If there is no such rule.
    """
    rule = ties or str(getattr(ranker, "ties", "trec"))
    check_choice("ties", rule, TIES)
    return rule


def break_ties(ranking: Any, question: Question, ties: str = "trec") -> List[int]:
    """Order of a ranking, with candidates that tie by their document ids, descending.

    `wqa.inference.Ranking.differs` says which tie. Which of them a drop ratio dropped does not
    change: it follows the order in which the ranker got them.

    Parameters
    ----------
    ranking : Ranking, or sequence of int
        A ranking, or just its ``order``, which has no scores that could tie.
    question : Question
        The question that was ranked.
    ties : {"trec", "pessimistic"}
        Rule for candidates that tie: by document id alone, or first those that are not correct.

    Returns
    -------
    list of int
        Candidate indices, best first.
    """
    order = [int(index) for index in getattr(ranking, "order", ranking)]
    if not hasattr(ranking, "differs") or ranking.differs.all():
        return order
    document_ids = question.document_ids
    bounds = [0, *(np.flatnonzero(ranking.differs) + 1).tolist(), len(order)]
    broken: List[int] = []
    for start, end in zip(bounds, bounds[1:]):
        tied = _descending(order[start:end], document_ids)
        if ties == "pessimistic":
            tied.sort(key=lambda index: (question.labels[index] or 0) > 0)
        broken += tied
    return broken
