"""Compare-Aggregate against values computed by hand and against loops in NumPy."""

import mxnet as mx
import numpy as np
import pytest
from test_cosinet import (
    assert_gradients_do_not_reach_the_vectors_or_padding,
    assert_padding_changes_no_score,
    batch,
)

from wqa.systems.cosinet.network import FILTERS, UNITS, WINDOWS
from wqa.systems.registry import build_network

#: Parameters that train, of Table 4, by the recurrent layer.
COUNTS = {
    "none": 2_886_601,
    "rnn": 5_045_401,
    "birnn": 4_865_401,
    "lstm": 11_529_001,
    "bilstm": 10_809_001,
}


def network(words=12, width=6, **options):
    made = build_network("compare_aggregate", rows=words, width=width, **options)
    mx.random.seed(3)
    made.initialize(mx.init.Normal(0.3))
    vectors = np.random.default_rng(2).normal(size=(words, width)).astype(np.float32)
    vectors[0] = 0
    made.vectors.set_data(mx.nd.array(vectors))
    return made


@pytest.mark.parametrize("recurrent", list(COUNTS))
def test_parameters_that_train_are_as_many_as_published(recurrent):
    made = build_network("compare_aggregate", rows=40, width=300, recurrent=recurrent)
    parameters = made.collect_params().values()
    trained = [parameter for parameter in parameters if parameter.grad_req != "null"]
    assert sum(int(np.prod(parameter.shape)) for parameter in trained) == COUNTS[recurrent]


# Loops in NumPy


def dense(block, words):
    return words @ block.weight.data().asnumpy().T + block.bias.data().asnumpy()


def attended(words, others):
    scores = words @ others.T
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return words * ((weights / weights.sum(axis=1, keepdims=True)) @ others)


def aggregated(filters, compared):
    texts = []
    for window, convolution in zip(WINDOWS, filters):
        weight = convolution.weight.data().asnumpy()
        outputs = []
        for start in range(max(len(compared) - window + 1, 1)):
            output = convolution.bias.data().asnumpy().copy()
            for tap, row in enumerate(compared[start : start + window]):
                output += weight[:, :, tap] @ row
            outputs.append(output)
        texts.append(np.maximum(np.max(outputs, axis=0), 0))
    return np.concatenate(texts)


def expected_pair(made, question, candidate):
    vectors = made.vectors.data().asnumpy()
    projected = []
    for ids in (question, candidate):
        words = vectors[ids]
        gates = 1 / (1 + np.exp(-dense(made.gate, words)))
        projected.append(gates * np.tanh(dense(made.update, words)))
    first, second = projected
    return np.concatenate(
        [
            aggregated(made.question_filters, attended(first, second)),
            aggregated(made.candidate_filters, attended(second, first)),
        ]
    )


def test_pairs_equal_loops():
    made = network()
    for block in (made.gate, made.update):
        block.bias.set_data(mx.nd.random.normal(0, 0.5, (UNITS,)))
    rng = np.random.default_rng(4)
    questions = [rng.integers(1, 12, length) for length in (1, 7)]
    lists = [[rng.integers(1, 12, n) for n in (9, 1, 2)], [rng.integers(1, 12, n) for n in (4,)]]
    encoded = []
    made.out.register_forward_pre_hook(lambda _, inputs: encoded.append(inputs[0]))
    made(*batch(questions, lists))
    [pairs] = [rows.asnumpy() for rows in encoded]
    weight, bias = made.out.weight.data().asnumpy(), made.out.bias.data().asnumpy()
    scores = made(*batch(questions, lists)).asnumpy()
    for row, (question, candidates) in enumerate(zip(questions, lists)):
        for column, candidate in enumerate(candidates):
            expected = expected_pair(made, question, candidate)
            np.testing.assert_allclose(pairs[row, column], expected, atol=2e-5)
            assert scores[row, column] == pytest.approx((weight @ expected + bias).item(), abs=1e-4)


# Hybridized, and padded


@pytest.mark.parametrize("recurrent", list(COUNTS))
def test_padding_and_hybridizing_change_no_score(recurrent):
    made = network(recurrent=recurrent)
    # A projected word is not 0 where its embedding is.
    for block in (made.gate, made.update):
        block.bias.set_data(mx.nd.random.normal(0, 0.5, (UNITS,)))
    assert_padding_changes_no_score(made)


def test_gradients_do_not_reach_the_vectors_or_padding():
    assert_gradients_do_not_reach_the_vectors_or_padding(network(recurrent="birnn"))


def test_work_is_counted_in_products_with_weights():
    made = build_network("compare_aggregate", rows=40, width=300, recurrent="rnn")
    assert made.word_work() == 2 * 300 * UNITS + 15 * UNITS * FILTERS
    assert made.list_work() == 3000 * 600 + 600 * 600 + 600
