"""Paired tests between two runs on the same questions, and means over seeds.

The papers mark differences by Student's t-test (Zhang et al. 2022, MSPP, Table 1); Wilcoxon's
signed ranks ask less of the distribution, and a bootstrap gives an interval. The tests themselves
are scipy's.
"""

from __future__ import annotations

import dataclasses
import statistics
import warnings
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

import numpy as np
from scipy import stats

from wqa.data import Question
from wqa.errors import DataError, OptionError, shorten
from wqa.evaluation.metrics import METRICS, metric
from wqa.evaluation.trec import Qrels, Run, trec_order

#: Value of each metric for each question, by its id.
PerQuestion = Dict[str, Dict[str, float]]


def per_question(
    rankings: Iterable[Any], questions: Sequence[Question], metrics: Sequence[str] = METRICS
) -> PerQuestion:
    """Metrics of every question on its own.

    Parameters
    ----------
    rankings : iterable of Ranking, or of sequences of int
        One a question, in the same order.
    questions : sequence of Question
        Labelled.
    metrics : sequence of str

    Returns
    -------
    dict of str to dict
        ``found[name][question id]``.
    """
    found: PerQuestion = {name: {} for name in metrics}
    for ranking, question in zip(rankings, questions):
        labels = [label or 0 for label in question.labels]
        ranked = [labels[index] for index in getattr(ranking, "order", ranking)]
        for name in metrics:
            found[name][question.id] = metric(name)(ranked, labels)
    return found


def per_question_of_run(run: Run, qrels: Qrels, metrics: Sequence[str] = METRICS) -> PerQuestion:
    """Metrics of every judged question of a TREC run on its own.

    Parameters
    ----------
    run, qrels : dict of dict
        As `wqa.evaluation.score_run` takes them; judged questions that the run leaves out are not
        in the result.
    metrics : sequence of str

    Returns
    -------
    dict of str to dict
        ``found[name][question id]``.
    """
    found: PerQuestion = {name: {} for name in metrics}
    for qid, grades in qrels.items():
        if qid in run:
            ranked = [grades.get(doc, 0) for doc in trec_order(run[qid])]
            for name in metrics:
                found[name][qid] = metric(name)(ranked, list(grades.values()))
    return found


def paired(
    first: Mapping[str, float], second: Mapping[str, float]
) -> Tuple[np.ndarray, np.ndarray]:
    """Values of two runs, question by question.

    Parameters
    ----------
    first, second : mapping of str to float
        By question id.

    Returns
    -------
    first, second : numpy.ndarray
        (Q,) each, in the order of ``first``.

    Raises
    ------
    DataError
        If the two are not on the same questions.
    """
    alone = [
        f"{len(keys)} only in the {name}, such as {shorten(sorted(keys)[0])}"
        for name, keys in (
            ("first", set(first) - set(second)),
            ("second", set(second) - set(first)),
        )
        if keys
    ]
    if alone or not first:
        raise DataError(
            "the two runs",
            "questions differ: " + ", ".join(alone) if alone else "no question in common",
            "both on the same questions",
            "a paired test needs a value of each run for each question",
        )
    return np.array(list(first.values())), np.array([second[qid] for qid in first])


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two runs by one metric: the difference is the second's mean less the first's."""

    metric: str
    questions: int
    first: float
    second: float
    difference: float
    low: float  # of the bootstrap's interval for the difference
    high: float
    t_test: float  # p-values, two-sided
    wilcoxon: float
    changed: int  # questions on which the two differ


def compare(
    first: Mapping[str, float],
    second: Mapping[str, float],
    name: str,
    confidence: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> Comparison:
    """Compare two runs on the same questions.

    Parameters
    ----------
    first, second : mapping of str to float
        A metric by question id.
    name : str
        The metric's, for the record.
    confidence : float
        Of the bootstrap's interval, which takes percentiles of the mean difference over resampled
        questions.
    resamples : int
    seed : int
        Of the resampling.

    Returns
    -------
    Comparison
        Where the two never differ, both p-values are 1 and the interval is a point. A p-value is
        NaN where a single question leaves the t-test without a variance.

    Raises
    ------
    DataError
        If the two are not on the same questions.
    OptionError
        If the confidence or the number of resamples is out of range.
    """
    if not 0 < confidence < 1 or resamples < 1:
        raise OptionError(
            "confidence and resamples",
            f"{confidence} and {resamples}",
            "between 0 and 1; at least 1",
        )
    one, two = paired(first, second)
    changes = two - one
    low = high = float(changes.mean())
    t_test = wilcoxon = 1.0
    if changes.any():
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # that the sample is small for the normal approximation; Q is in the result
            wilcoxon = float(stats.wilcoxon(changes).pvalue)
        t_test = 0.0 if len(changes) > 1 else float("nan")
        if np.ptp(changes):
            t_test = float(stats.ttest_rel(two, one).pvalue)
            found = stats.bootstrap(
                (changes,),
                np.mean,
                n_resamples=resamples,
                batch=1000,
                confidence_level=confidence,
                method="percentile",
                random_state=np.random.default_rng(seed),
            )
            low, high = map(float, found.confidence_interval)
    return Comparison(
        name,
        len(one),
        float(one.mean()),
        float(two.mean()),
        float(changes.mean()),
        low,
        high,
        t_test,
        wilcoxon,
        int(np.count_nonzero(changes)),
    )


def rank_correlation(
    first: Sequence[Sequence[int]], second: Sequence[Sequence[int]]
) -> Tuple[float, float]:
    """Spearman's rho between two rankings of each question.

    Parameters
    ----------
    first, second : sequence of sequence of int
        Candidate indices of each question, best first, the same questions in the same order.

    Returns
    -------
    mean, deviation : float
        Over the questions with at least two candidates; NaN without any.

    Raises
    ------
    DataError
        If the two do not rank the same candidates.
    """
    if len(first) != len(second):
        raise DataError(
            "the two runs",
            f"{len(first)} and {len(second)} questions",
            "both on the same questions",
        )
    found = []
    for place, (one, two) in enumerate(zip(first, second), 1):
        if sorted(one) != sorted(two):
            raise DataError(
                f"the two runs, question {place}",
                f"{len(one)} and {len(two)} candidates",
                "the same candidates",
            )
        if len(one) > 1:
            found.append(float(stats.spearmanr(np.argsort(one), np.argsort(two)).statistic))
    return (float(np.mean(found)), float(np.std(found))) if found else (float("nan"), float("nan"))


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
    for place, row in enumerate(rows[1:], 2):
        if set(row) != set(rows[0]) or row.get("questions") != rows[0].get("questions"):
            raise DataError(
                f"run {place}",
                "other figures or questions than the first",
                "runs scored on the same questions",
            )
    columns: Dict[str, List[float]] = {
        name: [float(row[name]) for row in rows] for name in rows[0] if name != "questions"
    }
    return {
        name: (
            statistics.fmean(values),
            statistics.stdev(values) if len(values) > 1 else float("nan"),
        )
        for name, values in columns.items()
    }
