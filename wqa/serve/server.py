"""The server: a socket, and the processes that answer what comes in."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import pathlib
import signal
import socket
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Union

from wqa.data.baselines import parse_baseline
from wqa.data.digests import ranker_digest
from wqa.errors import (
    DataError,
    EncoderError,
    MissingDependency,
    OptionError,
    RunDirectoryError,
    how_to_install,
)
from wqa.serve.config import BACKLOG, THREAD, ServeConfig
from wqa.serve.logs import json_logs, log

#: Exit status of a process that could not load its ranker, and of one that stopped too late.
FAILED, LATE = 2, 1
_LIBRARIES = ("fastapi", "uvicorn", "prometheus_client")


def create_app(
    run: Union[str, os.PathLike[str]], config: Optional[ServeConfig] = None, **options: Any
) -> Any:
    """Build the application, for a server of your own.

    Parameters
    ----------
    run : str or path-like
        What `wqa.load_ranker` takes.
    config : ServeConfig, optional
        Limits and the key; without a key, ``host`` and ``allowed_hosts`` also decide which ``Host``
        headers are answered. Port, workers and drain are for `serve`.
    **options
        Keywords of `wqa.load_ranker`.

    Returns
    -------
    fastapi.FastAPI
        An ASGI application, whose lifespan loads the rankers.

    Raises
    ------
    MissingDependency
        If a library of the extra ``serve`` is missing.
    """
    return _create_app(run, config or ServeConfig(), options)


def _create_app(
    run: Any, config: ServeConfig, options: Any, digests: Mapping[str, str] = {}
) -> Any:
    check_installed()
    from wqa.serve.app import build_app
    from wqa.serve.service import Service

    loads = {}
    for name, path in served_runs(run, config).items():
        loads[name] = functools.partial(_load, path, options, digests.get(name, ""))
    return build_app(Service(loads, config, options.get("precision", "float32")))


def served_runs(run: Any, config: ServeConfig) -> Dict[str, Any]:
    """Rankers of a service by name, the default one first."""
    runs = {ranker_name(run): run}
    for model in config.models:
        name, _, path = model.partition("=")
        if name in runs:
            raise OptionError("model", f"{name} twice", "a name of its own for each ranker")
        runs[name] = path
    return runs


def served_digests(run: Any, config: ServeConfig, options: Dict[str, Any]) -> Dict[str, str]:
    """Digests of the rankers of a service, by name."""
    runs = served_runs(run, config)
    return {name: served_digest(path, options) for name, path in runs.items()}


def _load(run: Any, options: Any, digest: str) -> Any:
    from wqa.systems.load import load_ranker

    ranker = load_ranker(run, **options)
    # Afterwards, so that what was replaced in the meantime is noticed too.
    if digest and served_digest(run, options) != digest:
        found = "has changed since the service began"
        raise RunDirectoryError(run, found, "the same ranker", "restore it, or restart the service")
    return ranker


def served_digest(run: Union[str, os.PathLike[str]], options: Dict[str, Any]) -> str:
    """Compute the digest of all that the answers of a service depend on."""
    digest = hashlib.sha256()
    try:
        digest.update(ranker_digest(run, options.get("precision", "float32")).encode("ascii"))
        # Drop ratios that were tuned and probabilities that were calibrated.
        for path in sorted(pathlib.Path(run).glob("*.json")):
            digest.update(path.read_bytes())
    except (OSError, RunDirectoryError, EncoderError):
        return ""
    return digest.hexdigest()


def ranker_name(run: Union[str, os.PathLike[str]]) -> str:
    """Name of a ranker in answers: that of its folder or file, or the whole name of a baseline."""
    if parse_baseline(run) is not None:
        return os.fspath(run)
    return pathlib.Path(os.path.abspath(run)).name


def check_installed() -> None:
    """Check that the libraries of the service are installed."""
    for name in _LIBRARIES:
        if importlib.util.find_spec(name) is None:
            raise MissingDependency(
                "serve", f"{name} is not installed", "its libraries", how_to_install("serve")
            )


def serve(
    run: Union[str, os.PathLike[str]],
    config: Optional[ServeConfig] = None,
    on_listening: Callable[[str], None] = lambda url: None,
    **options: Any,
) -> int:
    """Serve a ranker until SIGTERM, SIGINT or SIGHUP; requests then have some time to finish.

    Parameters
    ----------
    run : str or path-like
        What `wqa.load_ranker` takes.
    config : ServeConfig, optional
        Where to listen, limits and the key.
    on_listening : callable
        Called with the URL of the page once the service listens.
    **options
        Keywords of `wqa.load_ranker`. With several workers the processors are divided
        among them, where ``threads`` does not say otherwise.

    Returns
    -------
    int
        Exit status: 0, or 1 where a request did not finish in time or the ranker's thread ended.
        A thread may still load the ranker or rank, `is_ranking`.

    Raises
    ------
    MissingDependency
        If a library of the extra ``serve`` is missing.
    OptionError
        If the address cannot be listened on.
    WqaError
        If the ranker cannot be loaded.
    """
    check_installed()
    config = config or ServeConfig()
    _check_paths(run, config)
    listener = listen(config.host, config.port)
    processors = len(os.sched_getaffinity(0))
    if config.workers > 1 and options.get("threads") is None:
        options["threads"] = max(1, processors // config.workers)
    with json_logs(), listener:
        host, port = listener.getsockname()[:2]

        def announce() -> None:
            log("listening", host=host, port=port, workers=config.workers)
            if config.workers > processors:
                log("more workers than processors", processors=processors)
            on_listening(_page_url(config.host, port))

        if config.workers == 1:
            return work(listener, run, config, options, announce)
        from wqa.serve.supervisor import supervise

        announce()
        return supervise(listener, run, config, options)


def _check_paths(run: Any, config: ServeConfig) -> None:
    """Check that what is served is there, before the service says that it listens."""
    for path in served_runs(run, config).values():
        if parse_baseline(path) is None and not os.path.exists(path):
            expected = "a run, the .json file of several rankers, or a name such as minilm"
            raise RunDirectoryError(path, "there is no such directory or file", expected)
    if config.index and not os.path.exists(os.path.join(config.index, "meta.json")):
        raise DataError(config.index, "is no document index", "a folder that `wqa index` wrote")


def _page_url(host: str, port: int) -> str:
    """URL of the page for a browser on this machine, where all addresses are listened on too."""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it. asyncio sets it only where a socket names its protocol, and without it
    # the body of an answer waits 40 ms for the client's acknowledgement of the headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
        return listener
    except (OSError, UnicodeError, OverflowError) as error:
        listener.close()
        raise OptionError(
            "host and port",
            f"{host} and {port} cannot be listened on ({error})",
            "an address of this machine, and a port that is free",
        ) from None


def work(
    listener: socket.socket,
    run: Any,
    config: ServeConfig,
    options: Any,
    on_begin: Callable[[], None] = lambda: None,
    on_ready: Callable[[], None] = lambda: None,
    digests: Mapping[str, str] = {},
    loads_first: bool = False,
) -> int:
    """Load a ranker and answer requests in this process, until it is told to stop."""
    told: List[bool] = []
    server: Any = None

    def stop() -> None:
        told.append(True)
        if server is not None:
            server.should_exit = True

    with stopping_signals(stop):
        on_begin()
        app = _create_app(run, config, options, digests)
        from wqa.serve.connections import build_server

        service, server = app.state.service, build_server(app, config, loads_first)
        service.on_ready, service.stop = on_ready, stop
        service.is_draining = lambda: server.should_exit
        if told:
            server.should_exit = True
        # uvicorn has handlers of its own while it runs, and raises the signals again at its end.
        server.run(sockets=[listener])
    if service.failure is not None:
        raise service.failure
    log("stopped")
    # A server that has not started has taken no request.
    is_late = server.started and is_ranking() and service.is_ready
    if is_late or service.cut_off:
        log("late", seconds=config.drain, requests=service.cut_off)
    return LATE if is_late or service.cut_off or service.has_ended else 0


@contextlib.contextmanager
def stopping_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call a function at each signal that stops a server, inside the block.

    SIGHUP, of a terminal that is closed, is one of them unless nohup ignores it.
    """
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = [signal.signal(number, lambda got, frame: stop()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


def is_ranking() -> bool:
    """Whether a thread of this process still loads a ranker or ranks.

    Such a thread crashes in the end of the interpreter, so that its process ends by `os._exit`.
    """
    return any(thread.name == THREAD for thread in threading.enumerate())
