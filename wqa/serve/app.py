"""The application: endpoints of the dialects, of the ranker itself and of whoever watches over it.

Bodies are checked by `wqa.serve.fields`, not by pydantic: a thousand documents then cost a
millisecond, and errors have the shape of their dialect. `wqa.serve.openapi` describes them.

The page at `/`: its files and their headers.

A browser that obeys the headers loads nothing from elsewhere, runs no script but the page's own
files, and does not show the page inside another one. The page itself holds no secret, so that it
needs no key; its requests do.
"""

from __future__ import annotations

import contextlib
import pathlib
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Tuple

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

import wqa
from wqa.errors import shorten
from wqa.serve.dialects import DIALECTS, Dialect
from wqa.serve.errors import RequestError
from wqa.serve.exchange import Exchange, json_response, refuse
from wqa.serve.guard import Guard
from wqa.serve.openapi import describe
from wqa.serve.service import Service

FOLDER = pathlib.Path(__file__).parent / "page"

#: The page's files and their types, by path. No other file can be requested.
FILES: Dict[str, Tuple[str, str]] = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/style.css": ("style.css", "text/css; charset=utf-8"),
    "/page/page.js": ("page.js", "text/javascript; charset=utf-8"),
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


def add_page(app: FastAPI) -> None:
    """Add the page and its files to an application."""
    for path, (name, kind) in FILES.items():
        send = _sender(name, kind)
        app.add_api_route(path, send, methods=["GET", "HEAD"], include_in_schema=False)


def _sender(name: str, kind: str) -> Callable[[], FileResponse]:
    """Endpoint that sends one file."""

    def send() -> FileResponse:
        return FileResponse(FOLDER / name, media_type=kind, headers=HEADERS)

    return send


Endpoint = Callable[[Request], Awaitable[Response]]


def build_app(service: Service) -> FastAPI:
    """Build the application of a service."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.open()
        try:
            yield
        finally:
            await service.close()

    # The schema, without its pages: these read scripts from elsewhere.
    app = FastAPI(
        title="wqa", version=wqa.__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.service = service
    for path, dialect in DIALECTS.items():
        endpoint = _ranking_endpoint(service, dialect, path)
        app.add_api_route(path, endpoint, methods=["POST"], **describe(path))
    endpoints = {path: _value_endpoint(service, values) for path, values in _VALUES.items()}
    endpoints.update(
        {
            "/health": _health,
            "/ready": _ready_endpoint(service),
            "/metrics": _metrics_endpoint(service),
        }
    )
    for path, endpoint in endpoints.items():
        app.add_api_route(path, endpoint, methods=["GET"], **describe(path))
    add_page(app)
    app.add_exception_handler(HTTPException, _not_served)  # type: ignore[arg-type]
    app.add_middleware(Guard, config=service.config)
    return app


def _ranking_endpoint(service: Service, dialect: Dialect, path: str) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await Exchange(service, dialect, path, request).response()

    return endpoint


def _info(service: Service) -> Dict[str, Any]:
    """What Text Embeddings Inference says of itself."""
    config = service.config
    # Clients read numbers, whatever the ranker: without a limit of tokens that of characters holds.
    length = getattr(service.ranker.encoder, "max_length", None) or config.max_characters
    return {
        "model_id": service.name,
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


def _describe(service: Service) -> Dict[str, Any]:
    """The ranker, for the page."""
    config = service.config
    return {
        "model": service.name,
        **service.description,
        "limits": {
            "bytes": config.max_bytes,
            "candidates": config.max_candidates,
            "characters": config.max_characters,
            "seconds": config.timeout,
        },
        "version": wqa.__version__,
    }


_VALUES: Dict[str, Callable[[Service], Dict[str, Any]]] = {
    "/info": _info,
    "/api/ranker": _describe,
}


def _value_endpoint(service: Service, value: Callable[[Service], Dict[str, Any]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            service.check_key(request)
            return json_response(value(service))
        except RequestError as error:
            return refuse(request, error)

    return endpoint


async def _not_served(request: Request, error: HTTPException) -> Response:
    """Answer for a path or a method that has no endpoint."""
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        refused = RequestError("method", "method", f"is {request.method}", allowed)
    else:
        refused = RequestError(
            "path", "path", f"is {shorten(request.scope['path'])}", "one that is served"
        )
    response = refuse(request, refused)
    response.headers.update(error.headers or {})
    return response


def _metrics_endpoint(service: Service) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            service.check_key(request)
        except RequestError as error:
            return refuse(request, error)
        service.metrics.set_queue(service.owner.waiting)
        return Response(service.metrics.text(), 200, None, CONTENT_TYPE_LATEST)

    return endpoint


async def _health(request: Request) -> Response:
    return json_response({"status": "ok"})


def _ready_endpoint(service: Service) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        if service.is_draining():
            return json_response({"status": "draining"}, 503)
        if service.owner.ranker is None or not service.owner.is_alive:
            return json_response({"status": "loading"}, 503)
        return json_response({"status": "ready"})

    return endpoint
