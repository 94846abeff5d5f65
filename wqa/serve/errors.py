"""Errors of requests, each of a kind that a dialect gives a status and a body."""

from __future__ import annotations

from typing import Dict, Optional

from wqa.errors import WqaError

#: HTTP status of each kind of error; a dialect may have another for some.
STATUSES: Dict[str, int] = {
    "syntax": 400,  # a body that is no JSON object
    "value": 422,  # a field with a wrong value
    "empty": 422,  # a list without candidates
    "key": 401,
    "slow": 408,  # the body did not come in time
    "size": 413,
    "busy": 429,
    "gone": 499,  # the client closed the connection
    "failed": 500,
    "draining": 503,
    "deadline": 504,
}


class RequestError(WqaError):
    """A request that is not answered with a ranking.

    Parameters
    ----------
    kind : str
        A key of `STATUSES`.
    where, found, expected, mend : object
        As in `wqa.errors.WqaError`.
    retry_after : int, optional
        Seconds after which the client may try again.
    """

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
