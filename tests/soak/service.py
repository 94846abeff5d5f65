"""Attacks on `wqa serve` over HTTP: its connections, bodies, headers, workers, run and signals."""

import contextlib
import http.client
import importlib.util
import json
import os
import resource
import signal
import socket
import time

from soak.attack import Attack, Fault, Unavailable
from soak.mutations import damage_bytes, damage_json

#: Word overlap ranks the second document first, the original order the first one.
QUESTION, DOCUMENTS = "how do glacier caves form ?", ["Ice .", "Glacier caves form ."]
SERVED, OTHER = '{"rankers": ["wo"]}', '{"rankers": ["rr"]}'
ORDER = [1, 0]
#: Bytes of a body that the service takes, and files that it may open.
BODY_BYTES, FILES = 100_000, 256
#: Attacks of one try, of the kinds that take milliseconds.
QUICK = 100
ARGUMENTS = ("--workers", "2", "--timeout", "10", "--max-bytes", str(BODY_BYTES))
#: A valid request of each dialect, with a document that is returned, and the keys of its errors.
DIALECTS = {
    "/v1/rerank": ({"id", "message", "detail"}, "query", "documents"),
    "/v2/rerank": ({"id", "message"}, "query", "documents"),
    "/rerank": ({"error", "error_type"}, "query", "texts"),
    "/api/rank": ({"id", "error", "kind"}, "question", "candidates"),
}
#: JSON that a document may have beside its text, and that no answer can hold.
UNSAYABLE = (r'"\ud800"', "1e999", "-1e999", r'{"\udfff": 1}', '"\U0001f9ca"', "[1, [null]]")
#: Headers, and the status that they are answered with.
HEADERS = (
    ({"Host": "evil.example"}, 421),
    ({"Host": "127.0.0.1.evil.example:80"}, 421),
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Transfer-Encoding": "chunked"}, 400),
    ({"Content-Length": "7, 8"}, 400),
    ({"Host": "localhost"}, 200),
)


class Service(Attack):
    """A service of two workers gets silent and half-sent connections, bodies that are too large,
    values that no answer can hold, headers of other sites' pages and of smuggled requests; its run
    is replaced or deleted and its workers are killed; it gets SIGHUP while requests are under way.
    Every answer is that of the ranker of the start, or an error in the words of its dialect, never
    500; whoever sends a whole request is answered, and the log has no floods.
    """

    name = "service"
    unit = "attacks"
    weight = 10

    def prepare(self):
        for library in ("fastapi", "uvicorn", "prometheus_client"):
            if importlib.util.find_spec(library) is None:
                raise Unavailable(f"{library} is not installed")
        self._run = self.fresh("served") / "ranker.json"
        os.environ["TMPDIR"] = str(self.folder)  # a service that is killed leaves its metrics
        self._service = None
        self._kinds = (
            self._silence,
            self._large_body,
            self._odd_value,
            self._headers,
            self._replaced_run,
            self._no_worker,
            self._hangup,
        )

    def attempt(self, random):
        if self._service is None:
            self._start()
        kind = random.choice(self._kinds)
        count = QUICK if kind in (self._large_body, self._odd_value, self._headers) else 1
        try:
            for _ in range(count):
                kind(random)
            if self._service is not None:
                self._check()
        except BaseException:
            self._end()
            raise
        return count

    def _start(self):
        from serve.clients import ServiceProcess

        self._run.write_text(SERVED, encoding="utf-8")
        files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, files[1]))
        try:
            self._service = ServiceProcess(str(self._run), ARGUMENTS)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, files)
        self._service.wait_for("ready", 2)

    def _end(self):
        if self._service is not None:
            self._service.process.kill()
            self._service.process.wait()
        self._service = None

    def _check(self):
        """The service answers, and with the ranker of its start."""
        status, body = self._ask("/v2/rerank", json.dumps(_body("/v2/rerank")))
        if status != 200 or [row["index"] for row in body["results"]] != ORDER:
            raise Fault(f"the next ranking is {status} {body}")

    def _ask(self, path, body, headers=None):
        """Status and body of an answer; an error has the keys of its dialect."""
        address = ("127.0.0.1", self._service.port)
        with contextlib.closing(http.client.HTTPConnection(*address, timeout=60)) as connection:
            connection.request("POST", path, body, headers or {})
            response = connection.getresponse()
            raw = response.read()
        if response.headers["content-type"] != "application/json":
            return response.status, raw
        answer = json.loads(raw)
        if response.status in (424, 500):
            raise Fault(f"{path} answers {response.status} {answer}")
        if response.status != 200 and set(answer) != DIALECTS[path][0]:
            raise Fault(f"an error of {path} is {answer}")
        return response.status, answer

    def _connect(self):
        return socket.create_connection(("127.0.0.1", self._service.port), timeout=60)

    def _silence(self, random):
        request = _request(json.dumps(_body("/v2/rerank")))
        begin, before = time.monotonic(), len(self._service.events("connections_full"))
        with contextlib.ExitStack() as stack:
            for _ in range(random.randint(10, 700)):
                client = stack.enter_context(self._connect())
                with contextlib.suppress(ConnectionError):
                    client.sendall(request[: random.randrange(len(request))])
                if random.random() < 0.1:
                    client.close()
            self._check()
        lines = len(self._service.events("connections_full")) - before
        if lines > 2 * (time.monotonic() - begin + 2):
            raise Fault(f"the log has {lines} lines of closed connections")

    def _large_body(self, random):
        body = b"x" * random.randint(BODY_BYTES + 1, 4 * BODY_BYTES)
        if random.random() < 0.5:
            size = random.randint(1000, len(body))
            body = iter([body[at : at + size] for at in range(0, len(body), size)])
        status, answer = self._ask(random.choice(list(DIALECTS)), body)
        if status != 413:
            raise Fault(f"a body that is too large is answered {status} {answer}")

    def _odd_value(self, random):
        path = random.choice(list(DIALECTS))
        raw = json.dumps(_body(path, meta="UNSAYABLE"))
        raw = raw.replace('"UNSAYABLE"', random.choice(UNSAYABLE)).encode("utf-8")
        way = random.random()
        if way < 0.4:
            raw = damage_json(random, raw)
        elif way < 0.6:
            raw = damage_bytes(random, raw)
        self._ask(path, raw)

    def _headers(self, random):
        headers, expected = random.choice(HEADERS)
        path, body = random.choice(list(DIALECTS)), b"{}"
        if expected == 200:
            body = json.dumps(_body(path)).encode("utf-8")
        headers = {"Content-Length": str(len(body)), **headers}
        status, answer = self._ask(path, body, headers)
        if status != expected:
            raise Fault(f"{headers} is answered {status} {answer}, not {expected}")

    def _workers(self):
        """Workers that live, by their process."""
        dead = {event["worker"] for event in self._service.events("worker_died")}
        started = [event["worker"] for event in self._service.events("worker_started")]
        return [worker for worker in started if worker not in dead]

    def _replaced_run(self, random):
        service = self._service
        ready, failed = len(service.events("ready")), len(service.events("failed"))
        self._run.write_text(OTHER, encoding="utf-8")
        os.kill(random.choice(self._workers()), signal.SIGKILL)
        while len(service.events("failed")) == failed:
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                self._check()  # a connection may go with the worker
            time.sleep(random.uniform(0, 0.2))
        self._run.write_text(SERVED, encoding="utf-8")
        service.wait_for("ready", ready + 1)

    def _no_worker(self, random):
        service = self._service
        ready, workers = len(service.events("ready")), self._workers()
        died = len(service.events("worker_died")) + len(workers)
        self._run.unlink()
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        service.wait_for("worker_died", died)
        for _ in range(random.randint(1, 20)):
            path = random.choice(list(DIALECTS))
            status, answer = self._ask(path, json.dumps(_body(path)))
            if status != 503:
                raise Fault(f"without a ranker, {path} is answered {status} {answer}")
            time.sleep(random.uniform(0, 0.2))
        self._run.write_text(SERVED, encoding="utf-8")
        service.wait_for("ready", ready + len(workers))

    def _hangup(self, random):
        request = _request(json.dumps(_body("/v2/rerank")))
        head = request.index(b"{")
        with contextlib.ExitStack() as stack:
            clients = []
            for _ in range(random.randint(1, 40)):
                client = stack.enter_context(self._connect())
                sent = random.randrange(head, len(request))
                client.sendall(request[:sent])
                clients.append((client, request[sent:]))
            time.sleep(0.5)  # the workers accept them
            self._service.process.send_signal(signal.SIGHUP)
            time.sleep(random.uniform(0, 0.05))
            for client, rest in clients:
                client.sendall(rest)
                answer = b"".join(iter(lambda client=client: client.recv(1 << 16), b""))
                if not answer.startswith(b"HTTP/1.1 200 "):
                    raise Fault(f"a request under way at SIGHUP is answered {answer[:200]}")
        status = self._service.process.wait(60)
        self._service = None
        if status:
            raise Fault(f"SIGHUP ends the service with {status}")


def _body(path, **fields):
    """Body of a request in the dialect of a path."""
    _, question, documents = DIALECTS[path]
    if "documents" in documents:
        texts = [DOCUMENTS[0], {"text": DOCUMENTS[1], **fields}]
        return {question: QUESTION, documents: texts, "return_documents": True}
    return {question: QUESTION, documents: DOCUMENTS, **fields}


def _request(body):
    head = f"POST /v2/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode("ascii")
