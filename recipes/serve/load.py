"""Measure a service beside the library on the same questions, in one sitting.

    python recipes/serve/load.py RUN --data QUESTIONS.jsonl [--clients 16] [--rounds 5]
        [--json FILE] [-- OPTIONS OF wqa serve]

Throughput: many clients send the questions, each its next one when the last is answered, in turn
with `rank_all` over the same questions in this process. Latency: one client sends each question, in
turn with a call of `rank`. Figures are medians over the rounds; the machine's speed changes, so
that the ratio and the difference count. Both have the drop ratio, the threads and the
precision that are given.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import threading
import time
from typing import Any, Dict, List, Sequence

from clients import Client, ServiceProcess, make_parser, parse, request_of

from wqa.data import Question, read_questions
from wqa.systems.load import load_ranker


def main() -> int:
    """Measure, and print the figures.

    Returns
    -------
    int
        Exit status: 1 where the throughput is below 90 % of the library's, or the latency of one
        client more than 5 ms above a call.
    """
    options = options_of_command()
    questions = list(read_questions(options.data))[: options.questions]
    shared = {}
    arguments = list(options.serve)
    for name in ("drop_ratio", "threads", "precision"):
        value = getattr(options, name)
        if value is not None:
            shared[name] = value
            arguments += ["--" + name.replace("_", "-"), str(value)]
    ranker = load_ranker(options.run, **shared)
    service = ServiceProcess(options.run, arguments)
    try:
        service.wait_for("ready", 1)
        figures = {
            "run": str(options.run),
            "questions": len(questions),
            "candidates": sum(len(question.candidates) for question in questions),
            **throughput(ranker, service.port, questions, options.clients, options.rounds),
            **latency(ranker, service.port, questions[: options.latency]),
        }
    finally:
        service.stop()
    print(report(figures))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")
    return int(figures["ratio"] < 0.9 or figures["added_ms"] > 5)


def options_of_command() -> argparse.Namespace:
    """Parse the command line.

    Returns
    -------
    argparse.Namespace
    """
    parser = make_parser(__doc__ or "")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--latency", type=int, default=200, help="questions of the latency")
    parser.add_argument("--drop-ratio", type=float)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--precision")
    return parse(parser)


def throughput(
    ranker: Any, port: int, questions: Sequence[Question], clients: int, rounds: int
) -> Dict[str, Any]:
    """Candidates a second of clients and of `rank_all`, in turn.

    Parameters
    ----------
    ranker : Ranker
        The ranker in this process.
    port : int
        Port of the service.
    questions : sequence of Question
        The questions.
    clients : int
        Number of clients.
    rounds : int
        Number of turns, after one that does not count.

    Returns
    -------
    dict
        ``library`` and ``service``, candidates a second; ``ratio``; and ``ratios`` of each round.
    """
    requests = [request_of(question) for question in questions]
    candidates = sum(len(question.candidates) for question in questions)
    library: List[float] = []
    service: List[float] = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        for _ranking in ranker.rank_all(questions):
            pass
        library.append(candidates / (time.perf_counter() - start))
        start = time.perf_counter()
        send_all(port, requests, clients)
        service.append(candidates / (time.perf_counter() - start))
    ratios = [ours / theirs for ours, theirs in zip(service[1:], library[1:])]
    return {
        "clients": clients,
        "library": statistics.median(library[1:]),
        "service": statistics.median(service[1:]),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def send_all(port: int, requests: Sequence[bytes], clients: int) -> None:
    """Send requests by several clients, each its next one when the last is answered.

    Parameters
    ----------
    port : int
        Port of the service.
    requests : sequence of bytes
        The requests.
    clients : int
        Number of clients.

    Raises
    ------
    SystemExit
        If one is not answered by a ranking.
    """
    left = iter(requests)
    lock = threading.Lock()
    failures: List[str] = []

    def run() -> None:
        client = Client(port)
        while not failures:
            with lock:
                request = next(left, None)
            if request is None:
                break
            try:
                status, body = client.send(request)
            except OSError as error:
                failures.append(str(error))
                break
            if status != 200:
                failures.append(f"{status} {body[:200]!r}")
        client.close()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(f"a request was not answered: {failures[0]}")


def latency(ranker: Any, port: int, questions: Sequence[Question]) -> Dict[str, float]:
    """Milliseconds of a request and of a call of `rank`, in turn.

    Parameters
    ----------
    ranker : Ranker
        The ranker in this process.
    port : int
        Port of the service.
    questions : sequence of Question
        The questions.

    Returns
    -------
    dict of str to float
        ``call_ms`` and ``request_ms``, medians; ``added_ms``, their difference; and
        ``request_p99_ms``.
    """
    client = Client(port)
    calls: List[float] = []
    requests: List[float] = []
    for question in questions:
        request = request_of(question)
        start = time.perf_counter()
        ranker.rank(question.question, question.candidates)
        middle = time.perf_counter()
        client.send(request)
        end = time.perf_counter()
        calls.append(1000 * (middle - start))
        requests.append(1000 * (end - middle))
    client.close()
    call, request_time = statistics.median(calls), statistics.median(requests)
    return {
        "call_ms": call,
        "request_ms": request_time,
        "added_ms": request_time - call,
        "request_p99_ms": sorted(requests)[int(0.99 * (len(requests) - 1))],
    }


def report(figures: Dict[str, Any]) -> str:
    """The figures in lines.

    Parameters
    ----------
    figures : dict
        Figures of `throughput` and `latency`.

    Returns
    -------
    str
    """
    ratios = " ".join(f"{ratio:.2f}" for ratio in figures["ratios"])
    return "\n".join(
        [
            f"{figures['questions']:,} questions, {figures['candidates']:,} candidates",
            f"rank_all: {figures['library']:,.0f} candidates/s",
            f"{figures['clients']} clients: {figures['service']:,.0f} candidates/s, "
            f"{100 * figures['ratio']:.0f} % of rank_all (rounds: {ratios})",
            f"one client: p50 {figures['request_ms']:.1f} ms, {figures['added_ms']:.1f} ms above a "
            f"call of rank ({figures['call_ms']:.1f} ms); p99 {figures['request_p99_ms']:.1f} ms",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
