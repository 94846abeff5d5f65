"""Dialects of the service: fields of requests, answers, and errors.

The models of `BODIES` are the table of JSON names: they validate the bodies, and describe them in
`/openapi.json`. Cohere's v1 and Jina's API share a path and nearly all fields; one answer serves
both.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type, Union

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import Annotated

from wqa.inference.pipeline import in_order
from wqa.inference.ranking import Ranking
from wqa.serve.batching import Job
from wqa.serve.server import ServeConfig
from wqa.serve.service import Answered, RankRequest, RequestError

#: Types of fields, with what the page says of them.
Question = Annotated[str, Field(examples=["how are caves formed ?"])]
Texts = Annotated[List[str], Field(min_length=1, examples=[["Ice .", "Water carves caves ."]])]
Documents = Annotated[List[Union[str, Dict[str, Any]]], Field(min_length=1, examples=[["Ice ."]])]
Names = Annotated[Optional[List[str]], Field(min_length=1)]
Count = Annotated[Optional[int], Field(ge=1)]
Share = Annotated[Optional[float], Field(ge=0, lt=1)]
Flag = Optional[bool]


class Body(BaseModel):
    """Fields of all dialects. ``truncate`` false refuses texts that are too long for the model."""

    # The text "3" is no number. Fields that a dialect does not have are ignored.
    model_config = ConfigDict(strict=True)
    model: Optional[str] = None
    truncate: Flag = None


class Cohere2(Body):
    """Rank documents, as Cohere's v2 API does."""

    question: Question = Field(alias="query")
    documents: Documents
    top: Count = Field(None, alias="top_n")
    return_documents: Flag = None
    max_tokens: Count = Field(None, alias="max_tokens_per_doc")


class Cohere1(Cohere2):
    """Rank documents, as Cohere's v1 and Jina's API do."""

    rank_fields: Names = None


class Tei(Body):
    """Rank texts, as Text Embeddings Inference does."""

    question: Question = Field(alias="query")
    documents: Texts = Field(alias="texts")
    return_documents: Flag = Field(None, alias="return_text")
    raw_scores: Flag = None


class Own(Body):
    """Rank candidates, with the scores of every exit."""

    question: Question
    documents: Texts = Field(alias="candidates")
    drop_ratio: Share = None
    drop_below: Share = None
    compare: Flag = None


class Ask(Body):
    """Answer a question by the sentences of the documents that it retrieves."""

    question: Question
    retrieve: Annotated[Optional[int], Field(ge=1, le=1000)] = Field(None, alias="top")
    top: Count = Field(None, alias="n_best")
    drop_ratio: Share = None
    drop_below: Share = None


#: Bodies of the requests of each dialect, by the path of its endpoint.
BODIES: Dict[str, Type[Body]] = {
    "/v1/rerank": Cohere1,
    "/v2/rerank": Cohere2,
    "/rerank": Tei,
    "/api/rank": Own,
    "/ask": Ask,
}


def read_request(path: str, raw: bytes, config: ServeConfig) -> RankRequest:
    """Read the body of a request in the dialect of a path."""
    try:
        body = BODIES[path].model_validate_json(raw)
    except ValidationError as error:
        raise _first_error(error) from None
    names = {field: info.alias or field for field, info in type(body).model_fields.items()}
    given: Dict[str, Any] = {"retrieve": 80, "top": 3} if path == "/ask" else {}
    given.update((field, value) for field, value in body if value is not None)
    keys = given.pop("rank_fields", ["text"])
    documents = given.setdefault("documents", [])
    most = config.max_candidates
    if len(documents) > most:
        problem = f"has {len(documents):,} entries"
        raise RequestError("size", names["documents"], problem, f"at most {most:,}")
    texts = [_text_of(document, keys, index) for index, document in enumerate(documents)]
    _check_characters([given["question"]], names["question"], config.max_characters)
    _check_characters(texts, names.get("documents", "") + "[{}]", config.max_characters)
    if not given["question"].strip():
        raise RequestError("value", names["question"], "is empty", "the text of a question")
    if {"drop_ratio", "drop_below"} <= set(given):
        raise RequestError("value", "drop_below", "is beside drop_ratio", "one of the two")
    return RankRequest(names=names, texts=texts, **given)


def _first_error(error: ValidationError) -> RequestError:
    """What is wrong with a body, in one sentence that names the field as JSON does."""
    problem = error.errors(include_url=False, include_context=False)[0]
    kind, value = problem["type"], json.dumps(problem["input"], default=str)
    if not problem["loc"]:
        return RequestError("syntax", "body", problem["msg"], "a JSON object")
    where = str(problem["loc"][0])
    if len(problem["loc"]) > 1:  # a third part is the name of a type
        where += f"[{problem['loc'][1]}]"
    if kind == "missing":
        return RequestError("value", where, "is missing")
    if kind == "too_short":
        return RequestError("empty", where, "list must not be empty", "at least one entry")
    return RequestError("value", where, f"{problem['msg']}, not {value[:60]}")


def _text_of(document: Any, keys: Sequence[str], index: int) -> str:
    """The text of a document, which is a text itself or an object."""
    if isinstance(document, str):
        return document
    parts = [document[key] for key in keys if document.get(key) is not None]
    if not parts or not all(isinstance(part, str) for part in parts):
        expected = "an object with a text in " + " or ".join(keys)
        raise RequestError("value", f"documents[{index}]", "has no text", expected)
    return "\n".join(parts)


def _check_characters(texts: Sequence[str], name: str, most: int) -> None:
    for index, size in enumerate(map(len, texts)):
        if size > most:
            problem = f"has {size:,} characters"
            raise RequestError("size", name.format(index), problem, f"at most {most:,}")


#: HTTP status of each kind of error, and its name in Text Embeddings Inference's answers.
KINDS: Dict[str, Tuple[int, str]] = {
    "syntax": (400, "Validation"),  # a body that is no JSON object
    "value": (422, "Validation"),  # a field with a wrong value
    "empty": (422, "Empty"),  # a list without candidates
    "key": (401, "Unauthorized"),
    "origin": (403, "Validation"),  # a page of another site asks
    "path": (404, "Validation"),
    "method": (405, "Validation"),
    "slow": (408, "Validation"),  # the body did not come in time
    "size": (413, "Validation"),
    "encoding": (415, "Validation"),
    "host": (421, "Validation"),  # the service does not know itself by this name
    "busy": (429, "Overloaded"),
    "gone": (499, "Validation"),  # the client closed the connection
    "failed": (500, "Backend"),
    "deadline": (504, "Overloaded"),
}


def error_answer(path: str, error: RequestError, id: str) -> Tuple[int, Dict[str, Any]]:
    """Status and body of an error in the dialect of a path, whether or not the path is served."""
    first = "".join(path.split("/")[1:2])
    (status, name), text = KINDS[error.kind], str(error)
    if first in ("v1", "v2"):  # Cohere's and Jina's
        body = {"id": id, "message": text}
        if first == "v1":
            body["detail"] = text
        return 400 if error.kind in ("value", "empty") else status, body
    if first in ("rerank", "info"):  # Text Embeddings Inference's
        status = {"failed": 424, "empty": 400}.get(error.kind, status)
        return status, {"error": text, "error_type": name}
    return status, {"id": id, "error": text, "kind": error.kind}


#: Score of a blank candidate where a dialect asks for log-odds, which JSON cannot say are infinite.
BLANK_SCORE = -100.0
#: Fields of a candidate that stand beside those of every dialect.
_OWN = ("index", "probability", "exit", "dropped", "truncated", "blank")


def _rows(ranking: Ranking, score: str) -> List[Dict[str, Any]]:
    """The candidates in order; ``score`` names their relevance."""
    rows = []
    for row in ranking.to_dicts():
        fields = {score: row["relevance"], **{name: row[name] for name in _OWN}}
        if row.get("window"):
            fields["window"] = row["window"]
        rows.append(fields)
    return rows


def _cost(ranking: Ranking) -> Dict[str, float]:
    names = ("relative", "multiply_adds", "full_multiply_adds")
    return {name: float(getattr(ranking.cost, name)) for name in names}


def _answer_cohere_1(answered: Answered) -> Dict[str, Any]:
    [job] = answered.jobs
    tokens, cost = 0, job.ranking.cost
    if cost.full_candidate_work:
        count = int(np.sum(~job.ranking.blank))
        tokens = round(cost.full_multiply_adds / cost.full_candidate_work * count)
    usage = {"total_tokens": tokens, "prompt_tokens": tokens}
    return {**_answer_cohere_2(answered, "1"), "model": answered.model, "usage": usage}


def _answer_cohere_2(answered: Answered, version: str = "2") -> Dict[str, Any]:
    request, [job] = answered.request, answered.jobs
    results = _rows(job.ranking.top(request.top), "relevance_score")
    if request.return_documents:  # strict clients do not take a document that is null
        for row in results:
            document = request.documents[row["index"]]
            more = document if isinstance(document, dict) else {}
            row["document"] = {"text": request.texts[row["index"]], **more}
    meta = {"api_version": {"version": version}, "billed_units": {"search_units": 0}}
    return {
        "id": answered.id,
        "results": results,
        "meta": {**meta, **answered.notes},
        "cost": _cost(job.ranking),
        "seconds": job.seconds,
    }


def _answer_tei(answered: Answered) -> List[Dict[str, Any]]:
    request, [job] = answered.request, answered.jobs
    ranking = job.ranking
    scores = np.where(ranking.blank, BLANK_SCORE, ranking.scores)
    # Log-odds do not rise along the order.
    scores[ranking.order] = np.minimum.accumulate(scores[ranking.order])
    rows = _rows(ranking, "score")
    for row in rows:
        if request.raw_scores:
            row["score"] = float(scores[row["index"]])
        if request.return_documents:
            row["text"] = request.texts[row["index"]]
        row.update(answered.notes)  # the answer is a list, without a place for them
    return rows


def _answer_own(answered: Answered) -> Dict[str, Any]:
    rankings = [_own_ranking(answered, job) for job in answered.jobs]
    full = rankings[-1] if answered.request.compare else None
    return {"id": answered.id, **rankings[0], "without_dropping": full, **answered.notes}


def _own_ranking(answered: Answered, job: Job) -> Dict[str, Any]:
    ranking = job.ranking
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
        "cost": _cost(ranking),
        "seconds": job.seconds,
    }


def _answer_ask(answered: Answered) -> Dict[str, Any]:
    request = answered.request
    documents = []
    for hit in request.hits:
        document = {"id": hit.document.id, "title": hit.document.title}
        documents.append({**document, "retrieval_score": hit.score})
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
        "seconds": 0.0,
        **answered.notes,
    }
    for job in answered.jobs:
        ranking = job.ranking
        ranked = in_order(request.sentences[: len(request.texts)], ranking)
        for rank, sentence in enumerate(ranked[: request.top], 1):
            answer["sentences"].append({"rank": rank, **sentence._asdict()})
        threshold = answer["threshold"] = ranking.threshold
        answer["answered"] = None if threshold is None else ranking.answered(threshold)
        scored = ranking.scored_by_stage.tolist()
        for layer, read, left in zip(answered.exits, scored, [*scored[1:], scored[-1]]):
            answer["exits"].append({"exit": layer, "read": read, "dropped": read - left})
        answer.update(cost=_cost(ranking), seconds=job.seconds)
    return answer


#: What makes the answers of each dialect, by the path of its endpoint.
ANSWERS: Dict[str, Callable[[Answered], Any]] = {
    "/v1/rerank": _answer_cohere_1,
    "/v2/rerank": _answer_cohere_2,
    "/rerank": _answer_tei,
    "/api/rank": _answer_own,
    "/ask": _answer_ask,
}
