"""The thread that owns the rankers of a process, and the requests that wait for them.

The thread takes the requests that wait, as many as fit in a group, and ranks them together; it does
not wait for more. While it computes, further requests come to wait, so that groups grow with the
load, and a request that comes alone is ranked at once.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import math
import threading
import time
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional

from wqa.data import Candidate, Question
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking
from wqa.serve.config import THREAD, ServeConfig
from wqa.serve.logs import log, log_exception
from wqa.serve.requests import RequestError

#: Weight of the last group in the mean time of a candidate.
_WEIGHT = 0.2


class Job:
    """A question that waits for its ranking."""

    def __init__(
        self,
        question: str,
        texts: List[str],
        drop_ratio: Optional[float],
        deadline: float,
        model: str,
    ) -> None:
        self.model = model  # name of the ranker
        self.question = Question("", question, tuple(map(Candidate, texts)))
        self.drop_ratio, self.deadline = drop_ratio, deadline
        self.ranking: Optional[Ranking] = None
        self.error: Optional[Exception] = None
        self.since = time.monotonic()
        self.seconds = self.waited = 0.0
        self.group = 0
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_cancelled = False

    @property
    def size(self) -> int:
        """Number of candidates."""
        return len(self.question.candidates)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for the ranking."""
        return not self._is_cancelled and time.monotonic() < self.deadline

    def joins(self, other: Job) -> bool:
        """Whether the two jobs can be ranked together."""
        return self.model == other.model and self.drop_ratio == other.drop_ratio

    def cancel(self) -> None:
        """Note that nobody waits for the ranking any more."""
        self._is_cancelled = True
        self.future.cancel()


class RankerThread:
    """Rankers by name, the thread that loads them and ranks with them, and the jobs that wait."""

    def __init__(self, load: Callable[[], Dict[str, Ranker]], config: ServeConfig) -> None:
        self._load, self._config = load, config
        self._jobs: Deque[Job] = collections.deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._pace = 0.0  # mean seconds of a candidate
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self.rankers: Dict[str, Ranker] = {}
        self.on_waiting: Callable[[int], None] = _ignore
        self.on_ended: Callable[[], None] = _ignore

    async def start(self) -> None:
        """Start the thread, and wait until it has loaded the rankers."""
        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[None] = self._loop.create_future()
        self._thread.start()
        await self._loaded

    def submit(self, job: Job) -> None:
        """Let a job wait for the ranker."""
        with self._changed:
            if self._is_closed:
                raise RequestError("draining", "service", "is stopping", mend="try another one")
            if len(self._jobs) >= self._config.queue:
                raise self._busy()
            self._jobs.append(job)
            self.on_waiting(len(self._jobs))
            self._changed.notify()

    def withdraw(self, job: Job) -> None:
        """Cancel a job, and take it out of the queue where it still waits."""
        job.cancel()
        with self._changed, contextlib.suppress(ValueError):
            self._jobs.remove(job)
            self.on_waiting(len(self._jobs))

    def _busy(self) -> RequestError:
        candidates = sum(job.size for job in self._jobs)
        seconds = math.ceil(min(max(candidates * self._pace, 1), self._config.timeout))
        reason = f"{len(self._jobs)} requests wait for the ranker"
        return RequestError("busy", "service", reason, retry_after=seconds)

    @property
    def waiting(self) -> int:
        """Number of jobs that wait."""
        return len(self._jobs)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def close(self, timeout: float) -> None:
        """End the thread after the group that it ranks; jobs that wait are dropped."""
        with self._changed:
            self._is_closed = True
            self._jobs.clear()
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    # In the thread.

    def _run(self) -> None:
        try:
            self.rankers = self._load()
        except BaseException as error:  # noqa: B036 - raised where the service is started
            self._refuse()
            self._call(_fail, self._loaded, error)
            return
        self._call(_resolve, self._loaded)
        try:
            while self._handle(self._take()):
                pass
        except BaseException as error:  # noqa: B036 - the service ends with it
            log_exception("ranker_failed", error)
        finally:
            self.rankers = {}
            if self._refuse():
                self._call(self.on_ended)

    def _handle(self, group: List[Job]) -> bool:
        """Rank a group, and hand its rankings or errors over; False where there is none."""
        if not group:
            return False
        start = time.monotonic()
        try:
            self._rank(self.rankers[group[0].model], group)
        except Exception as error:
            log_exception("ranking_failed", error)
            _fail_jobs(group, error.with_traceback(None))
        finally:
            _fail_jobs(group, RequestError("failed", "service", "nothing was ranked"))
            self._finish(group, start)
        return True

    def _refuse(self) -> bool:
        """Refuse the jobs that wait, and those that come; False where the thread was closed."""
        with self._changed:
            if self._is_closed:
                return False
            self._is_closed = True
            left = list(self._jobs)
            self._jobs.clear()
        _fail_jobs(left, RequestError("draining", "service", "is stopping", mend="try another one"))
        self._call(_resolve_all, left)
        return True

    def _take(self) -> List[Job]:
        """Wait for jobs, and take those that are ranked together; none at the end."""
        with self._changed:
            while True:
                while not self._jobs and not self._is_closed:
                    self._changed.wait()
                if not self._jobs:
                    return []
                group = self._first_group()
                self.on_waiting(len(self._jobs))
                if group:
                    return group

    def _first_group(self) -> List[Job]:
        """The first job that is wanted, and those behind it that are ranked with it and fit."""
        group: List[Job] = []
        left: Deque[Job] = collections.deque()
        room = self._config.group_candidates
        while self._jobs:
            job = self._jobs.popleft()
            if not job.is_wanted:
                continue
            if not group or (job.joins(group[0]) and job.size <= room):
                group.append(job)
                room -= job.size
            else:
                left.append(job)
                if job.joins(group[0]):
                    break  # a later one that fits does not overtake it
        left.extend(self._jobs)
        self._jobs = left
        return group

    def _rank(self, ranker: Ranker, group: List[Job]) -> None:
        """Rank a group. A job whose ranking raises an exception takes no other with it."""
        with dropping(ranker, group[0].drop_ratio):
            if len(group) > 1:
                try:
                    rankings = ranker.rank_all([job.question for job in group])
                    for job, ranking in zip(group, rankings):
                        job.ranking = ranking
                except Exception as error:
                    log("group_failed", error=type(error).__name__, requests=len(group))
            for job in group:
                if job.ranking is None and job.is_wanted:
                    _rank_one(ranker, job)

    def _finish(self, group: List[Job], start: float) -> None:
        end = time.monotonic()
        candidates = 0
        for job in group:
            job.seconds, job.waited, job.group = end - start, start - job.since, len(group)
            candidates += job.size
        pace = (end - start) / candidates
        self._pace += (pace - self._pace) * (_WEIGHT if self._pace else 1)
        self._call(_resolve_all, group)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(function, *arguments)


def _rank_one(ranker: Ranker, job: Job) -> None:
    try:
        job.ranking = ranker.rank(job.question.question, job.question.candidates)
    except Exception as error:
        log_exception("ranking_failed", error)
        # Without its frames, which hold the arrays of the ranking.
        job.error = error.with_traceback(None)


def _fail_jobs(jobs: List[Job], error: Exception) -> None:
    """Give an error to the jobs that somebody waits for and that have neither ranking nor error."""
    for job in jobs:
        if job.ranking is None and job.error is None and job.is_wanted:
            job.error = error


def _ignore(*arguments: Any) -> None:
    pass


def _resolve(future: asyncio.Future) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future, error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _resolve_all(group: List[Job]) -> None:
    for job in group:
        _resolve(job.future)


@contextlib.contextmanager
def dropping(ranker: Ranker, drop_ratio: Optional[float]) -> Iterator[None]:
    """Rank with another drop ratio inside the block."""
    if drop_ratio is None:
        yield
        return
    before = [(inner, inner.drops) for inner in _with_inner(ranker)]
    try:
        if drop_ratio:
            ranker.set_drops(drop_ratio)
        else:
            for inner, _ in before:
                inner.set_drops()
        yield
    finally:
        for inner, drops in before:
            inner.restore_drops(drops)


def _with_inner(ranker: Ranker) -> Iterator[Ranker]:
    yield ranker
    for inner in ranker.capabilities.rankers:
        yield from _with_inner(inner)
