"""What the answers of all dialects are made of: candidates in their order, with our own fields."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

from wqa.inference.ranking import Ranking

#: Score of a blank candidate where a dialect asks for log-odds, which JSON cannot say are infinite.
BLANK_SCORE = -100.0


class RankRequest(NamedTuple):
    """A request of any dialect."""

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
    """A request and its ranking."""

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

    Shapes: the result (k,).
    """
    scores = np.where(ranking.blank, BLANK_SCORE, ranking.scores)
    scores[ranking.order] = np.minimum.accumulate(scores[ranking.order])
    return scores


def own_fields(row: Dict[str, Any]) -> Dict[str, Any]:
    """The fields of a candidate that stand beside those of a dialect."""
    names = ("probability", "exit", "dropped", "truncated", "blank")
    return {name: row[name] for name in names}


def tokens(ranking: Ranking) -> int:
    """Number of tokens of the pairs of a ranking, 0 where its ranker does not count them."""
    cost = ranking.cost
    if not cost.full_candidate_work:
        return 0
    filled = len(ranking.blank) - int(np.sum(ranking.blank))
    return round(cost.full_multiply_adds / cost.full_candidate_work * filled)


def cost(ranking: Ranking) -> Dict[str, float]:
    """The cost of a ranking, as values of JSON."""
    return {
        "relative": float(ranking.cost.relative),
        "multiply_adds": float(ranking.cost.multiply_adds),
        "full_multiply_adds": float(ranking.cost.full_multiply_adds),
    }
