"""Updates over several devices and in several steps."""

import collections

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet import gluon

from wqa.config import TrainingConfig
from wqa.data import builtin_path, read_questions
from wqa.text import PairInputs, load_tokenizer
from wqa.training import TrainingPairs
from wqa.training.schedules import UpdatePlan, decay_weights, exit_of_update, plan_updates
from wqa.training.workers import AdamTrainer


@pytest.fixture
def make_trainer(tiny_encoder, new_trainer):
    """Trainers of a cascade of three exits from the same parameters, without dropout."""
    inputs = PairInputs(load_tokenizer(tiny_encoder), 64)
    questions = list(read_questions(builtin_path("dev")))[:12]

    def make(name, **settings):
        settings = {"engine": "mxnet", **settings}
        options = {"pairs": TrainingPairs(questions, inputs), "dropout": 0.0, "exits": (1, 2, 3)}
        return new_trainer("cascade", tiny_encoder, settings, name, **options)

    return make


def values(trainer, device=0):
    arrays = {}
    for name, parameter in trainer._parameters.items():
        arrays[name] = parameter.data(trainer.devices[device]).asnumpy()
    return arrays


# Steps


@pytest.mark.parametrize("ctx", ["cpu", "cpu:0-1"])
@pytest.mark.parametrize("share", [0.1, 0])
def test_encoders_learn_at_a_share_of_the_rate(make_trainer, share, ctx):
    """Adam's first step is proportional to the rate, and so is the decay of the weights."""
    options = {"max_updates": 1, "warmup_updates": 0, "weight_decay": 0.5, "ctx": ctx}
    plain = make_trainer("plain", **options)
    slow = make_trainer("slow", encoder_rate=share, **options)
    before = values(slow)
    plain.fit()
    slow.fit()
    whole = values(plain)
    for device in range(len(slow.devices)):
        changed = values(slow, device)
        for name, start in before.items():
            factor = share if name.startswith("backbone.") else 1
            expected = start + factor * (whole[name] - start)
            np.testing.assert_allclose(changed[name], expected, atol=2e-7, err_msg=name)
    moved = {name.split(".")[0] for name in before if np.any(whole[name] != before[name])}
    assert "backbone" in moved and len(moved) == 2  # and the head of the exit that was drawn


@pytest.mark.parametrize(
    "devices, tokens, steps", [(1, 16000, 8), (8, 16000, 1), (3, 16000, 3), (16, 16000, 1)]
)
def test_the_plan_does_not_depend_on_the_devices(devices, tokens, steps):
    config = TrainingConfig(tokens_per_batch=2000, tokens_per_update=tokens)
    assert plan_updates(config, devices) == UpdatePlan(tokens, steps)
    assert plan_updates(TrainingConfig(), devices) == UpdatePlan(2000 * devices, 1)


def test_weights_decay_by_their_own_rate_and_biases_do_not():
    parameters = {}
    for name, share in (("dense.weight", 1.0), ("layer.weight", 0.5), ("dense.bias", 1.0)):
        parameters[name] = gluon.Parameter(name, shape=(2,))
        parameters[name].initialize(mx.init.One(), ctx=mx.cpu())
        parameters[name].lr_mult = share
    decay_weights(parameters, mx.cpu(), 0.25)
    left = [float(parameter.data().asnumpy()[0]) for parameter in parameters.values()]
    assert left == [0.75, 0.875, 1.0]


@given(st.integers(1, 200), st.integers(1, 64), st.integers(1, 12), st.integers(1, 8), st.data())
def test_parts_have_all_rows_and_fit_the_tokens_of_a_step(rows, width, steps, devices, data):
    tokens = data.draw(st.integers(rows * width, 2 * rows * width))
    plan = UpdatePlan(tokens, steps)
    parts = plan.split({"rows": np.arange(rows), "ids": np.zeros((rows, width))})
    assert 1 <= len(parts) <= steps
    assert np.concatenate([part["rows"] for part in parts]).tolist() == list(range(rows))
    for part in parts:
        assert 0 < part["ids"].size <= plan.step_tokens(width)


@pytest.mark.parametrize(
    "options", [{}, {"clip_norm": 0.05, "weight_decay": 0.1}], ids=["plain", "clipped"]
)
def test_one_device_in_two_steps_trains_as_two_devices(make_trainer, options):
    options = {"tokens_per_batch": 200, "tokens_per_update": 400, "max_updates": 12, **options}
    one, two = make_trainer("one", **options), make_trainer("two", ctx="cpu:0-1", **options)
    before = values(one)
    assert one._plan.steps == 2 and two._plan.steps == 1
    assert one.updates_per_epoch == two.updates_per_epoch
    for trainer in (one, two):
        trainer.fit()
    assert (one.state.epoch, one.state.batch) == (two.state.epoch, two.state.batch)
    first, second, replica = values(one), values(two), values(two, 1)
    for name, value in first.items():
        np.testing.assert_allclose(value, second[name], atol=1e-6, err_msg=name)
        np.testing.assert_array_equal(second[name], replica[name], err_msg=name)
    assert any(abs(first[name] - before[name]).max() > 1e-3 for name in first)


def test_steps_of_unequal_rows_have_the_gradient_of_the_mean(make_trainer):
    # Adam does not tell: it divides the gradient by its magnitude.
    trainer = make_trainer("run")
    batch = trainer.task.batch(next(iter(trainer.task.plan(400))))
    parts = UpdatePlan(400, 3).split(batch)
    assert len({len(part["labels"]) for part in parts}) == 2
    results = []
    for batches in ([batch], parts):
        losses = trainer.backward(batches)
        gradients = {}
        for name, parameter in trainer._parameters.items():
            if parameter.data()._fresh_grad:
                gradients[name] = parameter.grad().asnumpy()
        results.append((losses, gradients))
    (whole_losses, whole), (losses, gradients) = results
    assert losses == pytest.approx(whole_losses, rel=1e-5)
    assert gradients.keys() == whole.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, whole[name], rtol=1e-3, atol=1e-7, err_msg=name)


# Sums over devices


@pytest.fixture
def reduced(monkeypatch):
    """Numbers of the parameters whose gradients were summed over devices, with their counts."""
    counts = collections.Counter()
    pushpull = mx.kvstore.KVStore.pushpull

    def counted(store, key, value, out=None, priority=0):
        counts[key] += 1
        return pushpull(store, key, value, out, priority)

    monkeypatch.setattr(mx.kvstore.KVStore, "pushpull", counted)
    return counts


@pytest.mark.parametrize("more", [{}, {"accumulate": 2}, {"tokens_per_update": 800}])
def test_only_fresh_gradients_are_summed_over_devices(make_trainer, reduced, more):
    options = {"tokens_per_batch": 200, "ctx": "cpu:0-1", "max_updates": 8, "seed": 5, **more}
    trainer = make_trainer("run", **options)
    expected = collections.Counter()
    for update in range(1, 9):
        index = exit_of_update(5, update, 3)
        for number, name in enumerate(trainer._parameters):
            layer, head = 0, index
            if name.startswith("backbone.layers"):
                layer = int(name.split(".")[2])
            elif name.startswith("head_"):
                head = int(name.split(".")[0][len("head_") :]) - 1
            if layer <= index and head == index:
                expected[number] += 1
    trainer.fit()
    assert reduced == expected
    assert sum(expected.values()) < 0.8 * 8 * len(trainer._parameters)


def test_a_loss_of_one_device_changes_the_parameter_on_all():
    devices = [mx.cpu(0), mx.cpu(1)]
    parameters = [gluon.Parameter(name, shape=(2,)) for name in ("used", "unused")]
    for parameter in parameters:
        parameter.initialize(mx.init.One(), ctx=devices)
    used, unused = parameters
    named = {"used": used, "unused": unused}
    trainer = AdamTrainer(named, 1.0)
    used.grad(devices[1])[:] = 7  # of an update before
    with mx.autograd.record():
        loss = used.data(devices[0]).sum()
    loss.backward()
    trainer.allreduce_grads()
    trainer.update(1, ignore_stale_grad=True)
    for device in devices:
        np.testing.assert_allclose(used.data(device).asnumpy(), [0, 0], atol=1e-4)
        assert unused.data(device).asnumpy().tolist() == [1, 1]
