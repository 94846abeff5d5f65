"""Configuration of the service: where it listens, and what it refuses."""

from __future__ import annotations

import dataclasses
import os
from typing import Optional, Tuple

from wqa.config.systems import option, without_option
from wqa.errors import DataError, OptionError, shorten

#: Environment variable with the key that clients send.
API_KEY = "WQA_API_KEY"
#: Environment variable with the folder where workers keep their metrics, prometheus_client's own.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
#: Name of the thread that owns a ranker.
THREAD = "wqa ranker"
#: Connections that wait to be accepted.
BACKLOG = 2048
#: Most candidates of a request, whatever the options say.
MOST_CANDIDATES = 100_000


@dataclasses.dataclass(frozen=True)
class ServeConfig:
    """Settings of the service.

    Parameters
    ----------
    host : str
        Address to listen on.
    port : int
        Port to listen on; 0 for any that is free.
    workers : int
        Number of processes, each with a ranker of its own.
    timeout : float
        Seconds from the start of a request to its answer. A request that takes longer is answered
        504, or 408 while its body is still being read.
    drain : float
        Seconds that requests have to finish after SIGTERM.
    queue : int
        Most requests of a process that wait for its ranker; further ones are answered 429.
    queue_bytes : int
        Most bytes of all bodies that a process reads or holds; further requests are answered 429.
    group_candidates : int
        Most candidates that are ranked together; a request with more is ranked by itself.
    max_bytes : int
        Most bytes of the body of a request.
    max_candidates : int
        Most candidates of a request.
    max_characters : int
        Most characters of a question or a candidate.
    allowed_hosts : tuple of str
        Names by which clients may address a service without a key, beside ``host``, ``localhost``
        and IP addresses; pages of these hosts may ask it. ``*`` allows all.
    index : str
        Folder that `wqa.retrieval.build_index` wrote with sentences, whose documents ``POST /ask``
        answers from; without one it is not served.
    models : tuple of str
        Further rankers, each as ``NAME=RUN``, where RUN is what `wqa.load_ranker` takes. A request
        chooses one by ``model``.
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
    timeout: float = option(30.0, "seconds from the start of a request to its answer")
    drain: float = option(30.0, "seconds that requests have to finish after SIGTERM")
    queue: int = option(128, "requests of a process that wait; further ones are answered 429")
    queue_bytes: int = without_option(1 << 28)
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
        if not 0 <= self.port <= 65535:
            raise OptionError("port", self.port, "a whole number from 0 to 65535")
        for name in ("timeout", "drain"):
            seconds = getattr(self, name)
            if not 0 < seconds <= 86_400:
                raise OptionError(name, seconds, "seconds above 0, at most a day")
        least_one = ("workers", "queue", "queue_bytes", "group_candidates", "max_bytes")
        for name in (*least_one, "max_candidates", "max_characters"):
            if getattr(self, name) < 1:
                raise OptionError(name, getattr(self, name), "a whole number from 1")
        if isinstance(self.allowed_hosts, str):
            raise OptionError("allowed_hosts", repr(self.allowed_hosts), "a tuple of names")
        for name in self.allowed_hosts:
            if not name.strip(".") or set(name) & set(":/ "):
                raise OptionError("allowed_hosts", repr(name), "names of hosts, without a port")
        for model in self.models:
            name, _, run = model.partition("=")
            if not name.strip() or not run:
                raise OptionError("model", shorten(model), "NAME=RUN")
        if self.max_candidates > MOST_CANDIDATES:
            raise OptionError("max_candidates", self.max_candidates, f"at most {MOST_CANDIDATES:,}")
        if self.queue_bytes < self.max_bytes:
            expected = f"at most {self.queue_bytes}, the bytes of all bodies (queue_bytes)"
            raise OptionError("max_bytes", self.max_bytes, expected)


def read_api_key(path: Optional[str] = None) -> Optional[str]:
    """Read the key that clients send, from a file or the environment.

    Parameters
    ----------
    path : str, optional
        File with the key, in one line; by default the environment variable ``WQA_API_KEY``.

    Returns
    -------
    str or None
        The key; None where neither is given.

    Raises
    ------
    DataError
        If the file cannot be read, or holds no key or several lines.
    OptionError
        If the variable is set, but blank or not UTF-8.
    """
    if path is None:
        return _key_of_environment()
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(1 << 16).strip()
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror})", mend="check the path") from None
    except UnicodeDecodeError:
        raise DataError(path, "is not UTF-8", "a key in one line") from None
    if not text or len(text.split()) > 1:
        problem = "holds no key" if not text else "holds white space inside the key"
        raise DataError(path, problem, "a key in one line")
    return text


def _key_of_environment() -> Optional[str]:
    key = os.environ.get(API_KEY)
    if key is None:
        return None
    key = key.strip()
    problem = "" if key else "is blank"
    try:
        key.encode("utf-8")
    except UnicodeEncodeError:
        problem = "is not UTF-8"
    if problem:
        raise OptionError(API_KEY, problem, "a key", "unset it to serve all clients")
    return key
