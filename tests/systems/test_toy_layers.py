"""Systems on transformer layers that the package does not know, by MXNet and by oneDNN."""

import json

import mxnet as mx
import numpy as np
import pytest
from conftest import few_questions, gradients_of, logged, needs_onednn, wqa
from mxnet import autograd
from test_gradients import DRY, FAMILIES, SIZE, assert_close, batch_of, clear
from tiny_encoder import write_tiny_encoder
from toy.branches import ToyBranches
from toy.layers import ToyFirstPosition, ToyLayers, ToyLayersTask, ToyPooling

from wqa.config import BackboneConfig, EngineConfig
from wqa.data import builtin_path, read_questions
from wqa.engines.onednn import GradientEngine
from wqa.pretrained import initialize_from, read_backbone_config
from wqa.systems import SYSTEMS, System, build_network
from wqa.systems.load import build_ranker, load_ranker
from wqa.text import PairInputs, load_tokenizer
from wqa.training import PairTask
from wqa.training.losses import cross_entropy

#: Systems by name: their networks and tasks.
TOYS = {
    "toy_layers": (ToyLayers, ToyLayersTask),
    "toy_first": (ToyFirstPosition, ToyLayersTask),
    "toy_pooling": (ToyPooling, ToyLayersTask),
    "toy_branches": (ToyBranches, PairTask),
}
#: Slices of layers in the graph of a pass of each.
SLICES = {"toy_layers": 1, "toy_first": 1, "toy_pooling": 1, "toy_branches": 5}


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The systems among those of the package."""
    with pytest.MonkeyPatch.context() as patch:
        for name, (network, task) in TOYS.items():
            patch.setitem(SYSTEMS, name, System(name, "", network, task))
        yield


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A tiny encoder without dropout, so that both engines compute the same losses."""
    folder = tmp_path_factory.mktemp("encoder") / "tiny"
    return write_tiny_encoder(folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


@pytest.fixture(scope="module")
def questions():
    return list(read_questions(builtin_path("dev")))[:4]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return few_questions(tmp_path_factory.mktemp("questions") / "few.jsonl", 4)


def train(system, encoder, data, out, *more):
    """Train for a few updates, with an evaluation in the middle and at the end."""
    options = {
        "--encoder": encoder,
        "--train": data,
        "--dev": data,
        "--out": out,
        "--max-length": 64,
        "--tokens-per-batch": 400,
        "--learning-rate": 1e-3,
        "--warmup-updates": 1,
        "--max-updates": 6,
        "--eval-every": 3,
        "--log-every": 1,
    }
    given = [part for option in options.items() for part in option]
    return wqa("train", system, *given, *more)


@pytest.fixture(scope="module")
def runs(encoder, data, tmp_path_factory):
    """Runs of systems, trained by MXNet when they are first asked for."""
    folder, trained = tmp_path_factory.mktemp("runs"), {}

    def run(system):
        if system not in trained:
            trained[system] = folder / system
            assert train(system, encoder, data, trained[system], "--engine", "mxnet") == 0
        return trained[system]

    return run


# Ranking


def network_of(system, encoder, **options):
    """A network with random heads, whose scores differ."""
    network = build_network(system, read_backbone_config(encoder), **options)
    mx.random.seed(5)
    initialize_from(network, encoder)
    for head in network.heads:
        head.out.weight.set_data(mx.nd.random.normal(0, 1, head.out.weight.shape))
    return network, PairInputs(load_tokenizer(encoder), 64)


@needs_onednn
@pytest.mark.parametrize("drop_ratio", [0.0, 0.5])
@pytest.mark.parametrize("exits", [(3,), (2,), (1, 2, 3)])
@pytest.mark.parametrize("system", ["toy_layers", "toy_first"])
def test_both_engines_give_the_same_scores(system, exits, drop_ratio, encoder, questions):
    network, inputs = network_of(system, encoder, exits=exits)
    by_mxnet, by_onednn = (
        build_ranker(system, network, inputs, drop_ratio=drop_ratio, engine=EngineConfig(engine))
        for engine in ("mxnet", "onednn")
    )
    spread = []
    for first, second in zip(by_mxnet.rank_all(questions), by_onednn.rank_all(questions)):
        np.testing.assert_allclose(second.exit_scores, first.exit_scores, atol=1e-4)
        assert second.order.tolist() == first.order.tolist()
        spread.append(np.nanstd(first.exit_scores, axis=1).min())
    assert max(spread) > 0.01


#: What oneDNN refuses, by system.
OBSTACLES = [("toy_pooling", "a head that reads 'all'"), ("toy_branches", "not made of stages")]


@pytest.mark.parametrize("system, obstacle", OBSTACLES)
def test_what_onednn_cannot_rank_is_mxnets(system, obstacle, runs, questions, data, refusal):
    by_default, by_mxnet = (load_ranker(runs(system), engine=name) for name in ("auto", "mxnet"))
    for first, second in zip(by_default.rank_all(questions), by_mxnet.rank_all(questions)):
        np.testing.assert_array_equal(first.scores, second.scores)
    assert obstacle in refusal("quantize", runs(system), "--data", data)


# Training


@needs_onednn
@pytest.mark.parametrize("system", TOYS)
def test_onednn_trains_every_system_as_mxnet_does(
    system, runs, encoder, data, tmp_path, monkeypatch
):
    """Also one that it cannot rank with, and to the end: an evaluation changes nothing."""
    calls = []
    compute = GradientEngine.layers

    def counted(engine, *arguments):
        calls.append(autograd.is_recording())
        return compute(engine, *arguments)

    monkeypatch.setattr(GradientEngine, "layers", counted)
    assert train(system, encoder, data, tmp_path / "run", "--engine", "onednn") == 0
    assert sum(calls) == 6 * SLICES[system]
    assert logged(tmp_path / "run", "loss") == pytest.approx(logged(runs(system), "loss"), abs=1e-4)
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert record["training"]["engine"] == "onednn"


# Gradients of several slices in one graph


def branches(**changes):
    network = ToyBranches(BackboneConfig(**{**SIZE, "num_layers": 4, **changes}))
    mx.random.seed(1)
    network.initialize(mx.init.Normal(0.1))
    return network


def backward(network, batch, engine=None):
    """Loss and gradients of a batch."""
    network.backbone.attach(engine)
    if engine is not None:
        engine.seed(3)
    clear(network)
    *inputs, labels = [mx.nd.array(array, dtype=array.dtype) for array in batch]
    with autograd.record():
        loss = cross_entropy(network(*inputs), labels).mean()
    loss.backward()
    mx.nd.waitall()
    return loss.asscalar(), gradients_of(network)


@needs_onednn
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_several_slices_equal_mxnets(family):
    network = branches(**FAMILIES[family], **DRY)
    engine = GradientEngine(network.config, "float32", 200, 40)
    padding = int(family == "roberta")
    shapes = [batch_of(5, 16, padding), batch_of(3, 24, padding), batch_of(5, 16, padding, seed=7)]
    for batch in shapes:
        expected_loss, expected = backward(network, batch)
        loss, computed = backward(network, batch, engine)
        assert loss == pytest.approx(expected_loss, abs=1e-5)
        assert_close(computed, expected)
        for name, gradient in expected.items():
            assert np.abs(gradient).max() > 0, name
