"""`wqa serve` as a process: signals, sockets, workers that are killed."""

import contextlib
import errno
import http.client
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from conftest import child_environment

from wqa.serve import supervisor

BODY = {"query": "how do glacier caves form ?", "documents": ["Ice .", "Glacier caves form ."]}


class Server:
    """A process of `wqa serve`, and the lines that it logs."""

    def __init__(self, popen, *arguments, until="ready"):
        command = [sys.executable, "-m", "wqa", "serve", *arguments, "--port", "0"]
        self.process = popen(command, stderr=subprocess.PIPE, env=child_environment())
        self.lines, self._changed = [], threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = self.wait_for("listening")["port"]
        self.wait_for(until)

    def _read(self):
        for line in self.process.stderr:
            with self._changed:
                try:
                    self.lines.append(json.loads(line))
                except ValueError:  # a traceback
                    self.lines.append(line)
                self._changed.notify_all()

    def events(self, name, **fields):
        """Lines of an event with these values."""
        fields = {"event": name, **fields}
        return [
            line for line in self.lines if isinstance(line, dict) and fields.items() <= line.items()
        ]

    def wait_for(self, name, count=1, **fields):
        def has_come():
            return len(self.events(name, **fields)) >= count

        with self._changed:
            assert self._changed.wait_for(has_come, 120), self.lines
            return self.events(name, **fields)[count - 1]

    def post(self, body=BODY, path="/v2/rerank"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path, json.dumps(body))
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=90)
        self._reader.join(timeout=30)
        return status


def memory(pid):
    """Resident KiB of a process."""
    with open(f"/proc/{pid}/status") as file:
        [line] = [line for line in file if line.startswith("VmRSS:")]
    return int(line.split()[1])


def test_a_process_from_its_start_to_sigterm(popen):
    """One process for what needs sockets: starting it takes longer than the rest."""
    server = Server(popen, "bm25", "--timeout", "20")
    assert server.post()[0] == 200
    check_large_body(server)
    check_client_that_goes_away(server)

    # SIGTERM: what is accepted is answered, what comes later is not accepted.
    raw = request_bytes(BODY)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(raw[:-1])
        # The server reads its connections in turn, so that it has begun with the first one.
        assert "ok" in server.get("/health")
        server.process.send_signal(signal.SIGTERM)
        wait_until_closed(server.port)
        client.sendall(raw[-1:])
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(json.loads(answer.partition(b"\r\n\r\n")[2])["results"]) == 2
    assert server.stop() == 0
    assert server.events("stopped")
    with pytest.raises(OSError):
        server.post()
    assert "glacier" not in json.dumps(server.lines)


def request_bytes(body):
    raw = json.dumps(body).encode()
    head = f"POST /v2/rerank HTTP/1.1\r\nHost: a\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


def wait_until_closed(port):
    """Wait until nothing listens on a port."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with contextlib.suppress(socket.timeout, ConnectionResetError):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except ConnectionRefusedError:
                return
        time.sleep(0.02)
    raise AssertionError("the server still listens")


def check_large_body(server):
    """200 MB in chunks are refused early, in bounded memory."""
    before = memory(server.process.pid)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(b"POST /rerank HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
        sent = 0
        try:
            for _ in range(200):
                client.sendall(chunk)
                sent += 1
        except OSError:  # the server has closed the connection
            pass
        answer = client.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert sent < 60
    assert memory(server.process.pid) - before < 64 << 10


def check_client_that_goes_away(server):
    raw = request_bytes(BODY)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(raw[:-10])
        assert "ok" in server.get("/health")
    server.wait_for("request", 1, status=499)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(raw)  # it does not wait for the answer
    assert server.post()[0] == 200


def test_a_worker_that_dies_comes_back(popen, tmp_path):
    run = tmp_path / "overlap.json"
    run.write_text('{"rankers": ["wo"]}')
    server = Server(popen, str(run), "--workers", "2")
    server.wait_for("ready", 2)
    first, second = (line["worker"] for line in server.events("worker_started"))
    os.kill(first, signal.SIGKILL)
    died = server.wait_for("worker_died")
    assert (died["worker"], died["status"]) == (first, -signal.SIGKILL)
    assert server.post()[0] == 200  # the other goes on
    third = server.wait_for("ready", 3)["process"]
    assert third not in (first, second)
    statuses = [server.post()[0] for _ in range(10)]
    assert statuses == [200] * 10
    assert 'wqa_requests_total{path="/v2/rerank",status="200"} 11.0' in server.get("/metrics")

    # A worker that cannot be loaded any more does not end the other one.
    run.unlink()
    os.kill(third, signal.SIGKILL)
    server.wait_for("worker_died", status=2)
    assert server.post()[0] == 200
    run.write_text('{"rankers": ["wo"]}')
    fourth = server.wait_for("ready", 4)["process"]
    assert {line["process"] for line in server.events("ready")} == {first, second, third, fourth}
    assert not server.events("worker_died", worker=second)
    assert server.stop() == 0
    assert {line["process"] for line in server.events("stopped")} == {second, fourth}


def test_sigterm_before_the_ranker_is_loaded(popen):
    """Of one process, and of workers that have no handlers of signals yet."""
    for arguments, until in ((["wo"], "listening"), (["wo", "--workers", "2"], "worker_started")):
        assert Server(popen, *arguments, until=until).stop() == 0


def test_requests_that_are_cut_off_are_an_exit_status(popen):
    server = Server(popen, "wo", "--drain", "0.1")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(request_bytes(BODY)[:-1])
        assert "ok" in server.get("/health")
        assert server.stop() == 1
    assert server.events("request", status=503)
    [late] = server.events("late")
    assert late["requests"] == 1


class FullMachine:
    """A context of multiprocessing that can make no process at first."""

    def __init__(self):
        self.failures = 2

    def Pipe(self, duplex):
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return multiprocessing.Pipe(duplex)

    def Process(self, target, args):
        is_alive = iter([True, False])
        return SimpleNamespace(start=bool, pid=1, is_alive=lambda: next(is_alive))


def test_a_worker_is_started_later_where_the_machine_is_full(monkeypatch):
    now = 100.0
    machine = FullMachine()
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(supervisor.multiprocessing, "get_context", lambda name: machine)
    worker = supervisor._Worker(())
    assert worker.is_dead and worker.start_at == 101
    worker.look()
    assert supervisor._tend(worker, None, "") == 0 and worker.process is None
    now = 101.0
    assert supervisor._tend(worker, None, "") == 0
    assert worker.is_dead and worker.start_at == 103
    now = 103.0
    assert supervisor._tend(worker, None, "") == 0
    assert not worker.is_dead
    worker.look()
    assert not worker.is_dead
    now = 132.0  # it has not lived for long
    worker.look()
    assert worker.is_dead and worker.start_at == 136
    worker.start()
    now = 162.0
    worker.look()
    worker.look()
    assert worker.is_dead and worker.start_at == 162


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_run_that_is_not_there_is_one_error(workers):
    command = [sys.executable, "-m", "wqa", "serve", "no-such-run", "--port", "0"]
    done = subprocess.run(
        [*command, "--workers", workers],
        capture_output=True,
        text=True,
        timeout=120,
        env=child_environment(),
    )
    assert done.returncode == 2
    assert "no-such-run: there is no such directory" in done.stderr
    if workers == "1":
        assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr


def test_an_address_that_is_taken_is_one_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "wqa", "serve", "wo", "--port", port],
            capture_output=True,
            text=True,
            timeout=120,
            env=child_environment(),
        )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: --host and --port: 127.0.0.1 and {port} cannot be")
