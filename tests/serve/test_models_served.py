"""Several rankers behind one process, which requests choose by ``model``."""

import asyncio

import pytest
from serving import DIALECTS, Controlled, body_for, call, results_of, running

from wqa.errors import OptionError
from wqa.inference import SequentialRanker
from wqa.serve import ServeConfig
from wqa.serve.server import served_runs

QUESTION, TEXTS = "glacier caves form", ["ice", "glacier caves", "caves"]


class Backwards(Controlled):
    """Ranks by the reverse of word overlap."""

    def _rank(self, question):
        reverse = {"ice": "glacier caves", "glacier caves": "ice"}
        texts = [reverse.get(candidate.text, candidate.text) for candidate in question.candidates]
        candidates = tuple(
            candidate._replace(text=text) for candidate, text in zip(question.candidates, texts)
        )
        return super()._rank(question._replace(candidates=candidates))


def served(work, *rankers, **settings):
    """What a function gets of an application of two rankers."""
    first, second = rankers or (Controlled(), Backwards())

    async def run():
        async with running({"plain": first, "backwards": second}, **settings) as app:
            return await work(app)

    return asyncio.run(run())


@pytest.mark.parametrize("path", DIALECTS)
def test_a_request_chooses_its_ranker_in_every_dialect(path):
    async def work(app):
        answers = []
        for model in (None, "plain", "backwards", "", "other"):
            answers.append(await call(app, path, body_for(path, TEXTS, QUESTION, model=model)))
        return answers

    default, plain, backwards, *wrong = served(work)
    answers = (default, plain, backwards)
    assert [results_of(path, answer)[0]["index"] for answer in answers] == [1, 1, 0]
    if path == "/v1/rerank":
        models = [answer.json["model"] for answer in answers]
        assert models == ["plain", "plain", "backwards"]
    for answer, shown in zip(wrong, ("''", "'other'")):
        assert answer.status in (400, 422)
        assert f"model: is {shown}; expected one of plain, backwards" in answer.body.decode()


def test_models_are_listed_and_described():
    drops = SequentialRanker([Controlled(), Controlled()], drop_ratio=0.25)

    async def work(app):
        listed = await call(app, "/models", method="GET")
        described = await call(app, "/api/ranker", method="GET")
        return listed.json, described.json

    listed, described = served(work, Controlled(), drops)
    assert [model["id"] for model in listed["data"]] == ["plain", "backwards"]
    assert [model["stages"] for model in listed["data"]] == [1, 2]
    assert listed["data"][1]["drop_ratios"] == [0.25, 0]
    assert (described["model"], described["models"]) == ("plain", ["plain", "backwards"])


def test_rankers_share_the_queue_and_requests_of_one_are_grouped():
    first, second = Controlled(), Backwards()
    first.gate.clear()

    async def work(app):
        async def ask(model, number):
            body = {"query": f"{QUESTION} {number}", "documents": TEXTS, "model": model}
            return await call(app, "/v2/rerank", body)

        tasks = [asyncio.ensure_future(ask("plain", 0))]
        await asyncio.get_running_loop().run_in_executor(None, first.begun.acquire)
        for number, model in enumerate(("plain", "backwards", "plain", "backwards"), 1):
            tasks.append(asyncio.ensure_future(ask(model, number)))
            await asyncio.sleep(0.01)
        busy = await ask("backwards", 9)
        first.gate.set()
        return [answer.status for answer in await asyncio.gather(*tasks)], busy.status

    statuses, busy = served(work, first, second, queue=4)
    assert statuses == [200] * 5 and busy == 429
    assert first.groups == [[f"{QUESTION} 0"], [f"{QUESTION} 1", f"{QUESTION} 3"]]
    assert second.groups == [[f"{QUESTION} 2", f"{QUESTION} 4"]]
    assert first.threads == second.threads


def test_names_of_rankers():
    config = ServeConfig(models=("fast=wo", "b=runs/a=b"))
    assert served_runs("runs/wikiqa", config) == {
        "wikiqa": "runs/wikiqa",
        "fast": "wo",
        "b": "runs/a=b",
    }
    with pytest.raises(OptionError, match="model: wo twice"):
        served_runs("wo", ServeConfig(models=("wo=rr",)))
    for wrong in ("wo", "=wo", "fast="):
        with pytest.raises(OptionError, match="model: .*; expected NAME=RUN"):
            served_runs("rr", ServeConfig(models=(wrong,)))
