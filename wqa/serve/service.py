"""The service: its rankers, its limits, its key, and its metrics in Prometheus's format.

With several workers each process writes its values to files, and any of them answers for all
(prometheus_client's multiprocess mode, by the variable ``PROMETHEUS_MULTIPROC_DIR``).
"""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

import numpy as np
from fastapi import Request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from wqa.errors import shorten
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking
from wqa.serve.config import METRICS_FOLDER, ServeConfig
from wqa.serve.logs import log
from wqa.serve.owner import RankerThread
from wqa.serve.requests import RequestError

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of requests, candidates and drops, and the length of the queue."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "wqa_requests", "Requests answered.", ("path", "status"), registry=registry
        )
        self._seconds = Histogram(
            "wqa_request_seconds",
            "Seconds from a request to its answer.",
            ("path",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._candidates = Counter("wqa_candidates", "Candidates ranked.", registry=registry)
        self._dropped = Counter(
            "wqa_dropped_candidates",
            "Candidates dropped, by the exit that scored them last.",
            ("exit",),
            registry=registry,
        )
        self._group = Histogram(
            "wqa_group_requests",
            "Requests that were ranked together, for each of them.",
            buckets=_SIZES,
            registry=registry,
        )
        self._queue = Gauge(
            "wqa_queue_requests",
            "Requests that wait for the ranker.",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that is answered."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_ranking(self, ranking: Ranking, group: int) -> None:
        """Count the candidates of a ranking, and those that it dropped."""
        self._candidates.inc(len(ranking.scores))
        self._group.observe(group)
        exits, counts = np.unique(ranking.exits[ranking.dropped], return_counts=True)
        for layer, count in zip(exits.tolist(), counts.tolist()):
            self._dropped.labels(str(layer)).inc(count)

    def set_queue(self, length: int) -> None:
        """Set the number of requests that wait."""
        self._queue.set(length)

    def text(self) -> bytes:
        """The values, those of all workers where there are several."""
        registry = self._registry
        if METRICS_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return generate_latest(registry)


#: Seconds for which the end of the service waits for the group that is being ranked.
_JOIN = 5.0


class Service:
    """Rankers, and what their endpoints share.

    ``loads`` loads each of them, by name; the first one ranks where a request names none.
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
        self.owner = RankerThread(self._load_all, config)
        self._descriptions: Dict[str, Dict[str, Any]] = {}
        #: Index that ``POST /ask`` retrieves from, once it is loaded; None without one.
        self.index: Any = None
        self.metrics = Metrics()
        self.owner.on_waiting = self.metrics.set_queue
        self.owner.on_ended = self._ended
        #: Called when the rankers are loaded.
        self.on_ready: Callable[[], None] = _ignore
        #: Called where a ranker is not loaded, for the reason in ``failure``, and where its
        #: thread has ended by itself, so that nothing is ranked any more.
        self.stop: Callable[[], None] = _ignore
        self.failure: Optional[BaseException] = None
        self.is_ready = self.has_ended = False
        #: Whether the server has been told to stop.
        self.is_draining: Callable[[], bool] = bool
        self.held_bytes = 0
        #: Number of requests that the end of the server cut off.
        self.cut_off = 0
        self._loading: Optional[asyncio.Task] = None

    def begin(self) -> asyncio.Task:
        """Begin to load the rankers, where that has not begun; requests wait for them meanwhile."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._load())
        return self._loading

    async def _load(self) -> None:
        start = time.monotonic()
        try:
            await self.owner.start()
        except Exception as error:
            self.failure = error
            self.stop()
            return
        self.is_ready = True
        self.on_ready()
        log("ready", model=", ".join(self.names), seconds=round(time.monotonic() - start, 3))

    def _ended(self) -> None:
        log("ranker_ended", model=", ".join(self.names))
        self.has_ended = True
        self.stop()

    async def close(self) -> None:
        """End the thread of the ranker."""
        if self._loading is not None:
            self._loading.cancel()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.owner.close, _JOIN)

    def ranker(self, name: str) -> Ranker:
        """The ranker of a name."""
        if name not in self.owner.rankers:
            raise _not_loaded()
        return self.owner.rankers[name]

    def _load_all(self) -> Dict[str, Ranker]:
        """Load the index and the rankers."""
        if self.config.index:
            from wqa.retrieval import Index

            self.index = Index(self.config.index)
            self.index.check_sentences()
        rankers = {}
        for name, load in self._loads.items():
            rankers[name] = load()
            # Before it ranks: a request may have other drops for a moment.
            self._descriptions[name] = self._describe(rankers[name])
        return rankers

    def _describe(self, ranker: Ranker) -> Dict[str, Any]:
        capabilities = ranker.capabilities
        return {
            "system": capabilities.system,
            "exits": list(capabilities.exits) or list(range(1, capabilities.stages + 1)),
            "num_layers": capabilities.num_layers,
            "stage_layers": capabilities.stage_layers,
            "stages": capabilities.stages,
            "drop_ratios": ranker.drop_ratio,
            "keep": [drop.keep or None for drop in ranker.drops],
            "documents": None if self.index is None else len(self.index),
        }

    def description(self, name: str) -> Dict[str, Any]:
        """What `GET /api/ranker` says of a ranker, as it was loaded."""
        if name not in self._descriptions:
            raise _not_loaded()
        return self._descriptions[name]

    def exits(self, name: str) -> List[int]:
        """Layer of each stage, or its number where stages are not layers of one encoder."""
        return list(self.description(name)["exits"])

    def name_of(self, given: Optional[str]) -> str:
        """Name of the ranker that a request gives; with a single one it may give any."""
        if given is None or len(self.names) == 1:
            return self.names[0]
        if given not in self.names:
            expected = f"one of {', '.join(self.names)}"
            raise RequestError("value", "model", f"is {shorten(given)}", expected)
        return given

    def check_key(self, request: Request) -> None:
        """Check the key of a request."""
        if self.config.api_key is None:
            return
        given = request.headers.get("authorization", "")
        scheme, _, key = given.partition(" ")
        # Headers are decoded as Latin-1, so that this restores their bytes.
        is_same = hmac.compare_digest(
            key.strip().encode("latin-1"), self.config.api_key.encode("utf-8")
        )
        if scheme.lower() != "bearer" or not is_same:
            raise RequestError(
                "key", "Authorization", "invalid api token", "Bearer and the key of the service"
            )


def _not_loaded() -> RequestError:
    return RequestError("draining", "ranker", "is not loaded yet", mend="try again")


def _ignore(*arguments: object) -> None:
    pass
