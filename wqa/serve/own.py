"""Our own dialects: rankings with the scores of every exit, and answers of a collection."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import numpy as np
from pydantic import Field

from wqa.inference.pipeline import in_order
from wqa.inference.ranking import Ranking
from wqa.serve.answers import (
    CAVES,
    LINES,
    QUESTION,
    RELEVANCE,
    TEXTS,
    Answered,
    Dialect,
    Exact,
    OwnFields,
    RankingCost,
    RankRequest,
    Request,
    cost,
)
from wqa.serve.requests import Fields

_OWN_EXAMPLE = {"question": CAVES, "candidates": LINES, "drop_ratio": 0.3, "compare": True}


class OwnRequest(Request):
    """Rank candidates, with the scores of every exit."""

    model_config = {"json_schema_extra": {"example": _OWN_EXAMPLE}}
    question: str = QUESTION
    candidates: List[str] = TEXTS
    drop_ratio: Optional[float] = Field(None, ge=0, lt=1, description="Share dropped at each exit.")
    compare: Optional[bool] = Field(None, description="Whether to rank without dropping too.")


class RankedCandidate(OwnFields):
    """A candidate with the scores of every exit."""

    rank: int = Field(description="From 1.")
    score: Optional[float] = Field(description="Null for a blank candidate.")
    relevance: float = RELEVANCE
    text: str
    exit_scores: List[Optional[float]] = Field(
        description="Null for an exit that did not score the candidate."
    )


class OwnRanking(Exact):
    """A ranking."""

    order: List[int] = Field(description="Indices of the candidates, best first.")
    candidates: List[RankedCandidate] = Field(description="Best first.")
    threshold: Optional[float] = Field(
        description="Least relevance of an answer; null where it is not calibrated."
    )
    answered: Optional[bool] = Field(description="Whether a candidate reaches the threshold.")
    exits: List[int] = Field(description="Layers of the exits.")
    cost: RankingCost
    seconds: float


class OwnAnswer(OwnRanking):
    """Answer of our own dialect."""

    id: str
    without_dropping: Optional[OwnRanking]


def _read_own(fields: Fields) -> RankRequest:
    texts = fields.texts("candidates")
    return RankRequest(
        question=fields.question("question"),
        texts=texts,
        documents=texts,
        model=fields.model(),
        drop_ratio=fields.share("drop_ratio"),
        compare=bool(fields.flag("compare")),
    )


def _answer_own(answered: Answered) -> Dict[str, Any]:
    full = None
    if answered.full is not None:
        full = _own_ranking(answered, answered.full, answered.full_seconds)
    ranking = _own_ranking(answered, answered.ranking, answered.seconds)
    return {"id": answered.id, **ranking, "without_dropping": full}


def _own_ranking(answered: Answered, ranking: Ranking, seconds: float) -> Dict[str, Any]:
    by_candidate = ranking.exit_scores.T.tolist()
    candidates = ranking.to_dicts()
    for row in candidates:
        row["text"] = answered.request.texts[row["index"]]
        row.setdefault("window", None)
        scores = by_candidate[row["index"]]
        # NaN, which is not equal to itself, stands for an exit that did not score the candidate.
        row["exit_scores"] = [score if score == score else None for score in scores]
    threshold = ranking.threshold
    return {
        "order": ranking.order.tolist(),
        "candidates": candidates,
        "threshold": threshold,
        "answered": None if threshold is None else ranking.answered(threshold),
        "exits": answered.exits,
        "cost": cost(ranking),
        "seconds": seconds,
    }


_ASK_EXAMPLE = {"question": CAVES, "top": 80, "n_best": 3, "drop_ratio": 0.3}
#: Documents and sentences of a question where the request does not say.
_TOP, _N_BEST = 80, 3


class AskRequest(Request):
    """Answer a question by the sentences of the documents that it retrieves."""

    model_config = {"json_schema_extra": {"example": _ASK_EXAMPLE}}
    question: str = QUESTION
    top: Optional[int] = Field(None, ge=1, description=f"Documents to retrieve; {_TOP} without it.")
    n_best: Optional[int] = Field(None, ge=1, description=f"Sentences; {_N_BEST} without it.")
    drop_ratio: Optional[float] = Field(None, ge=0, lt=1, description="Share dropped at each exit.")


class AskedDocument(Exact):
    """A document that the question retrieves."""

    id: str
    title: str
    retrieval_score: float


class AskedSentence(Exact):
    """A sentence, and where it stands."""

    rank: int = Field(description="From 1.")
    text: str
    document: int = Field(description="Index among the documents.")
    start: int = Field(description="Characters of the document's text.")
    end: int
    before: str = Field(description="The sentence before it; empty where there is none.")
    after: str
    score: float
    relevance: float = RELEVANCE
    exit: int = Field(description="Layer that scored the sentence last.")
    window: Optional[List[int]] = Field(
        description="Characters of its text that gave the score, where it was read in windows."
    )


class ExitCount(Exact):
    """What an exit did."""

    exit: int = Field(description="Its layer.")
    read: int = Field(description="Sentences that it scored.")
    dropped: int


class AskAnswer(Exact):
    """Answer of a collection."""

    id: str
    documents: List[AskedDocument] = Field(description="Best first by the index.")
    sentences: List[AskedSentence] = Field(description="Best first.")
    ranked: int = Field(description="Sentences of the documents that were ranked.")
    left_out: int = Field(description="Further ones, above the limit of candidates.")
    threshold: Optional[float] = Field(
        description="Least relevance of an answer; null where it is not calibrated."
    )
    answered: Optional[bool] = Field(description="Whether a sentence reaches the threshold.")
    exits: List[ExitCount]
    cost: Optional[RankingCost]
    seconds: float


def _read_ask(fields: Fields) -> RankRequest:
    return RankRequest(
        question=fields.question("question"),
        texts=[],
        documents=[],
        model=fields.model(),
        top=fields.count("n_best") or _N_BEST,
        drop_ratio=fields.share("drop_ratio"),
        retrieve=fields.count("top") or _TOP,
    )


def _answer_ask(answered: Answered) -> Dict[str, Any]:
    request, ranking = answered.request, answered.ranking
    documents = []
    for hit in request.hits:
        fields = {"id": hit.document.id, "title": hit.document.title}
        documents.append({**fields, "retrieval_score": hit.score})
    answer: Dict[str, Any] = {
        "id": answered.id,
        "documents": documents,
        "sentences": [],
        "ranked": len(request.texts),
        "left_out": len(request.sentences) - len(request.texts),
        "threshold": None,
        "answered": False,
        "exits": [],
        "cost": None,
        "seconds": answered.seconds,
    }
    if ranking is None:
        return answer
    ranked = in_order(request.sentences[: len(request.texts)], ranking)
    for rank, sentence in enumerate(ranked[: request.top], 1):
        answer["sentences"].append({"rank": rank, **sentence._asdict()})
    threshold = ranking.threshold
    answer["threshold"] = threshold
    answer["answered"] = None if threshold is None else ranking.answered(threshold)
    scored = np.count_nonzero(~np.isnan(ranking.exit_scores), axis=1).tolist()  # by exit
    for layer, read, left in zip(answered.exits, scored, [*scored[1:], scored[-1]]):
        answer["exits"].append({"exit": layer, "read": read, "dropped": read - left})
    answer["cost"] = cost(ranking)
    return answer


#: Rankings of our own, and answers of a collection, by the path of their endpoint.
RANKING = {"/api/rank": Dialect(_read_own, _answer_own, OwnRequest, OwnAnswer)}
ASKING = {"/ask": Dialect(_read_ask, _answer_ask, AskRequest, AskAnswer)}
