"""Dialects of existing clients: their field names and the shapes of their answers.

Cohere's v1 and Jina's API share the path ``/v1/rerank`` and nearly all of their fields. One answer
serves both: it has the ``id`` and ``meta`` of Cohere's, the ``model`` and ``usage`` of Jina's.
`wqa.serve.errors` has the errors of each.

What the answers of all dialects are made of: candidates in their order, with our own fields.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from wqa.inference.ranking import Ranking
from wqa.serve.errors import RequestError
from wqa.serve.fields import Fields

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
    """A dialect."""

    read: Callable[[Fields], RankRequest]
    answer: Callable[[Answered], Any]


def _read_cohere_1(fields: Fields) -> RankRequest:
    return _read_cohere(fields, fields.names("rank_fields", ("text",)))


def _read_cohere_2(fields: Fields) -> RankRequest:
    return _read_cohere(fields, ("text",))


def _read_cohere(fields: Fields, keys: Sequence[str]) -> RankRequest:
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
            result["document"] = _document(request.documents[index], request.texts[index])
        results.append(result)
    return results


def _document(document: Any, text: str) -> Dict[str, Any]:
    if isinstance(document, dict):
        return {"text": text, **document}
    return {"text": text}


def _answer_cohere_1(answered: Answered) -> Dict[str, Any]:
    count = tokens(answered.ranking)
    return {
        **_answer_cohere(answered, "1"),
        "model": answered.model,
        "usage": {"total_tokens": count, "prompt_tokens": count},
    }


def _answer_cohere_2(answered: Answered) -> Dict[str, Any]:
    return _answer_cohere(answered, "2")


def _answer_cohere(answered: Answered, version: str) -> Dict[str, Any]:
    return {
        "id": answered.id,
        "results": _cohere_results(answered),
        "meta": {"api_version": {"version": version}, "billed_units": {"search_units": 0}},
        "cost": cost(answered.ranking),
        "seconds": answered.seconds,
    }


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


#: Dialects by the path of their endpoint.
DIALECTS: Dict[str, Dialect] = {
    "/v1/rerank": Dialect(_read_cohere_1, _answer_cohere_1),
    "/v2/rerank": Dialect(_read_cohere_2, _answer_cohere_2),
    "/rerank": Dialect(_read_tei, _answer_tei),
    "/api/rank": Dialect(_read_own, _answer_own),
}
