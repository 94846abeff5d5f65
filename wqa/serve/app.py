"""The application: endpoints of the dialects, of the ranker itself, of whoever watches, the page.

A browser that obeys the headers of the page loads nothing from elsewhere, runs no script but the
page's own files, and does not show the page inside another one. The page itself holds no secret, so
that it needs no key; its requests do.

A page of a foreign site can reach a service on the reader's own machine: by a request across sites,
which names the site in ``Origin``, or by a name whose address it changes to 127.0.0.1, which then
stands in ``Host``. It does not know the key of a service that has one. `Guard` refuses both.

Bodies are checked by `wqa.serve.requests.Fields`, not by pydantic, whose models only describe them
in `/openapi.json`: a thousand documents then cost a millisecond, and errors have the shape of their
dialect.
"""

from __future__ import annotations

import contextlib
import ipaddress
import pathlib
import time
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Tuple
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

import wqa
from wqa.errors import shorten
from wqa.serve.config import ServeConfig
from wqa.serve.dialects import ALL_DIALECTS, DIALECTS
from wqa.serve.exchange import Exchange, json_response, refuse
from wqa.serve.requests import RequestError
from wqa.serve.service import Service

FOLDER = pathlib.Path(__file__).parent / "page"

#: The page's files and their types, by path. No other file can be requested.
FILES: Dict[str, Tuple[str, str]] = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/style.css": ("style.css", "text/css; charset=utf-8"),
    "/page/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page/asking.js": ("asking.js", "text/javascript; charset=utf-8"),
    "/page/ranking.js": ("ranking.js", "text/javascript; charset=utf-8"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
}

#: Headers of each file.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-cache",  # a browser asks whether a file has changed
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


#: What `/openapi.json` says of errors.
_ERROR = {"description": "An error, as an object in the dialect of the path"}


def build_app(service: Service) -> FastAPI:
    """Build the application of a service."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.begin()
        try:
            yield
        finally:
            await service.close()

    # The schema, without its pages: these read scripts from elsewhere.
    app = FastAPI(
        title="wqa", version=wqa.__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.service = service
    for path, dialect in (ALL_DIALECTS if service.config.index else DIALECTS).items():
        request = dialect.request_model
        body = {"application/json": {"schema": request.model_json_schema()}}
        app.add_api_route(
            path,
            _rank,
            methods=["POST"],
            summary=(request.__doc__ or path).rstrip("."),  # python -OO has no docstrings
            responses={
                200: {"description": "The answer", "model": dialect.answer_model},
                "default": _ERROR,
            },
            openapi_extra={"requestBody": {"required": True, "content": body}},
        )
    for path, (endpoint, summary) in ENDPOINTS.items():
        kind = PlainTextResponse if endpoint is _metrics else JSONResponse
        app.add_api_route(path, endpoint, methods=["GET"], summary=summary, response_class=kind)
    for path in FILES:
        app.add_api_route(path, _file, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_exception_handler(HTTPException, _not_served)  # type: ignore[arg-type]
    app.add_exception_handler(RequestError, _refused)  # type: ignore[arg-type]
    app.add_middleware(Guard, config=service.config)
    return app


def _path(request: Request) -> str:
    """Path of the endpoint, also where the application is mounted below another path."""
    return request.scope["route"].path


async def _rank(request: Request) -> Response:
    return await Exchange(request.app.state.service, _path(request), request).response()


async def _file(request: Request) -> Response:
    name, kind = FILES[_path(request)]
    return FileResponse(FOLDER / name, media_type=kind, headers=HEADERS)


def _service(request: Request) -> Service:
    """The service of a request, whose key is checked."""
    service = request.app.state.service
    service.check_key(request)
    return service


async def _info(request: Request) -> Response:
    service = _service(request)
    config, name = service.config, service.names[0]
    # Clients read numbers, whatever the ranker: without a limit of tokens that of characters holds.
    inputs = service.ranker(name).inputs
    length = getattr(inputs, "max_length", None) or config.max_characters
    return json_response(
        {
            "model_id": name,
            "model_sha": None,
            "model_dtype": service.precision,
            "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
            "max_concurrent_requests": config.queue,
            "max_input_length": length,
            "max_batch_tokens": length * config.group_candidates,
            "max_batch_requests": None,
            "max_client_batch_size": config.max_candidates,
            "auto_truncate": True,
            "tokenization_workers": 1,
            "version": wqa.__version__,
            "sha": None,
            "docker_label": None,
        }
    )


async def _describe(request: Request) -> Response:
    service = _service(request)
    config = service.config
    name = service.name_of(request.query_params.get("model"))
    return json_response(
        {
            "model": name,
            "models": service.names,
            **service.description(name),
            "limits": {
                "bytes": config.max_bytes,
                "candidates": config.max_candidates,
                "characters": config.max_characters,
                "seconds": config.timeout,
            },
            "version": wqa.__version__,
        }
    )


async def _models(request: Request) -> Response:
    service = _service(request)
    models = []
    for name in service.names:
        models.append({"id": name, "object": "model", **service.description(name)})
    return json_response({"object": "list", "data": models})


async def _metrics(request: Request) -> Response:
    service = _service(request)
    service.metrics.set_queue(service.owner.waiting)
    return Response(service.metrics.text(), 200, None, CONTENT_TYPE_LATEST)


async def _health(request: Request) -> Response:
    return json_response({"status": "ok"})


async def _ready(request: Request) -> Response:
    service = request.app.state.service
    if service.is_draining():
        return json_response({"status": "draining"}, 503)
    if not service.owner.rankers or not service.owner.is_alive:
        return json_response({"status": "loading"}, 503)
    return json_response({"status": "ready"})


#: Endpoints beside those of the dialects, and their summaries, by path.
ENDPOINTS: Dict[str, Tuple[Callable[[Request], Awaitable[Response]], str]] = {
    "/info": (_info, "Describe the ranker, as Text Embeddings Inference does"),
    "/api/ranker": (_describe, "Describe a ranker and the limits of requests"),
    "/models": (_models, "List the rankers, of which the first one is the default"),
    "/health": (_health, "Whether the service runs"),
    "/ready": (_ready, "Whether the rankers are loaded: 200, otherwise 503"),
    "/metrics": (_metrics, "Metrics of Prometheus"),
}


async def _refused(request: Request, error: RequestError) -> Response:
    return refuse(request, error)


async def _not_served(request: Request, error: HTTPException) -> Response:
    """Answer for a path or a method that has no endpoint."""
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        refused = RequestError("method", "method", f"is {request.method}", allowed)
    else:
        path, expected = request.scope["path"], "one that is served"
        if path == "/ask":
            expected += "; this service was started without --index, a collection to ask"
        refused = RequestError("path", "path", f"is {shorten(path)}", expected)
    response = refuse(request, refused)
    response.headers.update(error.headers or {})
    return response


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
