"""Gradients by oneDNN, held to MXNet's own."""

import dataclasses
import json

import mxnet as mx
import numpy as np
import pytest
from conftest import gradients_of, needs_onednn, needs_precision
from hypothesis import given
from hypothesis import strategies as st
from mxnet import autograd

from wqa.config import BackboneConfig, TrainingConfig
from wqa.data import builtin_path, read_questions
from wqa.engines.onednn import GradientEngine
from wqa.engines.onednn.library import openmp_threads
from wqa.engines.onednn.training_memory import Chunk
from wqa.engines.onednn.training_tape import share_of
from wqa.errors import OptionError
from wqa.pretrained import initialize_from, read_backbone_config
from wqa.systems import SYSTEMS
from wqa.systems.registry import build_network
from wqa.systems.train import train
from wqa.text import PairInputs, load_tokenizer
from wqa.training.losses import cross_entropy
from wqa.training.pairs import TrainingPairs
from wqa.training.trainer import Trainer

pytestmark = pytest.mark.onednn

SIZE = {
    "vocab_size": 60,
    "units": 32,
    "hidden_size": 48,
    "num_layers": 3,
    "num_heads": 2,
    "max_positions": 40,
}
DRY = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}
FAMILIES = {
    "bert": {},
    "roberta": {"layout": "roberta", "token_types": 1, "first_position": 2, "activation": "relu"},
    "electra": {"layout": "electra", "embedding_size": 8},
    "albert": {
        "layout": "albert",
        "embedding_size": 8,
        "shared_layers": True,
        "activation": "gelu_tanh",
    },
}


def network(system="cascade", exits=(1, 2, 3), **changes):
    model = build_network(system, BackboneConfig(**{**SIZE, **changes}), exits=exits)
    mx.random.seed(1)
    model.initialize(mx.init.Normal(0.3))
    return model


def batch_of(pairs=5, length=16, padding=0, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, length + 1, pairs).astype(np.float32)
    token_ids = rng.integers(3, 60, (pairs, length)).astype(np.int32)
    token_ids[np.arange(length) >= lengths[:, None]] = padding
    token_types = np.zeros((pairs, length), np.int32)
    token_types[:, 6:] = padding == 0
    return token_ids, token_types, lengths, rng.integers(0, 2, pairs).astype(np.float32)


def clear(model):
    for parameter in model.collect_params().values():
        parameter.zero_grad()
    mx.nd.waitall()


def backward(model, index, batch):
    """Loss and gradients of one exit."""
    arrays = [mx.nd.array(array, dtype=array.dtype) for array in batch]
    with autograd.record():
        _, scores = model.path(index)(*arrays[:3])
        loss = cross_entropy(scores, arrays[3]).mean()
    loss.backward()
    mx.nd.waitall()
    return loss.asscalar(), gradients_of(model)


def by_mxnet(model, index, batch):
    model.backbone.attach(None)
    clear(model)
    return backward(model, index, batch)


def by_onednn(model, index, batch, kind="float32", seed=3, engine=None):
    engine = engine or GradientEngine(model.config, kind, 200, 40)
    model.backbone.attach(engine)
    engine.seed(seed)
    clear(model)
    return backward(model, index, batch)


def assert_close(computed, expected):
    for name, array in expected.items():
        tolerance = 2e-5 * (np.abs(array).max() + 1e-2)
        np.testing.assert_allclose(computed[name], array, atol=tolerance, err_msg=name)


@needs_onednn
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "system, index", [("cascade", 0), ("cascade", 1), ("cascade", 2), ("pairwise", 0)]
)
def test_gradients_equal_mxnets(family, system, index):
    exits = (1, 2, 3) if system == "cascade" else (3,)
    model = network(system, exits, **FAMILIES[family], **DRY)
    batch = batch_of(padding=1 if family == "roberta" else 0)
    expected_loss, expected = by_mxnet(model, index, batch)
    loss, computed = by_onednn(model, index, batch)
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    assert_close(computed, expected)


@needs_precision("bfloat16")
def test_bfloat16_gradients_point_the_same_way():
    model, batch = network(**DRY), batch_of(pairs=12)
    _, exact = by_mxnet(model, 2, batch)
    _, rounded = by_onednn(model, 2, batch, "bfloat16")
    for name, array in exact.items():
        if np.abs(array).max() > 1e-4:
            norms = np.linalg.norm(array) * np.linalg.norm(rounded[name])
            assert (array * rounded[name]).sum() / norms > 0.99, name


@needs_onednn
def test_several_shapes_and_changed_parameters():
    """What is compiled for one shape does not disturb another, and new weights are packed."""
    model = network(**DRY)
    engine = GradientEngine(model.config, "float32", 200, 40)
    for step, batch in enumerate((batch_of(), batch_of(3, 40), batch_of(12, 8), batch_of(seed=7))):
        _, expected = by_mxnet(model, step % 3, batch)
        _, computed = by_onednn(model, step % 3, batch, engine=engine)
        assert_close(computed, expected)
        for parameter in model.collect_params().values():
            parameter.set_data(parameter.data() * 0.9 + 0.01)


@needs_onednn
def test_parameters_that_moved_are_read_anew():
    model, batch = network(**DRY), batch_of()
    engine = GradientEngine(model.config, "float32", 200, 40)
    by_onednn(model, 2, batch, engine=engine)
    mx.random.seed(9)
    model.initialize(mx.init.Normal(0.2), force_reinit=True)
    _, expected = by_mxnet(model, 2, batch)
    _, computed = by_onednn(model, 2, batch, engine=engine)
    assert_close(computed, expected)


@needs_onednn
def test_gradients_can_be_added():
    model = network(**DRY)
    engine = GradientEngine(model.config, "float32", 200, 40)
    first, second = batch_of(), batch_of(3, 40)
    expected = [by_mxnet(model, 2, batch)[1] for batch in (first, second)]
    model.collect_params().setattr("grad_req", "add")
    by_onednn(model, 2, first, engine=engine)
    _, computed = backward(model, 2, second)
    assert_close(computed, {name: expected[0][name] + expected[1][name] for name in expected[0]})


@needs_onednn
def test_a_batch_that_does_not_fit_is_refused():
    model = network()
    engine = GradientEngine(model.config, "float32", 20, 10)
    with pytest.raises(OptionError, match="mini-batch of 5 x 16"):
        by_onednn(model, 0, batch_of(), engine=engine)


@needs_onednn
@pytest.mark.parametrize("system, exits", [("cascade", (1, 3)), ("pairwise", (3,))])
def test_dropout_is_the_same_forward_and_back(system, exits):
    """The derivative along a direction is that of the loss itself, for one draw of the masks."""
    model = network(system, exits, dropout=0.3, attention_dropout=0.2, head_dropout=0.0)
    batch, last = batch_of(), len(exits) - 1
    engine = GradientEngine(model.config, "float32", 200, 40)
    _, computed = by_onednn(model, last, batch, seed=5, engine=engine)
    rng = np.random.default_rng(0)
    parameters = model._collect_params_with_prefix()
    directions = {
        name: rng.normal(size=array.shape).astype(np.float32) for name, array in computed.items()
    }
    start = {name: parameter.data().asnumpy() for name, parameter in parameters.items()}
    losses = []
    for sign in (1, -1):
        for name, parameter in parameters.items():
            parameter.set_data(mx.nd.array(start[name] + sign * 1e-4 * directions[name]))
        losses.append(by_onednn(model, last, batch, seed=5, engine=engine)[0])
    expected = sum((computed[name] * directions[name]).sum() for name in computed)
    assert (losses[0] - losses[1]) / 2e-4 == pytest.approx(expected, rel=0.05)
    other, same = (by_onednn(model, last, batch, seed=seed, engine=engine)[0] for seed in (6, 5))
    assert other != same == losses[1]


@needs_onednn
def test_a_seed_begins_a_pass_whatever_came_before():
    """A forward without a graph, or whose gradient is never taken, leaves no trace."""
    model = network(dropout=0.3, attention_dropout=0.2, head_dropout=0.0)
    batch, engine = batch_of(), GradientEngine(model.config, "float32", 200, 40)
    expected, _ = by_onednn(model, 2, batch, seed=5, engine=engine)
    arrays = [mx.nd.array(array, dtype=array.dtype) for array in batch[:3]]
    model.path(2)(*arrays)
    assert by_onednn(model, 2, batch, seed=5, engine=engine)[0] == expected
    with autograd.record():
        model.path(2)(*arrays)
    buffers = len(engine._memory._cache)
    assert by_onednn(model, 2, batch, seed=5, engine=engine)[0] == expected
    assert len(engine._memory._cache) == buffers


@needs_onednn
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pairs, threads", [(5, 2), (5, 3), (2, 3), (2, 4), (1, 2), (18, 17)])
def test_threads_change_neither_masks_nor_gradients(family, pairs, threads):
    model = network(**FAMILIES[family], dropout=0.3, attention_dropout=0.2, head_dropout=0.0)
    batch = batch_of(pairs, padding=1 if family == "roberta" else 0)
    results = []
    for count in (1, threads):
        with openmp_threads(count):
            engine = GradientEngine(model.config, "float32", 400, 40)
            results.append(by_onednn(model, 2, batch, seed=5, engine=engine))
    (expected_loss, expected), (loss, computed) = results
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    assert_close(computed, expected)


@needs_onednn
@pytest.mark.parametrize(
    "kind", ["float32", pytest.param("bfloat16", marks=needs_precision("bfloat16"))]
)
@pytest.mark.parametrize("threads", [2, 3])
def test_several_threads_compute_the_same_bits_again(kind, threads):
    """Whatever mini-batches came before, of fewer pairs than threads among them."""
    model = network(dropout=0.3, attention_dropout=0.2, head_dropout=0.0)
    with openmp_threads(threads):
        engine = GradientEngine(model.config, kind, 200, 40)
        _, expected = by_onednn(model, 2, batch_of(7), seed=5, engine=engine)
        by_onednn(model, 2, batch_of(1), seed=4, engine=engine)
        for _ in range(5):
            _, computed = by_onednn(model, 2, batch_of(7), seed=5, engine=engine)
            for name, array in expected.items():
                np.testing.assert_array_equal(computed[name], array, err_msg=name)


@given(pairs=st.integers(1, 70), count=st.integers(1, 16), rows=st.integers(1, 500))
def test_chunks_and_shares_cover_all_once(pairs, count, rows):
    most = min(pairs, count)
    chunks = [Chunk(pairs, 8).part(index, most) for index in range(most)]
    covered = [pair for one in chunks for pair in range(one.first, one.first + one.pairs)]
    assert covered == list(range(pairs))
    assert max(one.pairs for one in chunks) - min(one.pairs for one in chunks) <= 1
    shares = [share_of(rows, thread, count) for thread in range(count)]
    assert [row for start, end in shares for row in range(start, end)] == list(range(rows))


@needs_onednn
def test_without_training_nothing_is_dropped():
    model = network(dropout=0.3, attention_dropout=0.2, head_dropout=0.0)
    arrays = [mx.nd.array(array, dtype=array.dtype) for array in batch_of()[:3]]
    expected = model.path(2)(*arrays)[1].asnumpy()
    model.backbone.attach(GradientEngine(model.config, "float32", 200, 40))
    np.testing.assert_allclose(model.path(2)(*arrays)[1].asnumpy(), expected, atol=1e-5)


def masks_of(engine):
    """Masks of all that an engine has compiled: a tuple of the threads' chunks each."""
    parts = [part for compiled in engine._cache.values() for part in compiled.parts]
    return [masks for part in parts for masks in zip(*(tape.masks for tape in part[1]))]


@needs_onednn
def test_dropout_keeps_its_share_and_its_mean():
    model = network(dropout=0.3, attention_dropout=0.1)
    engine = GradientEngine(model.config, "float32", 4000, 40)
    by_onednn(model, 2, batch_of(100, 40), seed=9, engine=engine)
    masks = masks_of(engine)
    assert len(masks) == 1 + 3 * 3
    for chunks in masks:
        rate, values = chunks[0].rate, np.concatenate([chunk.values for chunk in chunks])
        assert np.unique(values).tolist() == [0, pytest.approx(1 / (1 - rate))]
        assert (values == 0).mean() == pytest.approx(rate, abs=0.01)
        assert values.mean() == pytest.approx(1, abs=0.02)
    assert sorted({chunks[0].rate for chunks in masks}) == [0.1, 0.3]


def losses_of(tiny_encoder, folder, **changes):
    inputs = PairInputs(load_tokenizer(tiny_encoder), 64)
    config = TrainingConfig(
        max_updates=12,
        learning_rate=1e-2,
        warmup_updates=2,
        tokens_per_batch=500,
        log_every=1,
        **changes,
    )
    backbone = dataclasses.replace(read_backbone_config(tiny_encoder), **DRY)
    model = build_network("cascade", backbone, exits=(1, 2, 3))
    mx.random.seed(0)
    initialize_from(model, tiny_encoder)
    folder.mkdir()
    pairs = TrainingPairs(read_questions(builtin_path("dev")), inputs)
    trainer = Trainer(SYSTEMS["cascade"].task_type()(model, inputs, pairs, config), config, folder)
    trainer.fit()
    return trainer, (folder / "metrics.jsonl").read_text().splitlines()


@pytest.mark.parametrize(
    "changes, tolerance",
    [
        pytest.param({"engine": "onednn"}, 1e-3, marks=needs_onednn),
        pytest.param({"precision": "bfloat16"}, 0.05, marks=needs_precision("bfloat16")),
    ],
)
def test_training_has_mxnets_losses(tiny_encoder, tmp_path, changes, tolerance):
    curves = []
    for name, options in (("mxnet", {"engine": "mxnet"}), ("onednn", changes)):
        trainer, lines = losses_of(tiny_encoder, tmp_path / name, **options)
        assert bool(trainer._engines) == (name == "onednn")
        curves.append([json.loads(line)["loss"] for line in lines])
    np.testing.assert_allclose(curves[1], curves[0], atol=tolerance)
    assert np.ptp(curves[0]) > 0.01  # there is something to compare


def test_engine_and_precision_must_go_together(tiny_encoder, tmp_path):
    paths = (str(builtin_path("dev")), str(tmp_path / "run"), str(tiny_encoder))
    for changes in (
        {"precision": "bfloat16", "engine": "mxnet"},
        {"engine": "onednn", "ctx": "cpu:0-1"},
    ):
        with pytest.raises(OptionError, match="oneDNN, on one CPU"):
            train("cascade", *paths, config=TrainingConfig(**changes))
        assert not (tmp_path / "run").exists()
