"""`wqa serve` as a process: signals, sockets, workers that are killed."""

import contextlib
import errno
import functools
import http.client
import json
import multiprocessing
import os
import resource
import shutil
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
from wqa.serve.server import served_digest

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
    server = Server(popen, "bm25", "--timeout", "20", "--model", "second=wo")
    assert server.post()[0] == 200
    chosen = server.post({**BODY, "model": "second"}, "/v1/rerank")
    assert chosen[0] == 200 and chosen[1]["model"] == "second"
    check_large_body(server)
    check_refused_bodies(server)
    check_smuggling(server)
    check_client_that_goes_away(server)

    # What is accepted is answered, what comes later is not accepted.
    check_end(server, signal.SIGTERM)
    assert "glacier" not in json.dumps(server.lines)


def check_end(server, number):
    """A signal ends a service after the request that it has begun to read."""
    raw = request_bytes(BODY).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(raw[: raw.index(b"{")])
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 100 ")  # an endpoint reads the body
        server.process.send_signal(number)
        wait_until_closed(server.port)
        client.sendall(raw[raw.index(b"{") :])
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(json.loads(answer.partition(b"\r\n\r\n")[2])["results"]) == 2
    assert server.stop() == 0
    assert server.events("stopped")
    with pytest.raises(OSError):
        server.post()


@pytest.mark.parametrize(
    "workers, host, shown", [("1", "0.0.0.0", "127.0.0.1"), ("2", "localhost", "localhost")]
)
def test_the_address_of_the_page_is_printed(popen, workers, host, shown):
    arguments = ("wo", "--host", host, "--workers", workers)
    server = Server(popen, *arguments, until="listening", stdout=subprocess.PIPE)
    url = f"http://{shown}:{server.port}/"
    assert server.process.stdout.readline() == f"{url} shows the page; Ctrl-C ends the service\n"
    assert "<!DOCTYPE html>" in server.get("/")
    assert server.stop() == 0
    assert server.process.stdout.read() == ""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_closed_terminal_ends_the_service_in_order(popen, workers):
    server = Server(popen, "wo", "--workers", workers)
    if workers == "2":
        server.wait_for("ready", 2)
    check_end(server, signal.SIGHUP)


def test_nohup_keeps_the_service(popen):
    ignore = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    server = Server(popen, "wo", preexec_fn=ignore)
    server.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        assert server.post()[0] == 200
        time.sleep(0.05)
    assert server.process.poll() is None
    assert not server.events("stopped")
    assert server.stop() == 0


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
    before = memory(server.process.pid)
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
    assert sent < 120  # the limit, four times as many that are discarded, and buffers
    assert memory(server.process.pid) - before < 64 << 10


def check_refused_bodies(server):
    """A client that sends all before it reads gets the answer, and its connection is closed."""
    refused = [
        ("POST", "/v2/rerank", b"x" * 17_000_000, {}, 413),
        ("POST", "/nowhere", b"x" * 17_000_000, {"Connection": "close"}, 404),
        ("POST", "/v2/rerank", b"x" * 3_000_000, {"Content-Length": "3, 4"}, 400),
    ]
    for method, path, body, headers, status in refused:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            assert response.status == status
            assert response.read() and response.will_close
    assert server.post()[0] == 200


def check_smuggling(server):
    """The second request, which another server would take for the body of the first."""
    first = request_bytes(BODY).replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(first[: first.index(b"{")] + b"0\r\n\r\n" + request_bytes(BODY))
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1") == 1


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
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


def test_silent_connections_keep_no_client_out(popen):
    server = Server(popen, "wo", preexec_fn=few_files)
    starts = (b"", b"GET /health HT", request_bytes(BODY)[:-9], b"GET /health HTTP/1.1\r\nA: b\r\n")
    with contextlib.ExitStack() as stack:
        for number in range(400):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            stack.enter_context(client)
            with contextlib.suppress(ConnectionError):  # the ones that came first are closed
                client.sendall(starts[number % 4])
        assert "ok" in server.get("/health")
        assert server.post()[0] == 200
    assert 0 < len(server.events("connections_full", level="warning")) < 60
    assert server.stop() == 0
    assert len(server.lines) < 600


def read_answer(client):
    """An answer whose body is an object of JSON."""
    answer = b""
    while not answer.endswith(b"}"):
        received = client.recv(1 << 16)
        assert received, answer
        answer += received
    return answer


def test_a_client_that_does_not_send_a_request_in_time_is_cut_off(popen):
    server = Server(popen, "wo", "--timeout", "1")
    complete = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    starts = {
        "silent": b"",
        "half a head": complete[:-2],
        "half a second head": complete + complete[:-2],
        "half a body that is not read": complete[:-2] + b"Content-Length: 9\r\n\r\n123",
    }
    for name, start in starts.items():
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(start)
            if len(start) >= len(complete):
                assert read_answer(client).startswith(b"HTTP/1.1 200 ")
                client.sendall(b"A")
            began = time.monotonic()
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(4096) == b"", name
            assert time.monotonic() - began < 15, name
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(request_bytes(BODY)[:-9])
        assert read_answer(client).startswith(b"HTTP/1.1 408 ")
    check_answer_that_is_not_read(server)
    # Between two requests a client may be silent for longer.
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        for _ in range(2):
            client.sendall(complete)
            assert read_answer(client).startswith(b"HTTP/1.1 200 ")
            time.sleep(1.5)


def check_answer_that_is_not_read(server):
    document = {"text": "Ice .", "blob": "x" * 8_000_000}
    body = {"query": "ice", "documents": [document], "return_documents": True}
    raw = request_bytes(body).replace(b"/v2/", b"/v1/", 1)
    with socket.socket() as client:
        client.settimeout(20)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.connect(("127.0.0.1", server.port))
        client.sendall(raw)
        server.wait_for("request", path="/v1/rerank", status=200)
        time.sleep(1.5)
        with contextlib.suppress(ConnectionResetError):
            received = sum(map(len, iter(lambda: client.recv(1 << 16), b"")))
            assert received < len(raw)


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


def test_a_worker_does_not_come_back_with_another_ranker(popen, tmp_path):
    run = tmp_path / "ranker.json"
    run.write_text('{"rankers": ["wo"]}')
    server = Server(popen, str(run), "--workers", "2")
    server.wait_for("ready", 2)
    order = [row["index"] for row in server.post()[1]["results"]]
    run.write_text('{"rankers": ["rr"]}')  # which keeps the order of the documents
    os.kill(server.events("worker_started")[0]["worker"], signal.SIGKILL)
    failed = server.wait_for("failed")
    assert failed["message"].startswith(f"{run}: has changed since the service began; expected")
    assert order == [1, 0]
    while len(server.events("failed")) < 2:  # the other worker answers all
        status, body = server.post()
        assert status == 200 and [row["index"] for row in body["results"]] == order
    run.write_text('{"rankers": ["wo"]}')
    server.wait_for("ready", 3)
    assert server.stop() == 0


def test_without_a_worker_requests_are_answered_503(popen, tmp_path):
    run = tmp_path / "ranker.json"
    run.write_text('{"rankers": ["wo"]}')
    server = Server(popen, str(run), "--workers", "2")
    server.wait_for("ready", 2)
    run.unlink()
    for line in server.events("worker_started"):
        os.kill(line["worker"], signal.SIGKILL)
    server.wait_for("worker_died", 2, status=-signal.SIGKILL)
    with socket.create_connection(("127.0.0.1", server.port)):  # it says nothing, and keeps nobody
        while not server.events("request", status=503, refused="draining"):
            status, body = server.post()
            assert status == 503 and set(body) == {"id", "message"}
    # Nobody waits until the workers that were started again have failed to load.
    refused = server.events("request", status=503)[0]
    failed = server.wait_for("worker_died", status=2)
    assert server.lines.index(refused) < server.lines.index(failed)
    large = {**BODY, "documents": ["a" * 1_000_000]}
    status, body = server.post(large, path="/rerank")
    assert status == 503 and set(body) == {"error", "error_type"}
    run.write_text('{"rankers": ["wo"]}')
    server.wait_for("ready", 4)
    assert server.post()[0] == 200
    assert server.stop() == 0


def test_the_digest_of_a_service_covers_what_was_tuned(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    before = served_digest(run, {})
    (run / "tuned.json").write_text("{}")
    assert len({"", before, served_digest(run, {}), served_digest("wo", {})}) == 4
    assert served_digest(tmp_path / "absent", {}) == ""


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


def test_a_ranker_that_is_loaded_as_the_service_stops_cuts_no_request_off():
    code = """if True:
        import os, signal
        from wqa.serve.config import ServeConfig
        from wqa.serve.server import listen, work

        def stop():
            os.kill(os.getpid(), signal.SIGTERM)

        listener = listen("127.0.0.1", 0)
        os._exit(work(listener, "wo", ServeConfig(), {}, on_ready=stop, loads_first=True))
    """
    done = subprocess.run([sys.executable, "-c", code], env=child_environment(), timeout=120)
    assert done.returncode == 0


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
