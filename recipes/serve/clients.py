"""Clients of a service, and the process of the service, for `load.py` and `soak.py`.

A client is a socket and prepared bytes: it shares the machine with what it measures.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Sequence, Tuple

from wqa.data import Question

_TIMEOUT = 120.0


def make_parser(text: str) -> argparse.ArgumentParser:
    """Parser of what both measurements take, but for the options of ``wqa serve``.

    Parameters
    ----------
    text : str
        Docstring of the measurement, whose first line describes it.

    Returns
    -------
    argparse.ArgumentParser
    """
    parser = argparse.ArgumentParser(
        description=text.splitlines()[0], epilog="What stands after -- are options of wqa serve."
    )
    parser.add_argument("run", help="run to serve")
    parser.add_argument("--data", required=True, help="questions, canonical JSONL")
    parser.add_argument("--questions", type=int, help="first questions of the file alone")
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line.

    argparse would take what follows ``--`` for positional arguments, and refuse them after an
    option.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Parser of what stands before ``--``.

    Returns
    -------
    argparse.Namespace
        With ``serve``, a list of the options of ``wqa serve``.
    """
    own, served = sys.argv[1:], []
    if "--" in own:
        divide = own.index("--")
        own, served = own[:divide], own[divide + 1 :]
    return parser.parse_args(own, argparse.Namespace(serve=served))


def request_of(question: Question) -> bytes:
    """The bytes of a request for the ranking of a question.

    Parameters
    ----------
    question : Question
        The question with its candidates.

    Returns
    -------
    bytes
        A request in Cohere's dialect.
    """
    body = json.dumps({"query": question.question, "documents": question.texts}).encode()
    head = f"POST /v2/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Client:
    """A connection that is kept, and opened again where it was closed.

    Parameters
    ----------
    port : int
        Port of the service on this machine.

    Attributes
    ----------
    alive_at : float
        Time, of `time.monotonic`, of the last answer on the connection, or else of its opening.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: Any = None
        self.alive_at = 0.0

    def send(self, request: bytes) -> Tuple[int, bytes]:
        """Send a request, and wait for its answer.

        Parameters
        ----------
        request : bytes
            The request.

        Returns
        -------
        status : int
            HTTP status.
        body : bytes
            Body of the answer.

        Raises
        ------
        OSError
            If the connection is lost.
        """
        if self._socket is None:
            self.alive_at = time.monotonic()
            self._socket = socket.create_connection(("127.0.0.1", self._port), _TIMEOUT)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket.sendall(request)
            answer = self._answer()
        except OSError:
            self.close()
            raise
        self.alive_at = time.monotonic()
        return answer

    def _answer(self) -> Tuple[int, bytes]:
        raw = b""
        while b"\r\n\r\n" not in raw:
            raw += self._received()
        head, _, body = raw.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        [length] = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
        parts, size = [body], len(body)
        while size < length:
            parts.append(self._received())
            size += len(parts[-1])
        if b"connection: close" in lines:
            self.close()
        return int(head[9:12]), b"".join(parts)

    def _received(self) -> bytes:
        part = self._socket.recv(1 << 16)
        if not part:
            raise ConnectionResetError("the service has closed the connection")
        return part

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class ServiceProcess:
    """A process of ``wqa serve``, with the events that it logs besides requests.

    Parameters
    ----------
    run : str
        Run to serve.
    arguments : sequence of str
        Further arguments of the command.
    """

    def __init__(self, run: str, arguments: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", "wqa", "serve", run, "--port", "0", *arguments]
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **streams)
        self._events: List[Dict[str, Any]] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.port: int = self.wait_for("listening", 1)[0]["port"]
        except BaseException:
            self.process.kill()
            raise

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                event = {"event": "error", "text": line}
                if line.startswith("{"):
                    event = json.loads(line)
                if event["event"] == "request":
                    continue
                with self._changed:
                    self._events.append(event)
                    self._changed.notify_all()
        with self._changed:
            self._events.append({"event": "end"})
            self._changed.notify_all()

    def events(self, name: str) -> List[Dict[str, Any]]:
        """Events of a name so far.

        Parameters
        ----------
        name : str
            The name.

        Returns
        -------
        list of dict
        """
        return [event for event in self._events if event["event"] == name]

    def wait_for(self, name: str, count: int, timeout: float = 300) -> List[Dict[str, Any]]:
        """Wait for events.

        Parameters
        ----------
        name : str
            Their name.
        count : int
            Their number.
        timeout : float
            Seconds to wait.

        Returns
        -------
        list of dict
            The events.

        Raises
        ------
        SystemExit
            If the process ends before, or the time is over.
        """

        def is_over() -> bool:
            return len(self.events(name)) >= count or bool(self.events("end"))

        with self._changed:
            self._changed.wait_for(is_over, timeout)
            if len(self.events(name)) < count:
                texts = [event.get("text") or event.get("message", "") for event in self._events]
                raise SystemExit(f"wqa serve: no {name}\n" + "".join(filter(None, texts)))
            return self.events(name)

    def stop(self) -> int:
        """Stop the service by SIGTERM, or by SIGKILL where that takes too long.

        Returns
        -------
        int
            Its exit status.

        Raises
        ------
        subprocess.TimeoutExpired
            If it was killed.
        """
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout=_TIMEOUT)
        finally:
            self.process.kill()
        self._reader.join(_TIMEOUT)  # the last events
        return status
