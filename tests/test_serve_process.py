"""`wqa serve` as a process: signals, sockets, workers that are killed."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from conftest import child_environment

BODY = {"query": "how do glacier caves form ?", "documents": ["Ice .", "Glacier caves form ."]}


class Server:
    """A process of `wqa serve`, and the lines that it logs."""

    def __init__(self, popen, *arguments):
        command = [sys.executable, "-m", "wqa", "serve", *arguments, "--port", "0"]
        self.process = popen(command, stderr=subprocess.PIPE, env=child_environment())
        self.lines, self._changed = [], threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = self.wait_for("listening")["port"]
        self.wait_for("ready")

    def _read(self):
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(json.loads(line))
                self._changed.notify_all()

    def events(self, name):
        return [line for line in self.lines if line["event"] == name]

    def wait_for(self, name, count=1):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events(name)) >= count, 120), self.lines
            return self.events(name)[count - 1]

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
    large = {"query": "ice and caves", "documents": ["glacier caves form in ice " * 40] * 5000}
    answers = []
    request = threading.Thread(target=lambda: answers.append(server.post(large)))
    request.start()
    time.sleep(0.3)
    assert not answers
    status = server.stop()
    request.join(timeout=60)
    assert [code for code, _ in answers] == [200]
    assert len(answers[0][1]["results"]) == 5000
    assert status == 0
    assert server.events("stopped")
    with pytest.raises(OSError):
        server.post()
    assert "glacier" not in json.dumps(server.lines)


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
    body = json.dumps(BODY).encode()
    for part in (body, body[:20]):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
            head = f"POST /v2/rerank HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + part)
    assert server.post()[0] == 200


def test_a_worker_that_is_killed_comes_back(popen):
    server = Server(popen, "wo", "--workers", "2")
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
    assert server.stop() == 0
    assert len(server.events("stopped")) == 2


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
