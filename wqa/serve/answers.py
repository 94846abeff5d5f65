"""What the dialects share: requests, their rankings, and the fields of their answers."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np
from pydantic import BaseModel, Field

from wqa.inference.pipeline import AnswerSentence
from wqa.inference.ranking import Ranking
from wqa.serve.requests import Fields

#: Score of a blank candidate where a dialect asks for log-odds, which JSON cannot say are infinite.
BLANK_SCORE = -100.0


class RankRequest(NamedTuple):
    """A request of any dialect."""

    question: str
    texts: List[str]
    documents: List[Any]
    model: Optional[str] = None  # name of the ranker
    top: Optional[int] = None
    return_documents: bool = False
    raw_scores: bool = False
    refuse_truncated: bool = False
    most_tokens: Optional[int] = None  # of a candidate; what is behind them is not read
    drop_ratio: Optional[float] = None
    compare: bool = False
    retrieve: int = 0  # documents whose sentences are the candidates; 0 where they came with it
    hits: Sequence[Any] = ()
    sentences: Sequence[AnswerSentence] = ()


class Answered(NamedTuple):
    """A request and its ranking."""

    request: RankRequest
    id: str
    model: str
    exits: List[int]
    ranking: Any  # a Ranking, or None where a question retrieves no sentence
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
    fields = {name: row[name] for name in names}
    if row.get("window"):
        fields["window"] = row["window"]
    return fields


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


class Dialect(NamedTuple):
    """What reads the requests of a dialect and makes its answers, and the models of both."""

    read: Callable[[Fields], RankRequest]
    answer: Callable[[Answered], Any]
    request_model: Any
    answer_model: Any


class Request(BaseModel):
    """Fields of the requests of all dialects."""

    model: Optional[str] = Field(
        None, description="Name of the ranker where there are several; the first without it."
    )


class Exact(BaseModel):
    """An object with these fields alone."""

    model_config = {"extra": "forbid"}


class OwnFields(Exact):
    """A candidate, with the fields that stand beside those of a dialect."""

    index: int
    probability: float = Field(description="Probability that the candidate answers.")
    exit: int = Field(description="Exit that scored the candidate last, from 0.")
    dropped: bool = Field(description="Whether an exit dropped the candidate.")
    truncated: bool = Field(description="Whether the candidate lost tokens to the length limit.")
    blank: bool = Field(description="Whether the candidate has no text, so that it comes last.")
    window: Optional[List[int]] = Field(
        None, description="Characters that gave the score, of a candidate read in windows."
    )


class RankingCost(Exact):
    """Work of a ranking."""

    relative: float = Field(description="Share of the multiplications of all layers.")
    multiply_adds: float
    full_multiply_adds: float


#: Fields of the models of several dialects, and texts of their examples.
QUESTION: Any = Field(description="The question, which is not blank.")
RELEVANCE: Any = Field(description="Lies in [0, 1] and strictly decreases down the order.")
TEXTS: Any = Field(min_length=1, description="The candidates.")
CAVES, LINES = "how are caves formed ?", ["Ice melts .", "Water carves caves ."]
