"""Requests that wait for a ranker, and the thread that ranks them together.

The thread takes all that wait and fit in a group; it does not wait for more to come. Groups grow
with the load, and a request that comes alone is ranked at once.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Sequence

from wqa.data import Candidate, Question
from wqa.inference.ranker import Ranker

LOGGER = logging.getLogger(__name__)

#: Drops of a job that drops nothing.
NOTHING = {"drop_ratio": 0.0}


class QueueFull(Exception):
    """As many requests wait as may wait."""


class Job:
    """A question that waits for its ``ranking``, or for the exception that is in its place."""

    def __init__(
        self, model: str, question: str, texts: Sequence[str], drops: Mapping[str, Any]
    ) -> None:
        self.question = Question("", question, tuple(map(Candidate, texts)))
        self.model, self.drops = model, drops
        self.done = asyncio.get_running_loop().create_future()
        self.ranking: Any = None
        self.since = time.monotonic()
        self.waited, self.seconds, self.group = 0.0, 0.0, 0

    @property
    def size(self) -> int:
        """Number of candidates."""
        return len(self.question.candidates)

    def joins(self, other: Job) -> bool:
        """Whether the two can be ranked together."""
        return self.model == other.model and self.drops == other.drops


class Batcher:
    """Ranks the jobs that wait, in one thread, which also loads the rankers.

    Parameters
    ----------
    most_jobs : int
        Jobs that may wait.
    most_candidates : int
        Candidates of a group. A job with more is ranked by itself.
    """

    def __init__(self, most_jobs: int, most_candidates: int) -> None:
        self._most_jobs, self._most_candidates = most_jobs, most_candidates
        self._executor = ThreadPoolExecutor(1, "wqa ranker")
        self._working: Optional[asyncio.Task[None]] = None
        self.rankers: Dict[str, Ranker] = {}
        self.waiting: Deque[Job] = collections.deque()

    async def load(self, load: Callable[[], Dict[str, Ranker]]) -> None:
        """Load the rankers, in the thread that ranks."""
        loop = asyncio.get_running_loop()
        self.rankers = await loop.run_in_executor(self._executor, load)

    async def rank(self, jobs: Sequence[Job]) -> None:
        """Rank jobs; where nobody waits for them any more, they leave the queue."""
        if len(self.waiting) >= self._most_jobs:
            raise QueueFull
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

    def close(self) -> None:
        """End the thread after the group that it ranks."""
        self._executor.shutdown(wait=False)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self.waiting:
            group = self._next_group()
            await loop.run_in_executor(self._executor, self._rank, group)
            for job in group:
                if not job.done.done():
                    job.done.set_result(None)

    def _next_group(self) -> List[Job]:
        """The first job, and those behind it that fit; no later one overtakes one that would."""
        group = [self.waiting.popleft()]
        room = self._most_candidates - group[0].size
        for job in list(self.waiting):
            if job.joins(group[0]):
                if job.size > room:
                    break
                group.append(job)
                self.waiting.remove(job)
                room -= job.size
        return group

    def _rank(self, group: List[Job]) -> None:
        """Rank a group, in the thread. A job that fails takes no other with it."""
        start = time.monotonic()
        ranker = self.rankers[group[0].model]
        rankings: List[Any] = []
        try:
            with dropping(ranker, group[0].drops):
                if len(group) > 1:
                    with contextlib.suppress(Exception):  # which one of them raises again
                        rankings = list(ranker.rank_all([job.question for job in group]))
                if not rankings:
                    rankings = [_rank_one(ranker, job) for job in group]
        except Exception as error:  # of the drops
            rankings = [_logged(error)] * len(group)
        seconds = time.monotonic() - start
        for job, ranking in zip(group, rankings):
            job.ranking = ranking
            job.waited, job.seconds, job.group = start - job.since, seconds, len(group)


def _rank_one(ranker: Ranker, job: Job) -> Any:
    """The ranking of a job, or the exception that it raises."""
    if job.done.done():  # nobody waits any more
        return TimeoutError()
    try:
        return ranker.rank(job.question.question, job.question.candidates)
    except Exception as error:
        return _logged(error)


def _logged(error: Exception) -> Exception:
    """The error, logged, without its frames, which hold the arrays of the ranking."""
    LOGGER.error("ranking_failed", exc_info=error)
    return error.with_traceback(None)


@contextlib.contextmanager
def dropping(ranker: Ranker, drops: Mapping[str, Any]) -> Iterator[None]:
    """Rank with other drops inside the block; without any, those of the ranker stay."""
    if not drops:
        yield
        return
    before = [(inner, inner.drops) for inner in ranker.with_inner()]
    try:
        if any(drops.values()):
            ranker.set_drops(**drops)
        else:
            for inner, _ in before:
                inner.set_drops()
        yield
    finally:
        for inner, earlier in before:
            inner.restore_drops(earlier)
