"""Training of a cascade by other rules than the paper's."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd

from wqa.errors import OptionError
from wqa.systems.cascade.network import CascadeConfig
from wqa.training.losses import cross_entropy
from wqa.training.schedules import exit_of_update

pytestmark = pytest.mark.onednn  # engine="auto" is oneDNN where it is

ROWS = {
    "token_ids": np.array([[2, 9, 8, 3], [2, 7, 3, 0]], np.int32),
    "token_types": np.array([[0, 0, 1, 1], [0, 1, 1, 0]], np.int32),
    "valid_length": np.array([4, 3], np.float32),
    "labels": np.array([1, 0], np.float32),
}


@pytest.fixture
def make_trainer(tiny_encoder, new_trainer):
    def make(engine="auto", dropout=0.0, **options):
        settings = {"engine": engine, "max_updates": 9}
        options = {"exits": (1, 2, 3), "pairs": Pairs(), "dropout": dropout, **options}
        return new_trainer("cascade", tiny_encoder, settings, **options)

    return make


class Pairs:
    """An epoch of one batch."""

    def plan(self, tokens, rng=None):
        return [np.arange(2)]

    def batch(self, key):
        return [array[key] for array in ROWS.values()]


def gradients_of(trainer):
    """Gradients of an update, by parameter; zeros where no loss reaches."""
    gradients = {}
    for name, parameter in trainer._parameters.items():
        is_fresh = parameter.data()._fresh_grad
        gradients[name] = parameter.grad().asnumpy() * is_fresh
        parameter.data()._fresh_grad = False
    return gradients


def arrays():
    return {name: mx.nd.array(array, dtype=array.dtype) for name, array in ROWS.items()}


def test_exits_are_drawn_by_depth():
    draws = [exit_of_update(7, update, 3, (2, 4, 6)) for update in range(1, 6001)]
    assert np.bincount(draws) == pytest.approx([1000, 2000, 3000], abs=130)
    assert exit_of_update(7, 5000, 3, (2, 4, 6)) == draws[4999]


@pytest.mark.parametrize("engine", ["auto", "mxnet"])
def test_all_exits_give_the_sum_of_the_gradients_of_each(make_trainer, engine):
    trainer = make_trainer(engine, trained_exits="all")
    losses = trainer.backward([ROWS])
    assert list(losses) == ["exit_1", "exit_2", "exit_3"]
    actual = gradients_of(trainer)
    expected = dict.fromkeys(actual, 0.0)
    for index in range(3):
        batch = arrays()
        inputs = [batch[name] for name in ("token_ids", "token_types", "valid_length")]
        with autograd.record():
            loss = cross_entropy(trainer.network.path(index)(*inputs)[1], batch["labels"]).mean()
        loss.backward()
        assert losses[f"exit_{index + 1}"] == pytest.approx(loss.asscalar(), abs=1e-5)
        for name, gradient in gradients_of(trainer).items():
            expected[name] = expected[name] + gradient
    for name, gradient in actual.items():
        np.testing.assert_allclose(gradient, expected[name], atol=2e-6, err_msg=name)
    assert abs(actual["backbone.layers.0.ffn_1.weight"]).max() > 1e-4


def test_distillation_mixes_labels_and_the_probabilities_of_the_last_exit(make_trainer):
    trainer = make_trainer(trained_exits="all", distillation=0.25)
    batch = arrays()
    inputs = [batch[name] for name in ("token_ids", "token_types", "valid_length")]
    scores = [trainer.network.path(index)(*inputs)[1].asnumpy() for index in range(3)]
    losses = trainer.task.losses(batch, 1)
    taught = 1 / (1 + np.exp(-scores[2]))
    for index in (0, 1):
        probability = 1 / (1 + np.exp(-scores[index]))
        target = 0.75 * ROWS["labels"] + 0.25 * taught
        expected = -target * np.log(probability) - (1 - target) * np.log(1 - probability)
        np.testing.assert_allclose(losses[f"exit_{index + 1}"].asnumpy(), expected, atol=1e-5)
    last = cross_entropy(mx.nd.array(scores[2]), batch["labels"]).asnumpy()
    np.testing.assert_allclose(losses["exit_3"].asnumpy(), last, atol=1e-5)


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"trained_exits": "some"}, "trained_exits"),
        ({"distillation": 0.5}, "trained_exits all"),
        ({"distillation": 1.5, "trained_exits": "all"}, "from 0 to 1"),
        ({"distillation": float("nan"), "trained_exits": "all"}, "from 0 to 1"),
    ],
)
def test_options_are_checked(options, reason):
    with pytest.raises(OptionError, match=reason):
        CascadeConfig(exits=(1, 2), **options)
