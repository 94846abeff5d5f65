"""What ``/openapi.json`` says of each path: the fields of its body, an example, and its answers."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Union

Schema = Dict[str, Any]

QUESTION = "how are caves formed ?"
CANDIDATES = ["Ice melts .", "Water carves caves ."]


def _typed(kind: Union[str, List[str]], description: str = "", **keywords: Any) -> Schema:
    schema = {"type": kind, **keywords}
    return {**schema, "description": description} if description else schema


def _object(fields: Schema, required: Sequence[str] = (), **keywords: Any) -> Schema:
    return {"type": "object", "properties": fields, "required": list(required), **keywords}


def _answer(fields: Schema, **keywords: Any) -> Schema:
    """An object with exactly these fields."""
    return _object(fields, list(fields), additionalProperties=False, **keywords)


def _list(items: Schema, description: str = "", **keywords: Any) -> Schema:
    return _typed("array", description, items=items, **keywords)


def _request(fields: Schema, required: Sequence[str], example: Schema) -> Schema:
    # A field that is null counts as absent.
    optional = {
        name: {**schema, "type": [schema["type"], "null"]}
        for name, schema in fields.items()
        if name not in required
    }
    return _object({**fields, **optional}, required, example=example)


_TEXT, _NUMBER, _COUNT, _FLAG = map(_typed, ("string", "number", "integer", "boolean"))
_QUESTION = _typed("string", "The question, which is not blank.")
_TEXTS = _list(_TEXT, "The candidates.", minItems=1)
_DOCUMENTS = _list(
    {"anyOf": [_TEXT, _object({"text": _TEXT})]},
    "The candidates, texts or objects with a text.",
    minItems=1,
)
_RELEVANCE = _typed("number", "Lies in [0, 1] and strictly decreases down the order.")
_OWN_FIELDS = {
    "probability": _typed("number", "Probability that the candidate answers."),
    "exit": _typed("integer", "Exit that scored the candidate last, from 0."),
    "dropped": _typed("boolean", "Whether an exit dropped the candidate."),
    "truncated": _typed("boolean", "Whether the candidate lost tokens to the length limit."),
    "blank": _typed("boolean", "Whether the candidate has no text, so that it comes last."),
}
_COST = _answer(
    {
        "relative": _typed("number", "Share of the multiplications of all layers."),
        "multiply_adds": _NUMBER,
        "full_multiply_adds": _NUMBER,
    }
)


def _cohere_request(more: Optional[Schema] = None) -> Schema:
    fields = {
        "query": _QUESTION,
        "documents": _DOCUMENTS,
        "top_n": _typed("integer", "Number of results; all without it.", minimum=1),
        "return_documents": _typed("boolean", "Whether results hold their documents."),
        **(more or {}),
    }
    example = {"query": QUESTION, "documents": CANDIDATES, "top_n": 1, "return_documents": True}
    return _request(fields, ("query", "documents"), example)


def _cohere_answer(more: Optional[Schema] = None) -> Schema:
    fields = {"index": _COUNT, "relevance_score": _RELEVANCE, **_OWN_FIELDS}
    result = _object({**fields, "document": _object({"text": _TEXT})}, list(fields))
    units = _answer({"search_units": _typed("integer", "Nothing is billed.")})
    return _answer(
        {
            "id": _TEXT,
            "results": _list({**result, "additionalProperties": False}, "Best first."),
            "meta": _answer(
                {"api_version": _answer({"version": _TEXT}), "billed_units": units},
            ),
            "cost": _COST,
            "seconds": _NUMBER,
            **(more or {}),
        }
    )


def _own_answer() -> Schema:
    candidate = {
        "rank": _typed("integer", "From 1."),
        "index": _COUNT,
        "score": _typed(["number", "null"], "Null for a blank candidate."),
        "relevance": _RELEVANCE,
        **_OWN_FIELDS,
        "text": _TEXT,
        "exit_scores": _list(
            _typed(["number", "null"]), "Null for an exit that did not score the candidate."
        ),
    }
    ranking = {
        "order": _list(_COUNT, "Indices of the candidates, best first."),
        "candidates": _list(_answer(candidate), "Best first."),
        "threshold": _typed(
            ["number", "null"], "Least relevance of an answer; null where it is not calibrated."
        ),
        "answered": _typed(["boolean", "null"], "Whether a candidate reaches the threshold."),
        "exits": _list(_COUNT, "Layers of the exits."),
        "cost": _COST,
        "seconds": _NUMBER,
    }
    full = {"anyOf": [_answer(ranking), {"type": "null"}]}
    return _answer({"id": _TEXT, **ranking, "without_dropping": full})


_TEI_RANK = {"index": _COUNT, "score": _NUMBER, **_OWN_FIELDS}

#: Body of a request, by path.
REQUESTS: Dict[str, Schema] = {
    "/v1/rerank": _cohere_request(
        {"rank_fields": _list(_TEXT, "Keys of the documents, whose values are joined.", minItems=1)}
    ),
    "/v2/rerank": _cohere_request(),
    "/rerank": _request(
        {
            "query": _QUESTION,
            "texts": _TEXTS,
            "return_text": _typed("boolean", "Whether results hold their texts."),
            "raw_scores": _typed("boolean", "Log-odds in place of values in [0, 1]."),
            "truncate": _typed("boolean", "If false, a text that is too long is refused."),
        },
        ("query", "texts"),
        {"query": QUESTION, "texts": CANDIDATES, "return_text": True},
    ),
    "/api/rank": _request(
        {
            "question": _QUESTION,
            "candidates": _TEXTS,
            "drop_ratio": _typed(
                "number", "Share dropped at each exit.", minimum=0, exclusiveMaximum=1
            ),
            "compare": _typed("boolean", "Whether to rank without dropping too."),
        },
        ("question", "candidates"),
        {"question": QUESTION, "candidates": CANDIDATES, "drop_ratio": 0.3, "compare": True},
    ),
}

#: Answer to a request, by path.
ANSWERS: Dict[str, Schema] = {
    "/v1/rerank": _cohere_answer(
        {"model": _TEXT, "usage": _answer({"total_tokens": _COUNT, "prompt_tokens": _COUNT})}
    ),
    "/v2/rerank": _cohere_answer(),
    "/rerank": _list(
        _object({**_TEI_RANK, "text": _TEXT}, list(_TEI_RANK), additionalProperties=False),
        "Best first.",
    ),
    "/api/rank": _own_answer(),
}

_SUMMARIES = {
    "/v1/rerank": "Rank documents, as Cohere's v1 and Jina's API do",
    "/v2/rerank": "Rank documents, as Cohere's v2 API does",
    "/rerank": "Rank texts, as Text Embeddings Inference does",
    "/api/rank": "Rank candidates, with the scores of every exit",
    "/info": "Describe the ranker, as Text Embeddings Inference does",
    "/api/ranker": "Describe the ranker and the limits of requests",
    "/health": "Whether the service runs",
    "/ready": "Whether the ranker is loaded: 200, otherwise 503",
    "/metrics": "Metrics of Prometheus",
}


def describe(path: str) -> Dict[str, Any]:
    """Keywords of ``FastAPI.add_api_route`` that describe a path."""
    answer = ANSWERS.get(path, {})
    content = {"text/plain" if path == "/metrics" else "application/json": {"schema": answer}}
    keywords: Dict[str, Any] = {
        "summary": _SUMMARIES[path],
        "responses": {200: {"description": "The answer", "content": content}},
    }
    if path in REQUESTS:
        body = {"application/json": {"schema": REQUESTS[path]}}
        keywords["openapi_extra"] = {"requestBody": {"required": True, "content": body}}
        keywords["responses"]["default"] = {
            "description": "An error, as an object in the dialect of the path"
        }
    return keywords
