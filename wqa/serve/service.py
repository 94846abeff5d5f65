"""The service behind its endpoints: rankers, requests that wait for them, the thread that ranks.

The thread takes all requests that wait and fit in a group; it does not wait for more to come.
Groups grow with the load, and a request that comes alone is ranked at once.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import hmac
import logging
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from pydantic import BaseModel, ConfigDict

from wqa.data import Candidate, Question
from wqa.errors import DataError, QuestionTooLong, WqaError, shorten
from wqa.inference.pipeline import AnswerSentence, sentences_of
from wqa.inference.ranker import Ranker
from wqa.inference.windows import first_tokens
from wqa.serve.server import ServeConfig

LOGGER = logging.getLogger(__name__)
#: Names that no foreign site can have.
_OWN_HOSTS = re.compile(r"(.+\.)?localhost|[0-9]+(\.[0-9]+){3}|\[[0-9a-f:.]+\]")
#: Drops of a job that drops nothing.
NOTHING = {"drop_ratio": 0.0}


class RequestError(WqaError):
    """A request that is not answered with a ranking; its dialect gives status and body by kind."""

    def __init__(self, kind: str, where: object, found: object, expected: object = "") -> None:
        self.kind = kind
        super().__init__(where, found, expected)


class Job:
    """A question that waits for its ``ranking``, or for the exception that is in its place."""

    def __init__(
        self, model: str, question: str, texts: Sequence[str], drops: Mapping[str, Any]
    ) -> None:
        self.question = Question("", question, tuple(map(Candidate, texts)))
        self.model, self.drops, self.size = model, drops, len(texts)
        self.done = asyncio.get_running_loop().create_future()
        self.ranking: Any = None
        self.since = time.monotonic()
        self.waited, self.seconds, self.group = 0.0, 0.0, 0


class RankRequest(BaseModel):
    """Fields of a request of any dialect. ``truncate`` false refuses texts that are too long."""

    # The text "3" is no number. Fields that a dialect does not have are ignored.
    model_config = ConfigDict(strict=True)
    model: Optional[str] = None
    truncate: Optional[bool] = None
    question: str

    @property
    def names(self) -> Dict[str, str]:
        """The JSON names of the fields, for errors."""
        fields = type(self).model_fields
        return {field: info.alias or field for field, info in fields.items()}


class Ranked(NamedTuple):
    """What answers a request: the job that it asks for, and to compare, the one without drops."""

    model: str
    exits: List[int]
    texts: Sequence[str]
    notes: Dict[str, List[str]]  # ``warnings`` of the answer, where there are some
    hits: Sequence[Any]  # documents that the question retrieves, and their sentences
    sentences: Sequence[AnswerSentence]
    jobs: Sequence[Job] = ()  # none without texts


class Service:
    """Rankers by name, of which the first ranks where a request names none.

    Parameters
    ----------
    runs : mapping of str to str or path-like
        What ``load`` takes, by the names of the rankers.
    load : callable
        Loads a ranker.
    config : ServeConfig
        Limits and the key.
    precision : str
        Precision of the rankers, for ``GET /info``.
    """

    def __init__(
        self,
        runs: Mapping[str, Any],
        load: Callable[[Any], Ranker],
        config: ServeConfig,
        precision: str = "float32",
    ) -> None:
        self.config, self.precision = config, precision
        self._runs, self._load_ranker = runs, load
        #: The thread that loads the rankers and ranks.
        self.executor = ThreadPoolExecutor(1, "wqa ranker")
        self._working: Optional[asyncio.Task[None]] = None
        self.waiting: collections.deque[Job] = collections.deque()
        self.rankers: Dict[str, Ranker] = {}
        self.index: Any = None
        #: What ``GET /api/ranker`` says of each ranker, as it was loaded.
        self.descriptions: Dict[str, Dict[str, Any]] = {}
        #: Requests without an answer, which the end of the server cuts off, and whether it is near.
        self.active, self.is_draining = 0, False
        #: Called where the end of the server cuts requests off.
        self.on_cut_off: Callable[[], Any] = int

    async def load(self) -> None:
        """Load the index and the rankers."""
        try:
            await asyncio.get_running_loop().run_in_executor(self.executor, self._load)
        except Exception as error:
            text = str(error) if isinstance(error, WqaError) else ""
            LOGGER.error("failed", exc_info=error, extra={"fields": {"message": text}})
            raise

    def _load(self) -> None:
        if self.config.index:
            from wqa.retrieval import Index

            self.index = Index(self.config.index)
            self.index.check_sentences()
        for name, run in self._runs.items():
            ranker = self.rankers[name] = self._load_ranker(run)
            capabilities = ranker.capabilities
            self.descriptions[name] = {
                "system": capabilities.system,
                "exits": list(capabilities.exits) or list(range(1, capabilities.stages + 1)),
                "num_layers": capabilities.num_layers,
                "stage_layers": capabilities.stage_layers,
                "stages": capabilities.stages,
                "drop_ratios": ranker.drop_ratio,
                "keep": [drop.keep or None for drop in ranker.drops],
                "documents": None if self.index is None else len(self.index),
            }

    def name_of(self, given: Optional[str]) -> str:
        """Name of the ranker that a request gives; with a single one it may give any."""
        if given is None or len(self.rankers) == 1:
            return next(iter(self.rankers))
        if given not in self.rankers:
            expected = f"one of {', '.join(self.rankers)}"
            raise RequestError("value", "model", f"is {shorten(given)}", expected)
        return given

    def check_key(self, authorization: str) -> None:
        """Check the key in the header of a request."""
        scheme, _, key = authorization.partition(" ")
        # Headers are decoded as Latin-1, so that this restores their bytes.
        given = key.strip(" \t").encode("latin-1")
        expected = str(self.config.api_key).encode("utf-8")
        if not hmac.compare_digest(given, expected) or scheme.lower() != "bearer":
            hint = "Bearer and the key of the service"
            raise RequestError("key", "Authorization", "invalid api token", hint)

    def check_site(self, host: str, origin: str) -> None:
        """Refuse requests of other sites' pages to a service on the machine of their reader.

        Such a page is named by ``Origin``, or has changed the address of its own name, in ``Host``.
        """
        own_host, *allowed = map(_without_port, (self.config.host, *self.config.allowed_hosts))
        if "*" in allowed:
            return
        name, site = _without_port(host), origin.lower().partition("://")[2]
        if host and name not in (*allowed, own_host) and not _OWN_HOSTS.fullmatch(name):
            own = "localhost, an IP address or a host that the service allows"
            raise RequestError("host", "Host", f"is {shorten(host)}", own)
        is_same = bool(host) and site == host.lower()
        if origin and not is_same and _without_port(site) not in allowed:
            own = "the service's own, or that of a host that it allows"
            raise RequestError("origin", "Origin", f"is {shorten(origin)}", own)

    async def answer(
        self,
        request: RankRequest,
        texts: Sequence[str],
        retrieve: int = 80,
        max_tokens: Optional[int] = None,
        compare: bool = False,
        **drops: float,
    ) -> Ranked:
        """Rank texts for the question of a request, without texts those that it retrieves.

        Of each text ``max_tokens`` are read. Without ``drops``, those of the ranker stay.
        """
        loop = asyncio.get_running_loop()
        model = self.name_of(request.model)
        ranker, hits = self.rankers[model], []
        sentences: List[AnswerSentence] = []
        if not texts:
            given = (request.question, retrieve)
            hits, sentences = await loop.run_in_executor(None, self._retrieve, *given)
            texts = [sentence.text for sentence in sentences[: self.config.max_candidates]]
        notes = self._check_length(request, ranker)
        ranked = Ranked(model, self.descriptions[model]["exits"], texts, notes, hits, sentences)
        if not texts:
            return ranked
        if max_tokens is not None:
            texts = await loop.run_in_executor(None, first_tokens, ranker, texts, max_tokens)
        jobs = [Job(model, request.question, texts, drops)]
        if compare and drops != NOTHING:
            jobs.append(Job(model, request.question, texts, NOTHING))
        await self._wait_for(jobs)
        truncated = jobs[0].ranking.truncated
        if max_tokens is not None:  # a text of which only the start was read is truncated
            truncated |= [len(read) < len(text) for read, text in zip(texts, ranked.texts)]
        if request.truncate is False and not hits and truncated.any():
            raise _too_long("size", f"{request.names['documents']}[{int(truncated.argmax())}]")
        return ranked._replace(jobs=jobs)

    def _retrieve(self, question: str, count: int) -> Any:
        """The documents that a question retrieves, and their sentences."""
        hits = self.index.search(question, count)
        return hits, sentences_of(self.index, hits)

    def _check_length(self, request: RankRequest, ranker: Ranker) -> Dict[str, List[str]]:
        """Notes of an answer: of a question that is too long for the model, which is cut."""
        try:
            prepared = ranker.prepare([Question("", request.question, ())])
        except (QuestionTooLong, DataError):  # the operator wants an error
            raise _too_long("value", request.names["question"]) from None
        if not prepared.truncated:
            return {}
        name = request.names["question"]
        if request.truncate is False:
            raise _too_long("size", name)
        return {"warnings": [f"{name}: is too long for the model and was cut"]}

    async def _wait_for(self, jobs: Sequence[Job]) -> None:
        """Wait for rankings; where nobody waits for them any more, jobs leave the queue."""
        if len(self.waiting) >= self.config.queue:
            reason = f"{len(self.waiting)} requests wait for the ranker"
            raise RequestError("busy", "service", reason)
        self.waiting.extend(jobs)
        if self._working is None or self._working.done():
            self._working = asyncio.ensure_future(self._work())
        try:
            for job in jobs:
                await job.done
                if isinstance(job.ranking, Exception):
                    raise job.ranking
        finally:
            for job in jobs:
                job.done.cancel()
                with contextlib.suppress(ValueError):
                    self.waiting.remove(job)

    async def _work(self) -> None:
        """Rank all jobs that wait, group by group."""
        loop = asyncio.get_running_loop()
        while self.waiting:
            group = self._next_group()
            await loop.run_in_executor(self.executor, self._rank, group)
            for job in group:
                if not job.done.done():
                    job.done.set_result(None)

    def _next_group(self) -> List[Job]:
        """The first job, and those behind it that fit; no later one overtakes one that would."""
        first = self.waiting.popleft()
        group, room = [first], self.config.group_candidates - first.size
        for job in list(self.waiting):
            if (job.model, job.drops) == (first.model, first.drops):
                if job.size > room:
                    break
                group.append(job)
                self.waiting.remove(job)
                room -= job.size
        return group

    def _rank(self, group: Sequence[Job]) -> None:
        """Rank a group, in the thread. Where that fails, each job is ranked by itself."""
        start, first = time.monotonic(), group[0]
        ranker = self.rankers[first.model]
        rankings: List[Any]
        try:
            with dropping(ranker, first.drops):
                if len(group) == 1:  # without a thread to read questions ahead
                    rankings = [ranker.rank(first.question.question, first.question.candidates)]
                else:
                    rankings = list(ranker.rank_all([job.question for job in group]))
        except Exception as error:
            if len(group) > 1:
                for job in group:
                    if not job.done.done():  # somebody waits for it
                        self._rank([job])
                return
            LOGGER.error("ranking_failed", exc_info=error)
            rankings = [error.with_traceback(None)]  # frames hold the arrays of the ranking
        seconds = time.monotonic() - start
        for job, ranking in zip(group, rankings):
            job.ranking = ranking
            job.waited, job.seconds, job.group = start - job.since, seconds, len(group)


@contextlib.contextmanager
def dropping(ranker: Ranker, drops: Mapping[str, Any]) -> Iterator[None]:
    """Rank with other drops inside the block; without any, those of the ranker stay."""
    rankers = ranker.with_inner() if drops else ()
    before = [(inner, inner.drops) for inner in rankers]
    try:
        if any(drops.values()):
            ranker.set_drops(**drops)
        elif drops:
            for inner, _ in before:
                inner.set_drops()
        yield
    finally:
        for inner, earlier in before:
            inner.restore_drops(earlier)


def _without_port(host: str) -> str:
    """Name of a host in lower case, without the dot that ends an absolute name."""
    return re.sub(r"\.?(:[0-9]*)?$", "", host.lower())


def _too_long(kind: str, name: str) -> RequestError:
    return RequestError(kind, name, "loses tokens to the length limit", "a shorter text")
