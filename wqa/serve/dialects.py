"""Dialects of existing clients: their field names and the shapes of their answers.

Cohere's v1 and Jina's API share the path ``/v1/rerank`` and nearly all of their fields. One answer
serves both: it has the ``id`` and ``meta`` of Cohere's, the ``model`` and ``usage`` of Jina's.
`wqa.serve.requests` has the errors of each. The answers of all dialects have the candidates in
their order, with our own fields.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Union

import numpy as np
from pydantic import BaseModel, Field

from wqa.inference.ranking import Ranking
from wqa.serve.requests import Fields, RequestError

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


class Dialect(NamedTuple):
    """What reads the requests of a dialect and makes its answers, and the models of both."""

    read: Callable[[Fields], RankRequest]
    answer: Callable[[Answered], Any]
    request_model: Any
    answer_model: Any


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


class RankingCost(Exact):
    """Work of a ranking."""

    relative: float = Field(description="Share of the multiplications of all layers.")
    multiply_adds: float
    full_multiply_adds: float


_QUESTION: Any = Field(description="The question, which is not blank.")
_RELEVANCE: Any = Field(description="Lies in [0, 1] and strictly decreases down the order.")
_TEXTS: Any = Field(min_length=1, description="The candidates.")
_CAVES, _LINES = "how are caves formed ?", ["Ice melts .", "Water carves caves ."]
_COHERE_EXAMPLE = {"query": _CAVES, "documents": _LINES, "top_n": 1, "return_documents": True}


class Cohere2Request(BaseModel):
    """Rank documents, as Cohere's v2 API does."""

    model_config = {"json_schema_extra": {"example": _COHERE_EXAMPLE}}
    query: str = _QUESTION
    documents: List[Union[str, Dict[str, Any]]] = Field(
        min_length=1, description="The candidates, texts or objects with a text."
    )
    top_n: Optional[int] = Field(None, ge=1, description="Number of results; all without it.")
    return_documents: Optional[bool] = Field(None, description="Whether results hold documents.")


class Cohere1Request(Cohere2Request):
    """Rank documents, as Cohere's v1 and Jina's API do."""

    rank_fields: Optional[List[str]] = Field(
        None, min_length=1, description="Keys of the documents, whose values are joined."
    )


class CohereResult(OwnFields):
    """A candidate of Cohere's and Jina's answers."""

    relevance_score: float = _RELEVANCE
    document: Optional[Dict[str, Any]] = None


class CohereMeta(Exact):
    """Facts of Cohere's answers; nothing is billed."""

    api_version: Dict[str, str]
    billed_units: Dict[str, int]


class Cohere2Answer(Exact):
    """Answer of Cohere's v2 API."""

    id: str
    results: List[CohereResult] = Field(description="Best first.")
    meta: CohereMeta
    cost: RankingCost
    seconds: float


class JinaUsage(Exact):
    """Tokens of all pairs of the question and a candidate."""

    total_tokens: int
    prompt_tokens: int


class Cohere1Answer(Cohere2Answer):
    """Answer of Cohere's v1 and Jina's API."""

    model: str
    usage: JinaUsage


def _read_cohere_1(fields: Fields) -> RankRequest:
    return _read_cohere_2(fields, fields.names("rank_fields", ("text",)))


def _read_cohere_2(fields: Fields, keys: Sequence[str] = ("text",)) -> RankRequest:
    documents, texts = fields.documents("documents", keys)
    return_documents = bool(fields.flag("return_documents"))
    if return_documents:
        fields.check_returned("documents")
    return RankRequest(
        question=fields.question("query"),
        texts=texts,
        documents=documents,
        top=fields.count("top_n"),
        return_documents=return_documents,
    )


def _cohere_results(answered: Answered) -> List[Dict[str, Any]]:
    request = answered.request
    results = []
    for row in answered.ranking.top(request.top).to_dicts():
        index = row["index"]
        result = {"index": index, "relevance_score": row["relevance"], **own_fields(row)}
        if request.return_documents:  # strict clients do not take a document that is null
            document = request.documents[index]
            more = document if isinstance(document, dict) else {}
            result["document"] = {"text": request.texts[index], **more}
        results.append(result)
    return results


def _answer_cohere_1(answered: Answered) -> Dict[str, Any]:
    count = tokens(answered.ranking)
    return {
        **_answer_cohere_2(answered, "1"),
        "model": answered.model,
        "usage": {"total_tokens": count, "prompt_tokens": count},
    }


def _answer_cohere_2(answered: Answered, version: str = "2") -> Dict[str, Any]:
    return {
        "id": answered.id,
        "results": _cohere_results(answered),
        "meta": {"api_version": {"version": version}, "billed_units": {"search_units": 0}},
        "cost": cost(answered.ranking),
        "seconds": answered.seconds,
    }


_TEI_EXAMPLE = {"query": _CAVES, "texts": _LINES, "return_text": True}


class TeiRequest(BaseModel):
    """Rank texts, as Text Embeddings Inference does."""

    model_config = {"json_schema_extra": {"example": _TEI_EXAMPLE}}
    query: str = _QUESTION
    texts: List[str] = _TEXTS
    return_text: Optional[bool] = Field(None, description="Whether results hold their texts.")
    raw_scores: Optional[bool] = Field(None, description="Log-odds in place of values in [0, 1].")
    truncate: Optional[bool] = Field(
        None, description="If false, a text that is too long is refused."
    )


class TeiRank(OwnFields):
    """A candidate of Text Embeddings Inference's answers, which come best first."""

    score: float
    text: Optional[str] = None


def _read_tei(fields: Fields) -> RankRequest:
    texts = fields.texts("texts")
    return RankRequest(
        question=fields.question("query"),
        texts=texts,
        documents=texts,
        return_documents=bool(fields.flag("return_text")),
        raw_scores=bool(fields.flag("raw_scores")),
        refuse_truncated=fields.flag("truncate") is False,
    )


def _answer_tei(answered: Answered) -> List[Dict[str, Any]]:
    request, ranking = answered.request, answered.ranking
    if request.refuse_truncated and ranking.truncated.any():
        index = int(ranking.truncated.argmax())
        raise RequestError(
            "size",
            f"texts[{index}]",
            "loses tokens to the length limit",
            "shorter texts where truncate is false",
        )
    scores = raw_scores(ranking).tolist()
    ranks = []
    for row in ranking.to_dicts():
        index = row["index"]
        score = scores[index] if request.raw_scores else row["relevance"]
        rank = {"index": index, "score": score, **own_fields(row)}
        if request.return_documents:
            rank["text"] = request.texts[index]
        ranks.append(rank)
    return ranks


_OWN_EXAMPLE = {"question": _CAVES, "candidates": _LINES, "drop_ratio": 0.3, "compare": True}


class OwnRequest(BaseModel):
    """Rank candidates, with the scores of every exit."""

    model_config = {"json_schema_extra": {"example": _OWN_EXAMPLE}}
    question: str = _QUESTION
    candidates: List[str] = _TEXTS
    drop_ratio: Optional[float] = Field(None, ge=0, lt=1, description="Share dropped at each exit.")
    compare: Optional[bool] = Field(None, description="Whether to rank without dropping too.")


class RankedCandidate(OwnFields):
    """A candidate with the scores of every exit."""

    rank: int = Field(description="From 1.")
    score: Optional[float] = Field(description="Null for a blank candidate.")
    relevance: float = _RELEVANCE
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


#: Dialects by the path of their endpoint, whose summary is the docstring of the request.
DIALECTS: Dict[str, Dialect] = {
    "/v1/rerank": Dialect(_read_cohere_1, _answer_cohere_1, Cohere1Request, Cohere1Answer),
    "/v2/rerank": Dialect(_read_cohere_2, _answer_cohere_2, Cohere2Request, Cohere2Answer),
    "/rerank": Dialect(_read_tei, _answer_tei, TeiRequest, List[TeiRank]),
    "/api/rank": Dialect(_read_own, _answer_own, OwnRequest, OwnAnswer),
}
