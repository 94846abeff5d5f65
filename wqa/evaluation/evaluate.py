"""Rankings or a TREC run, with judgements, to mean metrics."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Sequence, Union

from wqa.data import Question, filter_questions
from wqa.data.filters import FILTERS
from wqa.errors import DataError, OptionError, shorten
from wqa.evaluation.metrics import METRICS, metric
from wqa.evaluation.trec import Qrels, Run, trec_order

Figures = Dict[str, float]


def _mean(rows: List[Figures], metrics: Sequence[str]) -> Figures:
    figures: Figures = {"questions": len(rows)}
    figures.update(
        {name: sum(row[name] for row in rows) / len(rows) if rows else 0.0 for name in metrics}
    )
    return figures


def _row(ranked: Sequence[int], judged: Sequence[int], metrics: Sequence[str]) -> Figures:
    return {name: metric(name)(ranked, judged) for name in metrics}


def evaluate(
    rankings: Iterable[Any],
    questions: Sequence[Question],
    filter: str = "all",
    metrics: Sequence[str] = METRICS,
) -> Figures:
    """Mean metrics of rankings against the questions' labels.

    Parameters
    ----------
    rankings : iterable of Ranking, or of sequences of int
        One a question, in the same order: a ranking, or just its ``order``.
    questions : sequence of Question
        Labelled questions.
    filter : {"all", "no-all-negative", "clean"}
        Which questions count. Under ``all`` a question without a positive scores 0.
    metrics : sequence of str
        Names for `wqa.evaluation.metrics.metric`.

    Returns
    -------
    dict
        Each metric in [0, 1], and ``questions``, how many were scored.

    Raises
    ------
    DataError
        If a question has an unlabelled candidate, or a ranking is missing or not a
        permutation of its question's candidates.
    """
    counted = {question.id for question in filter_questions(questions, filter)}
    rows, iterator = [], iter(rankings)
    for question in questions:
        ranking = next(iterator, None)
        order = list(getattr(ranking, "order", ranking) if ranking is not None else ())
        if sorted(order) != list(range(len(question.candidates))):
            raise DataError(
                f"question {shorten(question.id)}",
                f"a ranking of {len(order)} candidates",
                f"each of its {len(question.candidates)} candidates once",
            )
        if question.id in counted:
            labels = [label or 0 for label in question.labels]
            rows.append(_row([labels[index] for index in order], labels, metrics))
    if next(iterator, None) is not None:
        raise DataError("rankings", f"more than {len(questions)}", "one a question")
    return _mean(rows, metrics)


def score_run(
    run: Run,
    qrels: Qrels,
    filter: str = "all",
    metrics: Sequence[str] = METRICS,
    complete: bool = False,
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
        Names for `wqa.evaluation.metrics.metric`.
    complete : bool
        Count a judged question that the run leaves out as 0 (``trec_eval -c``); otherwise it
        is left out of the mean, as trec_eval does by default.

    Returns
    -------
    dict
        The metrics; ``questions`` scored; ``missing``, judged questions that the run leaves
        out; ``unjudged``, questions of the run that have no judgement and cannot count.
    """
    if filter not in FILTERS:
        raise OptionError("--filter", shorten(filter), "one of " + ", ".join(FILTERS))
    kept = {qid: grades for qid, grades in qrels.items() if _counts(grades, filter)}
    rows = []
    for qid, grades in kept.items():
        if qid in run or complete:
            ranked = [grades.get(doc, 0) for doc in trec_order(run.get(qid, {}))]
            rows.append(_row(ranked, list(grades.values()), metrics))
    figures = _mean(rows, metrics)
    figures["missing"] = sum(qid not in run for qid in kept)
    figures["unjudged"] = sum(qid not in qrels for qid in run)
    return figures


def _counts(grades: Mapping[str, int], filter: str) -> bool:
    positive = any(grade > 0 for grade in grades.values())
    negative = any(grade <= 0 for grade in grades.values())
    return filter == "all" or (positive and (filter == "no-all-negative" or negative))


def table(rows: Sequence[Mapping[str, Union[str, float, None]]]) -> str:
    """Lay rows out as a plain table.

    Parameters
    ----------
    rows : sequence of mapping
        The same keys in each; metrics in [0, 1] are shown times 100, as the papers do, and None as
        a dash.

    Returns
    -------
    str
    """

    def cell(name: str, value: Union[str, float, None]) -> str:
        if value is None:
            return "-"
        if isinstance(value, (str, int)):
            return str(value)
        if name in ("map", "mrr") or "@" in name:
            return f"{100 * value:.2f}"
        return f"{value:.3f}"

    lines = [list(rows[0])] + [[cell(name, value) for name, value in row.items()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        "  ".join(text.rjust(width) for text, width in zip(line, widths)) for line in lines
    )
