"""Parts of a file as tasks of a Ray cluster.

A task computes one part and writes its file; nothing but error messages comes back. Ray repeats the
tasks of a worker that died on another one. Each worker process loads the model once.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import platform
import re
import signal
import threading
import time
import warnings
from typing import Any, Dict, Iterator, List, Optional

from wqa.data.parts import Parts, PartsReport, PartTask, merge_if_whole, open_parts, read_parts
from wqa.errors import (
    ClusterError,
    MissingDependency,
    OptionError,
    Stopped,
    check_range,
    how_to_install,
    printable,
    shorten,
)
from wqa.io.progress import StopRequest, progress_bar

#: Times that a task is tried again on another worker after its own has died.
RETRIES = 2
#: Parts that fail before any is computed, after which the others are not tried.
MOST_FAILED = 8
#: Parts that an error names.
_NAMED = 5
#: Seconds after which the driver looks at its signals again.
_PAUSE = 0.5
#: Bytes of the object store of a local Ray, the least that it takes: results go through files.
_STORE = 80 << 20
#: Attempts to start Ray on this machine, each of which Ray gives half a minute: a busy machine may
#: need more.
START_ATTEMPTS = 4

#: The parts of the last task of this worker process, with its loaded model.
_worker: Dict[str, Parts] = {}


def run_on_ray(
    task: PartTask,
    cluster: str,
    threads: int = 1,
    on_gpus: bool = False,
    progress: bool = False,
    stop: Optional[StopRequest] = None,
) -> PartsReport:
    """Compute the parts of some work by the workers of a Ray cluster, and merge them.

    Parameters
    ----------
    task : PartTask
        The work, of ``threads`` threads. Workers on other machines have the same files at the same
        paths.
    cluster : str
        ``local`` or ``local:N``, N workers on this machine; or ``ray://HOST[:PORT]``.
    threads : int
        Processors of a worker.
    on_gpus : bool
        Whether each worker takes a GPU.
    progress : bool
        Show a bar on standard error.
    stop : StopRequest, optional
        Once it holds a signal, no result is waited for any more.

    Returns
    -------
    PartsReport

    Raises
    ------
    ClusterError
        If the cluster does not answer or parts have failed; those that are computed stay.
    MissingDependency
        If Ray is not installed.
    Stopped
        If a signal has stopped the work. What is computed stays.
    WqaError
        As `wqa.data.parts.run_parts` raises it.
    """
    stop = stop or StopRequest()
    meta = task.finished(task.settings)
    if meta is not None:
        return PartsReport(meta)
    with _connect(cluster, threads, on_gpus) as ray:
        remote = ray.remote(_compute).options(
            num_cpus=threads, num_gpus=int(on_gpus), max_retries=RETRIES
        )
        folder = os.getcwd()
        _wait_for_manifest(ray, remote.remote(task, folder), task, stop)
        parts = read_parts(task)
        if parts is None:
            meta = task.finished(task.settings)
            if meta is None:
                problem = "the workers have written a manifest, but it is not here"
                expected = "a folder that all machines share"
                raise ClusterError(f"{task.out}.partitions", problem, expected)
            return PartsReport(meta)
        missing = parts.missing()
        waiting = {remote.remote(task, folder, index): index for index in missing}
        start = time.perf_counter()
        failed = _wait(ray, waiting, parts, progress, stop)
        seconds = time.perf_counter() - start
    if failed:
        raise _error_of(failed, parts)
    report = merge_if_whole(parts, progress, stop)
    return report._replace(computed=len(missing), seconds=round(seconds, 3))


def _compute(task: PartTask, folder: str, index: Optional[int] = None) -> str:
    """Compute a part in a worker, or none; returns the text of an error, or nothing.

    The types of all errors need not be known to the Python of the driver.
    """
    try:
        os.chdir(folder)
        if task.out not in _worker:
            _worker.clear()
            parts = open_parts(task)
            if parts is None:  # merged meanwhile
                return ""
            _worker[task.out] = parts
        if index is not None:
            _worker[task.out].compute(index)
        return ""
    except Exception as error:
        return f"worker on {platform.node()}: {str(error) or type(error).__name__}"


def _wait_for_manifest(ray: Any, reference: Any, task: PartTask, stop: StopRequest) -> None:
    """Wait until a worker has loaded its model, and read or written the manifest."""
    while not ray.wait([reference], timeout=_PAUSE)[0]:
        if stop.signal:
            raise Stopped(stop.signal, task.out, "nothing is computed yet")
    error = _answer(ray, reference)
    if error:
        raise ClusterError("cluster", printable(f"no worker can begin: {error}"), "one that can")


def _wait(
    ray: Any, waiting: Dict[Any, int], parts: Parts, progress: bool, stop: StopRequest
) -> Dict[int, str]:
    """Wait for all tasks; returns the errors of the parts that have failed."""
    failed: Dict[int, str] = {}
    computed = 0
    texts = [partition.texts for partition in parts.partitions]
    done = sum(texts) - sum(texts[index] for index in waiting.values())
    with progress_bar(sum(texts), parts.task.verb, parts.task.unit, progress, initial=done) as bar:
        while waiting:
            if stop.signal:
                where = f"{parts.folder}, {computed} partitions"
                raise Stopped(stop.signal, where, "they are in the folder")
            answers, _ = ray.wait(list(waiting), num_returns=1, timeout=_PAUSE)
            for reference in answers:
                index = waiting.pop(reference)
                error = _answer(ray, reference)
                if error:
                    failed[index] = error
                else:
                    computed += 1
                    bar.update(texts[index])
            if len(failed) >= MOST_FAILED and not computed:
                failed.update(dict.fromkeys(waiting.values(), "not tried, as the others failed"))
                break
    return failed


def _answer(ray: Any, reference: Any) -> str:
    """The error of a task, or nothing."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]


def _error_of(failed: Dict[int, str], parts: Parts) -> ClusterError:
    named: List[str] = []
    for index in sorted(failed)[:_NAMED]:
        part = parts.partitions[index]
        lines = f"lines {part.start + 1} to {part.start + part.read} of {parts.task.data}"
        named.append(f"partition {index}, {lines}: {failed[index]}")
    if len(failed) > _NAMED:
        named.append(f"and {len(failed) - _NAMED} more")
    where, problem = f"{len(failed)} of {len(parts.partitions)} partitions", "; ".join(named)
    hint = "what is computed stays; correct the cause, then run the command again"
    return ClusterError(where, printable(f"failed: {problem}"), hint=hint)


@contextlib.contextmanager
def _connect(cluster: str, threads: int, on_gpus: bool) -> Iterator[Any]:
    """Connect to a Ray cluster, or start one on this machine, for the ``with`` block."""
    check_range("threads", threads, 1)
    options = _options_of(cluster, threads)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        hint = f"install Ray {how_to_install('ray')}"
        raise MissingDependency("ray", f"cannot be imported ({error})", hint=hint) from None
    if ray.is_initialized():
        problem = "this process is connected to Ray already"
        expected = "a process without a connection, as it ends with the work"
        hint = "call ray.shutdown(), or use another process"
        raise ClusterError("cluster", problem, expected, hint)
    handler, inherited = signal.getsignal(signal.SIGTERM), os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)  # inherited by the workers of a local Ray
    try:
        _start(ray, cluster, options)
        _restore(handler)  # Ray's own ends the process at once
        resources = ray.cluster_resources()
        if resources.get("CPU", 0) < threads or (on_gpus and not resources.get("GPU")):
            what = "GPU" if on_gpus else f"room for a worker of {threads} processors"
            raise ClusterError("cluster", f"{cluster} has no {what}", "at least one")
        yield ray
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        if inherited is not None:
            os.environ["OMP_NUM_THREADS"] = inherited
        ray.shutdown()
        _restore(handler)


def _options_of(cluster: str, threads: int) -> Dict[str, Any]:
    """Options of ``ray.init`` for an address."""
    local = re.fullmatch(r"local(?::([1-9][0-9]{0,3}))?", cluster)
    if local is not None:
        workers = int(local[1] or max(1, len(os.sched_getaffinity(0)) // threads))
        return {
            "address": "local",
            "num_cpus": workers * threads,
            "include_dashboard": False,
            "object_store_memory": _STORE,
            "_node_ip_address": "127.0.0.1",
        }
    remote = re.fullmatch(r"(ray://(?:[^\s/:]+|\[[0-9a-fA-F:]+\]))(:[0-9]{1,5})?", cluster)
    if remote is None:
        expected = "local, local:N for N workers on this machine, or ray://HOST[:PORT]"
        raise OptionError("cluster", shorten(cluster), expected)
    return {"address": remote[1] + (remote[2] or ":10001")}


def _start(ray: Any, cluster: str, options: Dict[str, Any]) -> None:
    attempts = START_ATTEMPTS if options["address"] == "local" else 1
    for attempt in range(1, attempts + 1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the error says it
                ray.init(logging_level=logging.ERROR, log_to_driver=False, **options)
            return
        except Exception as error:  # Ray has no type of its own for this
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            ray.shutdown()
            if attempt < attempts and "timed out" in reason:
                continue
            problem = f"{cluster} does not answer, or does not start ({reason})"
            expected = "a running Ray cluster of this version, or a machine on which one can start"
            hint = "check the address, or start one with `ray start --head`; Ray here is "
            hint += f"{ray.__version__}; a cluster with tokens needs RAY_AUTH_MODE=token"
            raise ClusterError("cluster", problem, expected, hint) from None


def _restore(handler: Any) -> None:
    """Restore the handler of SIGTERM, which Ray replaces."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
