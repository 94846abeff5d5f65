"""The application: endpoints of the dialects, of the ranker itself and of whoever watches over it.

Bodies are checked by `wqa.serve.fields`, not by pydantic: a thousand documents then cost a
millisecond, and errors have the shape of their dialect.
"""

from __future__ import annotations

import contextlib
from typing import Any, AsyncIterator, Awaitable, Callable, Dict

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

import wqa
from wqa.errors import shorten
from wqa.serve.dialects import DIALECTS, Dialect
from wqa.serve.errors import RequestError
from wqa.serve.exchange import Exchange, json_response, refuse
from wqa.serve.guard import Guard
from wqa.serve.page_routes import add_page
from wqa.serve.service import Service

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

    # No schema, which would know nothing of the bodies, and no pages of it, which read scripts from
    # elsewhere.
    app = FastAPI(title="wqa", version=wqa.__version__, lifespan=lifespan, openapi_url=None)
    app.state.service = service
    for path, dialect in DIALECTS.items():
        app.add_api_route(path, _ranking_endpoint(service, dialect, path), methods=["POST"])
    for path, values in _VALUES.items():
        app.add_api_route(path, _value_endpoint(service, values), methods=["GET"])
    app.add_api_route("/health", _health, methods=["GET"])
    app.add_api_route("/ready", _ready_endpoint(service), methods=["GET"])
    app.add_api_route("/metrics", _metrics_endpoint(service), methods=["GET"])
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
