"""Middleware that refuses cross-site and ambiguous requests.

A page of a foreign site can reach a service on the reader's own machine: by a request across sites,
which names the site in ``Origin``, or by a name whose address it changes to 127.0.0.1, which then
stands in ``Host``. It does not know the key of a service that has one.
"""

from __future__ import annotations

import ipaddress
import time
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request

from wqa.errors import shorten
from wqa.serve.config import ServeConfig
from wqa.serve.errors import RequestError
from wqa.serve.exchange import refuse

#: Health checks, answered for any Host.
_OPEN = ("/health", "/ready")


class Guard:
    """An ASGI application before another one, which it hands the requests that it takes."""

    def __init__(self, app: Any, config: ServeConfig) -> None:
        self._app = app
        self._names = {_plain(name) for name in config.allowed_hosts}
        self._hosts = {"localhost", _plain(config.host), *self._names}
        self._is_open = config.api_key is not None or "*" in self._names

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or hand it on."""
        application = self._app
        if scope["type"] == "http":
            request = Request(scope)
            request.state.start = time.monotonic()
            try:
                self._check(request.headers, scope["path"])
            except RequestError as error:
                application = refuse(request, error)
                application.headers["connection"] = "close"
        await application(scope, receive, send)

    def _check(self, headers: Headers, path: str) -> None:
        if "content-length" in headers and "transfer-encoding" in headers:
            both = "stands beside Transfer-Encoding"
            raise RequestError("syntax", "Content-Length", both, "one of them")
        if self._is_open or path in _OPEN:
            return
        host, origin = headers.get("host", "").lower(), headers.get("origin", "").lower()
        if host and not self._is_own(_name_of(f"//{host}")):
            own = "localhost, an IP address or one of --allowed-hosts"
            raise RequestError("host", "Host", f"is {shorten(host)}", own)
        is_same = bool(host) and origin.partition("://")[2] == host
        if origin and not is_same and _name_of(origin) not in self._names:
            own = "the service's own, or that of one of --allowed-hosts"
            raise RequestError("origin", "Origin", f"is {shorten(origin)}", own)

    def _is_own(self, name: str) -> bool:
        """Whether no foreign site can have a name."""
        if name in self._hosts or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _name_of(address: str) -> str:
    """Name or IP address of the host of an address, empty where it has none."""
    try:
        return _plain(urlsplit(address).hostname or "")
    except ValueError:
        return ""


def _plain(name: str) -> str:
    """A name in lower case, without the dot that ends an absolute name."""
    return name.lower().rstrip(".")
