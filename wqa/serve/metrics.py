"""Metrics of the service, in Prometheus's format.

With several workers each process writes its values to files, and any of them answers for all
(prometheus_client's multiprocess mode, by the variable ``PROMETHEUS_MULTIPROC_DIR``).
"""

from __future__ import annotations

import os

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from wqa.inference.ranking import Ranking
from wqa.serve.config import METRICS_FOLDER

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
