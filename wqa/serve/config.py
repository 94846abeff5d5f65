"""Settings of the service, and the key that its clients send."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Optional, Tuple

from wqa.config.systems import option, without_option
from wqa.errors import DataError, OptionError

#: Environment variable with the key that clients send.
API_KEY = "WQA_API_KEY"
#: Environment variable with the folder where workers keep their metrics, prometheus_client's own.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
#: Settings that are whole numbers from 1.
_COUNTS = ("workers", "queue", "max_bytes", "max_candidates", "max_characters")


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
        bounds = dict.fromkeys(_COUNTS, (1.0, math.inf))
        seconds = (0.001, 86_400.0)
        bounds.update(port=(0.0, 65535.0), timeout=seconds, drain=seconds)
        for name, (least, most) in bounds.items():
            if not least <= getattr(self, name) <= most:
                raise OptionError(name, getattr(self, name), f"a number from {least:g} to {most:g}")
        for name in self.allowed_hosts:
            if not name.strip(".") or set(name) & set(":/ "):
                raise OptionError("allowed_hosts", repr(name), "names of hosts, without a port")


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
