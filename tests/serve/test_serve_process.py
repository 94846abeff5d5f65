"""`wqa serve` as a process: signals, sockets, workers that are killed."""

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

import pytest
from conftest import child_environment

from wqa.cli import main

BODY = {"query": "how do glacier caves form ?", "documents": ["Ice .", "Glacier caves form ."]}


class Server:
    """A process of `wqa serve`, and the lines that it logs."""

    def __init__(self, popen, *arguments, until="ready", **options):
        command = [sys.executable, "-m", "wqa", "serve", *arguments, "--port", "0"]
        options = {"stderr": subprocess.PIPE, "env": child_environment(), **options}
        self.process = popen(command, **options)
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

    def request(self, method, path, body=None):
        """Status and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read()

    def post(self, body=BODY, path="/v2/rerank"):
        status, answer = self.request("POST", path, json.dumps(body))
        return status, json.loads(answer)

    def get(self, path):
        return self.request("GET", path)[1].decode()

    def workers(self):
        """Processes that answer, those of Python's own helpers left out."""
        found = []
        for path in pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for child in map(int, path.read_text().split()):
                if b"resource_tracker" not in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(child)
        return found

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
    arguments = ("bm25", "--timeout", "20", "--model", "second=wo", "--host", "0.0.0.0")
    server = Server(popen, *arguments, stdout=subprocess.PIPE, preexec_fn=few_files)
    url = f"http://127.0.0.1:{server.port}/"
    assert server.process.stdout.readline() == f"{url} shows the page; Ctrl-C ends the service\n"
    assert "<!DOCTYPE html>" in server.get("/")
    assert server.post()[0] == 200
    chosen = server.post({**BODY, "model": "second"}, "/v1/rerank")
    assert chosen[0] == 200 and chosen[1]["model"] == "second"
    check_large_body(server)
    check_refused_bodies(server)
    check_client_that_goes_away(server)
    check_silent_connections(server)

    # What is accepted is answered, what comes later is not accepted.
    check_end(server)
    assert "glacier" not in json.dumps(server.lines)
    assert server.process.stdout.read() == ""


def check_end(server):
    """A signal ends a service after the request that it has begun to read."""
    raw = request_bytes(BODY).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(raw[: raw.index(b"{")])
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 100 ")  # an endpoint reads the body
        server.process.send_signal(signal.SIGTERM)
        wait_until_closed(server.port)
        client.sendall(raw[raw.index(b"{") :])
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(json.loads(answer.partition(b"\r\n\r\n")[2])["results"]) == 2
    assert server.stop() == 0
    assert server.events("stopped")
    with pytest.raises(OSError):
        server.post()


def request_bytes(body):
    raw = json.dumps(body).encode()
    head = f"POST /v2/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n\r\n"
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
    [worker] = server.workers()
    before = memory(worker)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        head = b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.sendall(head)
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
    assert sent == 200  # what comes after the answer is discarded
    assert memory(worker) - before < 64 << 10


def check_refused_bodies(server):
    """A client that sends all before it reads gets the answer, and its connection is closed."""
    for path, expected in (("/v2/rerank", 413), ("/nowhere", 404)):
        status, answer = server.request("POST", path, b"x" * 17_000_000)
        assert status == expected and answer
    assert server.post()[0] == 200


def check_client_that_goes_away(server):
    raw = request_bytes(BODY)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(raw[:-10])
        assert "ok" in server.get("/health")
    server.wait_for("request", 1, status=499)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(raw)  # it does not wait for the answer
    assert server.post()[0] == 200


def few_files():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))


def check_silent_connections(server):
    """More of them than the service may have files keep no client out."""
    starts = (b"", b"GET /health HT", request_bytes(BODY)[:-9], b"GET /health HTTP/1.1\r\nA: b\r\n")
    with contextlib.ExitStack() as stack:
        for number in range(400):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            stack.enter_context(client).sendall(starts[number % 4])
        assert "ok" in server.get("/health")
        assert server.post()[0] == 200


def test_workers_from_the_death_of_one_to_sigterm(popen):
    server = Server(popen, "wo", "--workers", "2")
    server.wait_for("ready", 2)
    before = server.workers()
    os.kill(before[0], signal.SIGKILL)
    start = time.monotonic()
    assert server.post()[0] == 200  # the other goes on
    back = server.wait_for("ready", 3)["process"]
    assert time.monotonic() - start < 10
    assert back not in before and set(server.workers()) == {*before[1:], back}
    assert [server.post()[0] for _ in range(10)] == [200] * 10
    count = 'wqa_requests_total{path="/v2/rerank",status="200"} 11.0'
    assert count in server.get("/metrics").splitlines()
    check_end_under_load(server)
    assert not server.workers()


def check_end_under_load(server):
    """No request of busy clients is lost at the end."""
    answers, lost = [], []

    def send():
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                connection.connect()
            except ConnectionRefusedError:
                return
            try:
                while connection.sock is not None:  # until the answer closes it
                    connection.request("POST", "/v2/rerank", json.dumps(BODY))
                    response = connection.getresponse()
                    answers.append((response.status, bool(response.read())))
            except (OSError, http.client.HTTPException) as error:
                lost.append(error)

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    assert server.stop() == 0
    for thread in threads:
        thread.join()
    assert set(answers) == {(200, True)}
    # Connections that came as the sockets were closed: one in the queue, and one of each worker.
    assert len(lost) <= 3


def test_a_worker_does_not_outlive_the_service(popen):
    server = Server(popen, "wo")
    [worker] = server.workers()
    server.process.kill()
    server.process.wait()
    end = time.monotonic() + 30
    while os.path.exists(f"/proc/{worker}") and time.monotonic() < end:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{worker}")


def test_sigterm_before_the_ranker_is_loaded(popen):
    """Of workers that have no handlers of signals yet."""
    assert Server(popen, "wo", "--workers", "2", until="listening").stop() == 0


def test_requests_that_are_cut_off_are_an_exit_status(popen):
    server = Server(popen, "wo", "--drain", "0.1")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(request_bytes(BODY)[:-1])
        assert "ok" in server.get("/health")
        assert server.stop() == 1
    assert server.events("stopped", cut_off=1)


def test_a_ranker_that_cannot_be_loaded_is_an_exit_status(popen, tmp_path):
    run = tmp_path / "ranker.json"
    run.write_text("{")
    server = Server(popen, str(run), until="failed")
    assert server.process.wait(timeout=20) == 2  # it waits for no answer of the worker
    assert str(run) in server.events("failed")[0]["message"]


def test_an_address_that_is_taken_is_one_error(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "wo", "--port", port]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --host and --port: 127.0.0.1 and {port} cannot be")
