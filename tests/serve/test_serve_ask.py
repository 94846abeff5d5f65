"""``POST /ask``: the sentences of a collection over HTTP."""

import asyncio

import pytest
from serving import Controlled, call, running

from wqa import load_ranker
from wqa.data import Document, write_documents
from wqa.inference.pipeline import Pipeline
from wqa.inference.windows import first_tokens
from wqa.retrieval import Index, build_index

QUESTION = "how are glacier caves formed ?"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    documents = [
        Document("caves", "Water forms glacier caves . They melt in the end .", "Ice"),
        Document("tubes", "Lava tubes form where lava flows . Caves of lava are dry ."),
        *(Document(f"E{number}", f"Snow {number} lies on hills .") for number in range(7)),
    ]
    write_documents(folder / "documents.jsonl", documents)
    build_index(folder / "documents.jsonl", folder / "index", sentences=True)
    return folder / "index"


def answers(index, bodies, ranker=None, path="/ask", method="POST", **settings):
    async def work():
        async with running(ranker or Controlled(), index=str(index), **settings) as app:
            return [await call(app, path, body, method) for body in bodies]

    return asyncio.run(work())


def ask(index, body, ranker=None, **settings):
    [response] = answers(index, [body], ranker, **settings)
    return response


def test_the_answer_is_that_of_the_pipeline(index, tiny_run):
    ranker = load_ranker(tiny_run, drop_ratio=0.5)
    expected = Pipeline(Index(index), ranker=ranker, top=2).ask(QUESTION)
    response = ask(index, {"question": QUESTION, "top": 2, "n_best": 3}, ranker)
    assert response.status == 200, response.body
    got = response.json
    assert got["id"] == response.headers["x-request-id"]
    assert [row["id"] for row in got["documents"]] == ["caves", "tubes"]
    assert got["documents"][0]["title"] == "Ice" and got["documents"][1]["title"] == ""
    assert (got["ranked"], got["left_out"], got["answered"]) == (4, 0, None)
    for row, sentence in zip(got["sentences"], expected.sentences[:3]):
        for name in ("text", "document", "start", "end", "before", "after", "exit"):
            assert row[name] == getattr(sentence, name)
        assert row["score"] == pytest.approx(sentence.score, abs=1e-5)
    assert [row["rank"] for row in got["sentences"]] == [1, 2, 3]
    # Each exit drops half of what it reads.
    assert got["exits"] == [
        {"exit": 1, "read": 4, "dropped": 2},
        {"exit": 2, "read": 2, "dropped": 1},
        {"exit": 3, "read": 1, "dropped": 0},
    ]
    whole = ask(index, {"question": QUESTION, "top": 2, "drop_ratio": 0}, ranker).json
    assert [row["read"] for row in whole["exits"]] == [4, 4, 4]
    assert whole["cost"]["relative"] > got["cost"]["relative"]


def test_a_question_that_retrieves_nothing(index):
    got = ask(index, {"question": "zebra ?"}).json
    assert got["documents"] == got["sentences"] == got["exits"] == []
    assert got["answered"] is False and got["cost"] is None


def test_sentences_above_the_limit_of_candidates_are_left_out_and_counted(index):
    got = ask(index, {"question": QUESTION, "n_best": 9}, max_candidates=3).json
    assert (got["ranked"], got["left_out"], len(got["sentences"])) == (3, 1, 3)


@pytest.mark.parametrize(
    "body, words",
    [
        ({}, "question: is missing"),
        ({"question": " "}, "question: is empty"),
        ({"question": QUESTION, "top": 0}, "top: "),
        ({"question": QUESTION, "top": 1001}, "top: "),
        ({"question": QUESTION, "n_best": True}, "n_best: "),
        ({"question": QUESTION, "drop_ratio": 1}, "drop_ratio: "),
        (b"{", "body: Invalid JSON"),
    ],
)
def test_wrong_requests(index, body, words):
    response = ask(index, body)
    assert response.status in (400, 422)
    assert response.json["error"].startswith(words) and response.json["kind"] in ("value", "syntax")


def test_it_is_described_and_served_only_with_an_index(index):
    page = answers(index, [b""], path="/openapi.json", method="GET")[0].json
    schema = page["paths"]["/ask"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    names = {"question", "top", "n_best", "drop_ratio", "drop_below", "model", "truncate"}
    assert set(schema["properties"]) == names
    [facts] = answers(index, [b""], path="/api/ranker", method="GET")
    assert facts.json["documents"] == 9

    async def without():
        async with running(Controlled()) as app:
            return await call(app, "/ask", {"question": QUESTION})

    assert asyncio.run(without()).status == 404


def test_an_index_that_cannot_be_served(index, tmp_path, run_main):
    write_documents(tmp_path / "d.jsonl", [Document("D", "Ice melts .")])
    build_index(tmp_path / "d.jsonl", tmp_path / "whole")
    for folder, words in (
        (tmp_path / "whole", "make it with `wqa index --sentences`"),
        (tmp_path / "absent", "absent"),
    ):
        status, out, error = run_main("serve", "wo", "--index", folder, "--port", 0)
        assert status == 2 and out == "" and error.count("\n") == 1  # it did not listen
        assert words in error and error.startswith("error: ")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["absent"], "absent: there is no such directory or file; expected a run"),
        (["wo", "--model", "fast=absent"], "absent: there is no such directory or file"),
        (["wo", "--model", "wo=rr"], "--model: wo twice"),
        (["wo", "--model", "fast"], "error: --model: 'fast'; expected NAME=RUN"),
    ],
)
def test_a_ranker_that_is_not_there_is_said_before_the_service_listens(
    arguments, message, run_main
):
    status, out, error = run_main("serve", *arguments, "--port", 0)
    assert status == 2 and out == "" and error.count("\n") == 1 and message in error


LONG = " ".join(f"Snow {number} lies on the hills ." for number in range(40))


def test_long_candidates_are_read_in_windows(tiny_run, tmp_path):
    texts = [f"{LONG} Water forms glacier caves . {LONG}", "the moon"]
    ranker = load_ranker(tiny_run, long_candidates="windows")
    expected = ranker.rank(QUESTION, texts)

    async def work():
        async with running(ranker) as app:
            body = {"query": QUESTION, "documents": texts, "return_documents": True}
            all_read = await call(app, "/v2/rerank", body)
            first = await call(app, "/v2/rerank", {**body, "max_tokens_per_doc": 9})
            own = await call(app, "/api/rank", {"question": QUESTION, "candidates": texts})
            wrong = await call(app, "/v2/rerank", {**body, "max_tokens_per_doc": 0})
            return all_read, first, own, wrong

    all_read, first, own, wrong = asyncio.run(work())
    rows = {row["index"]: row for row in all_read.json["results"]}
    assert rows[0]["window"] == expected.window(0) and "window" not in rows[1]
    assert [row["truncated"] for row in rows.values()] == [False, False]
    [window] = [row["window"] for row in own.json["candidates"] if row["index"] == 0]
    assert window == expected.window(0)
    # Nine tokens fit, and what follows them is not read; the answer has the whole document.
    rows = {row["index"]: row for row in first.json["results"]}
    assert [rows[index]["truncated"] for index in (0, 1)] == [True, False]
    assert "window" not in rows[0]
    assert rows[0]["document"] == {"text": texts[0]}
    [start] = first_tokens(ranker, texts[:1], 9)
    score = ranker.predict([(QUESTION, start)], probabilities=True)[0]
    assert rows[0]["probability"] == pytest.approx(score, abs=1e-5)
    assert wrong.status == 400 and "max_tokens_per_doc: " in wrong.json["message"]


def test_asking_marks_the_window_that_gave_the_score(tiny_run, tmp_path):
    sentence = f"{LONG.replace(' .', ',')} water forms glacier caves ."
    others = [Document(f"E{number}", f"Sand {number} lies on hills .") for number in range(7)]
    write_documents(tmp_path / "documents.jsonl", [Document("snow", sentence), *others])
    build_index(tmp_path / "documents.jsonl", tmp_path / "index", sentences=True)
    ranker = load_ranker(tiny_run, long_candidates="windows")
    response = ask(tmp_path / "index", {"question": QUESTION, "top": 1, "n_best": 100}, ranker)
    assert response.status == 200, response.body
    windows = [row["window"] for row in response.json["sentences"]]
    asked = Pipeline(Index(tmp_path / "index"), ranker=ranker, top=1).ask(QUESTION)
    assert windows == [row.window for row in asked.sentences]
    assert any(window is not None for window in windows)
