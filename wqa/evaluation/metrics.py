"""One metric a function, each over the relevance grades of a ranked list, best first.

A grade above 0 is relevant. ``judged`` holds the grades of every judged candidate of the
question, ranked or not. A question without a relevant candidate scores 0, as in trec_eval.
"""

from __future__ import annotations

import math
import re
from typing import Callable, Sequence

from wqa.errors import OptionError, shorten

Grades = Sequence[int]


def average_precision(ranked: Grades, judged: Grades) -> float:
    """AP: the mean, over relevant candidates, of the precision at each one's rank.

    Parameters
    ----------
    ranked : sequence of int
        Grades, best rank first.
    judged : sequence of int
        Grades of all judged candidates.

    Returns
    -------
    float
        Relevant candidates that were not ranked count as precision 0.
    """
    relevant = sum(grade > 0 for grade in judged)
    found, total = 0, 0.0
    for rank, grade in enumerate(ranked, 1):
        if grade > 0:
            found += 1
            total += found / rank
    return total / relevant if relevant else 0.0


def reciprocal_rank(ranked: Grades, judged: Grades) -> float:
    """RR: one over the rank of the first relevant candidate, 0 without one.

    Parameters
    ----------
    ranked, judged : sequence of int
        As for `average_precision`.

    Returns
    -------
    float
    """
    return next((1 / rank for rank, grade in enumerate(ranked, 1) if grade > 0), 0.0)


def precision(ranked: Grades, judged: Grades, k: int = 1) -> float:
    """P@k: the share of relevant candidates in the first ``k`` ranks, short lists included.

    Parameters
    ----------
    ranked, judged : sequence of int
        As for `average_precision`.
    k : int
        The cut-off.

    Returns
    -------
    float
    """
    return sum(grade > 0 for grade in ranked[:k]) / k


def ndcg(ranked: Grades, judged: Grades, k: int = 10) -> float:
    """nDCG@k with the grade as gain and a discount of log2(rank + 1).

    Parameters
    ----------
    ranked, judged : sequence of int
        As for `average_precision`.
    k : int
        The cut-off.

    Returns
    -------
    float
    """

    def gain(grades: Grades) -> float:
        return sum(
            grade / math.log2(rank + 1) for rank, grade in enumerate(grades[:k], 1) if grade > 0
        )

    best = gain(sorted(judged, reverse=True))
    return gain(ranked) / best if best else 0.0


#: What a table shows unless it is told otherwise.
METRICS = ("map", "mrr", "p@1", "ndcg@10")

_PLAIN = {"map": average_precision, "mrr": reciprocal_rank}
_AT_K = {"p": precision, "ndcg": ndcg}


def metric(name: str) -> Callable[[Grades, Grades], float]:
    """Look a metric up by name.

    Parameters
    ----------
    name : str
        ``map``, ``mrr``, ``p@K`` or ``ndcg@K`` with K from 1.

    Returns
    -------
    callable
        ``f(ranked, judged) -> float``.

    Raises
    ------
    OptionError
        If there is no such metric.
    """
    if name in _PLAIN:
        return _PLAIN[name]
    match = re.fullmatch(r"(p|ndcg)@([1-9][0-9]*)", name)
    if not match:
        raise OptionError("metric", shorten(name), "map, mrr, p@K or ndcg@K, with K from 1")
    function, k = _AT_K[match.group(1)], int(match.group(2))
    return lambda ranked, judged: function(ranked, judged, k)
