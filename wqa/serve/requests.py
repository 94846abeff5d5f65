"""Fields of a request's body, and errors of requests, whose status and body the dialect gives.

Fields that a dialect does not name are ignored.
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from wqa.errors import WqaError, shorten
from wqa.serve.config import ServeConfig

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


def error_answer(path: str, error: RequestError, id: str) -> Tuple[int, Dict[str, Any]]:
    """Status and body of an error in the dialect of a path, whether or not the path is served."""
    first = "".join(path.partition("?")[0].split("/")[1:2])
    status, text = STATUSES[error.kind], str(error)
    if first in ("v1", "v2"):  # Cohere's and Jina's
        body = {"id": id, "message": text}
        if first == "v1":
            body["detail"] = text
        return 400 if error.kind in ("value", "empty") else status, body
    if first in ("rerank", "info"):  # Text Embeddings Inference's
        status = {"failed": 424, "empty": 400}.get(error.kind, status)
        return status, {"error": text, "error_type": _TEI_TYPES.get(error.kind, "Validation")}
    return status, {"id": id, "error": text, "kind": error.kind}


def parse_body(raw: Union[bytes, bytearray]) -> Dict[str, Any]:
    """Parse the body of a request."""
    try:
        body = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not UTF-8"
        raise RequestError("syntax", "body", problem, "JSON in UTF-8") from None
    except RecursionError:
        raise RequestError("syntax", "body", "it is nested too deeply", "a JSON object") from None
    except ValueError as error:
        raise RequestError("syntax", "body", f"is not JSON ({error})", "a JSON object") from None
    if not isinstance(body, dict):
        raise RequestError("syntax", "body", f"is {shorten(body)}", "a JSON object")
    return body


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


class Fields:
    """The fields of a body, checked when they are read. A field that is null counts as absent."""

    def __init__(self, body: Dict[str, Any], config: ServeConfig) -> None:
        self._body, self._config = body, config

    def question(self, name: str) -> str:
        """The text of a question, which is not blank."""
        text = self._body.get(name)
        if text is None:
            raise RequestError("value", name, "is missing", "the text of a question")
        self._check_text(text, name)
        if not text.strip():
            raise RequestError("value", name, "is empty", "the text of a question")
        return text

    def texts(self, name: str) -> List[str]:
        """The texts of candidates."""
        texts = self._candidates(name)
        self._check_texts(texts, name)
        return texts

    def documents(self, name: str, keys: Sequence[str] = ("text",)) -> Tuple[List[Any], List[str]]:
        """Candidates that are texts or objects, and the text of each."""
        documents = self._candidates(name)
        texts = documents
        if any(isinstance(document, dict) for document in documents):
            texts = [_text_of(item, keys, name, index) for index, item in enumerate(documents)]
        self._check_texts(texts, name)
        return documents, texts

    def check_returned(self, name: str) -> None:
        """Check that candidates can be returned as they came: JSON may say what UTF-8 cannot."""
        for index, value in enumerate(self._body[name]):
            try:
                json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
            except UnicodeEncodeError:
                raise _half_surrogate(f"{name}[{index}]") from None
            except ValueError:
                problem = "holds a number that is too large"
                expected = "numbers below 1.8e308"
                raise RequestError("value", f"{name}[{index}]", problem, expected) from None

    def names(self, name: str, default: Sequence[str]) -> Sequence[str]:
        """A list of names."""
        names = self._body.get(name)
        if names is None:
            return default
        is_list = isinstance(names, list) and names
        if not is_list or not all(isinstance(item, str) for item in names):
            raise RequestError("value", name, f"is {shorten(names)}", "a list of names")
        self._check_texts(names, name)
        return names

    def flag(self, name: str) -> Optional[bool]:
        """True or false; None where it is absent."""
        value = self._body.get(name)
        if value is not None and not isinstance(value, bool):
            raise RequestError("value", name, f"is {shorten(value)}", "true or false")
        return value

    def model(self) -> Optional[str]:
        """Name of the ranker; None where it is absent."""
        name = self._body.get("model")
        if name is not None:
            self._check_text(name, "model")
        return name

    def count(self, name: str) -> Optional[int]:
        """A whole number from 1; None where it is absent."""
        value = self._body.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RequestError("value", name, f"is {shorten(value)}", "a whole number from 1")
        return value

    def share(self, name: str) -> Optional[float]:
        """A number from 0 up to, not including, 1; None where it is absent."""
        value = self._body.get(name)
        if value is None:
            return None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < 1 or not math.isfinite(value):
            expected = "a number from 0 up to, not including, 1"
            raise RequestError("value", name, f"is {shorten(value)}", expected)
        return float(value)

    def _candidates(self, name: str) -> List[Any]:
        values = self._body.get(name)
        if values is None:
            raise RequestError("value", name, "is missing", "a list of at least one text")
        if not isinstance(values, list):
            raise RequestError("value", name, f"is {shorten(values)}", "a list of texts")
        if not values:
            raise RequestError("empty", name, "list must not be empty", "at least one text")
        most = self._config.max_candidates
        if len(values) > most:
            raise RequestError("size", name, f"has {len(values):,} entries", f"at most {most:,}")
        return values

    def _check_texts(self, texts: Sequence[Any], name: str) -> None:
        """Check that values are texts of UTF-8 within the limit of characters."""
        try:
            "".join(texts).encode("utf-8")  # a fast check of all at once
            if len(max(texts, key=len)) <= self._config.max_characters:
                return
        except (TypeError, UnicodeEncodeError):
            pass
        for index, text in enumerate(texts):
            self._check_text(text, f"{name}[{index}]")

    def _check_text(self, text: Any, name: str) -> None:
        most = self._config.max_characters
        if not isinstance(text, str):
            raise RequestError("value", name, f"is {shorten(text)}", "a text")
        if len(text) > most:
            raise RequestError("size", name, f"has {len(text):,} characters", f"at most {most:,}")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise _half_surrogate(name) from None


def _half_surrogate(name: str) -> RequestError:
    return RequestError("value", name, "holds half a surrogate pair", "whole characters")


def _text_of(document: Any, keys: Sequence[str], name: str, index: int) -> str:
    """The text of a document, which is a text itself or an object."""
    if not isinstance(document, dict):
        return document
    parts = [document[key] for key in keys if document.get(key) is not None]
    if not parts:
        expected = "an object with " + " or ".join(keys)
        raise RequestError("value", f"{name}[{index}]", "has no text", expected)
    for part in parts:
        if not isinstance(part, str):
            raise RequestError("value", f"{name}[{index}]", f"holds {shorten(part)}", "texts")
    return "\n".join(parts)
