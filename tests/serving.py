"""A service in this process, without a network: a ranker to control, calls of its application."""

import asyncio
import contextlib
import json
import threading

from wqa.serve.app import build_app
from wqa.serve.requests import DIALECTS as CLASSES
from wqa.serve.server import ServeConfig
from wqa.serve.service import Service
from wqa.systems.cosinet.baselines import WordOverlap

#: Paths of the dialects that rank what a request brings.
DIALECTS = [path for path in CLASSES if path != "/ask"]
QUESTION = "how do glacier caves form ?"
TEXTS = ["Water melts the ice .", "Glacier caves form in ice .", " ", "A cave ."]
#: Word overlap puts them in this order.
ORDER = [1, 0, 3, 2]


def body_for(path, texts=TEXTS, question=QUESTION, **fields):
    """Body of a request in the dialect of a path."""
    names = {"/rerank": ("query", "texts"), "/api/rank": ("question", "candidates")}
    question_name, texts_name = names.get(path, ("query", "documents"))
    return {question_name: question, texts_name: texts, **fields}


def results_of(path, response):
    """The candidates of an answer in the dialect of a path, best first."""
    if path == "/rerank":
        return response.json
    return response.json["candidates" if path == "/api/rank" else "results"]


class Controlled(WordOverlap):
    """Ranks by word overlap when its gate is open. It notes the sizes of the groups that it gets.

    A question with the candidate ``explode`` raises an exception that quotes a text.
    """

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Semaphore(0)
        self.groups = []
        self.threads = set()

    def rank_all(self, questions):
        questions = list(questions)
        self.groups.append([question.question for question in questions])
        self.threads.add(threading.current_thread().name)
        self.begun.release()
        assert self.gate.wait(20)
        for question in questions:
            if "explode" in question.texts:
                raise ValueError("the secret text")
            yield self._rank(question)


class Answer:
    """Status, headers and body of a response; no status where there is none."""

    def __init__(self):
        self.status, self.headers, self.body = None, {}, b""

    @property
    def json(self):
        return json.loads(self.body)


def serving(ranker, **settings):
    """Application of a ranker, or of several by name."""
    rankers = ranker if isinstance(ranker, dict) else {"tested": ranker}
    return build_app(Service(rankers, lambda ranker: ranker, ServeConfig(**settings)))


@contextlib.asynccontextmanager
async def running(ranker, **settings):
    """Application of a ranker that is loaded."""
    app = serving(ranker, **settings)
    async with app.router.lifespan_context(app):
        yield app


async def call(app, path, body=b"", method="POST", headers=(), chunks=None, then=None):
    """Call an application.

    ``chunks`` are parts of the body in place of it, as an asynchronous iterator. Then the client
    waits for the answer, or for the awaitable ``then``, after which it has gone away.
    """
    answer = Answer()
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    parts = chunks if chunks is not None else one_part(body)
    messages = receiving(parts, then)

    async def send(message):
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {key.decode(): value.decode() for key, value in message["headers"]}
        else:
            answer.body += message["body"]

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(key.lower().encode(), value.encode()) for key, value in headers],
    }
    await app(scope, messages.__anext__, send)
    return answer


async def one_part(body):
    yield body


async def receiving(parts, then):
    async for part in parts:
        yield {"type": "http.request", "body": part, "more_body": True}
    yield {"type": "http.request", "body": b"", "more_body": False}
    if then is not None:
        await then
        yield {"type": "http.disconnect"}
    await asyncio.Event().wait()
