"""A system of two files, which the package does not know, by the package's own commands."""

import asyncio
import json
import os
import re
import signal
from dataclasses import replace

import mxnet as mx
import numpy as np
import pytest
from conftest import ROOT, gradients_of, needs_onednn, read_metrics, wqa
from rankers import ranking_of
from test_lists import files as files
from toy import SYSTEM
from toy.network import ToyConfig
from toy.task import ToyTask

from wqa.config import TrainingConfig
from wqa.data import builtin_path, read_questions
from wqa.inference import CascadeRanker, Ranker, SequentialRanker
from wqa.models import parse_devices
from wqa.systems import SYSTEMS
from wqa.systems.load import build_ranker, load_ranker
from wqa.systems.train import train
from wqa.training import Start, Trainer
from wqa.training.task import Setup

#: Tokens of a batch of four triples: two pairs each, of 64 tokens at most.
FOUR_TRIPLES = 4 * 2 * 64
#: Multiply-adds of the toy for one pair: the dense layer and the output, at 12 units.
TOY_WORK = 2 * 12 * 12 + 12


@pytest.fixture(scope="module", autouse=True)
def registered(tmp_path_factory):
    """The toy as an installed package, whose entry point names its record."""
    folder = tmp_path_factory.mktemp("installed")
    info = folder / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[wqa.systems]\ntoy = toy:SYSTEM\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield
    SYSTEMS.pop("toy", None)


@pytest.fixture(scope="module")
def questions():
    """Eight questions to train on, and four to evaluate on."""
    questions = list(read_questions(builtin_path("dev")))
    return {"train": questions[:8], "dev": questions[8:12]}


def training(files, out, *more):
    """Arguments of a training of a few updates."""
    options = {
        "--train": files["train"],
        "--dev": files["dev"],
        "--out": out,
        "--units": 12,
        "--max-length": 64,
        "--tokens-per-batch": FOUR_TRIPLES,
        "--learning-rate": 3e-2,
        "--warmup-updates": 3,
        "--log-every": 2,
    }
    given = [part for option in options.items() for part in option]
    return ["train", "toy", *given, *more]


@pytest.fixture(scope="module")
def toy_run(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "toy"
    assert wqa(*training(files, out)) == 0
    return out


# Training


def test_training_logs_both_losses_and_keeps_the_best(files, tmp_path, capsys):
    assert wqa(*training(files, tmp_path / "run")) == 0
    lines = read_metrics(tmp_path / "run")
    logged = [line for line in lines if "losses" in line]
    for line in logged:
        assert set(line["losses"]) == {"hinge", "cross_entropy"}
        assert line["loss"] == pytest.approx(sum(line["losses"].values()))
    for name in ("hinge", "cross_entropy"):
        assert logged[-1]["losses"][name] < 0.9 * logged[0]["losses"][name]
    best = max(line["dev"]["mrr"] for line in lines if "dev" in line)
    assert f"best dev MRR {100 * best:.2f}" in capsys.readouterr().out
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert record["system"] == "toy" and record["backbone"] is None
    vocabulary = json.loads((tmp_path / "run" / "tokenizer.json").read_text())["model"]["vocab"]
    expected = {"units": 12, "vocab_size": len(vocabulary), "margin": 1.0, "stream": False}
    assert record["network"] == expected


@pytest.mark.parametrize(
    "more",
    [
        ["--accumulate", 2, "--weight-decay", 0.1, "--clip-norm", 0.5],
        ["--stream", "--epochs", 2, "--max-updates", 30],
        ["--ctx", "cpu:0-1", "--tokens-per-batch", FOUR_TRIPLES // 2],
    ],
    ids=["accumulated", "stream", "two devices"],
)
def test_an_interrupted_training_ends_with_the_same_bits(
    files, tmp_path, monkeypatch, capsys, more
):
    options = [*more, "--checkpoint-every", 4, "--eval-every", 5]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert wqa(*training(files, whole, *options)) == 0
    step = Trainer.step

    def interrupted(trainer, rate):
        step(trainer, rate)
        if trainer.state.update == 10:
            os.kill(os.getpid(), signal.SIGINT)

    # A background job of a script ignores the signal, and so would the training.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupted)
        assert wqa(*training(files, stopped, *options)) == 128 + signal.SIGINT
    signal.signal(signal.SIGINT, handler)
    assert "update 10 of" in capsys.readouterr().err
    assert not (stopped / "model.params").exists()
    assert wqa(*training(files, stopped, *options, "--resume")) == 0
    assert (stopped / "model.params").read_bytes() == (whole / "model.params").read_bytes()
    assert read_metrics(stopped) == read_metrics(whole)
    assert read_metrics(whole)[-1]["update"] > 10


def make_trainer(files, folder, evaluator=None, **changes):
    """A trainer of the toy from the same random parameters."""
    options = {"learning_rate": 0.1, "warmup_updates": 0, "tokens_per_batch": FOUR_TRIPLES}
    config = TrainingConfig(**{**options, **changes})
    own_config = ToyConfig(units=12)
    task = ToyTask.create(Setup(SYSTEM, Start(), own_config, str(files["train"]), config, 64))
    mx.random.seed(0)
    task.initialize(Start(), parse_devices(config.ctx))
    folder.mkdir()
    return Trainer(task, config, folder, evaluator)


@pytest.mark.parametrize("ctx", ["cpu", "cpu:0-1"])
def test_the_gradient_of_an_update_is_that_of_all_its_rows(files, tmp_path, ctx):
    """Mini-batches of seven rows and of four, by one device or two, against one of eleven."""
    one = make_trainer(files, tmp_path / "one", max_updates=1)
    several = make_trainer(files, tmp_path / "several", max_updates=1, ctx=ctx)
    keys = [np.arange(7), np.arange(7, 11)]
    losses = several.backward([several.task.batch(key) for key in keys])
    several._optimizer.allreduce_grads()
    expected_losses = one.backward([one.task.batch(np.concatenate(keys))])
    assert losses == pytest.approx(expected_losses, abs=1e-6)
    expected = gradients_of(one.network)
    for name, parameter in several.network._collect_params_with_prefix().items():
        gradient = parameter.list_grad()[0].asnumpy()  # the first device steps
        np.testing.assert_allclose(gradient, expected[name], atol=1e-6, err_msg=name)


def test_the_figure_that_counts_is_the_tasks(files, tmp_path):
    figures = iter([{"map": 0.9, "mrr": 0.1}, {"map": 0.5, "mrr": 0.3}, {"map": 0.1, "mrr": 0.2}])
    trainer = make_trainer(
        files, tmp_path / "run", lambda network: next(figures), max_updates=6, eval_every=2
    )
    state = trainer.fit()
    assert (state.best_figure, state.best_update) == (0.3, 4)


# Ranking


def test_a_loaded_ranker_has_the_scores_of_the_trained_network(files, tmp_path, questions):
    rankings = []

    def make_evaluator(inputs):
        def evaluate(network):
            ranker = build_ranker("toy", network, inputs)
            rankings.extend(ranker.rank_all(questions["dev"]))
            return {"mrr": 1.0}

        return evaluate

    config = TrainingConfig(max_updates=3, learning_rate=1e-2, eval_every=3)
    data, run = str(files["train"]), tmp_path / "run"
    train("toy", data, str(run), config=config, make_evaluator=make_evaluator, units=8)
    ranker = load_ranker(run)
    assert ranker.capabilities.system == "toy"
    assert (ranker.capabilities.stages, ranker.capabilities.exits) == (1, ())
    for trained, loaded in zip(rankings, ranker.rank_all(questions["dev"])):
        np.testing.assert_array_equal(loaded.scores, trained.scores)
        assert loaded.order.tolist() == trained.order.tolist()
    assert len(rankings) == len(questions["dev"])


def test_rank(toy_run, tmp_path, questions):
    question = questions["dev"][0]
    (tmp_path / "candidates.txt").write_text("\n".join([*question.texts, ""]) + "\n")
    arguments = ["--question", question.question, "--candidates", tmp_path / "candidates.txt"]
    assert wqa("rank", toy_run, *arguments, "--json", tmp_path / "ranking.json") == 0
    rows = json.loads((tmp_path / "ranking.json").read_text())["ranking"]
    ranking = load_ranker(toy_run).rank(question.question, [*question.texts, ""])
    assert [row["index"] for row in rows] == ranking.order.tolist()
    assert rows[-1]["blank"] and rows[-1]["score"] is None
    for row in rows[:-1]:
        assert row["score"] == pytest.approx(ranking.scores[row["index"]])


def test_it_ranks_from_its_onnx_export(toy_run, tmp_path, questions):
    assert wqa("export", toy_run, tmp_path / "out", "--format", "onnx") == 0
    ranker, expected = load_ranker(tmp_path / "out"), load_ranker(toy_run)
    assert ranker.capabilities == expected.capabilities
    for ranking, other in zip(*(one.rank_all(questions["dev"]) for one in (ranker, expected))):
        assert ranking.order.tolist() == other.order.tolist()
        np.testing.assert_allclose(ranking.scores, other.scores, atol=1e-5)


def test_serve(toy_run, questions):
    pytest.importorskip("fastapi", reason="fastapi is not installed: the extra serve")
    from serving import call, running

    ranker, question = load_ranker(toy_run), questions["dev"][0]
    expected = ranker.rank(question.question, question.texts)
    texts = list(question.texts)
    body = {"query": question.question, "documents": texts}
    own = {"question": question.question, "candidates": texts, "drop_ratio": 0.5}

    async def answers():
        async with running(ranker) as app:
            return [await call(app, "/v2/rerank", body), await call(app, "/api/rank", own)]

    standard, dropping = asyncio.run(answers())
    results = standard.json["results"]
    assert [row["index"] for row in results] == expected.order.tolist()
    relevance = expected.relevance[expected.order]
    assert [row["relevance_score"] for row in results] == pytest.approx(relevance)
    # A single stage, after which nothing can be dropped.
    assert dropping.json["order"] == expected.order.tolist()
    assert not any(row["dropped"] for row in dropping.json["candidates"])


# With a ranker of its own


class OverlapRanker(Ranker):
    """Scores a candidate by how many words it shares with the question. It costs nothing."""

    def __init__(self):
        self.set_drops()

    def rank_all(self, questions):
        for question in questions:
            words = set(question.question.split())
            yield ranking_of([len(words & set(text.split())) for text in question.texts])


def build_filtered_ranker(network, inputs, drop_ratio=None, keep=None, **options):
    """The toy on what the overlap lets through."""
    rankers = [OverlapRanker(), CascadeRanker(network, inputs, **options)]
    return SequentialRanker(rankers, drop_ratio, keep)


def test_a_ranker_of_its_own_takes_the_place_of_the_packages(
    toy_run, files, questions, tmp_path, monkeypatch
):
    alone = load_ranker(toy_run)
    monkeypatch.setitem(SYSTEMS, "toy", replace(SYSTEM, ranker=build_filtered_ranker))
    ranker, overlap = load_ranker(toy_run, keep=3), OverlapRanker()
    for question, ranking in zip(questions["dev"], ranker.rank_all(questions["dev"])):
        kept = sorted(overlap.rank(question.question, question.texts).order[:3])
        assert sorted(ranking.order[:3]) == kept
        scores = alone.rank(question.question, [question.texts[index] for index in kept]).scores
        np.testing.assert_allclose(ranking.scores[kept], scores, atol=1e-5)
        assert ranking.cost.candidate_work == 3 * TOY_WORK
        assert ranking.cost.relative == pytest.approx(3 / len(question.candidates))
    rows = tmp_path / "rows.json"
    arguments = ["--data", files["dev"], "--keep", 3, "--drop-ratio", 0.5, "--json", rows]
    assert wqa("evaluate", toy_run, *arguments) == 0
    assert all(row["cost"] < 1 for row in json.loads(rows.read_text()))
    assert wqa(*training(files, tmp_path / "run", "--max-updates", 2)) == 0  # evaluates by it too


# Refusals


def test_commands_refuse_what_the_toy_lacks(toy_run, files, tiny_encoder, tmp_path, refusal):
    data = ["--data", files["dev"]]
    refused = {
        "a ranker without several exits (toy)": ["tune", toy_run, *data],
        "--per-exit: a ranker without exits (toy)": ["evaluate", toy_run, *data, "--per-exit"],
        "expected a network of transformer layers": ["quantize", toy_run, *data],
        "expected a monolithic ranker": ["export", toy_run, tmp_path / "x", "--format=huggingface"],
        "the toy has no encoder": training(files, tmp_path / "x", "--encoder", tiny_encoder),
        "neither: the toy": training(files, tmp_path / "x", "--init", toy_run),
        "--max-updates: 0": training(files, tmp_path / "x", "--stream"),
        "--units: 0; expected": training(files, tmp_path / "x", "--units", 0),
        "units was 12": training(files, toy_run, "--units", 13, "--resume"),
    }
    for message, arguments in refused.items():
        assert message in refusal(*arguments), message


@needs_onednn
def test_onednn_refuses_a_network_without_layers(toy_run, files, tmp_path, refusal):
    ranking = ["evaluate", toy_run, "--data", files["dev"], "--engine", "onednn"]
    assert "onednn and float32 for a network" in refusal(*ranking)
    out = tmp_path / "run"
    assert "onednn and float32" in refusal(*training(files, out, "--engine", "onednn"))
    assert not out.exists()


# CONTRIBUTING.md


def test_the_guide_shows_the_toys_own_code():
    """Blocks with the name of a file hold lines of it; a line of three dots leaves some out."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r'^```python title="([^"]+)"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)
    shown = {name for name, _ in blocks}
    assert shown >= {f"tests/toy/{name}.py" for name in ("network", "task", "layers")}
    assert len(blocks) == text.count("```python")
    for name, block in blocks:
        source = (ROOT / name).read_text(encoding="utf-8")
        for part in re.split(r"^ *\.\.\.\n", block, flags=re.MULTILINE):
            assert "\n" + part in source, part
