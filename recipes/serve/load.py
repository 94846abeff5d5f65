"""Measure a service: requests a second of clients that wait for each answer.

    python recipes/serve/load.py --data QUESTIONS.jsonl [--questions N] [--clients 1 16]
        [--seconds 5] [--json FILE] -- wqa serve RUN --workers 2

Any server of the dialects will do; ``{port}`` in its command becomes a free port, and
``--port`` is added where the command has none. Bodies are made beforehand, as clients share the
machine with what they measure.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.client
import itertools
import json
import pathlib
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Counter, Dict, Iterator, Sequence

from wqa.data import Question, read_questions


def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True, help="questions, canonical JSONL")
    parser.add_argument("--questions", type=int, help="first questions of the file alone")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each number of clients")
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    parser.add_argument("command", nargs="+", help="after --: the service")
    options = parser.parse_args()
    questions = list(read_questions(options.data))[: options.questions]
    load = Load(options.command, [request_of(question) for question in questions])
    figures: Dict[str, Any] = {"command": " ".join(options.command)}
    with load.service():
        for clients in options.clients:
            rate = load.requests_a_second(clients, options.seconds)
            figures[f"requests a second, {clients} clients"] = rate
    for name, figure in figures.items():
        print(f"{name}: {figure}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


def request_of(question: Question) -> bytes:
    """The body of a request for the ranking of a question, in Cohere's dialect."""
    return json.dumps({"query": question.question, "documents": question.texts}).encode()


def send(connection: http.client.HTTPConnection, body: bytes) -> str:
    """Send a request; returns the status of its answer, or ``lost``."""
    try:
        connection.request("POST", "/v2/rerank", body)
        response = connection.getresponse()
        response.read()
        return str(response.status)
    except (OSError, http.client.HTTPException):
        connection.close()  # the next request opens it again
        return "lost"


class Load:
    """A service, the requests that it gets, and what becomes of them."""

    def __init__(self, command: Sequence[str], requests: Sequence[bytes]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        words = [word.replace("{port}", str(self.port)) for word in command]
        if words == list(command):
            words += ["--port", str(self.port)]
        self._command, self._requests = words, requests

    @contextlib.contextmanager
    def service(self) -> Iterator[None]:
        """Run the service inside the block, from its first answer on."""
        process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self._await_answer(120)
            yield
        finally:
            process.terminate()
            process.wait(120)

    def _await_answer(self, seconds: float) -> None:
        """Wait for a ranking."""
        start = time.monotonic()
        while send(self._connection(), self._requests[0]) != "200":
            if time.monotonic() - start > seconds:
                raise SystemExit(f"{' '.join(self._command)}: no answer within {seconds:g} s")
            time.sleep(0.05)

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def requests_a_second(self, clients: int, seconds: float) -> float:
        """Requests a second of clients that send the next one when the last is answered."""
        self._send_for(clients, 1.0)  # does not count
        statuses = self._send_for(clients, seconds)
        if set(statuses) != {"200"}:
            raise SystemExit(f"not every request got a ranking: {dict(statuses)}")
        return round(statuses["200"] / seconds, 1)

    def _send_for(self, clients: int, seconds: float) -> Counter[str]:
        """Send requests by several clients; returns how many were answered by each status."""
        end = time.monotonic() + seconds
        statuses: Counter[str] = collections.Counter()

        def send_all(first: int) -> None:
            with contextlib.closing(self._connection()) as connection:
                for number in itertools.count(first, clients):
                    if time.monotonic() >= end:
                        break
                    body = self._requests[number % len(self._requests)]
                    statuses[send(connection, body)] += 1

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(send_all, range(clients)))
        return statuses


if __name__ == "__main__":
    main()
