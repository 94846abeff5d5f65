"""A request for a ranking, from its first byte to its answer.

Whatever comes of it is answered in the words of its dialect, and leaves a line in the log.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
import uuid
from typing import Any, Dict, List, Optional, Set

import numpy as np
from fastapi import Request, Response

from wqa.errors import InputError, WqaError
from wqa.inference.pipeline import sentences_of
from wqa.inference.ranking import Ranking
from wqa.inference.windows import first_tokens
from wqa.serve.answers import Answered, RankRequest
from wqa.serve.dialects import ALL_DIALECTS
from wqa.serve.logs import log, log_exception
from wqa.serve.owner import Job
from wqa.serve.requests import Fields, RequestError, error_answer, parse_body
from wqa.serve.service import Service

#: Most characters of a path in the log.
_LONGEST_PATH = 60


def json_response(value: Any, status: int = 200, headers: Optional[Dict] = None) -> Response:
    """Make a response of a value of JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8"), status, headers, "application/json")


def refusal(path: str, error: RequestError, id: str) -> Response:
    """Make a response of an error, in the dialect of a path."""
    headers = {"x-request-id": id}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    if error.kind == "key":
        headers["www-authenticate"] = "Bearer"
    status, body = error_answer(path, error, id)
    return json_response(body, status, headers)


def refuse(request: Request, error: RequestError) -> Response:
    """Refuse a request: answer it with an error, log it and count it."""
    id, path = str(uuid.uuid4()), request.scope["path"]
    response = refusal(path, error, id)
    # A counter of each path that clients make up would take any amount of memory.
    is_served = any(route.path == path for route in request.app.routes)
    service, start = request.app.state.service, request.state.start
    label, status = path if is_served else "other", response.status_code
    _note(service, label, start, id=id, path=path, status=status, refused=error.kind)
    return response


def _note(
    service: Service, label: str, start: float, id: str, path: str, status: int, **fields: Any
) -> None:
    """Count a request that is answered, and log it."""
    seconds = time.monotonic() - start
    service.metrics.count_request(label, status, seconds)
    path, seconds = path[:_LONGEST_PATH], round(seconds, 6)
    log("request", id=id, path=path, status=status, seconds=seconds, **fields)


class Exchange:
    """A request for a ranking, on its way to an answer."""

    def __init__(self, service: Service, path: str, request: Request) -> None:
        self._service, self._dialect = service, ALL_DIALECTS[path]
        self._path, self._request = path, request
        self._start = time.monotonic()
        self._deadline = self._start + service.config.timeout
        self._id = str(uuid.uuid4())
        self._held, self._is_read = 0, False
        self._jobs: List[Job] = []

    async def response(self) -> Response:
        """Answer the request, whatever comes of it."""
        error: Optional[RequestError] = None
        try:
            response = json_response(await self._answer(), headers={"x-request-id": self._id})
        except RequestError as refused:
            error = refused
        except WqaError as failed:
            kind = "value" if isinstance(failed, InputError) else "failed"
            error = RequestError(kind, failed.where, failed.found, failed.expected, failed.mend)
        except asyncio.CancelledError:
            self._service.cut_off += 1
            self._log(503, "cancelled")
            raise
        except Exception as failed:
            log_exception("request_failed", failed)
            error = RequestError("failed", "service", "internal error")
        finally:
            self._service.held_bytes -= self._held
        if error is not None:
            response = refusal(self._path, error, self._id)
            if not self._is_read:
                response.headers["connection"] = "close"  # the rest of the body is not read
        self._log(response.status_code, error.kind if error else "")
        return response

    async def _answer(self) -> Any:
        self._service.check_key(self._request)
        raw = await self._read()
        rank_request = self._dialect.read(Fields(parse_body(raw), self._service.config))
        del raw
        model = self._service.name_of(rank_request.model)
        rank_request = rank_request._replace(model=model)
        if rank_request.retrieve:
            rank_request = await self._retrieve(rank_request)
            if not rank_request.texts:
                exits = self._service.exits(model)
                nothing = Answered(rank_request, self._id, model, exits, None, 0.0)
                return self._dialect.answer(nothing)
        ranked = await self._rank(rank_request, model)
        return self._dialect.answer(ranked)

    async def _retrieve(self, request: RankRequest) -> RankRequest:
        """The request with the sentences of the documents that its question retrieves."""
        index, most = self._service.index, self._service.config.max_candidates
        if index is None:
            raise RequestError("draining", "ranker", "is not loaded yet", mend="try again")

        def search() -> RankRequest:
            hits = index.search(request.question, request.retrieve)
            sentences = sentences_of(index, hits)
            texts = [sentence.text for sentence in sentences[:most]]
            return request._replace(texts=texts, hits=hits, sentences=sentences)

        return await asyncio.get_running_loop().run_in_executor(None, search)

    async def _first_tokens(self, request: RankRequest, model: str) -> List[str]:
        """Texts of the candidates, without what is behind the tokens that are to be read."""
        if request.most_tokens is None:
            return request.texts
        given = (self._service.ranker(model), request.texts, request.most_tokens)
        return await asyncio.get_running_loop().run_in_executor(None, first_tokens, *given)

    async def _read(self) -> bytearray:
        """Read the body, which is refused before it is whole where it is too large or too slow."""
        timeout, body = self._service.config.timeout, bytearray()
        declared = self._request.headers.get("content-length", "")
        if declared.isdecimal() and len(declared) < 20:
            self._check_size(int(declared))
        while True:
            left = self._deadline - time.monotonic()
            late = RequestError("slow", "body", f"took more than {timeout:g} seconds")
            if left <= 0:
                raise late
            try:
                message = await asyncio.wait_for(self._request.receive(), left)
            except asyncio.TimeoutError:
                raise late from None
            if message["type"] == "http.disconnect":
                raise RequestError("gone", "client", "closed the connection")
            chunk = message.get("body", b"")
            self._check_size(len(body) + len(chunk))
            self._hold(len(chunk))
            body += chunk
            if not message.get("more_body", False):
                self._is_read = True
                return body

    def _check_size(self, size: int) -> None:
        most = self._service.config.max_bytes
        if size > most:
            raise RequestError("size", "body", f"has {size:,} bytes or more", f"at most {most:,}")

    def _hold(self, size: int) -> None:
        self._held += size
        self._service.held_bytes += size
        if self._service.held_bytes > self._service.config.queue_bytes:
            full = "holds as many bytes of requests as it may"
            raise RequestError("busy", "service", full, retry_after=1)

    async def _rank(self, request: RankRequest, model: str) -> Answered:
        texts = await self._first_tokens(request, model)
        ratios = [request.drop_ratio]
        if request.compare and request.drop_ratio != 0:
            ratios.append(0.0)
        for ratio in ratios:
            self._jobs.append(Job(request.question, texts, ratio, self._deadline, model))
        try:
            for job in self._jobs:
                self._service.owner.submit(job)
            await self._wait()
        finally:
            for job in self._jobs:
                self._service.owner.withdraw(job)
        rankings = []
        for job in self._jobs:
            if job.error is not None:
                raise job.error
            if job.ranking is None:  # the thread skips jobs whose deadline has passed
                raise self._late()
            self._service.metrics.count_ranking(job.ranking, job.group)
            rankings.append(job.ranking)
        if request.most_tokens is not None:
            rankings = [_with_shortened(ranking, request.texts, texts) for ranking in rankings]
        exits, seconds = self._service.exits(model), self._jobs[0].seconds
        answered = Answered(request, self._id, model, exits, rankings[0], seconds)
        if request.compare:
            answered = answered._replace(full=rankings[-1], full_seconds=self._jobs[-1].seconds)
        return answered

    async def _wait(self) -> None:
        """Wait for the rankings, unless the client goes away or the deadline passes first."""
        gone = asyncio.ensure_future(_until_gone(self._request))
        pending: Set[asyncio.Future] = {job.future for job in self._jobs}
        try:
            while pending:
                left = self._deadline - time.monotonic()
                done, _ = await asyncio.wait(
                    {gone, *pending}, timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED
                )
                pending -= done
                if pending and gone in done:
                    raise RequestError("gone", "client", "closed the connection")
                if not done:
                    raise self._late()
        finally:
            gone.cancel()

    def _late(self) -> RequestError:
        late = f"no ranking within {self._service.config.timeout:g} seconds"
        return RequestError("deadline", "service", late)

    def _log(self, status: int, refused: str) -> None:
        fields: Dict[str, Any] = {"refused": refused} if refused else {}
        for job in self._jobs[:1]:
            fields.update(candidates=job.size, waited=round(job.waited, 6), group=job.group)
            if job.ranking is not None:
                fields["dropped"] = int(job.ranking.dropped.sum())
        path = self._path
        _note(self._service, path, self._start, self._id, path, status, **fields)


def _with_shortened(ranking: Ranking, texts: List[str], read: List[str]) -> Ranking:
    """The ranking, in which candidates of which only the start was read count as truncated."""
    shortened = np.array([len(start) < len(text) for start, text in zip(read, texts)])
    return dataclasses.replace(ranking, truncated=ranking.truncated | shortened)


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
