"""Attacks on `wqa serve` over HTTP: its connections, bodies, workers and signals."""

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
import time

from soak.attack import Attack, Fault
from soak.mutations import damage_bytes, damage_json

#: Word overlap ranks the second document first.
QUESTION, DOCUMENTS = "how do glacier caves form ?", ["Ice .", "Glacier caves form ."]
ORDER = [1, 0]
#: Bytes of a body that the service takes, and files that it may open.
BODY_BYTES, FILES = 100_000, 256
#: Attacks of one try, of the kinds that take milliseconds.
QUICK = 100
ARGUMENTS = ("--workers", "2", "--timeout", "10", "--max-bytes", str(BODY_BYTES))
#: JSON that a document may have beside its text, and that no answer can hold.
UNSAYABLE = (r'"\ud800"', "1e999", "-1e999", r'{"\udfff": 1}', '"\U0001f9ca"', "[1, [null]]")


class Service(Attack):
    """A service of two workers gets silent and half-sent connections, bodies that are too large,
    and values that no answer can hold; its workers are killed; it gets SIGTERM while requests are
    under way. Every answer is that of the ranker, or an error,
    never 500, and whoever sends a whole request is answered.
    """

    weight = 10

    def prepare(self):
        os.environ["TMPDIR"] = str(self.folder)  # a service that is killed leaves its metrics
        self._process = None
        self._kinds = (
            self._silence,
            self._large_body,
            self._odd_value,
            self._killed_worker,
            self._stop,
        )

    def attempt(self, random):
        if self._process is None:
            self._start()
        kind = random.choice(self._kinds)
        count = QUICK if kind in (self._large_body, self._odd_value) else 1
        try:
            for _ in range(count):
                kind(random)
            if self._process is not None:
                self._check()
        except BaseException:
            self._end()
            raise
        return count

    def _start(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        command = [sys.executable, "-m", "wqa", "serve", "wo", *ARGUMENTS]
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._process = subprocess.Popen(
            [*command, "--port", str(self._port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard)),
        )
        self._await_answer()

    def _await_answer(self):
        end = time.monotonic() + 120
        while True:
            try:
                return self._check()
            except (OSError, http.client.HTTPException):  # it loads, or a worker has died
                if time.monotonic() > end:
                    raise Fault("the service does not answer") from None
                time.sleep(0.1)

    def _end(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _check(self):
        """The service answers, and with the ranker of its start."""
        status, body = self._ask(json.dumps(_body()))
        if status != 200 or [row["index"] for row in body["results"]] != ORDER:
            raise Fault(f"the next ranking is {status} {body}")

    def _ask(self, body):
        """Status and body of an answer."""
        address = ("127.0.0.1", self._port)
        with contextlib.closing(http.client.HTTPConnection(*address, timeout=60)) as connection:
            connection.request("POST", "/v2/rerank", body)
            response = connection.getresponse()
            raw = response.read()
        answer = json.loads(raw)
        if response.status in (424, 500):
            raise Fault(f"the service answers {response.status} {answer}")
        return response.status, answer

    def _connect(self):
        return socket.create_connection(("127.0.0.1", self._port), timeout=60)

    def _silence(self, random):
        request = _request(json.dumps(_body()))
        with contextlib.ExitStack() as stack:
            for _ in range(random.randint(10, 700)):
                client = stack.enter_context(self._connect())
                client.sendall(request[: random.randrange(len(request))])
                if random.random() < 0.1:
                    client.close()
            self._check()

    def _large_body(self, random):
        body = b"x" * random.randint(BODY_BYTES + 1, 4 * BODY_BYTES)
        if random.random() < 0.5:
            size = random.randint(1000, len(body))
            body = iter([body[at : at + size] for at in range(0, len(body), size)])
        status, answer = self._ask(body)
        if status != 413:
            raise Fault(f"a body that is too large is answered {status} {answer}")

    def _odd_value(self, random):
        raw = json.dumps(_body(meta="UNSAYABLE"))
        raw = raw.replace('"UNSAYABLE"', random.choice(UNSAYABLE)).encode("utf-8")
        way = random.random()
        if way < 0.4:
            raw = damage_json(random, raw)
        elif way < 0.6:
            raw = damage_bytes(random, raw)
        self._ask(raw)

    def _workers(self):
        """Processes that answer, those of Python's own helpers left out."""
        workers = []
        for path in pathlib.Path(f"/proc/{self._process.pid}/task").glob("*/children"):
            for child in map(int, path.read_text().split()):
                if b"resource_tracker" not in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                    workers.append(child)
        return workers

    def _killed_worker(self, random):
        before = self._workers()
        for worker in random.sample(before, random.randint(1, len(before))):
            os.kill(worker, signal.SIGKILL)
        end = time.monotonic() + 60
        while len(self._workers()) < len(before) or set(self._workers()) == set(before):
            if time.monotonic() > end:
                raise Fault("a killed worker is not replaced")
            time.sleep(0.1)
        self._await_answer()

    def _stop(self, random):
        request = _request(json.dumps(_body()))
        head = request.index(b"{")
        with contextlib.ExitStack() as stack:
            clients = []
            for _ in range(random.randint(1, 40)):
                client = stack.enter_context(self._connect())
                sent = random.randrange(head, len(request))
                client.sendall(request[:sent])
                clients.append((client, request[sent:]))
            time.sleep(0.5)  # the workers accept them
            self._process.send_signal(signal.SIGTERM)
            time.sleep(random.uniform(0, 0.05))
            for client, rest in clients:
                client.sendall(rest)
                answer = b"".join(iter(lambda client=client: client.recv(1 << 16), b""))
                if not answer.startswith(b"HTTP/1.1 200 "):
                    raise Fault(f"a request under way at SIGTERM is answered {answer[:200]}")
        status = self._process.wait(60)
        self._process = None
        if status:
            raise Fault(f"SIGTERM ends the service with {status}")


def _body(**fields):
    texts = [DOCUMENTS[0], {"text": DOCUMENTS[1], **fields}]
    return {"query": QUESTION, "documents": texts, "return_documents": True}


def _request(body):
    head = f"POST /v2/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode("ascii")
