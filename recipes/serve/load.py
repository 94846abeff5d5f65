"""Measure a service: requests a second, a killed worker, silent connections, and its end.

    python recipes/serve/load.py --data QUESTIONS.jsonl [--questions N] [--clients 1 16]
        [--seconds 5] [--only requests] [--json FILE] -- wqa serve RUN --workers 2

Any server of the dialects will do; ``{port}`` in its command becomes a free port, and
``--port`` is added where the command has none. Bodies are made beforehand, as clients share the
machine with what they measure.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.client
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Counter, Dict, Iterator, List, Sequence

from wqa.data import Question, read_questions

#: Connections of the check of silent ones, and the soft limit of descriptors of the service.
CONNECTIONS, DESCRIPTORS = 1100, 1024


def main() -> int:
    """Run the measurements; exit status 1 where a request was lost as the service ended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True, help="questions, canonical JSONL")
    parser.add_argument("--questions", type=int, help="first questions of the file alone")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each number of clients")
    parser.add_argument("--only", choices=("requests",), help="leave out what disturbs the service")
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    parser.add_argument("command", nargs="+", help="after --: the service")
    options = parser.parse_args()
    questions = list(read_questions(options.data))[: options.questions]
    load = Load(options.command, [request_of(question) for question in questions])
    figures: Dict[str, Any] = {"command": " ".join(options.command), "lost at the end": 0}
    with load.service():
        for clients in options.clients:
            rate = load.requests_a_second(clients, options.seconds)
            figures[f"requests a second, {clients} clients"] = rate
        if options.only is None:
            figures.update(load.killed_workers())
            figures.update(load.silent_connections())
            figures.update(load.end(max(options.clients)))
    for name, figure in figures.items():
        print(f"{name}: {figure}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")
    return int(figures["lost at the end"] > 0)


def request_of(question: Question) -> bytes:
    """The body of a request for the ranking of a question, in Cohere's dialect."""
    return json.dumps({"query": question.question, "documents": question.texts}).encode()


class Client:
    """A connection that is kept, and opened again where it was closed."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def send(self, body: bytes) -> str:
        """Send a request; returns the status of its answer, ``lost``, or ``not accepted``."""
        try:
            if self._connection.sock is None:
                self._connection.connect()
        except OSError:
            return "not accepted"
        try:
            self._connection.request("POST", "/v2/rerank", body)
            response = self._connection.getresponse()
            response.read()
            return str(response.status)
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return "lost"

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


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
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))

        self._process = subprocess.Popen(
            self._command, preexec_fn=limit, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self._await_answer(120)
            yield
        finally:
            self._process.terminate()
            self._process.wait(120)

    def _await_answer(self, seconds: float) -> float:
        """Wait for a ranking; returns the seconds that it took."""
        start = time.monotonic()
        while Client(self.port).send(self._requests[0]) != "200":
            if time.monotonic() - start > seconds:
                raise SystemExit(f"{' '.join(self._command)}: no answer within {seconds:g} s")
            time.sleep(0.05)
        return time.monotonic() - start

    def requests_a_second(self, clients: int, seconds: float) -> float:
        """Requests a second of clients that send the next one when the last is answered."""
        self._send_for(clients, 1.0)  # does not count
        statuses = self._send_for(clients, seconds)
        if set(statuses) != {"200"}:
            raise SystemExit(f"not every request got a ranking: {dict(statuses)}")
        return round(statuses["200"] / seconds, 1)

    def _send_for(self, clients: int, seconds: float) -> Counter[str]:
        end = time.monotonic() + seconds
        return self._send(clients, lambda: time.monotonic() < end)

    def _send(self, clients: int, goes_on: Any) -> Counter[str]:
        """Send requests by several clients; returns how many were answered by each status."""
        statuses: Counter[str] = collections.Counter()

        def send(first: int) -> None:
            client, number = Client(self.port), first
            while goes_on():
                status = client.send(self._requests[number % len(self._requests)])
                statuses[status] += 1
                number += clients
                if status == "not accepted":
                    time.sleep(0.1)
            client.close()

        threads = [threading.Thread(target=send, args=(first,)) for first in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return statuses

    def _workers(self) -> List[int]:
        """Processes that the service has started and that listen, but for helpers of Python's."""
        children = pathlib.Path(f"/proc/{self._process.pid}/task").glob("*/children")
        workers = []
        for path in children:
            for child in map(int, path.read_text().split()):
                line = pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
                if b"resource_tracker" not in line:
                    workers.append(child)
        return workers

    def killed_workers(self) -> Dict[str, Any]:
        """Kill a worker, then all of them; the seconds until a worker is back and answers."""
        workers = self._workers()
        if not workers:
            return {"killed workers": "there is one process"}
        end = time.monotonic() + 10
        killer = threading.Timer(1.0, os.kill, (workers[0], signal.SIGKILL))
        killer.start()
        statuses = self._send(4, lambda: time.monotonic() < end)
        back = len(self._workers()) == len(workers)
        for worker in self._workers():
            os.kill(worker, signal.SIGKILL)
        return {
            "a killed worker": f"{dict(statuses)} of 4 clients, back within 10 s: {back}",
            "all workers killed": f"an answer after {self._await_answer(60):.1f} s",
        }

    def silent_connections(self) -> Dict[str, Any]:
        """Seconds of a request beside silent connections, and how many are closed in 40 s."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        with contextlib.ExitStack() as stack:
            clients = []
            for number in range(CONNECTIONS):
                client = socket.create_connection(("127.0.0.1", self.port), 60)
                clients.append(stack.enter_context(client))
                if number % 2:
                    client.sendall(b"POST /v2/rerank HTTP/1.1\r\nHost: ")
            seconds = self._await_answer(60)
            time.sleep(40)
            closed = 0
            for client in clients:
                client.setblocking(False)
                try:
                    client.recv(1 << 16)  # an end, or an error such as 408
                    closed += 1
                except BlockingIOError:
                    pass
                except OSError:
                    closed += 1
        text = f"an answer after {seconds:.2f} s, {closed} closed within 40 s"
        return {f"{CONNECTIONS} silent connections": text}

    def end(self, clients: int) -> Dict[str, Any]:
        """Stop the service while clients send; the requests that were lost, and its status."""
        told = threading.Event()

        def stop() -> None:
            self._process.send_signal(signal.SIGTERM)
            told.set()

        threading.Timer(2.0, stop).start()
        over = [False]

        def goes_on() -> bool:
            over[0] = over[0] or (told.is_set() and self._process.poll() is not None)
            return not over[0]

        start = time.monotonic()
        statuses = self._send(clients, goes_on)
        return {
            "SIGTERM under load": f"{dict(statuses)}",
            "lost at the end": statuses["lost"],
            "exit status": self._process.wait(60),
            "seconds to the end": round(time.monotonic() - start - 2, 1),
        }


if __name__ == "__main__":
    sys.exit(main())
