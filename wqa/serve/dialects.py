"""Dialects of existing clients: their field names and the shapes of their answers.

Cohere's v1 and Jina's API share the path ``/v1/rerank`` and nearly all of their fields. One answer
serves both: it has the ``id`` and ``meta`` of Cohere's, the ``model`` and ``usage`` of Jina's.
`wqa.serve.requests` has the errors of each. The answers of all dialects have the candidates in
their order, with our own fields.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Union

from pydantic import Field

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
    own_fields,
    raw_scores,
    tokens,
)
from wqa.serve.own import ASKING, RANKING
from wqa.serve.requests import Fields, RequestError

_COHERE_EXAMPLE = {"query": CAVES, "documents": LINES, "top_n": 1, "return_documents": True}


class Cohere2Request(Request):
    """Rank documents, as Cohere's v2 API does."""

    model_config = {"json_schema_extra": {"example": _COHERE_EXAMPLE}}
    query: str = QUESTION
    documents: List[Union[str, Dict[str, Any]]] = Field(
        min_length=1, description="The candidates, texts or objects with a text."
    )
    top_n: Optional[int] = Field(None, ge=1, description="Number of results; all without it.")
    return_documents: Optional[bool] = Field(None, description="Whether results hold documents.")
    max_tokens_per_doc: Optional[int] = Field(
        None, ge=1, description="Tokens of a document that are read; without it as many as fit."
    )


class Cohere1Request(Cohere2Request):
    """Rank documents, as Cohere's v1 and Jina's API do."""

    rank_fields: Optional[List[str]] = Field(
        None, min_length=1, description="Keys of the documents, whose values are joined."
    )


class CohereResult(OwnFields):
    """A candidate of Cohere's and Jina's answers."""

    relevance_score: float = RELEVANCE
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
        model=fields.model(),
        top=fields.count("top_n"),
        return_documents=return_documents,
        most_tokens=fields.count("max_tokens_per_doc"),
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


_TEI_EXAMPLE = {"query": CAVES, "texts": LINES, "return_text": True}


class TeiRequest(Request):
    """Rank texts, as Text Embeddings Inference does."""

    model_config = {"json_schema_extra": {"example": _TEI_EXAMPLE}}
    query: str = QUESTION
    texts: List[str] = TEXTS
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
        model=fields.model(),
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


#: Dialects by the path of their endpoint, whose summary is the docstring of the request.
DIALECTS: Dict[str, Dialect] = {
    "/v1/rerank": Dialect(_read_cohere_1, _answer_cohere_1, Cohere1Request, Cohere1Answer),
    "/v2/rerank": Dialect(_read_cohere_2, _answer_cohere_2, Cohere2Request, Cohere2Answer),
    "/rerank": Dialect(_read_tei, _answer_tei, TeiRequest, List[TeiRank]),
    **RANKING,
}
#: With those that need an index.
ALL_DIALECTS = {**DIALECTS, **ASKING}
