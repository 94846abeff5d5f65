"""The service behind its endpoints: rankers, the key, and the way of a request."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from wqa.data import Question
from wqa.errors import DataError, QuestionTooLong, WqaError, shorten
from wqa.inference.pipeline import AnswerSentence, sentences_of
from wqa.inference.ranker import Ranker
from wqa.inference.windows import first_tokens
from wqa.serve.batching import NOTHING, Batcher, Job, QueueFull
from wqa.serve.server import ServeConfig

LOGGER = logging.getLogger(__name__)
#: Names that no foreign site can have.
_OWN_HOSTS = re.compile(r"(.+\.)?localhost|[0-9]+(\.[0-9]+){3}|\[[0-9a-f:.]+\]")


class RequestError(WqaError):
    """A request that is not answered with a ranking; its dialect gives status and body by kind."""

    def __init__(self, kind: str, where: object, found: object, expected: object = "") -> None:
        self.kind = kind
        super().__init__(where, found, expected)


class RankRequest(NamedTuple):
    """A request of any dialect. ``names`` are the JSON names of its fields, for errors."""

    names: Mapping[str, str]
    question: str
    texts: List[str]
    documents: Sequence[Any]
    model: Optional[str] = None
    top: Optional[int] = None
    return_documents: bool = False
    raw_scores: bool = False
    truncate: Optional[bool] = None  # if false, a text that is too long is an error
    max_tokens: Optional[int] = None  # of a candidate; what is behind them is not read
    drop_ratio: Optional[float] = None
    drop_below: Optional[float] = None  # least relevance of what goes on after an exit
    compare: bool = False
    retrieve: int = 0  # documents whose sentences are the candidates; 0 where they came with it
    hits: Sequence[Any] = ()
    sentences: Sequence[AnswerSentence] = ()


class Answered(NamedTuple):
    """A request and its jobs: the one that it asks for, and with ``compare`` the full one."""

    request: RankRequest
    id: str
    model: str
    exits: List[int]
    jobs: List[Job]  # none where a question retrieves no sentence
    notes: Dict[str, List[str]]  # ``warnings`` of the answer, where there are some


class Service:
    """Rankers by name, of which the first ranks where a request names none.

    Parameters
    ----------
    loads : mapping of str to callable
        Loads each of them.
    config : ServeConfig
        Limits and the key.
    precision : str
        Precision of the rankers, for ``GET /info``.
    """

    def __init__(
        self,
        loads: Mapping[str, Callable[[], Ranker]],
        config: ServeConfig,
        precision: str = "float32",
    ) -> None:
        self.config, self.precision = config, precision
        self.names = list(loads)
        self._loads = loads
        self.batcher = Batcher(config.queue, config.group_candidates)
        self.index: Any = None
        #: What ``GET /api/ranker`` says of each ranker, as it was loaded.
        self.descriptions: Dict[str, Dict[str, Any]] = {}
        #: Requests that are not answered yet, those of them that the end of the server has cut off,
        #: and whether it is to stop.
        self.active, self.cut_off, self.is_draining = 0, 0, False
        #: Called where the end of the server cuts requests off.
        self.on_cut_off: Callable[[], Any] = int

    async def load(self) -> None:
        """Load the index and the rankers."""
        try:
            await self.batcher.load(self._load)
        except Exception as error:
            text = str(error) if isinstance(error, WqaError) else ""
            LOGGER.error("failed", exc_info=error, extra={"fields": {"message": text}})
            raise

    def _load(self) -> Dict[str, Ranker]:
        if self.config.index:
            from wqa.retrieval import Index

            self.index = Index(self.config.index)
            self.index.check_sentences()
        rankers = {name: load() for name, load in self._loads.items()}
        for name, ranker in rankers.items():
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
        return rankers

    def name_of(self, given: Optional[str]) -> str:
        """Name of the ranker that a request gives; with a single one it may give any."""
        if given is None or len(self.names) == 1:
            return self.names[0]
        if given not in self.names:
            expected = f"one of {', '.join(self.names)}"
            raise RequestError("value", "model", f"is {shorten(given)}", expected)
        return given

    def check_key(self, authorization: str) -> None:
        """Check the key in the header of a request."""
        scheme, _, key = authorization.partition(" ")
        # Headers are decoded as Latin-1, so that this restores their bytes.
        given, expected = key.strip().encode("latin-1"), str(self.config.api_key).encode("utf-8")
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

    async def answer(self, request: RankRequest, id: str) -> Answered:
        """Rank what a request asks for."""
        loop = asyncio.get_running_loop()
        model = self.name_of(request.model)
        exits = self.descriptions[model]["exits"]
        if request.retrieve:
            request = await loop.run_in_executor(None, self._retrieve, request)
        notes = self._check_length(request, model)
        if request.retrieve and not request.texts:
            return Answered(request, id, model, exits, [], notes)
        texts = request.texts
        if request.max_tokens is not None:
            given = (self.batcher.rankers[model], texts, request.max_tokens)
            texts = await loop.run_in_executor(None, first_tokens, *given)
        named = {"drop_ratio": request.drop_ratio, "drop_below": request.drop_below}
        drops = {name: value for name, value in named.items() if value is not None}
        jobs = [Job(model, request.question, texts, drops)]
        if request.compare and drops != NOTHING:
            jobs.append(Job(model, request.question, texts, NOTHING))
        try:
            await self.batcher.rank(jobs)
        except QueueFull:
            reason = f"{len(self.batcher.waiting)} requests wait for the ranker"
            raise RequestError("busy", "service", reason) from None
        truncated = jobs[0].ranking.truncated
        if request.max_tokens is not None:  # a text of which only the start was read is truncated
            truncated |= [len(read) < len(text) for read, text in zip(texts, request.texts)]
        if request.truncate is False and not request.retrieve and truncated.any():
            raise _too_long("size", f"{request.names['documents']}[{int(truncated.argmax())}]")
        return Answered(request, id, model, exits, jobs, notes)

    def _retrieve(self, request: RankRequest) -> RankRequest:
        """The request with the sentences of the documents that its question retrieves."""
        hits = self.index.search(request.question, request.retrieve)
        sentences = sentences_of(self.index, hits)
        texts = [sentence.text for sentence in sentences[: self.config.max_candidates]]
        return request._replace(texts=texts, hits=hits, sentences=sentences)

    def _check_length(self, request: RankRequest, model: str) -> Dict[str, List[str]]:
        """Notes of an answer: of a question that is too long for the model, which is cut."""
        name = request.names["question"]
        try:
            ranker = self.batcher.rankers[model]
            is_cut = ranker.prepare([Question("", request.question, ())]).truncated > 0
        except (QuestionTooLong, DataError):  # the operator wants an error
            raise _too_long("value", name) from None
        if is_cut and request.truncate is False:
            raise _too_long("size", name)
        return {"warnings": [f"{name}: is too long for the model and was cut"]} if is_cut else {}


def _without_port(host: str) -> str:
    """Name of a host in lower case, without the dot that ends an absolute name."""
    return re.sub(r"\.?(:[0-9]*)?$", "", host.lower())


def _too_long(kind: str, name: str) -> RequestError:
    return RequestError(kind, name, "loses tokens to the length limit", "a shorter text")
