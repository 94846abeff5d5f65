"""Mean metrics of rankings or of a TREC run."""

from __future__ import annotations

import logging
from typing import Any, Dict, Iterable, List, Sequence

from wqa.data import Question, filter_questions
from wqa.data.records import filter_rule
from wqa.errors import DataError, OptionError, check_choice, shorten
from wqa.evaluation.metrics import METRICS, metrics_of, metrics_of_question
from wqa.evaluation.trec import TIES, Qrels, Run, break_ties, trec_order

LOGGER = logging.getLogger(__name__)

Figures = Dict[str, float]


def evaluate(
    rankings: Iterable[Any],
    questions: Sequence[Question],
    filter: str = "all",
    metrics: Sequence[str] = METRICS,
    total: int = 0,
    ties: str = "trec",
) -> Figures:
    """Mean metrics of rankings against the questions' labels.

    Candidates with equal scores are ordered by trec_eval's rule, descending document ids. Where a
    ranker drops candidates with equal scores, it keeps those that come first: let it rank
    `wqa.evaluation.by_document_id` of the questions, as `evaluate_ranker` does.

    Parameters
    ----------
    rankings : iterable of Ranking, or of sequences of int
        One a question, in the same order: a ranking, or just its ``order``, which is taken as it
        is.
    questions : sequence of Question
        Labelled questions.
    filter : {"all", "no-all-negative", "clean"}
        Which questions count. Under ``all`` a question without a positive scores 0.
    metrics : sequence of str
        Names of metrics, as `wqa.evaluation.metrics.metric` takes them.
    total : int
        Number of questions of the corpus, where those without any candidate are not among
        ``questions``: they count as 0. By default no question is missing.
    ties : {"trec", "pessimistic"}
        Order of candidates that tie: trec_eval's, or the correct ones last, which gives the lowest
        figures that an order of the ties can have.

    Returns
    -------
    dict
        Each metric in [0, 1], and ``questions``, how many were scored.

    Raises
    ------
    DataError
        If a question has an unlabelled candidate, or a ranking is missing or not a
        permutation of its question's candidates.
    OptionError
        If the filter, a metric or ``ties`` is unknown, or ``total`` does not fit.
    """
    check_choice("ties", ties, TIES)
    check_total(total, len(questions), filter)
    counted = {question.id for question in filter_questions(questions, filter)}
    rows = []
    iterator = iter(rankings)
    for question in questions:
        order = _order(next(iterator, ()), question, ties)
        if question.id in counted:
            rows.append(metrics_of_question(order, question, metrics))
    if next(iterator, None) is not None:
        raise DataError("rankings", f"more than {len(questions)}", "one a question")
    return _mean(rows, metrics, total)


def check_total(total: int, count: int, filter: str) -> None:
    """Check the number of questions of a corpus."""
    if not total:
        return
    if filter != "all":
        raise OptionError("total", f"with the filter {filter}", 'filter="all"')
    if total < count:
        raise OptionError("total", total, f"{count} or more, as the questions are")


def score_run(
    run: Run,
    qrels: Qrels,
    filter: str = "all",
    metrics: Sequence[str] = METRICS,
) -> Figures:
    """Mean metrics of a TREC run, equal to trec_eval's.

    Parameters
    ----------
    run : dict of dict
        Scores by question and document.
    qrels : dict of dict
        Grades by question and document; a document without one is not relevant.
    filter : {"all", "no-all-negative", "clean"}
        Which judged questions count.
    metrics : sequence of str
        Names of metrics, as `wqa.evaluation.metrics.metric` takes them.

    Returns
    -------
    dict
        The metrics; ``questions`` scored; ``missing``, judged questions that the run leaves
        out, which do not count, as in trec_eval; ``unjudged``, questions of the run that have no
        judgement and cannot count.

    Raises
    ------
    OptionError
        If the filter or a metric is unknown.
    DataError
        If the run and the judgements have no question in common.
    """
    kept = filter_qrels(qrels, filter)
    rows = metrics_of_run(run, kept, metrics)
    if not rows:
        found = f"{len(run)} questions, of which none is among the {len(kept)} judged ones"
        hint = "check that both are of one corpus, and the filter"
        raise DataError("run", found, "questions of the judgements", hint)
    figures = _mean(list(rows.values()), metrics)
    figures["missing"] = len(kept) - len(rows)
    figures["unjudged"] = sum(qid not in qrels for qid in run)
    if not any(doc in grades for qid, grades in kept.items() for doc in run.get(qid, ())):
        LOGGER.warning("no document of the run is judged: the figures say nothing")
    return figures


def metrics_of_run(run: Run, qrels: Qrels, metrics: Sequence[str]) -> Dict[str, Figures]:
    """Metrics of each judged question that a TREC run has, by its id."""
    rows = {}
    for qid, grades in qrels.items():
        if qid in run:
            ranked = [grades.get(doc, 0) for doc in trec_order(run[qid])]
            rows[qid] = metrics_of(ranked, list(grades.values()), metrics)
    return rows


def filter_qrels(qrels: Qrels, filter: str = "all") -> Qrels:
    """Keep the judged questions that a filter names."""
    rule = filter_rule(filter)
    kept = {}
    for qid, grades in qrels.items():
        positives = sum(grade > 0 for grade in grades.values())
        if rule(positives, len(grades) - positives):
            kept[qid] = grades
    return kept


def _order(ranking: Any, question: Question, ties: str) -> List[int]:
    """Candidate indices of a ranking, best first, after a check that each occurs once."""
    order = list(getattr(ranking, "order", ranking))
    count = len(question.candidates)
    indices = list(range(count))
    if sorted(order) != indices:
        problem = f"a ranking of {len(order)} candidates"
        expected = f"each of its {count} candidates once"
        raise DataError(f"question {shorten(question.id)}", problem, expected)
    return break_ties(ranking, question, ties)


def _mean(rows: Sequence[Figures], metrics: Sequence[str], total: int = 0) -> Figures:
    count = total or len(rows)
    figures: Figures = {"questions": count}
    for name in metrics:
        figures[name] = sum(row[name] for row in rows) / max(count, 1)
    return figures
