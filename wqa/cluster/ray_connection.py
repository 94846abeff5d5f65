"""Connections to a Ray cluster, and a Ray of its own on this machine."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import shutil
import signal
import socket
import threading
import warnings
from typing import Any, Iterator, Tuple

from wqa.errors import ClusterError, MissingDependency, OptionError, how_to_install, shorten

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
