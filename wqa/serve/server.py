"""The server: its settings and key, a socket, and uvicorn's workers, which answer what comes in."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import json
import logging
import math
import multiprocessing
import os
import pathlib
import resource
import signal
import socket
import threading
import traceback
from typing import Any, Callable, Dict, Optional, Tuple, Union

from wqa.config.systems import option, without_option
from wqa.data.probe import parse_baseline
from wqa.errors import DataError, OptionError, RunDirectoryError, check_range, not_installed
from wqa.io.files import scratch_folder

LOGGER = logging.getLogger(__name__)
#: Environment variable with the key that clients send.
API_KEY = "WQA_API_KEY"
#: Environment variable with the folder where workers keep their metrics, prometheus_client's own.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
#: Settings that are whole numbers from 1.
_COUNTS = ("workers", "queue", "group_candidates", "max_bytes", "max_candidates", "max_characters")
#: Exit status of a service that could not load its ranker, and of one that cut requests off.
FAILED, LATE = 2, 1
#: Seconds for which a connection without a request is kept, longer than those of most clients.
_KEEP_ALIVE = 75
#: Descriptors that are left to files and pipes.
_OTHER_FILES = 128
_LIBRARIES = ("fastapi", "pydantic", "uvicorn", "prometheus_client")

_LOGGED = {"handlers": ["stderr"], "level": "INFO", "propagate": False}
#: Logs of the package and the server: lines of JSON on standard error.
LOGS = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "wqa.serve.server.JsonLines"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": dict.fromkeys(("wqa", "uvicorn", "asyncio"), _LOGGED),
}


@dataclasses.dataclass(frozen=True)
class ServeConfig:
    """Settings of the service.

    Parameters
    ----------
    host, port : str, int
        Address to listen on, and its port; 0 for any that is free.
    workers : int
        Number of processes, each with a ranker of its own.
    timeout, drain : float
        Seconds in which the body of a request has to come, and as many until its ranking; seconds
        that requests have to finish after SIGTERM.
    queue : int
        Requests of a process that may wait for its ranker; further ones are answered 429.
    group_candidates : int
        Candidates that are ranked together; a request with more is ranked by itself.
    max_bytes, max_candidates, max_characters : int
        Limits of a request: bytes of its body, decompressed, and characters of a text.
    allowed_hosts : tuple of str
        Names by which clients may address a service without a key, beside ``host``, ``localhost``
        and IP addresses; pages of these hosts may ask it. ``*`` allows all.
    index : str
        Index with sentences, whose documents ``POST /ask`` answers from; empty for none.
    models : tuple of str
        Further rankers, each as ``NAME=RUN``. A request chooses one by ``model``.
    api_key : str, optional
        Key that clients send as ``Authorization: Bearer KEY``; without it all clients are served.

    Raises
    ------
    OptionError
        If a value is out of range.
    """

    host: str = option("127.0.0.1", "address to listen on")
    port: int = option(8080, "port to listen on; 0 for any that is free")
    workers: int = option(1, "processes, each with a ranker of its own")
    timeout: float = option(30.0, "seconds of a request's body, and as many of its ranking")
    drain: float = option(30.0, "seconds that requests have to finish after SIGTERM")
    queue: int = option(128, "requests of a process that wait; further ones are answered 429")
    group_candidates: int = without_option(256)
    max_bytes: int = option(1 << 24, "bytes of the body of a request")
    max_candidates: int = option(1000, "candidates of a request")
    max_characters: int = option(100_000, "characters of a question or a candidate")
    allowed_hosts: Tuple[str, ...] = option((), "names of the service in URLs; * allows all")
    index: str = option("", "folder that `wqa index` wrote, which POST /ask answers from")
    models: Tuple[str, ...] = without_option(())
    # No option: the arguments of a process are not secret. Nor does a message show it.
    api_key: Optional[str] = dataclasses.field(default=None, repr=False, metadata={"option": False})

    def __post_init__(self) -> None:
        bounds: Dict[str, Tuple[float, float]] = dict.fromkeys(_COUNTS, (1, math.inf))
        seconds = (0.001, 86_400.0)
        bounds.update(port=(0, 65535), timeout=seconds, drain=seconds)
        for name, (least, most) in bounds.items():
            check_range(name, getattr(self, name), least, most)
        for name in self.allowed_hosts:
            if not name.strip(".") or set(name) & set(":/ "):
                raise OptionError("allowed_hosts", repr(name), "names of hosts, without a port")


_DEFAULTS = ServeConfig()


def read_api_key(path: Optional[str] = None) -> Optional[str]:
    """Read the key that clients send, from a file or the environment; None where neither has one.

    Parameters
    ----------
    path : str, optional
        File with the key, in one line; by default the environment variable ``WQA_API_KEY``.

    Raises
    ------
    DataError
        If the file cannot be read, or a key is blank, not UTF-8 or of several words.
    """
    key: Optional[str] = os.environ.get(API_KEY)
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                key = file.read(1 << 16)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(path, f"cannot be read ({error})", "a key in one line") from None
    words = (key or "").split()
    if key is not None and (len(words) != 1 or not words[0].isprintable()):
        raise DataError(path or API_KEY, "holds no key", "a key in one line")
    return words[0] if words else None


class JsonLines(logging.Formatter):
    """Formats a record as a line of JSON.

    Of an exception it has the type and where it was raised: its message may quote a text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "process": record.process,
            "event": record.getMessage().partition("\n")[0],
            **getattr(record, "fields", {}),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)
            places = [f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in frames]
            line.update(error=type(error).__name__, places=places[-8:])
        return json.dumps(line, default=str)


def create_app(
    run: Union[str, os.PathLike[str]], config: ServeConfig = _DEFAULTS, **options: Any
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
        Keywords of `wqa.load_ranker`. Questions that are too long are truncated, unless
        ``long_questions`` says otherwise.

    Returns
    -------
    fastapi.FastAPI
        An ASGI application, whose lifespan loads the rankers.
    """
    check_installed()
    from wqa.serve.app import build_app
    from wqa.serve.service import Service
    from wqa.systems.load import load_ranker

    options.setdefault("long_questions", "truncate")
    load = functools.partial(load_ranker, **options)
    precision = options.get("precision", "float32")
    return build_app(Service(served_runs(run, config), load, config, precision))


def served_runs(run: Any, config: ServeConfig) -> Dict[str, Any]:
    """Rankers of a service by name, the default one first.

    Its name is that of its folder or file, or the whole name of a baseline.
    """
    runs = {os.fspath(run) if parse_baseline(run) else os.path.basename(os.path.abspath(run)): run}
    for model in config.models:
        name, _, path = model.partition("=")
        if not name.strip() or not path:
            raise OptionError("model", repr(model), "NAME=RUN")
        if name in runs:
            raise OptionError("model", f"{name} twice", "a name of its own for each ranker")
        runs[name] = path
    return runs


def check_installed() -> None:
    """Check that the libraries of the service are installed."""
    for name in _LIBRARIES:
        if importlib.util.find_spec(name) is None:
            raise not_installed(name, "the libraries of the service", "serve")


def serve(
    run: Union[str, os.PathLike[str]],
    config: ServeConfig = _DEFAULTS,
    on_listening: Callable[[str], None] = lambda url: None,
    **options: Any,
) -> int:
    """Serve a ranker until SIGTERM or SIGINT; requests then have some time to finish.

    Parameters
    ----------
    run : str or path-like
        What `wqa.load_ranker` takes.
    config : ServeConfig, optional
        Where to listen, limits and the key.
    on_listening : callable
        Called with the URL of the page once the service listens.
    **options
        Keywords of `create_app`. With several workers the processors are divided among them, where
        ``threads`` does not say otherwise.

    Returns
    -------
    int
        Exit status: 0, 1 where requests did not finish in time, or 2 where a ranker cannot be
        loaded, for the reason in the log.

    Raises
    ------
    MissingDependency, OptionError, RunDirectoryError, DataError
        If a library of the extra ``serve`` is missing, the address cannot be listened on, a run is
        not there, or the index is not whole.
    """
    check_installed()
    from uvicorn.main import STARTUP_FAILURE

    _check_paths(run, config)
    if config.workers > 1 and options.get("threads") is None:
        options["threads"] = max(1, len(os.sched_getaffinity(0)) // config.workers)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listen(config.host, config.port))
        folder = stack.enter_context(scratch_folder("metrics"))
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.getsignal(number))
        os.environ[METRICS_FOLDER] = str(folder)  # before a worker imports prometheus_client
        stack.callback(os.environ.pop, METRICS_FOLDER, None)
        create = functools.partial(_create_worker, run, config, options)
        workers = _workers(create, config, listener)
        host, port = listener.getsockname()[:2]
        LOGGER.info("listening", extra={"fields": {"host": host, "port": port}})
        on_listening(_page_url(config.host, port))
        workers.run()
    statuses = [worker.process.exitcode for worker in workers.processes]
    if STARTUP_FAILURE in statuses:
        return FAILED
    return LATE if LATE in statuses else 0


def _workers(create: Callable[[], Any], config: ServeConfig, listener: socket.socket) -> Any:
    """The processes that answer. From now on they handle signals."""
    import uvicorn
    from uvicorn.main import STARTUP_FAILURE
    from uvicorn.supervisors import Multiprocess

    class Workers(Multiprocess):
        """Refuses connections as soon as the workers are told to stop."""

        def keep_subprocess_alive(self) -> None:
            if STARTUP_FAILURE in [worker.process.exitcode for worker in self.processes]:
                self.should_exit.set()  # earlier versions would start it again for ever
            for worker in self.processes:
                worker.child_conn.close()  # a ping does not wait for a worker that has died
            with contextlib.suppress(EOFError, OSError):  # of such a ping, in earlier versions
                super().keep_subprocess_alive()

        def terminate_all(self) -> None:
            # Connections that wait when the workers close the socket are lost: one at most does.
            listener.listen(0)
            listener.close()
            super().terminate_all()

    _, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    more: Dict[str, Any] = {}
    if "timeout_worker_healthcheck" in inspect.signature(uvicorn.Config).parameters:
        more["timeout_worker_healthcheck"] = max(60, math.ceil(config.timeout))  # it also loads
    settings = uvicorn.Config(
        create,
        factory=True,
        workers=config.workers,
        loop="asyncio",
        ws="none",
        log_config=LOGS,
        access_log=False,
        server_header=False,
        limit_concurrency=descriptors - _OTHER_FILES if descriptors > 2 * _OTHER_FILES else None,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(config.drain),
        **more,
    )
    arguments: Dict[str, Any] = {"sockets": [listener]}
    if "target" in inspect.signature(Multiprocess).parameters:  # of earlier versions
        arguments["target"] = uvicorn.Server(settings).run
    return Workers(settings, **arguments)


def _create_worker(run: Any, config: ServeConfig, options: Dict[str, Any]) -> Any:
    """The application of a worker."""
    from prometheus_client.multiprocess import mark_process_dead

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of a terminal: it is for the first process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for path in pathlib.Path(os.environ[METRICS_FOLDER]).glob("gauge_live*.db"):
        pid = int(path.stem.rpartition("_")[2])
        if not os.path.exists(f"/proc/{pid}"):
            mark_process_dead(pid)
    app = create_app(run, config, **options)
    app.state.service.on_cut_off = functools.partial(os._exit, LATE)
    return app


def _end_with_parent() -> None:
    parent: Any = multiprocessing.parent_process()
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _check_paths(run: Any, config: ServeConfig) -> None:
    """Check that what is served is there, before the service says that it listens."""
    for path in served_runs(run, config).values():
        if parse_baseline(path) is None and not os.path.exists(path):
            expected = "a run, the .json file of several rankers, or a name such as minilm"
            raise RunDirectoryError(path, "there is no such directory or file", expected)
    if config.index:
        from wqa.retrieval import Index

        Index(config.index).check_sentences()


def _page_url(host: str, port: int) -> str:
    """URL of the page for a browser on this machine, where all addresses are listened on too."""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError, OverflowError) as error:
        problem = f"{host} and {port} cannot be listened on ({error})"
        expected = "an address of this machine, and a port that is free"
        raise OptionError("host and port", problem, expected) from None
    # Connections inherit both. Without the first one the body of an answer waits 40 ms for the
    # client's acknowledgement of the headers; the second one ends those whose client is gone.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return listener
