"""How well a run reproduces another one (Breuer et al. 2020, the measures of repro_eval).

From the order of documents to the overall effect: Kendall's tau of the two orders, the root mean
square error and the paired t-test of a metric over the questions, and, with a baseline of each run,
the effect ratio and the difference of the relative improvements.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from scipy import stats

from wqa.data import DEFAULT_FILTER
from wqa.errors import OptionError
from wqa.evaluation.evaluate import filter_qrels
from wqa.evaluation.metrics import METRICS
from wqa.evaluation.significance import paired, paired_t_test, per_question_of_run
from wqa.evaluation.trec import Qrels, Run, trec_order


def kendall_tau_union(original: Sequence[str], reproduced: Sequence[str]) -> float:
    """Kendall's tau of two lists over the union of their documents.

    Each document stands for its index in the union: the original list, then what is only in the
    reproduced one. The longer list is cut to the length of the shorter. Where both rank the same
    documents, this is Kendall's tau of the two orders.

    Parameters
    ----------
    original, reproduced : sequence of str
        Document ids, best first.

    Returns
    -------
    float
        Between -1 and 1; NaN for fewer than two documents.
    """
    length = min(len(original), len(reproduced))
    if length < 2:
        return math.nan
    first, second = original[:length], reproduced[:length]
    union = dict.fromkeys([*first, *second])
    index = {document: number for number, document in enumerate(union)}
    orders = [[index[document] for document in documents] for documents in (first, second)]
    return float(stats.kendalltau(*orders).statistic)


def compare_reproduction(
    runs: Sequence[Tuple[str, Run]],
    qrels: Qrels,
    filter: str = DEFAULT_FILTER,
    metrics: Sequence[str] = METRICS,
    complete: bool = False,
) -> List[Dict[str, Any]]:
    """Compare an original run with a reproduced one.

    Parameters
    ----------
    runs : sequence of (str, dict of dict)
        Names and runs: the original and the reproduced one; or four, the original baseline and the
        original advanced run, then the reproduced baseline and the reproduced advanced run.
    qrels : dict of dict
        Grades by question and document.
    filter : {"all", "no-all-negative", "clean"}
        Filter of judged questions.
    metrics, complete
        As `wqa.evaluation.score_run` takes them.

    Returns
    -------
    list of dict
        For each metric: ``original`` and ``reproduced``, the means; ``rmse`` over the questions;
        ``t_test``, the p-value of the paired test; ``tau``, the mean of `kendall_tau_union` over
        the questions. With baselines also ``effect_ratio``, the reproduced mean improvement over
        the original one (1 is a perfect reproduction), and ``delta_ri``, the original relative
        improvement less the reproduced one (0 is perfect); both are NaN where they divide by 0.

    Raises
    ------
    OptionError
        If there are neither two nor four runs, or the filter or a metric is unknown.
    DataError
        If the runs do not rank the same questions.
    """
    if len(runs) not in (2, 4):
        expected = "the original and the reproduced one, or a baseline before each of them"
        raise OptionError("runs", f"{len(runs)} of them", expected)
    judged = filter_qrels(qrels, filter)
    values = [per_question_of_run(run, judged, metrics, complete) for _, run in runs]
    half = len(runs) // 2
    original, reproduced = half - 1, len(runs) - 1
    tau = _mean_tau(runs[original][1], runs[reproduced][1], judged)
    rows = []
    for name in metrics:
        one, two = paired(values[original][name], values[reproduced][name])
        row: Dict[str, Any] = {"metric": name, "original": float(one.mean())}
        row["reproduced"] = float(two.mean())
        row["rmse"] = float(np.sqrt(np.mean(np.square(two - one))))
        row["t_test"] = paired_t_test(one, two)
        row["tau"] = tau
        if len(runs) == 4:
            row.update(_effects(values[0][name], values[1][name], values[2][name], values[3][name]))
        rows.append(row)
    return rows


def _mean_tau(original: Run, reproduced: Run, judged: Qrels) -> float:
    taus = []
    for qid in judged:
        orders = [trec_order(run.get(qid, {})) for run in (original, reproduced)]
        tau = kendall_tau_union(*orders)
        if not math.isnan(tau):
            taus.append(tau)
    return float(np.mean(taus)) if taus else math.nan


def _effects(
    first_baseline: Mapping[str, float],
    first: Mapping[str, float],
    second_baseline: Mapping[str, float],
    second: Mapping[str, float],
) -> Dict[str, Optional[float]]:
    """Effect ratio, and difference of the relative improvements."""
    base, advanced = (float(side.mean()) for side in paired(first_baseline, first))
    other_base, other = (float(side.mean()) for side in paired(second_baseline, second))
    improvement, other_improvement = advanced - base, other - other_base
    ratio = other_improvement / improvement if improvement else math.nan
    delta = math.nan
    if base and other_base:
        delta = improvement / base - other_improvement / other_base
    return {"effect_ratio": ratio, "delta_ri": delta}
