"""What the answers of all dialects are made of: candidates in their order, with our own fields."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

from wqa.inference.ranking import Ranking

#: Score of a blank candidate where a dialect asks for log-odds, which JSON cannot say are infinite.
BLANK_SCORE = -100.0


class RankRequest(NamedTuple):
    """A request of any dialect.

    Attributes
    ----------
    question : str
        Text of the question.
    texts : list of str
        Texts of the candidates.
    documents : list
        Candidates as they came, texts or objects.
    top : int, optional
        Number of candidates to answer with; all by default.
    return_documents : bool
        Whether the answer holds the candidates.
    raw_scores : bool
        Whether the scores are log-odds.
    refuse_truncated : bool
        Whether a candidate that loses tokens to the length limit is an error.
    drop_ratio : float, optional
        Drop ratio of this request; that of the ranker by default.
    compare : bool
        Whether to rank without dropping too.
    """

    question: str
    texts: List[str]
    documents: List[Any]
    top: Optional[int] = None
    return_documents: bool = False
    raw_scores: bool = False
    refuse_truncated: bool = False
    drop_ratio: Optional[float] = None
    compare: bool = False


class Answered(NamedTuple):
    """A request and its ranking.

    Attributes
    ----------
    request : RankRequest
        The request.
    id : str
        Id of the request.
    model : str
        Name of the ranker.
    exits : list of int
        Layer, or number, of each stage.
    ranking : Ranking
        The ranking.
    seconds : float
        Time of the ranking, with the requests that were ranked together.
    full : Ranking, optional
        The ranking without dropping, where it was asked for.
    full_seconds : float
        Its time.
    """

    request: RankRequest
    id: str
    model: str
    exits: List[int]
    ranking: Ranking
    seconds: float
    full: Optional[Ranking] = None
    full_seconds: float = 0.0


def raw_scores(ranking: Ranking) -> np.ndarray:
    """Log-odds of the candidates, which do not rise along the order.

    Parameters
    ----------
    ranking : Ranking
        A ranking.

    Returns
    -------
    numpy.ndarray
        (k,) finite values, by candidate.
    """
    scores = np.where(ranking.blank, BLANK_SCORE, ranking.scores)
    scores[ranking.order] = np.minimum.accumulate(scores[ranking.order])
    return scores


def own_fields(row: Dict[str, Any]) -> Dict[str, Any]:
    """The fields of a candidate that stand beside those of a dialect.

    Parameters
    ----------
    row : dict
        Candidate, as `Ranking.to_dicts` returns it.

    Returns
    -------
    dict
        ``probability``, ``exit``, ``dropped``, ``truncated`` and ``blank``.
    """
    names = ("probability", "exit", "dropped", "truncated", "blank")
    return {name: row[name] for name in names}


def tokens(ranking: Ranking) -> int:
    """Number of tokens of the pairs of a ranking, 0 where its ranker does not count them.

    Parameters
    ----------
    ranking : Ranking
        A ranking.

    Returns
    -------
    int
        Tokens, without padding.
    """
    cost = ranking.cost
    if not cost.full_candidate_work:
        return 0
    filled = len(ranking.blank) - int(np.sum(ranking.blank))
    return round(cost.full_multiply_adds / cost.full_candidate_work * filled)


def cost(ranking: Ranking) -> Dict[str, float]:
    """The cost of a ranking, as values of JSON.

    Parameters
    ----------
    ranking : Ranking
        A ranking.

    Returns
    -------
    dict of str to float
        ``relative``, the share of the full network's multiply-adds, each candidate counted alike;
        ``multiply_adds``; and ``full_multiply_adds``, those of the full network.
    """
    return {
        "relative": float(ranking.cost.relative),
        "multiply_adds": float(ranking.cost.multiply_adds),
        "full_multiply_adds": float(ranking.cost.full_multiply_adds),
    }
