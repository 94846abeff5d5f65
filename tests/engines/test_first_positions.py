"""Layers by oneDNN whose output is read at some positions alone, held to MXNet's own."""

import mxnet as mx
import numpy as np
import pytest
from conftest import gradients_of, needs_onednn
from mxnet import autograd
from test_gradients import DRY, FAMILIES, SIZE, assert_close, batch_of, masks_of, network

from wqa.config import BackboneConfig
from wqa.engines.onednn import GradientEngine, training
from wqa.engines.onednn.library import openmp_threads
from wqa.systems.registry import build_network

pytestmark = pytest.mark.onednn

#: Valid lengths of the inputs of a slice.
LENGTHS = [16, 4, 9, 16, 2]


def first_rows(model, depth, count, engine=None, seed=0, shift=0.0):
    """Sum of weighted first rows of the last layers, the rows, and their gradients.

    ``shift`` moves the input along the direction in which it is returned.
    """
    model.backbone.attach(engine)
    if engine is not None:
        engine.seed(3)
    layers = model.backbone.layers[-depth:].of_first_positions(count)
    rng = np.random.default_rng(seed)
    values, direction = rng.normal(size=(2, 5, 16, 32))
    weights = mx.nd.array(rng.normal(size=(5, 16, 32))[:, :count])
    hidden = mx.nd.array(values + shift * direction)
    hidden.attach_grad()
    with autograd.record():
        rows = layers(hidden, mx.nd.array(LENGTHS))
        if engine is None:
            rows = mx.nd.slice_axis(rows, axis=1, begin=0, end=min(count, 16))
        loss = (rows * weights).sum()
    loss.backward()
    mx.nd.waitall()
    computed = {**gradients_of(layers), "hidden": hidden.grad.asnumpy()}
    return loss.asscalar(), rows.asnumpy(), computed, direction


def engine_of(model, kind="float32"):
    return GradientEngine(model.config, kind, 200, 40)


@needs_onednn
@pytest.mark.parametrize("family", ["bert", "albert"])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 5, 16, 20])
def test_gradients_of_first_positions_equal_mxnets(family, depth, count):
    model = network("pairwise", (3,), **FAMILIES[family], **DRY)
    _, expected_rows, expected, _ = first_rows(model, depth, count)
    _, rows, computed, _ = first_rows(model, depth, count, engine_of(model))
    assert rows.shape == (5, min(count, 16), 32)
    np.testing.assert_allclose(rows, expected_rows, atol=2e-5)
    assert_close(computed, expected)
    # The gradient reaches all real positions, and of the padding those whose rows are read.
    reached = np.abs(computed["hidden"]).max(axis=2) > 0
    last = np.maximum(LENGTHS, count)[:, None]
    assert (reached == (np.arange(16) < last)).all()


@needs_onednn
@pytest.mark.parametrize("family", ["bert", "albert"])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_a_thread_may_be_far_ahead_of_another(monkeypatch, family, count, backwards):
    """Each thread computes alone what lies between two points at which all wait."""
    model = network("pairwise", (3,), **FAMILIES[family], dropout=0.3, attention_dropout=0.2)
    with openmp_threads(1):
        _, expected_rows, expected, _ = first_rows(model, 3, count, engine_of(model))

    def one_after_another(function, parts, threads):
        for part in reversed(parts) if backwards else parts:
            function(part)

    monkeypatch.setattr(training, "in_threads", one_after_another)
    with openmp_threads(3):
        _, rows, computed, _ = first_rows(model, 3, count, engine_of(model))
    np.testing.assert_allclose(rows, expected_rows, atol=1e-6)
    assert_close(computed, expected)


#: Marks of five pairs: in any order, one twice, absent ones.
MARKS = [[0, 7, 3], [2, 2, -1], [8, 0, 5], [-1, -1, 15], [1, 0, -1]]


def marked_rows(model, marks, engine=None):
    """Rows of two layers at marks, and the gradients of a weighted sum of them."""
    model.backbone.attach(engine)
    if engine is not None:
        engine.seed(3)
    rng = np.random.default_rng(0)
    hidden = mx.nd.array(rng.normal(size=(5, 16, 32)))
    hidden.attach_grad()
    weights = mx.nd.array(rng.normal(size=(*np.shape(marks), 32)))
    layers = model.backbone.layers[-2:]
    with autograd.record():
        rows = layers(hidden, mx.nd.array(LENGTHS), mx.nd.array(marks))
        loss = (rows * weights).sum()
    loss.backward()
    mx.nd.waitall()
    return rows.asnumpy(), {**gradients_of(layers), "hidden": hidden.grad.asnumpy()}


@needs_onednn
@pytest.mark.parametrize("family", ["bert", "albert"])
@pytest.mark.parametrize("marks", [MARKS, np.tile(np.arange(18) % 16, (5, 1))], ids=["few", "all"])
@pytest.mark.parametrize("threads", [1, 3])
def test_gradients_at_marks_equal_mxnets(family, marks, threads):
    model = network("pairwise", (3,), **FAMILIES[family], **DRY)
    expected_rows, expected = marked_rows(model, marks)
    with openmp_threads(threads):
        engine = engine_of(model)
        marked_rows(model, np.zeros((5, 3)), engine)  # leaves nothing behind
        rows, computed = marked_rows(model, marks, engine)
    assert (expected_rows[np.asarray(marks) < 0] == 0).all()
    np.testing.assert_allclose(rows, expected_rows, atol=2e-5)
    assert_close(computed, expected)


@needs_onednn
def test_dropout_of_first_positions_is_the_same_forward_and_back():
    model = network("pairwise", (3,), dropout=0.3, attention_dropout=0.2)
    engine = engine_of(model)
    loss, _, computed, direction = first_rows(model, 2, 2, engine)
    ahead, back = (first_rows(model, 2, 2, engine, shift=shift)[0] for shift in (1e-3, -1e-3))
    expected = (computed["hidden"] * direction).sum()
    assert (ahead - back) / 2e-3 == pytest.approx(expected, rel=0.01)
    assert first_rows(model, 2, 2, engine)[0] == loss
    # Attention weights are B H Q L, the two other masks B Q C, with Q = 2 in the last layer alone.
    masks = [mask for chunks in masks_of(engine) for mask in chunks]
    sizes = {mask.values.shape[1] for mask in masks}  # of a pair
    assert sizes == {2 * 16 * 16, 16 * 32, 2 * 2 * 16, 2 * 32}


@pytest.fixture
def positions(monkeypatch):
    """Positions of the output of every slice that the engine computes."""
    compute, counts = GradientEngine.layers, []

    def watched(*arguments):
        out = compute(*arguments)
        counts.append(out.shape[1])
        return out

    monkeypatch.setattr(GradientEngine, "layers", watched)
    return counts


@needs_onednn
@pytest.mark.parametrize(
    "system, exits, choose, expected",
    [
        ("pairwise", (3,), lambda model: model.path(0), [1]),
        ("pairwise", (3,), lambda model: model, [1]),
        ("cascade", (1, 3), lambda model: model.path(1), [16]),  # its heads read the mean
        ("mhs", (1,), lambda model: model.separate_path(), [16, 1, 1, 1]),
        ("reader", None, lambda model: model, [16]),
    ],
)
def test_the_last_layer_runs_for_the_positions_that_are_read(
    positions, system, exits, choose, expected
):
    options = {} if exits is None else {"exits": exits}
    model = build_network(system, BackboneConfig(**SIZE), **options)
    model.initialize()
    model.backbone.attach(engine_of(model))
    choose(model)(*(mx.nd.array(array, dtype=array.dtype) for array in batch_of()[:3]))
    assert positions == expected
