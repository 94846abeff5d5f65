"""One metric a function, each over the relevance grades of a ranked list, best first.

A grade above 0 is relevant. ``judged`` holds the grades of every judged candidate of the
question, ranked or not. A question without a relevant candidate scores 0, as in trec_eval.

``hit@N`` is what Zhang et al. (2020, DC-BERT, section 3) and Chen et al. (2017) call P@N. Under the
name ``p@N`` this package has precision at N, trec_eval's.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Callable, Dict, Optional, Sequence

from wqa.data import Question
from wqa.errors import OptionError, shorten


def hit(ranked: Sequence[int], judged: Sequence[int], k: int = 1) -> float:
    """Hit@k, the papers' P@N: whether a relevant candidate is among the first ``k`` ranks.

    Parameters
    ----------
    ranked : sequence of int
        Grades of the ranked candidates, best rank first.
    judged : sequence of int
        Grades of all judged candidates, which do not matter here.
    k : int
        Cut-off, the number of ranks that count.

    Returns
    -------
    float
        1 or 0, also for fewer than k candidates. The mean over the questions is the share of them.
    """
    return float(any(grade > 0 for grade in ranked[:k]))


def beyond_retrieval(ranked: Sequence[int], ranks: Sequence[int], k: int = 10) -> float:
    """PBT@k: whether a relevant candidate is among the first ``k``, but was not retrieved there.

    Parameters
    ----------
    ranked : sequence of int
        Grades of the ranked candidates, best rank first.
    ranks : sequence of int
        Index of each of them in the order in which they were retrieved, by TF-IDF in the paper.
    k : int
        Cut-off of both orders.

    Returns
    -------
    float
        1 or 0. The mean over the questions tells how far a ranker goes beyond the retriever: more
        is better.
    """
    first = zip(ranked[:k], ranks[:k])
    return float(any(grade > 0 and rank >= k for grade, rank in first))


def lost_by_ranking(ranked: Sequence[int], ranks: Sequence[int], k: int = 10) -> float:
    """PTB@k: whether a relevant candidate was retrieved among the first ``k``, but is not there.

    Parameters
    ----------
    ranked, ranks, k
        As `beyond_retrieval` takes them.

    Returns
    -------
    float
        1 or 0. The mean over the questions tells how much of the retriever's a ranker loses: less
        is better.
    """
    behind = zip(ranked[k:], ranks[k:])
    return float(any(grade > 0 and rank < k for grade, rank in behind))


Grades = Sequence[int]


def average_precision(ranked: Grades, judged: Grades) -> float:
    """AP: the mean, over relevant candidates, of the precision at their ranks.

    Parameters
    ----------
    ranked : sequence of int
        Grades of the ranked candidates, best rank first.
    judged : sequence of int
        Grades of all judged candidates, ranked or not.

    Returns
    -------
    float
        Relevant candidates that were not ranked count as precision 0.
    """
    relevant = _relevant(judged)
    if not relevant:
        return 0.0
    hits = 0
    total = 0.0
    for rank, grade in enumerate(ranked, 1):
        if grade > 0:
            hits += 1
            total += hits / rank
    return total / relevant


def reciprocal_rank(ranked: Grades, judged: Grades) -> float:
    """RR: one over the rank of the first relevant candidate, 0 without one.

    Parameters
    ----------
    ranked, judged : sequence of int
        Grades, as `average_precision` takes them.

    Returns
    -------
    float
        A number in [0, 1].
    """
    for rank, grade in enumerate(ranked, 1):
        if grade > 0:
            return 1 / rank
    return 0.0


def precision(ranked: Grades, judged: Grades, k: int = 1) -> float:
    """P@k: the share of relevant candidates in the first ``k`` ranks, short lists included.

    Parameters
    ----------
    ranked, judged : sequence of int
        Grades, as `average_precision` takes them.
    k : int
        Cut-off, the number of ranks that count.

    Returns
    -------
    float
        Number of relevant candidates among them, over k.
    """
    return _relevant(ranked[:k]) / k


def _relevant(grades: Grades) -> int:
    return sum(grade > 0 for grade in grades)


def ndcg(ranked: Grades, judged: Grades, k: int = 10) -> float:
    """nDCG@k with the grade as gain and a discount of log2(rank + 1).

    Parameters
    ----------
    ranked, judged : sequence of int
        Grades, as `average_precision` takes them; negative ones have no gain.
    k : int
        Cut-off, as `precision` takes it.

    Returns
    -------
    float
        DCG over that of the ideal ranking.
    """
    ideal = sorted(judged, reverse=True)
    best = _dcg(ideal[:k])
    if not best:
        return 0.0
    return _dcg(ranked[:k]) / best


def _dcg(grades: Grades) -> float:
    gains = [grade / math.log2(rank) for rank, grade in enumerate(grades, 2) if grade > 0]
    return sum(gains)


#: Metrics of a table by default.
METRICS = ("map", "mrr", "p@1", "ndcg@10")

_PLAIN = {"map": average_precision, "mrr": reciprocal_rank}
_AT_K = {"p": precision, "ndcg": ndcg, "hit": hit}
#: Metrics that compare a ranking with the order in which the candidates were retrieved.
_BESIDE_RETRIEVAL = {"pbt": beyond_retrieval, "ptb": lost_by_ranking}
#: Names of metrics, for messages.
NAMES = "map, mrr, p@K, ndcg@K, hit@K, pbt@K or ptb@K, with K from 1"


def metric(name: str) -> Callable[[Grades, Grades], float]:
    """Look a metric up by name."""
    if name in _PLAIN:
        return _PLAIN[name]
    functions = {**_AT_K, **_BESIDE_RETRIEVAL}
    match = re.fullmatch(r"([a-z]+)@([1-9][0-9]*)", name)
    if match is not None and match[1] in functions:
        return functools.partial(functions[match[1]], k=int(match[2]))
    hint = "for others write a TREC run and judgements, and score them by ir_measures"
    raise OptionError("metrics", shorten(name), NAMES, hint)


def metrics_of(
    ranked: Grades,
    judged: Grades,
    names: Sequence[str] = METRICS,
    ranks: Optional[Sequence[int]] = None,
) -> Dict[str, float]:
    """Several metrics of one question."""
    values = {}
    for name in names:
        function = metric(name)
        if name.partition("@")[0] not in _BESIDE_RETRIEVAL:
            values[name] = function(ranked, judged)
        elif ranks is not None:
            values[name] = function(ranked, ranks)
        else:
            problem = f"{name} of a TREC run, which lacks the order of retrieval"
            raise OptionError("metrics", problem, "the ranker and its questions")
    return values


def metrics_of_question(
    order: Sequence[int], question: Question, names: Sequence[str] = METRICS
) -> Dict[str, float]:
    """Several metrics of the ranking of one question."""
    labels = [label or 0 for label in question.labels]
    ranks = question.ranks
    ranked = [labels[index] for index in order]
    return metrics_of(ranked, labels, names, [ranks[index] for index in order])
