"""The service in this process: dialects, limits, the queue, what clients do to it."""

import asyncio
import contextlib
import dataclasses
import gzip
import json
import logging
import logging.config

import jsonschema
import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from serving import (
    DIALECTS,
    ORDER,
    QUESTION,
    TEXTS,
    Controlled,
    body_for,
    call,
    results_of,
    running,
)

from wqa.errors import DataError, MissingDependency, OptionError, RunDirectoryError
from wqa.serve import ServeConfig, create_app, read_api_key
from wqa.serve.requests import read_request
from wqa.serve.server import LOGS, JsonLines
from wqa.serve.service import RequestError, dropping
from wqa.systems.load import load_ranker


def answer(path, body=None, ranker=None, settings=(), **options):
    """Answer of a service that answers this request alone."""

    async def run():
        async with running(ranker or Controlled(), **dict(settings)) as app:
            return await call(app, path, body_for(path) if body is None else body, **options)

    return asyncio.run(run())


def message_of(path, response):
    """Message of an error in the dialect of a path."""
    body = response.json
    if path[:4] in ("/v1/", "/v2/"):
        assert set(body) == {"id", "message"} | ({"detail"} if path[:4] == "/v1/" else set())
        assert body["id"] == response.headers["x-request-id"]
        assert body.get("detail", body["message"]) == body["message"]
        return body["message"]
    if path in ("/rerank", "/info"):
        assert set(body) == {"error", "error_type"}
        return body["error"]
    assert set(body) == {"id", "error", "kind"}
    return body["error"]


@contextlib.contextmanager
def logged():
    """What the service logs inside the block, as values of JSON."""
    lines, handler = [], logging.Handler()
    handler.setFormatter(JsonLines())
    handler.emit = lambda record: lines.append(json.loads(handler.format(record)))
    logger = logging.getLogger("wqa.serve")
    level, logger.level = logger.level, logging.INFO
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.level = level


OWN = {"probability", "exit", "dropped", "truncated", "blank"}


# Dialects


@pytest.mark.parametrize("path", DIALECTS)
def test_the_openapi_page_describes_each_dialect(path):
    page = answer("/openapi.json", method="GET").json
    described = page["paths"][path]["post"]
    schema = described["requestBody"]["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(body_for(path), schema)
    examples = {}
    for name, field in schema["properties"].items():
        if "examples" in field:
            examples[name] = field["examples"][0]
    jsonschema.validate(examples, schema)
    assert set(schema["required"]) == set(examples)
    assert answer(path, examples).status == 200
    assert "model" in schema["properties"] and "truncate" in schema["properties"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**examples, next(iter(examples)): 1}, schema)


def test_the_openapi_page_lists_every_path():
    page = answer("/openapi.json", method="GET").json
    others = {"/info", "/api/ranker", "/models", "/v1/models", "/health", "/ready", "/metrics"}
    assert set(page["paths"]) == {*DIALECTS, *others}
    for path, methods in page["paths"].items():
        [described] = methods.values()
        assert described["operationId"] == path.strip("/").replace("/", "_")
        assert described["description"]


def test_cohere_and_jina_share_an_answer():
    body = body_for("/v1/rerank", model="any", top_n=2, return_documents=True, max_chunks_per_doc=3)
    response = answer("/v1/rerank", body)
    assert response.status == 200
    got = response.json
    assert got["id"] == response.headers["x-request-id"]
    assert got["model"] == "tested"
    assert got["usage"] == {"total_tokens": 0, "prompt_tokens": 0}
    assert got["meta"] == {"api_version": {"version": "1"}, "billed_units": {"search_units": 0}}
    assert [row["index"] for row in got["results"]] == ORDER[:2]
    first = got["results"][0]
    assert set(first) == {"index", "relevance_score", "document"} | OWN
    assert first["document"] == {"text": TEXTS[1]}
    assert set(got["cost"]) == {"relative", "multiply_adds", "full_multiply_adds"}


def test_documents_as_objects_keep_their_other_fields():
    documents = [{"text": "ice", "id": 7}, "glacier caves", {"text": " "}]
    body = {"query": QUESTION, "documents": documents, "return_documents": True}
    results = answer("/v1/rerank", body).json["results"]
    assert [row["document"] for row in results] == [{"text": "glacier caves"}, *documents[::2]]


def test_rank_fields_choose_the_texts_of_objects():
    documents = [{"title": "caves", "body": "of a glacier"}, {"title": "glacier caves form"}]
    body = {"query": "glacier caves form", "documents": documents, "return_documents": True}
    refused = answer("/v1/rerank", body)
    assert refused.status == 400
    assert "documents[0]: has no text" in message_of("/v1/rerank", refused)
    body["rank_fields"] = ["title", "body"]
    results = answer("/v2/rerank", body).json["results"]
    assert [row["index"] for row in results] == [1, 0]
    assert results[1]["document"] == {"text": "caves\nof a glacier", **documents[0]}


def test_tei_answers_with_a_bare_list_that_its_scores_order():
    got = answer("/rerank").json
    assert [row["index"] for row in got] == ORDER
    scores = [row["score"] for row in got]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] == 0
    assert all(set(row) == {"index", "score"} | OWN for row in got)
    raw = answer("/rerank", body_for("/rerank", raw_scores=True, return_text=True)).json
    assert [row["text"] for row in raw] == [TEXTS[index] for index in ORDER]
    assert [row["score"] for row in raw] == [3.0, 0.0, 0.0, -100.0]  # words in common


@pytest.fixture(scope="module")
def cascade(tiny_run):
    return load_ranker(tiny_run, drop_ratio=0.3)


def test_the_ranker_describes_itself_in_two_dialects(cascade):
    got = answer("/info", b"", cascade, method="GET").json
    assert (got["model_id"], got["max_input_length"]) == ("tested", cascade.inputs.max_length)
    assert (got["max_client_batch_size"], got["max_concurrent_requests"]) == (1000, 128)
    got = answer("/api/ranker", b"", cascade, method="GET").json
    assert (got["system"], got["exits"], got["num_layers"]) == ("cascade", [1, 2, 3], 3)
    assert (got["drop_ratios"], got["keep"]) == ([0.3, 0.3, 0.0], [None, None, None])
    assert got["limits"]["candidates"] == 1000


def test_scores_of_every_dialect_follow_the_order(cascade):
    texts = [f"glacier caves {word} in ice" for word in ("form", "melt", "a", "of", "the")]
    texts.insert(2, "  ")
    expected = cascade.rank(QUESTION, texts)
    assert expected.dropped.any()
    scores = {"/rerank": "score", "/api/rank": "relevance"}
    for path in DIALECTS:
        got = results_of(path, answer(path, body_for(path, texts), cascade))
        assert [row["index"] for row in got] == expected.order.tolist(), path
        values = [row[scores.get(path, "relevance_score")] for row in got]
        assert np.allclose(values, expected.relevance[expected.order]), path
        assert sorted(values, reverse=True) == values
        assert [row["dropped"] for row in got] == expected.dropped[expected.order].tolist()
        assert [row["exit"] for row in got] == expected.exits[expected.order].tolist()


def test_tokens_are_those_of_the_pairs(cascade):
    texts = ["a b", "glacier caves", ""]
    usage = answer("/v1/rerank", body_for("/v1/rerank", texts), cascade).json["usage"]
    pairs = cascade.inputs.encode(QUESTION, texts[:2])
    assert usage["total_tokens"] == sum(pair.length for pair in pairs)


@pytest.mark.parametrize("path", DIALECTS)
def test_long_texts_are_cut_unless_the_client_says_otherwise(path, tiny_run):
    ranker = load_ranker(tiny_run, long_questions="truncate")
    texts = ["short", "ice " * 200]
    assert answer(path, body_for(path, texts), ranker).status == 200
    refused = answer(path, body_for(path, texts, truncate=False), ranker)
    assert refused.status == 413 and "[1]: loses tokens" in message_of(path, refused)
    body = body_for(path, question="ice " * 300)
    got = answer(path, body, ranker)
    assert got.status == 200
    name = next(iter(body))
    [row] = got.json[:1] if path == "/rerank" else [got.json.get("meta", got.json)]
    assert row["warnings"] == [f"{name}: is too long for the model and was cut"]
    refused = answer(path, {**body, "truncate": False}, ranker)
    assert refused.status == 413 and f"{name}: loses tokens" in message_of(path, refused)
    short = answer(path, body_for(path), ranker).json
    assert "warnings" not in json.dumps(short)


def test_the_operator_may_want_an_error_of_a_question_that_is_too_long(cascade):
    response = answer("/v2/rerank", body_for("/v2/rerank", question="ice " * 300), cascade)
    assert response.status == 400
    assert response.json["message"].startswith("query: loses tokens to the length limit")


def test_own_endpoint_shows_what_each_exit_did(cascade):
    texts = [f"word {number} of ice" for number in range(10)]
    body = {"question": QUESTION, "candidates": texts, "drop_ratio": 0.5, "compare": True}
    before = cascade.drops
    got = answer("/api/rank", body, cascade).json
    assert cascade.drops == before
    cascade.set_drops(0.5)
    expected = cascade.rank(QUESTION, texts)
    cascade.set_drops()
    full = cascade.rank(QUESTION, texts)
    cascade.set_drops(0.3)
    assert got["order"] == expected.order.tolist()
    assert got["exits"] == [1, 2, 3]
    assert got["cost"]["relative"] == pytest.approx(expected.cost.relative)
    for place, row in enumerate(got["candidates"]):
        index = row["index"]
        assert (row["rank"], row["text"]) == (place + 1, texts[index])
        assert row["score"] == pytest.approx(float(expected.scores[index]), abs=1e-5)
        scored = [score is not None for score in row["exit_scores"]]
        assert scored == (~np.isnan(expected.exit_scores[:, index])).tolist()
        assert row["dropped"] == (not scored[-1])
    assert sum(row["dropped"] for row in got["candidates"]) == 7  # 5 of 10, then 2 of 5
    assert got["without_dropping"]["order"] == full.order.tolist()
    assert got["without_dropping"]["cost"]["relative"] == pytest.approx(1.0)
    assert got["threshold"] is None and got["answered"] is None  # the run is not calibrated
    assert answer("/api/rank", {**body, "compare": False}, cascade).json["without_dropping"] is None


@pytest.mark.parametrize("share, expected", [(0.9, True), (1.1, False)])
def test_own_endpoint_says_whether_a_candidate_answers(cascade, monkeypatch, share, expected):
    texts = [f"word {number} of ice" for number in range(3)]
    ranking = cascade.rank(QUESTION, texts)
    threshold = share * float(ranking.relevance.max())
    calibrated = dataclasses.replace(ranking, threshold=threshold)
    monkeypatch.setattr(cascade, "rank", lambda question, candidates: calibrated)
    got = answer("/api/rank", {"question": QUESTION, "candidates": texts}, cascade).json
    assert (got["threshold"], got["answered"]) == (threshold, expected)


def test_a_least_relevance_drops_what_is_below_it(cascade):
    texts = [f"Ice melts in a cave of {number} ." for number in range(12)]
    drops = cascade.drops
    cascade.set_drops()
    least = float(np.median(expit(cascade.rank(QUESTION, texts).exit_scores[0])))
    cascade.set_drops(drop_below=least)
    expected = cascade.rank(QUESTION, texts)
    assert expected.dropped.any()
    cascade.restore_drops(drops)
    body = {"question": QUESTION, "candidates": texts, "drop_below": least}
    got = answer("/api/rank", body, cascade).json
    assert got["order"] == expected.order.tolist()
    dropped = [row["dropped"] for row in got["candidates"]]
    assert dropped == expected.dropped[expected.order].tolist()
    for wrong in ({"drop_below": 1}, {"drop_below": 0.5, "drop_ratio": 0.3}):
        refused = answer("/api/rank", {**body, **wrong}, cascade)
        assert refused.status == 422 and "drop_below" in str(refused.json)


def test_a_sequence_without_dropping_keeps_the_drops_of_its_rankers(cascade):
    from wqa.inference import SequentialRanker

    inner = load_ranker("wo")
    cascade.set_drops([0.3, None, None], [None, 2, None])
    sequence = SequentialRanker([inner, cascade], keep=3)
    before = (sequence.drops, inner.drops, cascade.drops)
    with dropping(sequence, {"drop_ratio": 0.0}):
        assert not any(drop.discards for drop in (*sequence.drops, *cascade.drops))
    with dropping(sequence, {"drop_ratio": 0.4}):
        assert [drop.ratio for drop in sequence.drops] == [0.4, 0.0]
        assert cascade.drops == before[2]
    assert (sequence.drops, inner.drops, cascade.drops) == before
    cascade.set_drops(0.3)


# Bad input


NO_JSON = [b"", b"{", b"[]", b'{"query": "\x01"}', b'{"query": "\xff"}', b"[" * 100_000]
NO_JSON += [b'{"query": "\\ud800"}']


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize("raw", NO_JSON)
def test_a_body_that_is_no_json(path, raw):
    response = answer(path, raw)
    assert response.status == 400
    assert message_of(path, response).startswith("body: ")


WRONG = [
    (lambda path: {}, "{question}: is missing"),
    (lambda path: body_for(path, texts=[]), "{texts}: list must not be empty"),
    (lambda path: body_for(path, texts="ice"), "{texts}: "),
    (lambda path: body_for(path, texts=["ice", 3]), "{texts}[1]: "),
    (lambda path: body_for(path, texts=["ice", None]), "{texts}[1]: "),
    (lambda path: body_for(path, texts=[["ice"]]), "{texts}[0]: "),
    (lambda path: body_for(path, question=3), "{question}: "),
    (lambda path: body_for(path, question=" \n"), "{question}: is empty"),
    (lambda path: body_for(path, model=3), "model: "),
]


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize("body, words", WRONG)
def test_wrong_values_are_named_as_in_json(path, body, words):
    response = answer(path, body(path))
    is_empty = path == "/rerank" and response.json["error_type"] == "Empty"
    assert response.status == (400 if is_empty or path[:3] in ("/v1", "/v2") else 422)
    question, texts = list(body_for(path))
    assert message_of(path, response).startswith(words.format(question=question, texts=texts))


@pytest.mark.parametrize("path", DIALECTS)
def test_requests_above_the_limits(path):
    limits = {"max_candidates": 3, "max_characters": 50}
    for texts, words in (
        (["a"] * 4, "has 4 entries; expected at most 3"),
        (["a", "b" * 51], "[1]: has 51 characters; expected at most 50"),
    ):
        response = answer(path, body_for(path, texts, question="ice ?"), settings=limits)
        assert response.status == 413 and words in message_of(path, response)


@pytest.mark.parametrize(
    "path, fields, where",
    [
        ("/v1/rerank", {"top_n": 0}, "top_n"),
        ("/v2/rerank", {"top_n": 1.5}, "top_n"),
        ("/v1/rerank", {"return_documents": "yes"}, "return_documents"),
        ("/v1/rerank", {"rank_fields": []}, "rank_fields"),
        ("/v1/rerank", {"documents": [{"text": 3}]}, "documents[0]"),
        ("/rerank", {"raw_scores": 1}, "raw_scores"),
        ("/rerank", {"texts": [{"text": "ice"}]}, "texts[0]"),
        ("/api/rank", {"drop_ratio": 1}, "drop_ratio"),
        ("/api/rank", {"drop_ratio": 10**400}, "drop_ratio"),
        ("/api/rank", {"drop_ratio": 1 - 1e-9}, "drop_ratio"),
    ],
)
def test_wrong_values_of_a_dialect(path, fields, where):
    response = answer(path, {**body_for(path), **fields})
    assert response.status == (422 if path in ("/rerank", "/api/rank") else 400)
    assert message_of(path, response).startswith(f"{where}: ")


def test_a_number_that_json_cannot_say_is_returned_as_null():
    body = b'{"query": "ice", "documents": [{"text": "b", "a": 1e999}], "return_documents": true}'
    [row] = answer("/v2/rerank", body).json["results"]
    assert row["document"] == {"text": "b", "a": None}


@pytest.mark.parametrize("path", DIALECTS)
def test_control_characters_and_unknown_fields_are_taken(path):
    texts = ["a\x00b\x1b[2J", "\u202e glacier", "\U0001f9ca ice"]
    response = answer(path, body_for(path, texts, unknown={"a": [1]}, top_k=1))
    assert response.status == 200
    assert len(results_of(path, response)) == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.just("text"), values),
    max_leaves=3,
)
NAMES = ("query", "documents", "texts", "question", "candidates", "top_n", "rank_fields", "text")


@settings(max_examples=20)
@given(
    path=st.sampled_from(DIALECTS),
    body=st.dictionaries(st.sampled_from([*NAMES, "drop_ratio", "truncate"]), JSON),
    valid=st.booleans(),
)
def test_any_body_is_read_or_refused(path, body, valid):
    if valid:
        body = {**body_for(path), **body}
    try:
        request, texts = read_request(path, json.dumps(body).encode(), ServeConfig())
    except RequestError as error:
        assert error.kind in ("value", "empty", "size", "syntax")
        return
    assert request.question.strip()
    assert texts and all(isinstance(text, str) for text in texts)
    assert len(request.documents) == len(texts)


def test_a_compressed_body_is_read():
    raw = json.dumps(body_for("/v2/rerank")).encode()
    headers = [("content-encoding", "gzip")]
    members = gzip.compress(raw[:9]) + gzip.compress(raw[9:])
    assert answer("/v2/rerank", members, headers=headers).status == 200
    for damaged in (raw, gzip.compress(raw)[:-30]):
        assert answer("/v2/rerank", damaged, headers=headers).status == 400
    bomb = gzip.compress(b" " * (1 << 25))
    assert len(bomb) < 100_000
    assert answer("/v2/rerank", bomb, headers=headers).status == 413
    refused = answer("/rerank", raw, headers=[("content-encoding", "br")])
    assert refused.status == 415 and set(refused.json) == {"error", "error_type"}


def test_a_body_is_refused_before_it_is_whole():
    sent = []

    async def chunks():
        for _ in range(200):
            sent.append(1)
            yield b"x" * (1 << 20)

    async def run():
        async with running(Controlled(), max_bytes=1 << 22) as app:
            return await call(app, "/v2/rerank", chunks=chunks())

    response = asyncio.run(run())
    assert response.status == 413
    assert "at most 4,194,304" in response.json["message"]
    assert len(sent) == 5
    sent.clear()
    headers = [("content-length", str(200 << 20))]
    response = answer("/v2/rerank", headers=headers, chunks=chunks())
    assert (response.status, sent) == (413, [])

    async def slow():
        yield b"{"
        await asyncio.sleep(5)
        raise AssertionError("it is waited for")

    response = answer("/rerank", settings={"timeout": 0.05}, chunks=slow())
    assert response.status == 408


@pytest.mark.parametrize("path", ["/v2/rerank", "/info", "/health", "/v1/embed", "/rerank2"])
def test_paths_and_methods(path):
    response = answer(path, b"", method="DELETE")
    if path in ("/v1/embed", "/rerank2"):
        assert response.status == 404 and message_of(path, response).startswith("path: is '/")
    else:
        assert (response.status, response.headers["allow"]) in ((405, "GET"), (405, "POST"))
        assert message_of(path, response).startswith("method: is DELETE; expected ")
    if path == "/health":
        assert answer(path, b"", method="HEAD").status == 200
        assert answer("/ready", b"", method="HEAD").status == 200


def test_wrong_keys():
    settings = {"api_key": "käy"}
    for path in DIALECTS:
        for headers in ([], [("Authorization", "Bearer other")], [("Authorization", "Basic käy")]):
            response = answer(path, settings=settings, headers=headers)
            assert response.status == 401
            assert response.headers["www-authenticate"] == "Bearer"
            assert "invalid api token" in message_of(path, response)
    for path in ("/info", "/metrics", "/api/ranker"):
        assert answer(path, b"", settings=settings, method="GET").status == 401
    for path in ("/health", "/ready"):
        assert answer(path, b"", settings=settings, method="GET").status == 200

    for scheme, key in (("Bearer", "käy"), ("bearer", "käy"), ("Bearer ", "voilà")):  # ends in A0
        headers = [("Authorization", f"{scheme} {key}")]
        assert answer("/rerank", settings={"api_key": key}, headers=headers).status == 200


# Pages of other sites


def asked(path="/v2/rerank", settings=(), method="POST", **headers):
    """Answer to a request with these headers."""
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    body = body_for(path) if method == "POST" else b""
    return answer(path, body, settings=settings, method=method, headers=pairs)


OWN_HOSTS = ["localhost", "LOCALHOST:80", "a.localhost", "127.0.0.1:8080", "[::1]:80", "10.0.0.7"]


@pytest.mark.parametrize("host", OWN_HOSTS)
def test_hosts_that_no_foreign_site_can_have(host):
    assert asked(host=host).status == 200
    assert asked(host=host, origin=f"http://{host}").status == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "127.0.0.1.nip.io"])
@pytest.mark.parametrize("path", [*DIALECTS, "/info", "/api/ranker", "/metrics"])
def test_a_host_of_another_site(path, host):
    method = "POST" if path in DIALECTS else "GET"
    response = asked(path, method=method, host=host)
    assert response.status == 421
    assert f"Host: is '{host}'; expected localhost" in message_of(path, response)
    assert asked(path, {"api_key": "key"}, method, host=host).status != 421
    assert asked(path, {"allowed_hosts": ("*",)}, method, host=host).status in (200, 404)


def test_hosts_that_are_allowed():
    settings = {"host": "ranker.lan.", "allowed_hosts": ("Rank.example", "absolute.example.")}
    for host in ("ranker.lan:80", "rank.example", "rank.example.:8080", "absolute.example"):
        assert asked(settings=settings, host=host).status == 200
    assert asked(settings=settings, host="other.example").status == 421
    # A proxy may have another name than the service.
    behind = {"host": "127.0.0.1:8080", "origin": "https://rank.example"}
    assert asked(settings=settings, **behind).status == 200
    for path in ("/health", "/ready"):
        assert asked(path, method="GET", host="any.example").status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:3000", "http://["]
)
def test_a_page_of_another_site(origin):
    for path in DIALECTS:
        response = asked(path, host="localhost:8080", origin=origin)
        assert response.status == 403
        assert f"Origin: is '{origin}'; expected" in message_of(path, response)
        assert asked(path, origin=origin).status == 403
    with_key = {"authorization": "Bearer key", "host": "localhost:8080", "origin": origin}
    assert asked(settings={"api_key": "key"}, **with_key).status == 200


# The queue


def test_requests_that_wait_are_ranked_together():
    async def run():
        ranker = Controlled()
        async with running(ranker, group_candidates=8) as app:
            tasks = [await start_ranking(app, ranker, question="q0")]
            for name in ("q1", "q2", "q3", "other", "q4", "q5"):
                path, fields = "/v2/rerank", {}
                if name == "other":
                    path, fields = "/api/rank", {"drop_ratio": 0.5}
                tasks.append(start(app, path, question=name, **fields))
            await waits(app, 6)
            ranker.gate.set()
            answers = await asyncio.gather(*tasks)
            assert [answer.status for answer in answers] == [200] * 7
            return ranker

    ranker = asyncio.run(run())
    # Each has four candidates; those with another drop ratio are in a group of their own.
    assert ranker.groups == [["q0"], ["q1", "q2"], ["q3", "q4"], ["other"], ["q5"]]
    assert len(ranker.threads) == 1


def start(app, path, question=QUESTION, **fields):
    return asyncio.ensure_future(call(app, path, body_for(path, question=question, **fields)))


async def start_ranking(app, ranker, path="/v2/rerank", **fields):
    """Start a request, and wait until the ranker has it; it is ranked when the gate is opened."""
    ranker.gate.clear()
    task = start(app, path, **fields)
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(None, lambda: ranker.begun.acquire(timeout=20))
    return task


async def waits(app, count):
    """Wait until as many requests wait for the ranker."""
    for _ in range(2000):
        if len(app.state.service.waiting) == count:
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"{len(app.state.service.waiting)} wait")


def test_a_full_queue_refuses():
    async def run():
        ranker = Controlled()
        async with running(ranker, queue=2) as app:
            first = await start_ranking(app, ranker)
            tasks = [first, start(app, "/v2/rerank"), start(app, "/v2/rerank")]
            await waits(app, 2)
            refused = [await call(app, path, body_for(path)) for path in DIALECTS]
            ranker.gate.set()
            assert [answer.status for answer in await asyncio.gather(*tasks)] == [200] * 3
            return refused

    for path, response in zip(DIALECTS, asyncio.run(run())):
        assert response.status == 429
        assert int(response.headers["retry-after"]) >= 1
        assert "2 requests wait" in message_of(path, response)
        if path == "/rerank":
            assert response.json["error_type"] == "Overloaded"


def test_a_deadline_skips_what_waits():
    async def run():
        ranker = Controlled()
        async with running(ranker, timeout=0.3) as app:
            tasks = [await start_ranking(app, ranker, question="first")]
            tasks += [start(app, path, question=path) for path in DIALECTS]
            answers = await asyncio.gather(*tasks)
            service = app.state.service
            service.config = dataclasses.replace(service.config, timeout=20)
            ranker.gate.set()
            later = await call(app, "/v2/rerank", body_for("/v2/rerank", question="later"))
            return ranker, answers, later

    ranker, answers, later = asyncio.run(run())
    for path, response in zip(["/v2/rerank", *DIALECTS], answers):
        assert response.status == 504
        assert "no ranking within 0.3 seconds" in message_of(path, response)
    assert later.status == 200
    assert ranker.groups == [["first"], ["later"]]


def test_a_client_that_goes_away_leaves_its_place():
    async def run():
        ranker = Controlled()
        async with running(ranker, queue=2) as app:
            first = await start_ranking(app, ranker, question="first")
            gone = asyncio.Event()
            body = body_for("/v2/rerank")
            left = [
                asyncio.ensure_future(call(app, "/v2/rerank", body, then=gone.wait()))
                for _ in range(2)
            ]
            await waits(app, 2)
            gone.set()
            assert [answer.status for answer in await asyncio.gather(*left)] == [499, 499]
            assert not app.state.service.waiting
            last = start(app, "/v2/rerank", question="last")
            await waits(app, 1)
            metrics = (await call(app, "/metrics", method="GET")).body.decode()
            assert "wqa_queue_requests 1.0" in metrics.splitlines()
            ranker.gate.set()
            assert (await first).status == (await last).status == 200
            return ranker

    assert asyncio.run(run()).groups == [["first"], ["last"]]


def test_a_request_that_fails_takes_no_other_with_it():
    async def run():
        ranker = Controlled()
        async with running(ranker) as app:
            first = await start_ranking(app, ranker, question="first")
            tasks = [start(app, "/v2/rerank", question="good")]
            tasks += [start(app, path, texts=["explode"]) for path in DIALECTS if path[1] != "a"]
            tasks += [start(app, "/v2/rerank", question="fine")]
            await waits(app, 5)
            ranker.gate.set()
            await first
            return await asyncio.gather(*tasks)

    with logged() as lines:
        answers = asyncio.run(run())
    assert [response.status for response in answers] == [200, 500, 500, 424, 200]
    assert answers[3].json == {"error": "service: internal error", "error_type": "Backend"}
    assert "ranking_failed" in {line["event"] for line in lines}
    assert "secret" not in json.dumps(lines)


# Logs, metrics, health


def test_logs_hold_no_texts():
    with logged() as lines:
        answer("/v2/rerank", body_for("/v2/rerank", ["a private text"], "a private question"))
        answer("/v2/rerank", body_for("/v2/rerank", ["a private text", 3]))
    assert "private" not in json.dumps(lines)
    requests = [line for line in lines if line["event"] == "request"]
    assert [(line["status"], line.get("refused")) for line in requests] == [
        (200, None),
        (400, "value"),
    ]
    assert requests[0]["candidates"] == 1
    assert {"id", "path", "seconds", "waited", "group", "dropped", "time"} <= set(requests[0])


def test_a_line_of_the_log_has_no_message_of_an_exception():
    try:
        raise ValueError("the secret text")
    except ValueError as error:
        record = logging.LogRecord("a", 40, "a.py", 1, "bad\nsecret", (), (ValueError, error, None))
    line = json.loads(JsonLines().format(record))
    assert line["event"] == "bad" and line["error"] == "ValueError"
    assert line["places"][0].startswith("test_serve.py:") and "secret" not in json.dumps(line)
    logging.config.DictConfigurator(LOGS)


def counts(text):
    """Values of the metrics of this service by name and labels."""
    lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith("wqa_")]
    return {name: float(value) for name, _, value in lines}


def test_every_refusal_is_logged_and_counted():
    refused = [
        ("/info", "GET", "/info", 401),
        ("/metrics", "GET", "/metrics", 401),
        ("/v2/rerank", "GET", "/v2/rerank", 405),
        ("/nowhere", "GET", "other", 404),
    ]
    key = [("authorization", "Bearer key")]

    async def run():
        async with running(Controlled(), api_key="key") as app:
            before = await call(app, "/metrics", method="GET", headers=key)
            answers = [await call(app, path, b"", method) for path, method, _, _ in refused]
            after = await call(app, "/metrics", method="GET", headers=key)
            return answers, counts(before.body.decode()), counts(after.body.decode())

    with logged() as lines:
        answers, before, after = asyncio.run(run())
    lines = [line for line in lines if line["event"] == "request"]
    for response, line, (path, _, label, status) in zip(answers, lines, refused):
        assert (line["path"], line["status"]) == (path, response.status) == (path, status)
        assert line["id"] == response.headers["x-request-id"]
        assert 0 <= line["seconds"] < 5
        name = f'wqa_requests_total{{path="{label}",status="{status}"}}'
        assert after[name] == before.get(name, 0) + 1


def test_metrics(cascade):
    async def run():
        async with running(cascade) as app:
            before = (await call(app, "/metrics", method="GET")).body.decode()
            texts = [f"ice {number}" for number in range(10)]
            await call(app, "/v2/rerank", body_for("/v2/rerank", texts))
            await call(app, "/rerank", b"{")
            return counts(before), counts((await call(app, "/metrics", method="GET")).body.decode())

    before, after = asyncio.run(run())
    expected = {
        'wqa_requests_total{path="/v2/rerank",status="200"}': 1,
        'wqa_requests_total{path="/rerank",status="400"}': 1,
        "wqa_candidates_total": 10,
        'wqa_dropped_candidates_total{exit="1"}': 3,
        'wqa_dropped_candidates_total{exit="2"}': 2,
        'wqa_request_seconds_count{path="/v2/rerank"}': 1,
        "wqa_group_requests_count": 1,
    }
    for name, added in expected.items():
        assert after[name] - before.get(name, 0) == added, name
    assert after["wqa_queue_requests"] == 0


def test_a_service_that_is_told_to_stop_closes_connections_with_their_answers():
    async def run():
        async with running(Controlled()) as app:
            app.state.service.is_draining = True
            return await start(app, "/v2/rerank"), await call(app, "/ready", method="GET")

    ranked, ready = asyncio.run(run())
    assert (ranked.status, ranked.headers["connection"]) == (200, "close")
    assert (ready.status, ready.json) == (503, {"status": "draining"})


def test_a_ranker_that_cannot_be_loaded_is_logged():
    async def run():
        app = create_app("no-such-run")
        async with app.router.lifespan_context(app):
            pass

    with logged() as lines, pytest.raises(RunDirectoryError):
        asyncio.run(run())
    [line] = lines
    assert line["event"] == "failed" and "no-such-run" in line["message"]


# Settings


@pytest.mark.parametrize(
    "settings",
    [
        {"port": 65536},
        {"timeout": 0},
        {"drain": float("inf")},
        {"workers": 0},
        {"queue": 1.5},
        {"allowed_hosts": ("rank.example:80",)},
        {"allowed_hosts": (".",)},
    ],
)
def test_settings_out_of_range(settings):
    with pytest.raises(OptionError) as caught:
        ServeConfig(**settings)
    assert caught.value.where in settings


def test_the_key_is_read_and_not_shown(tmp_path, monkeypatch):
    path = tmp_path / "key"
    path.write_text("secret\n")
    monkeypatch.setenv("WQA_API_KEY", "other")
    assert (read_api_key(str(path)), read_api_key()) == ("secret", "other")
    monkeypatch.delenv("WQA_API_KEY")
    assert read_api_key() is None
    for value in ("", " \t", "caf\udce9"):
        monkeypatch.setenv("WQA_API_KEY", value)
        with pytest.raises(DataError, match="WQA_API_KEY") as caught:
            read_api_key()
        assert "caf" not in str(caught.value)
    assert "secret" not in repr(ServeConfig(api_key="secret"))
    for content in (b"", b"two words", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(DataError):
            read_api_key(str(path))
    with pytest.raises(DataError, match="cannot be read"):
        read_api_key(str(tmp_path / "absent"))


def test_missing_libraries_name_the_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"\.\[serve\]"):
        create_app("wo")
    assert '"serve": [' in (ROOT / "setup.py").read_text(encoding="utf-8")
