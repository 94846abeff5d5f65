"""Send a service more than it can answer for a while, kill a worker, and check what becomes of it.

    python recipes/serve/soak.py RUN --data QUESTIONS.jsonl [--minutes 30] [--json FILE]
        [-- OPTIONS OF wqa serve]

The capacity is what clients get that wait for their answers. Then requests come at 1.5 times that
rate, whether or not others are answered. A worker is killed halfway. The checks: each request gets
a ranking, a 429 or a 504, but for those whose connection was lost with the killed worker; the
worker comes back, the other workers keep their processes; and the memory of all processes is at
most 1.1 times what it was after the first minute.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import signal
import sys
import threading
import time
from typing import Any, Counter, Dict, List, Sequence

from clients import Client, ServiceProcess, make_parser, parse, request_of
from load import send_all

from wqa.data import read_questions

#: Requests that a worker lets wait, and clients: enough of them to fill the queues.
_QUEUE, _CLIENTS = 16, 128
_OVERLOAD, _MEMORY = 1.5, 1.1
#: A connection that is opened within so many seconds of the kill may be lost.
_GRACE = 2.0


def main() -> int:
    """Soak, and print the checks.

    Returns
    -------
    int
        Exit status: 1 where a check fails.
    """
    options = options_of_command()
    questions = list(read_questions(options.data))[: options.questions]
    requests = [request_of(question) for question in questions]
    arguments = ["--workers", str(options.workers), "--queue", str(_QUEUE), *options.serve]
    service = ServiceProcess(options.run, arguments)
    try:
        service.wait_for("ready", options.workers)
        rate = _OVERLOAD * capacity(service.port, requests, options.measure)
        soak = Soak(service, requests, rate, 60 * options.minutes)
        soak.run()
    finally:
        status = service.stop()
    figures = soak.figures(status)
    print(json.dumps(figures, indent=1))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")
    return int(not all(figures["checks"].values()))


def options_of_command() -> argparse.Namespace:
    """Parse the command line.

    Returns
    -------
    argparse.Namespace
    """
    parser = make_parser(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--measure", type=float, default=20, help="seconds to measure the capacity")
    return parse(parser)


def capacity(port: int, requests: Sequence[bytes], seconds: float) -> float:
    """Requests a second that clients get which wait for their answers.

    Parameters
    ----------
    port : int
        Port of the service.
    requests : sequence of bytes
        Requests, sent again and again.
    seconds : float
        Time to measure for, at least.

    Returns
    -------
    float
    """
    send_all(port, requests[:32], 8)
    count, start = 0, time.monotonic()
    while time.monotonic() < start + seconds:
        part = [requests[(count + index) % len(requests)] for index in range(64)]
        send_all(port, part, 16)
        count += len(part)
    return count / (time.monotonic() - start)


class Soak:
    """Requests at a rate, a kill, and what is seen.

    Parameters
    ----------
    service : ServiceProcess
        The service.
    requests : sequence of bytes
        Requests, sent again and again.
    rate : float
        Requests a second.
    seconds : float
        Length.
    """

    def __init__(
        self, service: ServiceProcess, requests: Sequence[bytes], rate: float, seconds: float
    ) -> None:
        self._service, self._requests = service, requests
        self._rate, self._seconds = rate, seconds
        self._answers: Counter[str] = collections.Counter()
        self._lock = threading.Lock()
        self._sent = 0
        self._start = self._killed_at = 0.0
        self._workers = [event["worker"] for event in service.events("worker_started")]
        self._memory: List[int] = []
        self._first = 0
        self._replaced = 0

    def run(self) -> None:
        """Send the requests, and kill a worker halfway."""
        self._start = time.monotonic()
        threads = [threading.Thread(target=self._send, daemon=True) for _ in range(_CLIENTS)]
        for thread in threads:
            thread.start()
        first_minute = min(60.0, self._seconds / 4)
        while not self._killed_at or time.monotonic() < self._start + self._seconds:
            time.sleep(min(1.0, self._seconds / 20))
            passed = time.monotonic() - self._start
            size = memory(self._pids())
            if passed >= first_minute:
                self._first = self._first or size
                self._memory.append(size)
            if not self._killed_at and passed > self._seconds / 2:
                self._killed_at = time.monotonic()  # before a client can notice it
                os.kill(self._workers[0], signal.SIGKILL)
        for thread in threads:
            thread.join()
        self._service.wait_for("worker_died", 1, 30)
        ready = self._service.wait_for("ready", len(self._workers) + 1, 120)
        self._replaced = ready[-1]["process"]

    def _pids(self) -> List[int]:
        started = [event["worker"] for event in self._service.events("worker_started")]
        return [self._service.process.pid, *started]

    def _send(self) -> None:
        client = Client(self._service.port)
        while True:
            with self._lock:
                number = self._sent
                due = self._start + number / self._rate
                if due > self._start + self._seconds:
                    break
                self._sent += 1
            time.sleep(max(0.0, due - time.monotonic()))
            answer = self._answer(client, self._requests[number % len(self._requests)])
            with self._lock:
                self._answers[answer] += 1
        client.close()

    def _answer(self, client: Client, request: bytes) -> str:
        try:
            return str(client.send(request)[0])
        except OSError:
            # A connection with the dead worker has not answered since. Its client may notice it
            # only later, with its next request.
            if self._killed_at and client.alive_at <= self._killed_at + _GRACE:
                return "lost with the worker"
            return "lost"

    def figures(self, status: int) -> Dict[str, Any]:
        """What was seen, and the checks.

        Parameters
        ----------
        status : int
            Exit status of the service.

        Returns
        -------
        dict
        """
        known = {"200", "429", "504", "lost with the worker"}
        started = [event["worker"] for event in self._service.events("worker_started")]
        died = [event["worker"] for event in self._service.events("worker_died")]
        growth = max(self._memory, default=0) / (self._first or 1)
        return {
            "seconds": self._seconds,
            "rate": self._rate,
            "sent": self._sent,
            "answers": dict(self._answers),
            "memory_kib_after_first_minute": self._first,
            "memory_ratio": growth,
            "checks": {
                "every request has its answer": set(self._answers) <= known
                and sum(self._answers.values()) == self._sent,
                "more came than can be answered": self._answers["429"] > 0,
                "the killed worker came back": self._replaced in started[len(self._workers) :],
                "no other worker died": died == self._workers[:1],
                "memory": growth <= _MEMORY,
                "it stopped with status 0": status == 0,
            },
        }


def memory(pids: Sequence[int]) -> int:
    """Resident memory of processes; those that have ended count nothing.

    Parameters
    ----------
    pids : sequence of int
        Their numbers.

    Returns
    -------
    int
        KiB.
    """
    total = 0
    for pid in pids:
        try:
            text = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total


if __name__ == "__main__":
    sys.exit(main())
