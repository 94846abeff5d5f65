"""Losses, by hand."""

import math

import mxnet as mx
import numpy as np
import pytest

from wqa.training.losses import (
    cross_entropy,
    label_cross_entropy,
    listwise_divergence,
    span_cross_entropy,
)


def array(values):
    return mx.nd.array(values, dtype="float32")


def test_binary_cross_entropy_and_its_gradient():
    scores, labels = array([0.0, 2.0, -3.0, 0.0]), array([1, 0, 1, 0])
    scores.attach_grad()
    with mx.autograd.record():
        losses = cross_entropy(scores, labels)
    losses.backward()
    expected = [math.log(2), math.log1p(math.exp(2)), math.log1p(math.exp(3)), math.log(2)]
    np.testing.assert_allclose(losses.asnumpy(), expected, rtol=1e-6)
    gradients = [1 / (1 + math.exp(-s)) - y for s, y in zip([0, 2, -3, 0], [1, 0, 1, 0])]
    np.testing.assert_allclose(scores.grad.asnumpy(), gradients, rtol=1e-5)
    assert cross_entropy(array([200.0]), array([0])).asscalar() == 200


def test_the_divergence_of_a_list():
    """Two lists of which one has a candidate of padding: softmax beside the normalised labels."""
    scores = array([[0.0, math.log(3), 100.0], [1.0, 1.0, 1.0]])
    labels = array([[0, 1, 0], [1, 1, 0]])
    scores.attach_grad()
    with mx.autograd.record():
        losses = listwise_divergence(scores, labels, array([2, 3]))
    losses.backward()
    assert losses.shape == (2,)
    # -log(3/4); the labels' 1/2 each beside 1/3 each: log(3) - log(2).
    np.testing.assert_allclose(losses.asnumpy(), [math.log(4 / 3), math.log(3 / 2)], rtol=1e-5)
    gradients = [[1 / 4, 3 / 4 - 1, 0], [1 / 3 - 1 / 2, 1 / 3 - 1 / 2, 1 / 3]]
    np.testing.assert_allclose(scores.grad.asnumpy(), gradients, atol=5e-6)
    alone = listwise_divergence(array([[3.0, 50.0]]), array([[1, 0]]), array([1]))
    assert abs(alone.asscalar()) < 1e-5
    equal = listwise_divergence(array([[5.0, 5.0, -1e4]]), array([[1, 1, 0]]), array([3]))
    assert abs(equal.asscalar()) < 1e-5


def test_the_ends_of_a_span():
    """The mean over start and end; positions that are not allowed have no probability."""
    logits = array([[[0.0, 1.0], [0.0, 0.0], [50.0, 50.0]]])  # (B, L, 2)
    losses = span_cross_entropy(logits, array([[1, 1, 0]]), array([[1, 0]]))
    expected = (math.log(2) + math.log1p(math.exp(-1))) / 2
    assert losses.shape == (1,) and losses.asscalar() == pytest.approx(expected, rel=1e-5)


def test_the_label_of_a_row():
    logits = array([[0.0, math.log(2), 0.0], [3.0, 3.0, 3.0], [1000.0, 0.0, -1000.0]])
    losses = label_cross_entropy(logits, array([1, 2, 2]))
    np.testing.assert_allclose(losses.asnumpy(), [math.log(2), math.log(3), 2000], rtol=1e-5)
