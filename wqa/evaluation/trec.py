"""TREC run files (``qid Q0 docid rank score tag``), qrels (``qid 0 docid rel``), and ties.

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

import itertools
import math
import re
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.data.records import check_document_ids
from wqa.errors import DataError, check_choice, shorten
from wqa.evaluation.run_metadata import header_of, split_header
from wqa.io.files import PathLike
from wqa.io.lines import write_lines

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
    ordered = []
    for question in questions:
        document_ids = question.document_ids
        ranks = question.ranks
        candidates = []
        for index in _descending(range(len(document_ids)), document_ids):
            candidate = question.candidates[index]
            candidates.append(candidate._replace(id=document_ids[index], rank=ranks[index]))
        ordered.append(question._replace(candidates=tuple(candidates)))
    return ordered


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
    order = getattr(ranking, "order", ranking)
    order = [int(index) for index in order]
    if not hasattr(ranking, "differs") or ranking.differs.all():
        return order
    document_ids = question.document_ids
    ends = np.flatnonzero(ranking.differs) + 1
    bounds = [0, *ends.tolist(), len(order)]
    broken: List[int] = []
    for start, end in zip(bounds, bounds[1:]):
        tied = _descending(order[start:end], document_ids)
        if ties == "pessimistic":
            is_correct = [(label or 0) > 0 for label in question.labels]
            tied.sort(key=is_correct.__getitem__)
        broken += tied
    return broken


Run = Dict[str, Dict[str, float]]
Qrels = Dict[str, Dict[str, int]]

#: A number as C reads it; Python's own reader takes digits of other scripts and underscores too.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _read(
    path: PathLike,
    columns: Sequence[str],
    value_of: Callable[[Sequence[str], str], Any],
    words: Tuple[str, str],
) -> Dict[str, Dict[str, Any]]:
    """Read a value for each question and document; the words are for messages."""
    kind, done = words
    values: Dict[str, Dict[str, Any]] = {}
    _, lines = split_header(path)
    for number, line in lines:
        where = f"{path}, line {number}"
        # Only ASCII white space separates: a document id may hold any other character.
        parts = re.split(r"[ \t\r\n\f\v]+", line)
        fields = list(filter(None, parts))
        if len(fields) != len(columns):
            expected = f"{len(columns)}: " + " ".join(columns)
            raise DataError(where, f"{len(fields)} columns", expected)
        value = value_of(fields, where)
        qid, doc = fields[0], fields[2]
        if doc in values.setdefault(qid, {}):
            problem = f"document {shorten(doc)} is {done} twice for {shorten(qid)}"
            raise DataError(where, problem, "once")
        values[qid][doc] = value
    if not values:
        raise DataError(path, f"the file holds no {kind}", "lines of: " + " ".join(columns))
    return values


def read_run(path: PathLike) -> Run:
    """Read a run; only question, document and score count, as in trec_eval. A header is skipped.

    Parameters
    ----------
    path : str or path-like
        Run file.

    Returns
    -------
    dict of dict
        Score of each document by question id and document id.

    Raises
    ------
    DataError
        For a malformed line, a score that is no finite number, or a document ranked twice.
    """
    columns = ("qid", "Q0", "docid", "rank", "score", "tag")
    return _read(path, columns, _score, ("ranking", "ranked"))


def _score(fields: Sequence[str], where: str) -> float:
    score = fields[4]
    value = math.nan
    if _NUMBER.fullmatch(score):
        value = float(score)
    if not math.isfinite(value):
        raise DataError(where, f"score {shorten(score)}", "a finite number")
    return value


def read_qrels(path: PathLike) -> Qrels:
    """Read relevance judgements.

    Parameters
    ----------
    path : str or path-like
        Qrels file.

    Returns
    -------
    dict of str to dict
        Grades of the documents of each question.

    Raises
    ------
    DataError
        For a malformed line, a grade that is not a whole number, or a document judged twice.
    """
    columns = ("qid", "0", "docid", "rel")
    return _read(path, columns, _grade, ("judgement", "judged"))


def _grade(fields: Sequence[str], where: str) -> int:
    grade = fields[3]
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", grade):
        raise DataError(where, f"rel {shorten(grade)}", "a whole number")
    return int(grade)


def qrels_from(questions: Iterable[Question]) -> Qrels:
    """Judgements of labelled questions; a candidate without a label is left unjudged.

    Parameters
    ----------
    questions : iterable of Question
        The questions, whose candidates have document ids.

    Returns
    -------
    dict of dict
        Labels by question id and document id.

    Raises
    ------
    DataError
        If a document id is not valid in a TREC file.
    """
    qrels: Qrels = {}
    for question in questions:
        check_run_ids(question)
        grades = {}
        for document_id, label in zip(question.document_ids, question.labels):
            if label is not None:
                grades[document_id] = label
        qrels[question.id] = grades
    return qrels


def trec_order(scores: Dict[str, float]) -> List[str]:
    """Documents in trec_eval's order: by falling score, ties by falling document id.

    trec_eval holds scores in single precision, so scores that differ less than that tie, and it
    compares ids byte by byte.
    """
    with np.errstate(over="ignore"):
        values = list(scores.values())
        rounded = np.array(values, dtype=np.float32)
    keys = [document_key(doc) for doc in scores]
    rows = list(zip(rounded.tolist(), keys, scores))
    rows.sort(reverse=True)
    return [doc for _, _, doc in rows]


def write_run(
    path: PathLike,
    questions: Iterable[Question],
    rankings: Iterable,
    tag: str = "wqa",
    metadata: Optional[Mapping[str, Any]] = None,
) -> None:
    """Write rankings as a run that trec_eval orders in the same way.

    trec_eval sorts by score, but a cascade's order does not follow from its scores alone:
    candidates that an early exit dropped come after the survivors. A score that is not below the
    one ranked before it is therefore lowered to just below it, in single precision. So no two
    scores of a question are equal, and candidates that tie are in the order in which `evaluate`
    ranks them.

    Parameters
    ----------
    path : str or path-like
        The run file, plain or ``.gz``.
    questions : iterable of Question
        The questions that were ranked. Candidates are named by their document ids.
    rankings : iterable of Ranking
        One a question, in the same order.
    tag : str
        Name of the system.
    metadata : mapping, optional
        How the run was made, for a header (`wqa.evaluation.run_metadata`). trec_eval and
        ir_measures read no run with one.

    Raises
    ------
    DataError
        If the id of a question or a document is not valid in a TREC file.
    StorageError
        If the file cannot be written.
    """
    header = [] if metadata is None else header_of(metadata)
    lines = itertools.chain.from_iterable(
        run_lines(question, ranking, tag) for question, ranking in zip(questions, rankings)
    )
    write_lines(path, itertools.chain(header, lines))


def run_lines(question: Question, ranking: Any, tag: str = "wqa") -> Iterator[str]:
    """Lines of one question in a run, as `write_run` writes them, without their ends."""
    check_run_ids(question)
    document_ids = question.document_ids
    order = break_ties(ranking, question)
    ranked = [ranking.scores[index] for index in order]
    scores = _falling(ranked)
    for rank, (index, score) in enumerate(zip(order, scores), 1):
        # Nine digits tell all numbers of single precision apart.
        number = f"{score:.9g}"
        document_id = document_ids[index]
        yield " ".join((question.id, "Q0", document_id, str(rank), number, tag))


def check_run_ids(question: Question) -> None:
    """Refuse ids that a run cannot hold."""
    _refuse_spaces(question.id)
    check_document_ids(question, f"question {shorten(question.id)}")


def _falling(scores: Sequence[float]) -> List[np.float32]:
    """Scores in single precision, each lowered to below the one before where it is not."""
    # The bits of the lowest finite score; those of the next higher score are one less. A score
    # leaves room for all that follow it, even if several are minus infinity.
    lowest = np.uint32(0xFF7FFFFF)
    behind = np.arange(len(scores), dtype=np.uint32)
    behind = behind[::-1]
    floors = (lowest - behind).view(np.float32)
    below = np.float32(-np.inf)
    falling = []
    last = np.float32(np.inf)
    for value, floor in zip(scores, floors):
        score = np.float32(value)
        if not score < last:
            score = np.nextafter(last, below)
        last = max(score, floor)
        falling.append(last)
    return falling


def write_qrels(path: PathLike, questions: Iterable[Question]) -> None:
    """Write the labels of questions as qrels.

    Parameters
    ----------
    path : str or path-like
        Qrels file to write, plain or ``.gz``.
    questions : iterable of Question
        Labelled questions. Candidates are named by their document ids.

    Raises
    ------
    DataError, StorageError
        As `write_run` raises them.
    """
    write_lines(path, _qrels_lines(qrels_from(questions)))


def _qrels_lines(qrels: Qrels) -> Iterator[str]:
    for qid, grades in qrels.items():
        for doc, grade in grades.items():
            yield f"{qid} 0 {doc} {grade}"


def _refuse_spaces(qid: str) -> None:
    if re.search(r"\s", qid):
        where = f"question {shorten(qid)}"
        problem = "the id holds white space"
        raise DataError(where, problem, "none in a TREC file", "rename the question")
