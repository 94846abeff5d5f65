"""Several runs on the same questions: paired tests between them, or their spread over seeds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from wqa.data import DEFAULT_FILTER, Question
from wqa.errors import DataError, OptionError, printable
from wqa.evaluation import significance
from wqa.evaluation.evaluate import evaluate, filter_qrels, score_run
from wqa.evaluation.metrics import METRICS
from wqa.evaluation.rankers import Row, cost_of, questions_that_count, rank_questions
from wqa.evaluation.report import Cell, table
from wqa.evaluation.trec import Qrels, Run, break_ties, ties_of, trec_order

#: Rows of figures under ``rows``, and comparisons with the first run under ``comparisons``.
Comparisons = Dict[str, List[Row]]


class NamedRanker(NamedTuple):
    """A ranker and its name in tables.

    Attributes
    ----------
    name : str
        Name of the run in tables.
    ranker : Ranker
        Ranker of the run, with its drops set.
    drop_ratio : str
        Name of the drop setting; a dash where none is given.
    """

    name: str
    ranker: Any
    drop_ratio: str = "-"

    @property
    def title(self) -> str:
        """Name of the run with its drop setting."""
        return self.name if self.drop_ratio == "-" else f"{self.name} at {self.drop_ratio}"


class _Result(NamedTuple):
    """Figures and rankings of one run."""

    title: str
    row: Row
    values: significance.PerQuestion
    orders: Dict[str, List[str]]


def compare_rankers(
    rankers: Iterable[NamedRanker],
    questions: Iterable[Question],
    filter: str = DEFAULT_FILTER,
    metrics: Sequence[str] = METRICS,
    progress: bool = False,
    ties: Optional[str] = None,
) -> Comparisons:
    """Compare rankers with the first one, on the same questions.

    Parameters
    ----------
    rankers : iterable of NamedRanker
        At least two. They run one after another, so an iterator may load each when it is needed.
    questions : iterable of Question
        Labelled questions.
    filter : {"all", "no-all-negative", "clean"}
        Which questions count; the others are not ranked.
    metrics : sequence of str
        Names of metrics, as `wqa.evaluation.metrics.metric` takes them.
    progress : bool
        Show a bar on standard error while ranking.
    ties : {"trec", "pessimistic"}, optional
        Rule for candidates that tie; each ranker's own by default.

    Returns
    -------
    dict
        ``rows``, the figures of each ranker, with the number of over-long questions that were
        truncated and skipped, and ``ties`` where a rule is not trec_eval's; ``comparisons``, one
        for each ranker after the first: Spearman's rho of the rankings, and a
        `wqa.evaluation.significance.Comparison` of every metric as a dict.

    Raises
    ------
    OptionError
        If there are fewer than two rankers, or the filter or a metric is unknown.
    DataError
        If a candidate has no label, or the rankers do not skip the same over-long questions: the
        tests pair the questions.
    """
    return _compared(_results(rankers, questions, filter, metrics, progress, ties))


def evaluate_seeds(
    rankers: Iterable[NamedRanker],
    questions: Iterable[Question],
    filter: str = DEFAULT_FILTER,
    metrics: Sequence[str] = METRICS,
    progress: bool = False,
    ties: Optional[str] = None,
) -> List[Row]:
    """Evaluate rankers that differ by their seed.

    Parameters
    ----------
    rankers : iterable of NamedRanker
        At least two, of each seed one.
    questions, filter, metrics, progress, ties
        As `compare_rankers` takes them.

    Returns
    -------
    list of dict
        A row for each ranker, then the rows ``mean`` and ``deviation``.

    Raises
    ------
    OptionError
        If there are fewer than two rankers, or ``filter`` or a metric is unknown.
    DataError
        If a candidate has no label, or the rankers do not skip the same
        over-long questions.
    """
    results = _results(rankers, questions, filter, metrics, progress, ties)
    if len(results) < 2:
        raise OptionError("runs", f"{len(results)} of them", "at least two, of each seed one")
    rows = [result.row for result in results]
    names = ("questions", *metrics, "cost")
    spread = significance.over_seeds([{name: row[name] for name in names} for row in rows])
    for index, title in enumerate(("mean", "deviation")):
        row = {**rows[0], "run": title, "drop_ratio": "", "token_cost": None}
        row.update({name: pair[index] for name, pair in spread.items()})
        rows.append(row)
    return rows


def compare_trec_runs(
    runs: Sequence[Tuple[str, Run]],
    qrels: Qrels,
    filter: str = DEFAULT_FILTER,
    metrics: Sequence[str] = METRICS,
) -> Comparisons:
    """Compare TREC runs with the first one.

    Parameters
    ----------
    runs : sequence of (str, dict of dict)
        At least two names with their runs.
    qrels : dict of dict
        Grades by question and document.
    filter : {"all", "no-all-negative", "clean"}
        Filter of judged questions.
    metrics : sequence of str
        As `wqa.evaluation.score_run` takes them.

    Returns
    -------
    dict
        ``rows`` and ``comparisons``, as `compare_rankers` returns them. The tests are over the
        questions that the filter keeps. Spearman's rho is over those of them for which both runs
        rank the same documents.

    Raises
    ------
    OptionError
        If there are fewer than two runs, or the filter or a metric is unknown.
    DataError
        If the runs do not rank the same questions.
    """
    judged = filter_qrels(qrels, filter)
    results = []
    for name, run in runs:
        row = {"run": name, "filter": filter, **score_run(run, qrels, filter, metrics)}
        orders = {qid: trec_order(run[qid]) for qid in judged if qid in run}
        values = significance.per_question_of_run(run, judged, metrics)
        results.append(_Result(name, row, values, orders))
    return _compared(results)


def _compared(results: Sequence[_Result]) -> Comparisons:
    """Compare each run with the first by every metric, by its values a question."""
    if len(results) < 2:
        raise OptionError("runs", f"{len(results)} of them", "at least two to compare")
    first = results[0]
    comparisons: List[Row] = []
    for second in results[1:]:
        rho, deviation = significance.rank_correlation(first.orders, second.orders)
        metrics = []
        for name, values in first.values.items():
            compared = significance.compare(values, second.values[name], name)
            metrics.append(dataclasses.asdict(compared))
        row: Row = {"first": first.title, "second": second.title, "spearman": rho}
        comparisons.append({**row, "spearman_deviation": deviation, "metrics": metrics})
    return {"rows": [result.row for result in results], "comparisons": comparisons}


def comparison_table(comparison: Row) -> str:
    """Lay a comparison out as text.

    Parameters
    ----------
    comparison : mapping
        One of the ``comparisons`` of `compare_rankers` or `compare_trec_runs`.

    Returns
    -------
    str
        A title, and a table with a row for each metric.
    """
    title = (
        f"{printable(comparison['second'])} less {printable(comparison['first'])}; "
        f"Spearman's rho of the rankings "
        f"{comparison['spearman']:.3f} (deviation {comparison['spearman_deviation']:.3f})"
    )
    rows = []
    for row in comparison["metrics"]:
        names = ("metric", "first", "second", "difference", "low", "high")
        cells: Dict[str, Cell] = {name: row[name] for name in names}
        for name in ("t_test", "wilcoxon", "spearman", "spearman_p"):
            cells[name] = "-" if math.isnan(row[name]) else f"{row[name]:.4f}"
        cells["changed"] = f"{row['changed']} of {row['questions']}"
        rows.append(cells)
    return title + "\n" + table(rows)


def prepared_alike(
    rankers: Iterable[NamedRanker], questions: Sequence[Question]
) -> Iterator[Tuple[NamedRanker, Any]]:
    """Prepare questions for several rankers, which must skip the same ones.

    Parameters
    ----------
    rankers : iterable of NamedRanker
        The rankers. An iterator may load each when it is needed.
    questions : sequence of Question
        Questions with their candidates.

    Yields
    ------
    (NamedRanker, PreparedQuestions)
        Each ranker, and the questions that it ranks.

    Raises
    ------
    DataError
        If a ranker does not skip the over-long questions that the first skips, or skips all.
    """
    counted: List[Question] = []
    first = ""
    for entry in rankers:
        prepared = entry.ranker.prepare(questions)
        if first and prepared.questions != counted:
            problem = f"skips other over-long questions than {first}: {prepared.skipped} of "
            problem += f"{len(questions)}"
            expected = f"the same {len(counted)} questions for all runs"
            raise DataError(entry.title, problem, expected, 'set long_questions="truncate"')
        counted = prepared.questions
        first = first or entry.title
        yield entry, prepared


def _results(
    rankers: Iterable[NamedRanker],
    questions: Iterable[Question],
    filter: str,
    metrics: Sequence[str],
    progress: bool,
    ties: Optional[str],
) -> List[_Result]:
    """Rank the questions that all rankers rank."""
    results: List[_Result] = []
    for entry, prepared in prepared_alike(rankers, questions_that_count(questions, filter)):
        ranked, rule = prepared.questions, ties_of(entry.ranker, ties)
        rankings = rank_questions(entry.ranker, ranked, entry.name, progress)
        orders = [break_ties(*pair, rule) for pair in zip(rankings, ranked)]
        row: Row = {"run": entry.name, "drop_ratio": entry.drop_ratio, "filter": filter}
        row.update(evaluate(orders, ranked, metrics=metrics))
        row.update(cost_of(rankings))
        row.update(prepared.counts)
        documents = {}
        for question, order in zip(ranked, orders):
            names = question.document_ids
            documents[question.id] = [names[index] for index in order]
        values = significance.per_question(orders, ranked, metrics)
        row["ties"] = rule
        results.append(_Result(entry.title, row, values, documents))
    if all(result.row["ties"] == "trec" for result in results):
        for result in results:
            del result.row["ties"]
    return results
