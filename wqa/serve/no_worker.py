"""Answers of the supervisor while no worker accepts: 503, in the dialect of the path."""

from __future__ import annotations

import contextlib
import json
import socket
import time
import uuid

from wqa.serve.errors import RequestError, error_dialect
from wqa.serve.logs import log

#: Seconds for which a client may be silent, and that are spent on one client.
_SILENCE, _LONGEST = 0.1, 0.5


def refuse(listener: socket.socket) -> None:
    """Accept a connection, answer 503 to its request, and close it."""
    with contextlib.suppress(OSError):  # the client has gone away, or says nothing
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(_SILENCE)
            end = time.monotonic() + _LONGEST
            _, path, *_ = [*connection.recv(1 << 16).split(b" ", 2), b"", b""]
            seconds = time.monotonic() - end + _LONGEST
            connection.sendall(_answer(path.decode("latin-1"), seconds))
            connection.shutdown(socket.SHUT_WR)
            # What is not read would reset the connection, and the answer with it.
            while time.monotonic() < end and connection.recv(1 << 16):
                pass


def _answer(path: str, seconds: float) -> bytes:
    id = str(uuid.uuid4())
    error = RequestError("draining", "service", "has no ranker", mend="try again")
    body = json.dumps(error_dialect(path).body(error, id)).encode("utf-8")
    path = path.partition("?")[0][:60]
    log("request", id=id, path=path, status=503, seconds=round(seconds, 6), refused=error.kind)
    head = (
        "HTTP/1.1 503 Service Unavailable",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "retry-after: 1",
        f"x-request-id: {id}",
        "connection: close",
    )
    return "\r\n".join(head).encode("ascii") + b"\r\n\r\n" + body
