"""Dialects of the service: fields of requests, answers, and errors.

A dialect is one class: its fields validate a body, their aliases are the names in JSON, they
describe it in `/openapi.json`, and its method makes the answer. Cohere's v1 and Jina's API share a
path and nearly all fields; one answer serves both.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type, Union

import numpy as np
from pydantic import Field, ValidationError
from typing_extensions import Annotated

from wqa.inference.pipeline import in_order
from wqa.inference.ranking import Ranking
from wqa.serve.server import ServeConfig
from wqa.serve.service import Job, Ranked, RankRequest, RequestError

#: Types of fields, with what the page says of them.
Question = Annotated[str, Field(examples=["how are caves formed ?"])]
Texts = Annotated[List[str], Field(min_length=1, examples=[["Ice .", "Water carves caves ."]])]
Documents = Annotated[List[Union[str, Dict[str, Any]]], Field(min_length=1, examples=[["Ice ."]])]
Names = Annotated[Optional[List[str]], Field(min_length=1)]
Count = Annotated[Optional[int], Field(ge=1)]
Share = Annotated[Optional[float], Field(ge=0, lt=1 - 2**-25)]  # not 1 in float32
Flag = Optional[bool]
#: Score of a blank candidate where a dialect asks for log-odds, which JSON cannot say are infinite.
BLANK_SCORE = -100.0
#: Fields of a candidate that stand beside those of every dialect.
_OWN = ("index", "probability", "exit", "dropped", "truncated", "blank")


class Cohere2(RankRequest):
    """Rank documents, as Cohere's v2 API does."""

    question: Question = Field(alias="query")
    documents: Documents
    top: Count = Field(None, alias="top_n")
    return_documents: Flag = None
    max_tokens: Count = Field(None, alias="max_tokens_per_doc")
    rank_fields: Names = None

    def answer(self, ranked: Ranked, id: str) -> Dict[str, Any]:
        """The answer as a value of JSON."""
        [job] = ranked.jobs
        results = _rows(job.ranking.top(self.top), "relevance_score")
        if self.return_documents:  # strict clients do not take a document that is null
            for row in results:
                document = self.documents[row["index"]]
                more = document if isinstance(document, dict) else {}
                row["document"] = {"text": ranked.texts[row["index"]], **more}
        meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 0}}
        facts = _facts(job)
        work = {name: facts[name] for name in ("cost", "seconds")}
        return {"id": id, "results": results, "meta": {**meta, **ranked.notes}, **work}


class Cohere1(Cohere2):
    """Rank documents, as Cohere's v1 and Jina's API do."""

    def answer(self, ranked: Ranked, id: str) -> Dict[str, Any]:
        """The answer as a value of JSON."""
        answer = super().answer(ranked, id)
        answer["meta"]["api_version"] = {"version": "1"}
        ranking, tokens = ranked.jobs[0].ranking, 0
        if ranking.cost.full_candidate_work:
            tokens_each = ranking.cost.full_multiply_adds / ranking.cost.full_candidate_work
            tokens = round(tokens_each * int(np.sum(~ranking.blank)))
        usage = {"total_tokens": tokens, "prompt_tokens": tokens}
        return {**answer, "model": ranked.model, "usage": usage}


class Tei(RankRequest):
    """Rank texts, as Text Embeddings Inference does."""

    question: Question = Field(alias="query")
    documents: Texts = Field(alias="texts")
    return_documents: Flag = Field(None, alias="return_text")
    raw_scores: Flag = None

    def answer(self, ranked: Ranked, id: str) -> List[Dict[str, Any]]:
        """The answer as a value of JSON."""
        [job] = ranked.jobs
        ranking = job.ranking
        scores = np.where(ranking.blank, BLANK_SCORE, ranking.scores)
        # Log-odds do not rise along the order.
        scores[ranking.order] = np.minimum.accumulate(scores[ranking.order])
        rows = _rows(ranking, "score")
        for row in rows:
            if self.raw_scores:
                row["score"] = float(scores[row["index"]])
            if self.return_documents:
                row["text"] = ranked.texts[row["index"]]
            row.update(ranked.notes)  # the answer is a list, without a place for them
        return rows


class Dropping(RankRequest):
    """Fields of the service's own dialect."""

    question: Question
    drop_ratio: Share = None
    drop_below: Share = None


class Own(Dropping):
    """Rank candidates, with the scores of every exit."""

    documents: Texts = Field(alias="candidates")
    compare: Flag = None

    def answer(self, ranked: Ranked, id: str) -> Dict[str, Any]:
        """The answer as a value of JSON."""
        rankings = []
        for job in ranked.jobs:
            candidates = job.ranking.to_dicts()
            exit_scores = job.ranking.exit_scores.T.tolist()
            for row in candidates:
                row["text"] = ranked.texts[row["index"]]
                row.setdefault("window", None)
                row["exit_scores"] = exit_scores[row["index"]]
            order = job.ranking.order.tolist()
            fields = {"order": order, "candidates": candidates, "exits": ranked.exits}
            rankings.append({**fields, **_facts(job)})
        full = rankings[-1] if self.compare else None
        return {"id": id, **rankings[0], "without_dropping": full, **ranked.notes}


class Ask(Dropping):
    """Answer a question by the sentences of the documents that it retrieves."""

    retrieve: Annotated[Optional[int], Field(ge=1, le=1000)] = Field(None, alias="top")
    top: Count = Field(None, alias="n_best")

    def answer(self, ranked: Ranked, id: str) -> Dict[str, Any]:
        """The answer as a value of JSON."""
        documents = []
        for hit in ranked.hits:
            document = {"id": hit.document.id, "title": hit.document.title}
            documents.append({**document, "retrieval_score": hit.score})
        count, sentences, exits = len(ranked.texts), [], []
        facts: Any = {"threshold": None, "answered": False, "cost": None, "seconds": 0.0}
        for job in ranked.jobs:
            best = in_order(ranked.sentences[:count], job.ranking)[: self.top or 3]
            sentences = [{"rank": rank, **row._asdict()} for rank, row in enumerate(best, 1)]
            scored = job.ranking.scored_by_stage.tolist()
            for layer, read, left in zip(ranked.exits, scored, [*scored[1:], scored[-1]]):
                exits.append({"exit": layer, "read": read, "dropped": read - left})
            facts = _facts(job)
        return {
            "id": id,
            "documents": documents,
            "sentences": sentences,
            "ranked": count,
            "left_out": len(ranked.sentences) - count,
            "exits": exits,
            **facts,
            **ranked.notes,
        }


#: The dialects by the paths of their endpoints.
DIALECTS: Dict[str, Type[Any]] = {
    "/v1/rerank": Cohere1,
    "/v2/rerank": Cohere2,
    "/rerank": Tei,
    "/api/rank": Own,
    "/ask": Ask,
}


def _rows(ranking: Ranking, score: str) -> List[Dict[str, Any]]:
    """The candidates in order; ``score`` names their relevance."""
    rows = []
    for row in ranking.to_dicts():
        fields = {score: row["relevance"], **{name: row[name] for name in _OWN}}
        if row.get("window"):
            fields["window"] = row["window"]
        rows.append(fields)
    return rows


def _facts(job: Job) -> Dict[str, Any]:
    """Whether the first candidate answers, and what the ranking cost."""
    ranking = job.ranking
    names = ("relative", "multiply_adds", "full_multiply_adds")
    return {
        "threshold": ranking.threshold,
        "answered": None if ranking.threshold is None else ranking.answered(),
        "cost": {name: float(getattr(ranking.cost, name)) for name in names},
        "seconds": job.seconds,
    }


def read_request(path: str, raw: bytes, config: ServeConfig) -> Tuple[Any, List[str]]:
    """Read the body of a request in the dialect of a path, and the texts of its documents."""
    try:
        request = DIALECTS[path].model_validate_json(raw)
    except ValidationError as error:
        raise _first_error(error) from None
    names, fields = request.names, dict(request)
    documents, most = fields.get("documents", []), config.max_candidates
    if len(documents) > most:
        problem = f"has {len(documents):,} entries"
        raise RequestError("size", names["documents"], problem, f"at most {most:,}")
    keys = fields.get("rank_fields") or ["text"]
    texts = [_text_of(document, keys, index) for index, document in enumerate(documents)]
    _check_characters([request.question], names["question"], config.max_characters)
    _check_characters(texts, names.get("documents", "") + "[{}]", config.max_characters)
    if not request.question.strip():
        raise RequestError("value", names["question"], "is empty", "the text of a question")
    if None not in (fields.get("drop_ratio"), fields.get("drop_below")):
        raise RequestError("value", "drop_below", "is beside drop_ratio", "one of the two")
    return request, texts


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
