"""The recipes that measure and soak a service, for seconds; a slow machine passes too."""

import collections
import importlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from conftest import ROOT, child_environment

from wqa.data import builtin_path, read_questions

QUESTIONS = list(read_questions(builtin_path("dev")))[:2]
MODULES = ("clients", "load", "soak")


@pytest.fixture
def recipes(monkeypatch):
    """The modules of the recipes, by name."""
    monkeypatch.syspath_prepend(str(ROOT / "recipes" / "serve"))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        del sys.modules[name]


@pytest.fixture
def measure(recipes, monkeypatch, tmp_path):
    """Run a recipe on two questions; returns its exit status and figures.

    At the end its service has stopped.
    """
    monkeypatch.setenv("PYTHONPATH", child_environment()["PYTHONPATH"])
    services, out = [], tmp_path / "figures.json"

    class Noted(recipes["clients"].ServiceProcess):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            services.append(self)

    def run(name, *options):
        words = [name, "wo", "--data", str(builtin_path("dev")), "--questions", "2"]
        monkeypatch.setattr(sys, "argv", [*words, "--json", str(out), *options])
        monkeypatch.setattr(recipes[name], "ServiceProcess", Noted)
        status = recipes[name].main()
        [service] = services
        assert service.process.poll() == 0
        return status, json.loads(out.read_text())

    return run


def test_load(measure, capsys):
    status, figures = measure("load", "--clients", "2", "--rounds", "3", "--latency", "1")
    candidates = sum(len(question.candidates) for question in QUESTIONS)
    assert (figures["questions"], figures["candidates"]) == (2, candidates)
    first, second, third = sorted(figures["ratios"])
    assert 0 < first <= second == figures["ratio"] <= third
    assert figures["added_ms"] == pytest.approx(figures["request_ms"] - figures["call_ms"])
    assert figures["request_p99_ms"] == figures["request_ms"] > 0  # of a single request
    assert status == int(figures["ratio"] < 0.9 or figures["added_ms"] > 5)
    printed = capsys.readouterr().out
    assert f"2 questions, {candidates} candidates" in printed
    assert f"2 clients: {figures['service']:,.0f} candidates/s" in printed


@pytest.mark.nightly
def test_soak(measure):
    own = ("--minutes", "0.05", "--measure", "0.2")
    status, figures = measure("soak", *own, "--", "--max-candidates", "500")
    checks = figures["checks"]
    assert sum(figures["answers"].values()) == figures["sent"] > 0
    assert figures["answers"]["200"] > 0
    # The others depend on how much this machine can answer, and on what else it does.
    for name in (
        "every request has its answer",
        "the killed worker came back",
        "no other worker died",
        "it stopped with status 0",
    ):
        assert checks[name], figures
    assert status == int(not all(checks.values()))


class Log:
    """The events of a service whose workers 1 and 2 have started."""

    def __init__(self, died=(), started=(1, 2)):
        self.logged = {"worker_started": started, "worker_died": died}

    def events(self, name):
        return [{"worker": worker} for worker in self.logged[name]]


def soaked(soak, log=None, answers=(("200", 8), ("429", 2)), sent=10, memory=(100, 109), status=0):
    """Names of the checks that fail of a soak that has seen this."""
    service = Log()
    run = soak.Soak(service, [b""], rate=1.0, seconds=1.0)
    service.logged = (log or Log(died=(1,), started=(1, 2, 3))).logged
    run._answers, run._sent = collections.Counter(dict(answers)), sent
    run._first, run._memory, run._replaced = memory[0], list(memory), 3
    return {name for name, holds in run.figures(status)["checks"].items() if not holds}


def test_each_check_of_a_soak_can_fail(recipes):
    soak = recipes["soak"]
    assert soaked(soak) == set()
    answered, overload = "every request has its answer", "more came than can be answered"
    assert soaked(soak, answers=(("200", 7), ("429", 2), ("lost", 1))) == {answered}
    assert soaked(soak, answers=(("200", 7), ("429", 2), ("500", 1))) == {answered}
    assert soaked(soak, sent=11) == {answered}
    assert soaked(soak, answers=(("200", 9), ("lost with the worker", 1))) == {overload}
    assert soaked(soak, memory=(100, 111)) == {"memory"}
    assert soaked(soak, status=1) == {"it stopped with status 0"}
    other = Log(died=(1, 2), started=(1, 2, 3, 4))
    assert soaked(soak, log=other) == {"no other worker died"}
    never = Log(died=(1,), started=(1, 2))
    assert soaked(soak, log=never) == {"the killed worker came back"}


def respond(listener, answers):
    """Answer a request a connection, or close it where there is no answer."""
    for answer in answers:
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(100) == b"request"
            connection.sendall(answer)


@pytest.mark.parametrize(
    "killed_after, expected", [(True, "lost with the worker"), (False, "lost")]
)
def test_a_kept_connection_is_as_old_as_its_last_answer(
    recipes, monkeypatch, killed_after, expected
):
    soak = recipes["soak"]
    monkeypatch.setattr(soak, "_GRACE", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = recipes["clients"].Client(listener.getsockname()[1])
        answers = (listener, [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"])
        thread = threading.Thread(target=respond, args=answers, daemon=True)
        thread.start()
        run = soak.Soak(Log(), [b"request"], rate=1.0, seconds=1.0)
        killed_at = time.monotonic()
        assert run._answer(client, b"request") == "200"
        thread.join(timeout=30)  # the connection is closed, which the client does not notice yet
        run._killed_at = time.monotonic() if killed_after else killed_at
        assert run._answer(client, b"request") == expected


def test_a_client_tells_connections_with_the_dead_worker_from_others(recipes):
    soak = recipes["soak"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = recipes["clients"].Client(listener.getsockname()[1])
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"
        answers = (listener, [answer, b"", b"", b""])
        thread = threading.Thread(target=respond, args=answers, daemon=True)
        thread.start()
        run = soak.Soak(Log(), [b"request"], rate=1.0, seconds=1.0)
        assert run._answer(client, b"request") == "200"
        assert run._answer(client, b"request") == "lost"  # nothing was killed
        run._killed_at = time.monotonic()
        assert run._answer(client, b"request") == "lost with the worker"
        run._killed_at -= soak._GRACE + 1  # the connection is opened later
        assert run._answer(client, b"request") == "lost"
        thread.join(timeout=30)
    assert run._answer(client, b"request") == "lost"  # nobody listens


def test_a_service_that_does_not_begin_leaves_no_process(recipes, monkeypatch):
    started, popen = [], subprocess.Popen
    silent = "import os, time; os.close(2); time.sleep(60)"

    def start(command, **options):
        started.append(popen([sys.executable, "-c", silent], **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(SystemExit, match="wqa serve: no listening"):
        recipes["clients"].ServiceProcess("wo")
    assert started[0].wait(timeout=30) == -signal.SIGKILL
