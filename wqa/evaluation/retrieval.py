"""Metrics of retrieval and re-ranking (Zhang et al. 2020, DC-BERT, section 3).

``hit@N`` is what that paper, and Chen et al. (2017), call P@N. Under the name ``p@N`` this package
has precision at N, trec_eval's.
"""

from __future__ import annotations

from typing import Sequence


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
