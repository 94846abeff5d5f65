"""Partitions scored by the actors of a Ray cluster.

The driver hands partitions out one by one, and keeps no scores: an actor writes the file of a
partition before it answers. So neither an actor nor the driver takes anything with it when it dies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import platform
import re
import signal
import socket
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from wqa.cluster.hand_out import HandOut
from wqa.cluster.manifest import Manifest, read_manifest
from wqa.cluster.partition_files import is_scored
from wqa.cluster.scorer import PartitionScorer, ScoringJob
from wqa.data.progress import progress_bar
from wqa.data.stopping import StopRequest
from wqa.errors import (
    ClusterError,
    MissingDependency,
    OptionError,
    Stopped,
    how_to_install,
    printable,
    shorten,
)

LOGGER = logging.getLogger(__name__)

#: Seconds in which the address of a cluster must take a connection. Ray itself then waits for half
#: a minute for an answer.
CONNECT_TIMEOUT = 10.0
#: Seconds in which a worker must begin while no other works.
BEGIN_TIMEOUT = 900.0
#: Attempts to start Ray on this machine, each of which Ray gives half a minute: a busy machine may
#: need more.
START_ATTEMPTS = 4
#: Times that a worker may die before it has begun.
MOST_LOST = 3
#: Port of Ray's clients.
PORT = 10001
#: Bytes of the store of objects of a local Ray, the least that it takes: scores go through files.
_STORE = 80 << 20
#: Seconds after which the driver looks at its signals again.
_PAUSE = 0.5


class Outcome(NamedTuple):
    """What a worker answers.

    Attributes
    ----------
    error : str
        What went wrong; empty if nothing did.
    merged : bool
        Whether the scores were merged before.
    """

    error: str = ""
    merged: bool = False


class Worker:
    """Scores partitions in a process of its own; each call answers with an `Outcome`.

    Parameters
    ----------
    job : ScoringJob
        The job.
    folder : str
        Working directory, to which the job's paths are relative.
    """

    def __init__(self, job: ScoringJob, folder: str) -> None:
        self._job, self._folder = job, folder
        self._scorer: Optional[PartitionScorer] = None
        self._manifest: Optional[Manifest] = None

    def begin(self) -> Outcome:
        """Load the ranker, and read or write the manifest."""
        return _outcome(self._begin)

    def score(self, index: int) -> Outcome:
        """Score a partition."""
        return _outcome(self._score, index)

    def _begin(self) -> Outcome:
        os.chdir(self._folder)
        self._scorer = PartitionScorer(self._job)
        if self._scorer.finished() is not None:
            return Outcome(merged=True)
        self._manifest = self._scorer.open_manifest()
        return Outcome()

    def _score(self, index: int) -> Outcome:
        assert self._scorer is not None and self._manifest is not None
        self._scorer.score(self._manifest, index)
        return Outcome()


def _outcome(function: Callable[..., Outcome], *arguments: Any) -> Outcome:
    try:
        return function(*arguments)
    except Exception as error:
        # Text, as the types of all errors need not be known to the driver's Python.
        name = "" if str(error) else type(error).__name__
        return Outcome(f"worker on {platform.node()}: {error}{name}")


def score_on_ray(
    job: ScoringJob, cluster: str, progress: bool = False, stop: Optional[StopRequest] = None
) -> Tuple[Optional[Manifest], int]:
    """Score what is not scored of a job.

    Parameters
    ----------
    job : ScoringJob
        The job.
    cluster : str
        ``local``, ``local:N`` or ``ray://HOST[:PORT]``.
    progress : bool
        Show a bar on standard error.
    stop : StopRequest, optional
        Once it holds a signal, the workers are ended.

    Returns
    -------
    manifest : Manifest or None
        None where the scores are merged already.
    scored : int
        Number of partitions that were scored now.

    Raises
    ------
    ClusterError, MissingDependency, OptionError, Stopped
        As `wqa.cluster.score_on_cluster` raises them.
    """
    threads = job.options.get("threads") or 1
    on_gpus = str(job.options.get("ctx", "cpu")).startswith("gpu")
    job = dataclasses.replace(job, options={**job.options, "threads": threads})
    with connect(cluster, threads, on_gpus) as (ray, count):
        # Python gives no process to an actor that dies by itself: `_Cluster` makes a new one.
        actor = ray.remote(Worker).options(
            num_cpus=threads, num_gpus=int(on_gpus), max_restarts=0, max_task_retries=0
        )
        pool = _Cluster(ray, actor, job, count)
        with progress_bar(0, "scoring", "candidate", progress) as bar:
            return pool.run(stop or StopRequest(), bar)


class _Cluster:
    """The actors of a job, and what each of them does."""

    def __init__(self, ray: Any, actor: Any, job: ScoringJob, count: int) -> None:
        self._ray, self._actor, self._job = ray, actor, job
        self._running: Dict[Any, Tuple[Any, Optional[int]]] = {}  # by the reference of the answer
        self._idle: List[Any] = []
        self._lost = 0  # actors that died, one after another, before they had begun
        self._refused: List[str] = []  # what those said that cannot begin
        self._manifest: Optional[Manifest] = None
        self._work: Optional[HandOut] = None
        for _ in range(count):
            self._add_actor()

    def _add_actor(self) -> None:
        worker = self._actor.remote(self._job, os.getcwd())
        self._running[worker.begin.remote()] = (worker, None)

    def run(self, stop: StopRequest, bar: Any) -> Tuple[Optional[Manifest], int]:
        """Hand partitions out until all are scored, or have failed."""
        last = time.monotonic()
        while self._work is None or not self._work.is_done:
            if stop.signal:
                where = f"{self._job.folder}, {self._work.scored if self._work else 0} partitions"
                raise Stopped(stop.signal, where, "they are in the folder")
            self._hand_out()
            answers, _ = self._ray.wait(list(self._running), num_returns=1, timeout=_PAUSE)
            if answers or any(index is not None for _, index in self._running.values()):
                last = time.monotonic()
            for reference in answers:
                worker, index = self._running.pop(reference)
                outcome = self._answer(reference)
                if outcome is not None and outcome.merged:
                    return None, 0
                if index is None:
                    self._begun(worker, outcome, bar)
                else:
                    self._scored(worker, index, outcome, bar)
            self._check_workers(time.monotonic() - last)
        self._work.raise_failed(self._manifest, self._job.data)
        return self._manifest, self._work.scored

    def _hand_out(self) -> None:
        while self._work is not None and self._idle:
            index = self._work.take()
            if index is None:
                return
            worker = self._idle.pop()
            self._running[worker.score.remote(index)] = (worker, index)

    def _answer(self, reference: Any) -> Optional[Outcome]:
        """What a worker answers; None if it has died."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayActorError:
            return None
        except self._ray.exceptions.RayError as error:
            return Outcome(f"{type(error).__name__}: {error}".partition("\n")[0])

    def _begun(self, worker: Any, outcome: Optional[Outcome], bar: Any) -> None:
        if outcome is None:
            self._lost += 1
            if self._lost < MOST_LOST * (1 + len(self._running)):
                self._add_actor()
            else:
                self._refused.append("workers die before they have begun; look at Ray's logs")
        elif outcome.error:
            LOGGER.warning(printable(f"a worker cannot begin: {outcome.error}"))
            self._refused.append(outcome.error)
            self._ray.kill(worker)
        else:
            self._lost = 0
            self._idle.append(worker)
            if self._work is None:
                self._plan(bar)

    def _plan(self, bar: Any) -> None:
        """Take what is to do from the manifest, which the first worker has read or written."""
        manifest = read_manifest(self._job.folder)
        if manifest is None:
            raise ClusterError(
                self._job.folder,
                "the workers have written a manifest, but it is not here",
                "a folder that all machines share",
            )
        left = []
        for index, partition in enumerate(manifest.partitions):
            bar.total += partition.candidates
            if is_scored(self._job.folder, manifest, index):
                bar.update(partition.candidates)
            else:
                left.append(index)
        self._manifest, self._work = manifest, HandOut(left)

    def _scored(self, worker: Any, index: int, outcome: Optional[Outcome], bar: Any) -> None:
        assert self._work is not None and self._manifest is not None
        if outcome is None:
            LOGGER.warning(f"a worker died while it scored partition {index}; another takes over")
            self._work.fail(index, "the worker died")
            self._add_actor()
            return
        self._idle.append(worker)
        if outcome.error:
            self._work.fail(index, outcome.error)
        else:
            self._work.succeed(index)
            bar.update(self._manifest.partitions[index].candidates)

    def _check_workers(self, waited: float) -> None:
        """Raise an error where nobody works any more."""
        if self._work is not None and self._work.is_done:
            return
        if not self._running and not self._idle:
            raise ClusterError("cluster", "no worker can begin", mend=self._refused[-1])
        if waited > BEGIN_TIMEOUT:
            raise ClusterError(
                "cluster",
                f"no worker has begun for {BEGIN_TIMEOUT:.0f} s",
                "free processors for at least one",
                "what is scored stays; run the command again when the cluster has room",
            )


@contextlib.contextmanager
def connect(cluster: str, threads: int = 1, on_gpus: bool = False) -> Iterator[Tuple[Any, int]]:
    """Connect to a Ray cluster, or start one on this machine, for the ``with`` block.

    Parameters
    ----------
    cluster : str
        ``local``, ``local:N`` or ``ray://HOST[:PORT]``.
    threads : int
        Processors of a worker.
    on_gpus : bool
        Whether a worker has a GPU too.

    Yields
    ------
    ray : module
        The library.
    count : int
        Number of workers that the cluster has room for.

    Raises
    ------
    OptionError
        If the text names no cluster.
    ClusterError
        If the cluster does not answer, or does not start.
    MissingDependency
        If Ray, or what it needs for ``ray://``, is not installed.
    """
    local = re.fullmatch(r"local(?::([1-9][0-9]{0,3}))?", cluster)
    remote = re.fullmatch(r"ray://([^\s/:]+|\[[0-9a-fA-F:]+\])(?::([0-9]{1,5}))?", cluster)
    if local is None and remote is None:
        expected = "local, local:N for N workers on this machine, or ray://HOST[:PORT]"
        raise OptionError("cluster", shorten(cluster), expected)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = _library("ray")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if remote is not None:
            _reach(cluster, remote[1].strip("[]"), int(remote[2] or PORT))
            _start(ray, cluster, address=cluster if remote[2] else f"{cluster}:{PORT}")
            resources = ray.cluster_resources()
            count = int(resources.get("GPU", 0) if on_gpus else resources.get("CPU", 0) // threads)
        else:
            assert local is not None
            count = int(local[1] or max(1, len(os.sched_getaffinity(0)) // threads))
            _start_local(ray, cluster, count, threads)
        _restore(handler)  # Ray ends the process at once
        if count < 1:
            what = "GPU" if on_gpus else f"room for a worker of {threads} processors"
            raise ClusterError("cluster", f"{cluster} has no {what}", "at least one")
        yield ray, count
    finally:
        ray.shutdown()
        _restore(handler)


def _restore(handler: Any) -> None:
    """Restore the handler of SIGTERM, which Ray replaces."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependency(
            name, f"cannot be imported ({error})", mend=f"install Ray {how_to_install('ray')}"
        ) from None


def _reach(cluster: str, host: str, port: int) -> None:
    """Check that something listens, as Ray would try for long."""
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterError(
            "cluster",
            f"{cluster} does not answer on port {port} ({reason})",
            "the address of a running Ray cluster, with the port of its clients",
            "check the address, or start one with `ray start --head`",
        ) from None
    _library("grpc")  # Ray's clients need it, and its workers do not


def _start_local(ray: Any, cluster: str, count: int, threads: int) -> None:
    """Start Ray on this machine; its processes inherit the number of OpenMP's threads."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        _start(
            ray,
            cluster,
            START_ATTEMPTS,
            address="local",
            num_cpus=count * threads,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=_STORE,
            _node_ip_address="127.0.0.1",
        )
    finally:
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before


def _start(ray: Any, cluster: str, attempts: int = 1, **options: Any) -> None:
    try:
        ray.init(logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray has no type of its own for this
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if attempts > 1 and "timed out" in reason:
            ray.shutdown()
            _start(ray, cluster, attempts - 1, **options)
            return
        raise ClusterError(
            "cluster",
            f"{cluster} does not answer, or does not start ({reason})",
            "a running Ray cluster of this version, or a machine on which one can start",
            f"check the address; Ray here is {ray.__version__}",
        ) from None
