"""Partitions computed by the actors of a Ray cluster.

The driver hands partitions out one by one, and keeps no results: an actor writes the file of a
partition before it answers. So neither an actor nor the driver takes anything with it when it dies.

Connections to a Ray cluster, and a Ray of its own on this machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import logging
import os
import platform
import re
import shutil
import signal
import socket
import threading
import time
import warnings
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from wqa.cluster.job import Job, PartitionRunner
from wqa.cluster.partition_files import HandOut, Manifest, read_manifest
from wqa.errors import (
    ClusterError,
    MissingDependency,
    OptionError,
    Stopped,
    how_to_install,
    printable,
    shorten,
)
from wqa.io.progress import StopRequest, progress_bar

#: Seconds in which the address of a cluster must take a connection. Ray itself then waits for half
#: a minute for an answer.
CONNECT_TIMEOUT = 10.0
#: Port of Ray's clients.
PORT = 10001
#: Bytes of the store of objects of a local Ray, the least that it takes: results go through files.
_STORE = 80 << 20
#: Attempts to start Ray on this machine, each of which Ray gives half a minute: a busy machine may
#: need more.
START_ATTEMPTS = 4


@contextlib.contextmanager
def connect(cluster: str, threads: int = 1, on_gpus: bool = False) -> Iterator[Tuple[Any, int]]:
    """Connect to a Ray cluster, or start one on this machine, for the ``with`` block."""
    local = re.fullmatch(r"local(?::([1-9][0-9]{0,3}))?", cluster)
    remote = re.fullmatch(r"ray://([^\s/:]+|\[[0-9a-fA-F:]+\])(?::([0-9]{1,5}))?", cluster)
    if local is None and remote is None:
        expected = "local, local:N for N workers on this machine, or ray://HOST[:PORT]"
        raise OptionError("cluster", shorten(cluster), expected)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = _library("ray")
    if ray.is_initialized():
        raise ClusterError(
            "cluster",
            "this process is connected to Ray already",
            "a process without a connection, as it ends with the work",
            "call ray.shutdown(), or take another process",
        )
    handler = signal.getsignal(signal.SIGTERM)
    session = ""
    try:
        if remote is not None:
            _reach(cluster, remote[1].strip("[]"), int(remote[2] or PORT))
            _start(ray, cluster, address=cluster if remote[2] else f"{cluster}:{PORT}")
            resources = ray.cluster_resources()
            count = int(resources.get("GPU", 0) if on_gpus else resources.get("CPU", 0) // threads)
        else:
            assert local is not None
            count = int(local[1] or max(1, len(os.sched_getaffinity(0)) // threads))
            session = _start_local(ray, cluster, count, threads)
        _restore(handler)  # Ray ends the process at once
        if count < 1:
            what = "GPU" if on_gpus else f"room for a worker of {threads} processors"
            raise ClusterError("cluster", f"{cluster} has no {what}", "at least one")
        yield ray, count
    finally:
        ray.shutdown()
        _restore(handler)
        if session:
            shutil.rmtree(session, ignore_errors=True)


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


def _start_local(ray: Any, cluster: str, count: int, threads: int) -> str:
    """Start Ray on this machine; its processes inherit the number of OpenMP's threads.

    Returns the folder of its logs and sockets.
    """
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        context = _start(
            ray,
            cluster,
            START_ATTEMPTS,
            address="local",
            num_cpus=count * threads,
            include_dashboard=False,
            object_store_memory=_STORE,
            _node_ip_address="127.0.0.1",
        )
        return str(context.address_info["session_dir"])
    finally:
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before


def _start(ray: Any, cluster: str, attempts: int = 1, **options: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error says it
            return ray.init(logging_level=logging.ERROR, log_to_driver=False, **options)
    except Exception as error:  # Ray has no type of its own for this
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if attempts > 1 and "timed out" in reason:
            ray.shutdown()
            return _start(ray, cluster, attempts - 1, **options)
        raise ClusterError(
            "cluster",
            f"{cluster} does not answer, or does not start ({reason})",
            "a running Ray cluster of this version, or a machine on which one can start",
            f"check the address; Ray here is {ray.__version__}; a cluster with tokens needs "
            "RAY_AUTH_MODE=token and its token",
        ) from None


LOGGER = logging.getLogger(__name__)

#: Seconds in which one worker at least must have a process. What it does then may take longer: the
#: first one reads all data.
START_TIMEOUT = 900.0
#: Times that a worker may die before it has begun.
MOST_LOST = 3
#: Seconds after which the driver looks at its signals again.
_PAUSE = 0.5


class Outcome(NamedTuple):
    """What a worker answers."""

    error: str = ""
    merged: bool = False


class Call(NamedTuple):
    """A call of a worker that has not been answered."""

    worker: Any
    method: str
    partition: int = -1
    started: Any = None


def _with_errors(method: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """A method that answers with the text of its error.

    The types of all errors need not be known to the driver's Python.
    """

    @functools.wraps(method)
    def answer(*arguments: Any) -> Outcome:
        try:
            return method(*arguments)
        except Exception as error:
            name = "" if str(error) else type(error).__name__
            return Outcome(f"worker on {platform.node()}: {error}{name}")

    return answer


class Worker:
    """Computes partitions in a process of its own; each call answers with an `Outcome`."""

    def __init__(self, job: Job, folder: str) -> None:
        self._job, self._folder = job, folder
        self._runner: Optional[PartitionRunner] = None
        self._manifest: Optional[Manifest] = None

    def here(self) -> Outcome:
        """Answer at once: the worker has a process."""
        return Outcome()

    @_with_errors
    def begin(self) -> Outcome:
        """Load the run, and read or write the manifest."""
        if not all(os.path.isabs(path) for path in self._job.paths):
            os.chdir(self._folder)
        self._runner = self._job.load()
        if self._job.finished(self._runner.made_with) is not None:
            return Outcome(merged=True)
        self._manifest = self._runner.open_manifest()
        return Outcome(merged=self._manifest is None)

    @_with_errors
    def compute(self, index: int) -> Outcome:
        """Compute a partition and write its file."""
        assert self._runner is not None and self._manifest is not None
        self._runner.compute(self._manifest, index)
        return Outcome()


def compute_on_ray(
    job: Job, cluster: str, progress: bool = False, stop: Optional[StopRequest] = None
) -> Tuple[Optional[Manifest], int]:
    """Compute what is not computed of a job."""
    threads = job.options.get("threads") or 1
    on_gpus = str(job.options.get("ctx", "cpu")).startswith("gpu")
    job = dataclasses.replace(job, options={**job.options, "threads": threads})
    with connect(cluster, threads, on_gpus) as (ray, count):
        # Python gives no process to an actor that dies by itself: `_Cluster` makes a new one.
        actor = ray.remote(Worker).options(
            num_cpus=threads, num_gpus=int(on_gpus), max_restarts=0, max_task_retries=0
        )
        pool = _Cluster(ray, actor, job, count)
        with progress_bar(0, job.wording.gerund, job.wording.unit, progress) as bar:
            return pool.run(stop or StopRequest(), bar)


class _Cluster:
    """The actors of a job, and what each of them does."""

    def __init__(self, ray: Any, actor: Any, job: Job, count: int) -> None:
        self._ray, self._actor, self._job = ray, actor, job
        self._running: Dict[Any, Call] = {}  # by the reference of the answer
        self._idle: List[Any] = []
        self._lost = 0  # actors that died, one after another, before they had begun
        self._refused: List[str] = []  # what those said that cannot begin
        self._manifest: Optional[Manifest] = None
        self._work: Optional[HandOut] = None
        for _ in range(count):
            self._add_actor()

    def _add_actor(self) -> None:
        self._call(Call(self._actor.remote(self._job, os.getcwd()), "here"))

    def _call(self, call: Call) -> None:
        arguments = () if call.method != "compute" else (call.partition,)
        self._running[getattr(call.worker, call.method).remote(*arguments)] = call

    def run(self, stop: StopRequest, bar: Any) -> Tuple[Optional[Manifest], int]:
        """Hand partitions out until all are computed, or have failed."""
        last = time.monotonic()
        while self._work is None or not self._work.is_done:
            if stop.signal:
                where = f"{self._job.folder}, {self._work.computed if self._work else 0} partitions"
                raise Stopped(stop.signal, where, "they are in the folder")
            self._hand_out()
            answers, _ = self._ray.wait(list(self._running), num_returns=1, timeout=_PAUSE)
            for reference in answers:
                call = self._running.pop(reference)
                outcome = self._answer(reference)
                if outcome is not None and outcome.merged:
                    return None, 0
                if call.method == "compute":
                    self._computed(call, outcome, bar)
                else:
                    self._begun(call, outcome, bar)
            if self._idle or any(call.method != "here" for call in self._running.values()):
                last = time.monotonic()  # somebody works, for as long as it takes
            self._check_workers(time.monotonic() - last)
        assert self._manifest is not None
        self._work.raise_failed(self._manifest, self._job.data)
        return self._manifest, self._work.computed

    def _hand_out(self) -> None:
        while self._work is not None and self._idle:
            index = self._work.take()
            if index is None:
                return
            worker = self._idle.pop()
            # The calls of an actor run in their order.
            self._call(Call(worker, "compute", index, worker.here.remote()))

    def _answer(self, reference: Any) -> Optional[Outcome]:
        """What a worker answers; None if it has died."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayActorError:
            return None
        except self._ray.exceptions.RayError as error:
            return Outcome(f"{type(error).__name__}: {error}".partition("\n")[0])

    def _begun(self, call: Call, outcome: Optional[Outcome], bar: Any) -> None:
        if outcome is None:
            self._lost += 1
            LOGGER.warning("a worker died before it had begun; another takes its place")
            if self._lost < MOST_LOST * (1 + len(self._running)):
                self._add_actor()
            else:
                self._refused.append("workers die before they have begun; look at Ray's logs")
        elif outcome.error:
            LOGGER.warning(printable(f"a worker cannot begin: {outcome.error}"))
            self._refused.append(outcome.error)
            self._ray.kill(call.worker)
        elif call.method == "here":
            self._call(Call(call.worker, "begin"))
        else:
            self._lost = 0
            self._idle.append(call.worker)
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
        files = self._job.files(manifest)
        left = []
        for index, partition in enumerate(manifest.partitions):
            bar.total += partition.texts
            if files.has(index):
                bar.update(partition.texts)
            else:
                left.append(index)
        self._manifest, self._work = manifest, HandOut(left)

    def _computed(self, call: Call, outcome: Optional[Outcome], bar: Any) -> None:
        assert self._work is not None and self._manifest is not None
        index = call.partition
        if outcome is None:
            done = self._job.wording.participle
            LOGGER.warning(f"a worker died while it {done} partition {index}; another takes over")
            if self._answer(call.started) is None:
                self._work.put_back(index)
            else:
                self._work.fail(index, "the worker died")
            self._add_actor()
            return
        self._idle.append(call.worker)
        if outcome.error:
            self._work.fail(index, outcome.error)
        else:
            self._work.succeed()
            bar.update(self._manifest.partitions[index].texts)

    def _check_workers(self, waited: float) -> None:
        """Raise an error where nobody works any more."""
        if self._work is not None and self._work.is_done:
            return
        if not self._running and not self._idle:
            raise ClusterError("cluster", "no worker can begin", mend=self._refused[-1])
        if waited > _PAUSE and not any(node["Alive"] for node in self._ray.nodes()):
            raise ClusterError(
                "cluster",
                "all of its machines have failed",
                "one at least that lives",
                "what is computed stays; run the command again",
            )
        if waited > START_TIMEOUT:
            raise ClusterError(
                "cluster",
                f"no worker has started for {START_TIMEOUT:.0f} s",
                "free processors for at least one",
                "what is computed stays; run the command again when the cluster has room",
            )
