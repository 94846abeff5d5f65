"""The application: endpoints of the dialects, of the ranker itself, of whoever watches, the page.

A browser that obeys the headers of the page loads nothing from elsewhere, runs no script but the
page's own files, and does not show the page inside another one. The page itself holds no secret, so
that it needs no key; its requests do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pathlib
import signal
import time
import uuid
import zlib
from typing import Any, AsyncIterator, Awaitable

import anyio
import prometheus_client as prometheus
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client.multiprocess import MultiProcessCollector
from pydantic_core import to_json
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect

import wqa
from wqa.errors import InputError, WqaError, shorten
from wqa.serve.requests import DIALECTS, error_answer, read_request
from wqa.serve.server import METRICS_FOLDER, ServeConfig
from wqa.serve.service import RequestError, Service

LOGGER = logging.getLogger(__name__)
#: Seconds in which the service still takes connections after it is told to stop. It closes each
#: with its answer, so that clients that keep connections lose no request.
LAST_REQUESTS = 0.5

# Metrics. With several workers each process writes its values to files, and any of them answers for
# all of them.
REQUESTS = prometheus.Counter("wqa_requests", "Requests answered.", ["path", "status"])
SECONDS = prometheus.Histogram(
    "wqa_request_seconds", "Seconds from a request to its answer.", ["path"]
)
CANDIDATES = prometheus.Counter("wqa_candidates", "Candidates ranked.")
DROPPED = prometheus.Counter("wqa_dropped_candidates", "Candidates that an exit dropped.", ["exit"])
GROUP = prometheus.Histogram(
    "wqa_group_requests", "Requests ranked together.", buckets=(1, 2, 4, 8, 16, 32)
)
QUEUE = prometheus.Gauge("wqa_queue_requests", "Requests that wait.", multiprocess_mode="livesum")

#: Fields of requests that `Service.answer` takes as keywords.
OPTIONS = {"retrieve", "max_tokens", "compare", "drop_ratio", "drop_below"}
#: Headers of errors by kind.
HEADERS = {"busy": {"retry-after": "1"}, "key": {"www-authenticate": "Bearer"}}

router = APIRouter()

#: Files of the page, and the headers of each.
FOLDER = pathlib.Path(__file__).parent / "page"
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-cache",  # a browser asks whether a file has changed
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def build_app(service: Service) -> FastAPI:
    """Build the application of a service, whose lifespan loads the rankers."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        start = time.monotonic()
        await service.load()
        _log("ready", model=", ".join(service.rankers), seconds=round(time.monotonic() - start, 3))
        _drain_before_the_end(service)
        yield
        service.executor.shutdown(wait=False)
        _log("stopped", cut_off=service.active)
        if service.active:
            service.on_cut_off()

    # The schema, without its pages: these read scripts from elsewhere.
    app = FastAPI(
        title="wqa",
        version=wqa.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        exception_handlers=dict.fromkeys((HTTPException, ClientDisconnect, RequestError), refuse),
        middleware=[Middleware(Watch, service=service)],
        generate_unique_id_function=lambda route: route.path.strip("/").replace("/", "_"),
    )
    app.state.service = service
    for path, body in DIALECTS.items():
        if path != "/ask" or service.config.index:
            content = {"application/json": {"schema": body.model_json_schema()}}
            described = {"requestBody": {"required": True, "content": content}}
            app.post(path, description=body.__doc__, openapi_extra=described)(rank)
    app.include_router(router)
    app.mount("/page", StaticFiles(directory=FOLDER))
    return app


def _drain_before_the_end(service: Service) -> None:
    """Let `LAST_REQUESTS` pass between a signal and the server's own handler of it."""
    loop = asyncio.get_running_loop()

    def drain(number: int, handler: Any) -> None:
        service.is_draining = True
        loop.call_later(LAST_REQUESTS, handler, number, None)

    for number in (signal.SIGTERM, signal.SIGINT):
        handler = signal.getsignal(number)
        if callable(handler):
            with contextlib.suppress(ValueError, RuntimeError):  # not the main thread
                loop.add_signal_handler(number, drain, number, handler)


def _log(event: str, **fields: Any) -> None:
    LOGGER.info(event, extra={"fields": fields})


class Watch:
    """Gives each request an id, logs and counts it, and closes connections of a service that stops.

    A request for a ranking has a line in the log, any other one if it is refused. No text is in it.
    """

    def __init__(self, app: Any, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, id = time.monotonic(), str(uuid.uuid4())
        state = scope["state"] = {**scope.get("state", {}), "id": id, "log": {}}

        async def send_and_note(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = id
                if self._service.is_draining:
                    headers["connection"] = "close"
                if scope["path"] == "/" or scope["path"].startswith("/page/"):
                    headers.update(PAGE_HEADERS)
                self._note(scope, message["status"], time.monotonic() - start, **state["log"])
            await send(message)

        self._service.active += 1
        try:
            await self._app(scope, receive, send_and_note)
        except asyncio.CancelledError:  # the server cuts the request off, which stays active
            self._service.active += 1
            raise
        finally:
            self._service.active -= 1

    def _note(self, scope: Any, status: int, seconds: float, **facts: Any) -> None:
        path = scope["path"]
        # A counter of each path that clients make up would take any amount of memory.
        label = path if "route" in scope else "other"
        REQUESTS.labels(label, str(status)).inc()
        SECONDS.labels(label).observe(seconds)
        QUEUE.set(len(self._service.waiting))
        if path in DIALECTS or status >= 400:
            fields = {"id": scope["state"]["id"], "path": path[:60], "status": status}
            _log("request", **fields, seconds=round(seconds, 6), **facts)


def _respond(value: Any, status: int = 200, **headers: str) -> Response:
    """Make a response of a value of JSON, where numbers without a finite value are null."""
    return Response(to_json(value, inf_nan_mode="null"), status, headers, "application/json")


async def refuse(request: Request, error: Any) -> Response:
    """Make the response of an error, in the dialect of the path."""
    headers = {}
    if isinstance(error, ClientDisconnect):
        error = RequestError("gone", "client", "closed the connection")
    elif isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        error = _not_served(request, error)
    headers.update(HEADERS.get(error.kind, {}))
    request.state.log["refused"] = error.kind
    status, body = error_answer(request.scope["path"], error, request.state.id)
    return _respond(body, status, **headers)


def _not_served(request: Request, error: HTTPException) -> RequestError:
    """The error of a path or a method that has no endpoint."""
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return RequestError("method", "method", f"is {request.method}", allowed)
    path, expected = request.scope["path"], "one that is served"
    if path == "/ask":
        expected += "; this service was started without --index, a collection to ask"
    return RequestError("path", "path", f"is {shorten(path)}", expected)


def _service(request: Request) -> Service:
    """The service of a request, which may ask it."""
    service, headers = request.app.state.service, request.headers
    if service.config.api_key is None:  # a page of another site does not know the key
        service.check_site(headers.get("host", ""), headers.get("origin", ""))
    else:
        service.check_key(headers.get("authorization", ""))
    return service


async def rank(request: Request) -> Response:
    """Answer a request for a ranking."""
    service = _service(request)
    path, config = request.scope["route"].path, service.config
    body, texts = read_request(path, await _read_body(request, config), config)
    options = body.model_dump(include=OPTIONS, exclude_none=True)
    try:
        work = service.answer(body, texts, **options)
        ranked = await _unless_gone(request, work, config.timeout)
    except (RequestError, ClientDisconnect):
        raise
    except InputError as error:
        raise RequestError("value", body.names["question"], error.found, error.expected) from None
    except Exception as error:
        LOGGER.error("request_failed", exc_info=error)
        text = str(error) if isinstance(error, WqaError) else "internal error"
        raise RequestError("failed", "service", text) from None
    for job in ranked.jobs:
        dropped = job.ranking.dropped
        CANDIDATES.inc(job.size)
        GROUP.observe(job.group)
        for layer in job.ranking.exits[dropped].tolist():
            DROPPED.labels(str(layer)).inc()
        facts = {"candidates": job.size, "waited": round(job.waited, 6), "group": job.group}
        request.state.log.update(facts, dropped=int(dropped.sum()))
    return _respond(body.answer(ranked, request.state.id))


async def _read_body(request: Request, config: ServeConfig) -> bytes:
    """Read the body, which is refused before it is whole where it is too large."""
    coding = request.headers.get("content-encoding", "identity").lower()
    if coding not in ("identity", "gzip"):
        value = f"is {shorten(coding)}"
        raise RequestError("encoding", "Content-Encoding", value, "gzip or none")
    most, timeout = config.max_bytes, config.timeout
    large = RequestError("size", "body", "is too large", f"at most {most:,} bytes")
    if int(request.headers.get("content-length", 0)) > most:
        raise large
    body, gzip = bytearray(), zlib.decompressobj(wbits=31)
    try:
        with anyio.fail_after(timeout):
            async for chunk in request.stream():
                while coding == "gzip" and chunk and len(body) <= most:
                    body += gzip.decompress(chunk, most + 1 - len(body))
                    chunk = gzip.unused_data  # of the next member
                    gzip = zlib.decompressobj(wbits=31) if gzip.eof else gzip
                body += chunk
                if len(body) > most:
                    raise large
    except zlib.error:
        raise RequestError("syntax", "body", "is no gzip", "a JSON object") from None
    except TimeoutError:
        raise RequestError("slow", "body", f"took more than {timeout:g} seconds") from None
    return bytes(body)  # one that is cut short is no JSON


async def _unless_gone(request: Request, work: Awaitable[Any], seconds: float) -> Any:
    """Result of some work, unless the client goes away or the time is over before it."""
    # Behind a body that has been read, the only message is that the client has gone.
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        first = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait({working, gone}, timeout=seconds, return_when=first)
        if working in done:
            return working.result()
        if gone in done:
            raise ClientDisconnect
        raise RequestError("deadline", "service", f"no ranking within {seconds:g} seconds")
    finally:
        working.cancel()
        gone.cancel()


@router.get("/info")
async def info(request: Request) -> Response:
    """Describe the ranker, as Text Embeddings Inference does."""
    service = _service(request)
    config, name = service.config, service.name_of(None)
    # Clients read numbers, whatever the ranker: without a limit of tokens that of characters holds.
    inputs = service.rankers[name].inputs
    length = getattr(inputs, "max_length", None) or config.max_characters
    facts = {
        "model_id": name,
        "model_dtype": service.precision,
        "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
        "max_concurrent_requests": config.queue,
        "max_input_length": length,
        "max_batch_tokens": length * config.group_candidates,
        "max_client_batch_size": config.max_candidates,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": wqa.__version__,
        **dict.fromkeys(("model_sha", "max_batch_requests", "sha", "docker_label")),
    }
    return _respond(facts)


@router.get("/api/ranker")
async def describe(request: Request) -> Response:
    """Describe a ranker and the limits of requests."""
    service = _service(request)
    config = service.config
    name = service.name_of(request.query_params.get("model"))
    limits = {
        "bytes": config.max_bytes,
        "candidates": config.max_candidates,
        "characters": config.max_characters,
        "seconds": config.timeout,
    }
    facts = {"model": name, "models": list(service.rankers), **service.descriptions[name]}
    return _respond({**facts, "limits": limits, "version": wqa.__version__})


@router.get("/models")
@router.get("/v1/models")
async def models(request: Request) -> Response:
    """List the rankers, of which the first one is the default."""
    descriptions = _service(request).descriptions
    models = [{"id": name, "object": "model", **facts} for name, facts in descriptions.items()]
    return _respond({"object": "list", "data": models})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Metrics of Prometheus."""
    QUEUE.set(len(_service(request).waiting))
    registry = prometheus.REGISTRY
    if METRICS_FOLDER in os.environ:
        registry = prometheus.CollectorRegistry()
        MultiProcessCollector(registry)
    return Response(prometheus.generate_latest(registry), media_type=prometheus.CONTENT_TYPE_LATEST)


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health(request: Request) -> Response:
    """Whether the service runs."""
    return _respond({"status": "ok"})


@router.head("/ready", include_in_schema=False)
@router.get("/ready")
async def ready(request: Request) -> Response:
    """Whether the service takes requests: 200, otherwise 503."""
    is_draining = request.app.state.service.is_draining
    return _respond({"status": "draining"}, 503) if is_draining else _respond({"status": "ready"})


@router.head("/", include_in_schema=False)
@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    """The page."""
    return FileResponse(FOLDER / "index.html")
