"""Errors of requests, each of a kind that the dialect of its path gives a status and a body."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional

from wqa.errors import WqaError

#: HTTP status of each kind of error; a dialect may have another for some.
STATUSES: Dict[str, int] = {
    "syntax": 400,  # a body that is no JSON object
    "value": 422,  # a field with a wrong value
    "empty": 422,  # a list without candidates
    "key": 401,
    "origin": 403,  # a page of another site asks
    "path": 404,
    "method": 405,
    "slow": 408,  # the body did not come in time
    "size": 413,
    "host": 421,  # the service does not know itself by this name
    "busy": 429,
    "gone": 499,  # the client closed the connection
    "failed": 500,
    "draining": 503,
    "deadline": 504,
}

#: Kinds of errors by which Text Embeddings Inference names its own; all others are ``Validation``.
_TEI_TYPES = {
    "busy": "Overloaded",
    "deadline": "Overloaded",
    "draining": "Unhealthy",
    "empty": "Empty",
    "failed": "Backend",
    "key": "Unauthorized",
}


class RequestError(WqaError):
    """A request that is not answered with a ranking."""

    def __init__(
        self,
        kind: str,
        where: object,
        found: object,
        expected: object = "",
        mend: object = "",
        retry_after: Optional[int] = None,
    ) -> None:
        self.kind, self.retry_after = kind, retry_after
        super().__init__(where, found, expected, mend)


class ErrorDialect(NamedTuple):
    """How a dialect answers with an error."""

    body: Callable[[RequestError, str], Dict[str, Any]]
    statuses: Dict[str, int]

    def status(self, error: RequestError) -> int:
        """HTTP status of an error."""
        return self.statuses.get(error.kind, STATUSES[error.kind])


def error_dialect(path: str) -> ErrorDialect:
    """The dialect in which a path answers with an error, whether or not it is served."""
    parts = path.partition("?")[0].split("/")
    return _ERRORS.get("".join(parts[1:2]), _OWN)


def _cohere_1(error: RequestError, id: str) -> Dict[str, Any]:
    return {**_cohere_2(error, id), "detail": str(error)}


def _cohere_2(error: RequestError, id: str) -> Dict[str, Any]:
    return {"id": id, "message": str(error)}


def _tei(error: RequestError, id: str) -> Dict[str, Any]:
    return {"error": str(error), "error_type": _TEI_TYPES.get(error.kind, "Validation")}


def _own(error: RequestError, id: str) -> Dict[str, Any]:
    return {"id": id, "error": str(error), "kind": error.kind}


_COHERE_STATUSES = {"value": 400, "empty": 400}
_TEI = ErrorDialect(_tei, {"failed": 424, "empty": 400})
_OWN = ErrorDialect(_own, {})
#: By the first part of a path.
_ERRORS = {
    "v1": ErrorDialect(_cohere_1, _COHERE_STATUSES),
    "v2": ErrorDialect(_cohere_2, _COHERE_STATUSES),
    "rerank": _TEI,
    "info": _TEI,
}
