"""Paired tests between two runs on the same questions, and means over seeds.

The papers mark differences by Student's t-test (Zhang et al. 2022, MSPP, Table 1) or by Wilcoxon's
signed-rank test, which assumes less of the distribution, and equal performance by Spearman's rank
correlation (Matsubara et al. 2022, Table 2). A bootstrap gives an interval. The tests themselves
are scipy's.
"""

from __future__ import annotations

import dataclasses
import statistics
import warnings
from typing import Any, Dict, Iterable, Mapping, Sequence, Tuple

import numpy as np
from scipy import stats

from wqa.data import Question
from wqa.errors import DataError, shorten
from wqa.evaluation.evaluate import metrics_of_run
from wqa.evaluation.metrics import METRICS, metrics_of_question
from wqa.evaluation.trec import Qrels, Run, break_ties

#: Values that differ by this share of the greatest value, or by less, are equal: 1/2 - 1/3 and
#: 1/3 - 1/6 differ in their last bit alone.
ROUNDING = 1e-12

#: Value of each metric for each question, by its id.
PerQuestion = Dict[str, Dict[str, float]]
#: Documents of each question, by its id, best first.
Orders = Mapping[str, Sequence[str]]


def per_question(
    rankings: Iterable[Any], questions: Sequence[Question], metrics: Sequence[str] = METRICS
) -> PerQuestion:
    """Metrics of each question.

    Parameters
    ----------
    rankings : iterable of Ranking, or of sequences of int
        One a question, in the same order.
    questions : sequence of Question
        Labelled questions.
    metrics : sequence of str
        Names of metrics, as `wqa.evaluation.metrics.metric` takes them.

    Returns
    -------
    dict of str to dict
        ``values[name][question id]``.
    """
    rows = {}
    for ranking, question in zip(rankings, questions):
        rows[question.id] = metrics_of_question(break_ties(ranking, question), question, metrics)
    return _by_metric(rows, metrics)


def per_question_of_run(run: Run, qrels: Qrels, metrics: Sequence[str] = METRICS) -> PerQuestion:
    """Metrics of each judged question that a TREC run has.

    Parameters
    ----------
    run : dict of dict
        Scores by question and document, as `wqa.evaluation.score_run` takes them.
    qrels : dict of dict
        Grades by question and document.
    metrics : sequence of str
        Names of metrics, as `wqa.evaluation.metrics.metric` takes them.

    Returns
    -------
    dict of str to dict
        ``values[name][question id]``.
    """
    return _by_metric(metrics_of_run(run, qrels, metrics), metrics)


def _by_metric(rows: Mapping[str, Mapping[str, float]], metrics: Sequence[str]) -> PerQuestion:
    values = {}
    for name in metrics:
        values[name] = {qid: row[name] for qid, row in rows.items()}
    return values


def paired(
    first: Mapping[str, float], second: Mapping[str, float]
) -> Tuple[np.ndarray, np.ndarray]:
    """Pair the values of two runs by question.

    Parameters
    ----------
    first : mapping of str to float
        A metric of the first run, by question id.
    second : mapping of str to float
        The same metric of the second run.

    Returns
    -------
    first, second : numpy.ndarray
        Two arrays of shape (Q,), in the order of ``first``.

    Raises
    ------
    DataError
        If the two are not on the same questions.
    """
    if not first or set(first) != set(second):
        only = {"first": set(first) - set(second), "second": set(second) - set(first)}
        counts = []
        for run, names in only.items():
            if names:
                counts.append(f"{len(names)} only in the {run}, such as {shorten(min(names))}")
        problem = "questions differ: " + ", ".join(counts) if counts else "no question in common"
        hint = "a paired test needs a value of each run for each question"
        raise DataError("the two runs", problem, "both on the same questions", hint)
    return np.array(list(first.values())), np.array([second[qid] for qid in first])


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two runs by one metric.

    Attributes
    ----------
    metric : str
        Name of the metric.
    questions : int
        Questions that both runs rank, Q.
    first : float
        Mean of the first run.
    second : float
        Mean of the second run.
    difference : float
        Mean of the second run less that of the first.
    low : float
        Lower end of the bootstrap's interval of the difference.
    high : float
        Its upper end.
    t_test : float
        Two-sided p-value of the paired t-test.
    wilcoxon : float
        Two-sided p-value of Wilcoxon's signed-rank test.
    spearman : float
        Spearman's rho between the two runs' values over the questions. A high one says that the
        runs do well on the same questions, not that their means are equal.
    spearman_p : float
        Two-sided p-value of rho, whose null hypothesis is that the values are not correlated.
    changed : int
        Questions on which the two runs differ.
    """

    metric: str
    questions: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    t_test: float
    wilcoxon: float
    spearman: float
    spearman_p: float
    changed: int


def compare(first: Mapping[str, float], second: Mapping[str, float], name: str) -> Comparison:
    """Compare two runs on the same questions.

    Parameters
    ----------
    first, second : mapping of str to float
        A metric of both runs, by question id.
    name : str
        Name of the metric, for the record.

    Returns
    -------
    Comparison
        The interval is that of 95 %, by percentiles of the mean difference over resampled
        questions. If the runs never differ, the p-values of both tests are 1 and the interval is a
        point. The p-value of the t-test is NaN where all differences are the same, as for a single
        question: they have no variance. Spearman's rho and its p-value are NaN for fewer than three
        questions, and where a run has the same value for all. Values that differ by rounding tie.

    Raises
    ------
    DataError
        If the two are not on the same questions.
    """
    one, two = paired(first, second)
    # Differences that tie mathematically are equal.
    changes = _tied(two - one, max(np.abs(one).max(), np.abs(two).max()))
    spearman, spearman_p = _spearman(one, two)
    low, high = _interval(changes)
    return Comparison(
        metric=name,
        questions=len(one),
        first=float(one.mean()),
        second=float(two.mean()),
        difference=float(changes.mean()),
        low=low,
        high=high,
        t_test=_t_test(changes),
        wilcoxon=_wilcoxon(changes),
        spearman=spearman,
        spearman_p=spearman_p,
        changed=int(np.count_nonzero(changes)),
    )


def _tied(values: np.ndarray, scale: float) -> np.ndarray:
    """Make values equal that differ by rounding alone, and those near 0 zero."""
    sizes = np.abs(values)
    order = np.argsort(sizes)
    ascending = sizes[order]
    # Groups and not multiples of a step: no value lies at the edge between two steps.
    starts = np.diff(ascending, prepend=0.0) > ROUNDING * scale
    least = np.concatenate([[0.0], ascending[starts]])
    sizes[order] = least[np.cumsum(starts)]
    return np.copysign(sizes, values)


def _t_test(changes: np.ndarray) -> float:
    if not changes.any():
        return 1.0
    if np.ptp(changes):
        return float(stats.ttest_1samp(changes, 0.0).pvalue)
    # A constant difference has no variance.
    return float("nan")


def _wilcoxon(changes: np.ndarray) -> float:
    if not changes.any():
        return 1.0
    with warnings.catch_warnings():
        # scipy warns that the sample is small for the normal approximation; Q is in the result.
        warnings.simplefilter("ignore")
        return float(stats.wilcoxon(changes).pvalue)


def _spearman(one: np.ndarray, two: np.ndarray) -> Tuple[float, float]:
    """Rho between the values of two runs, and its p-value."""
    one = _tied(one, np.abs(one).max())
    two = _tied(two, np.abs(two).max())
    if len(one) < 3 or not np.ptp(one) or not np.ptp(two):
        return float("nan"), float("nan")
    correlation = stats.spearmanr(one, two)
    return float(correlation.statistic), float(correlation.pvalue)


def _interval(changes: np.ndarray) -> Tuple[float, float]:
    """The bootstrap's interval of the mean; a point where all changes are equal."""
    if not np.ptp(changes):
        mean = float(changes.mean())
        return mean, mean
    bootstrap = stats.bootstrap(
        (changes,),
        np.mean,
        n_resamples=9999,
        batch=1000,
        method="percentile",
        random_state=np.random.default_rng(0),
    )
    low, high = bootstrap.confidence_interval
    return float(low), float(high)


def rank_correlation(first: Orders, second: Orders) -> Tuple[float, float]:
    """Spearman's rho between two rankings of each question.

    Parameters
    ----------
    first, second : dict of str to sequence of str
        Document ids of each question, best first, as a run ranks them.

    Returns
    -------
    mean, deviation : float
        Over the questions for which both rank the same documents, at least two; NaN without any.
    """
    values = []
    for qid, order in first.items():
        ranks = {document: rank for rank, document in enumerate(second.get(qid, ()))}
        if len(order) > 1 and set(order) == set(ranks):
            others = [ranks[document] for document in order]
            values.append(float(stats.spearmanr(np.arange(len(order)), others).statistic))
    if not values:
        return float("nan"), float("nan")
    return float(np.mean(values)), float(np.std(values))


def between_seeds(first: Sequence[float], second: Sequence[float]) -> float:
    """Student's t-test between two systems over their seeds.

    The seeds of one system are independent of those of the other, so the samples are not paired;
    their variances are taken as equal.

    Parameters
    ----------
    first, second : sequence of float
        A figure of each seed.

    Returns
    -------
    float
        Two-sided p-value; NaN if a system has fewer than two seeds. If no figure varies over the
        seeds of either system it is 1 where the two are equal, otherwise NaN.
    """
    if min(len(first), len(second)) < 2:
        return float("nan")
    values = np.array([*first, *second], dtype=float)
    values = _tied(values, np.abs(values).max())
    one, two = values[: len(first)], values[len(first) :]
    if not np.ptp(one) and not np.ptp(two):
        return 1.0 if one[0] == two[0] else float("nan")
    return float(stats.ttest_ind(two, one).pvalue)


def over_seeds(rows: Sequence[Mapping[str, float]]) -> Dict[str, Tuple[float, float]]:
    """Mean and sample standard deviation of every figure over runs that differ by their seed.

    Parameters
    ----------
    rows : sequence of mapping
        Figures of each run, as `wqa.evaluation.evaluate` gives them.

    Returns
    -------
    dict of str to (float, float)
        The deviation of a single run is NaN.

    Raises
    ------
    DataError
        If a run has other figures than the first, or another number of questions.
    """
    if not rows:
        raise DataError("runs", "none", "at least one")
    first = rows[0]
    for number, row in enumerate(rows[1:], 2):
        if set(row) != set(first) or row.get("questions") != first.get("questions"):
            problem = "other figures or questions than the first"
            raise DataError(f"run {number}", problem, "runs scored on the same questions")
    spread = {}
    for name in first:
        if name != "questions":
            values = [float(row[name]) for row in rows]
            deviation = statistics.stdev(values) if len(values) > 1 else float("nan")
            spread[name] = (statistics.fmean(values), deviation)
    return spread
