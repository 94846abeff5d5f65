"""Cosinet and Compare-Aggregate against values computed by hand and against loops in NumPy."""

import mxnet as mx
import numpy as np
import pytest

from wqa.errors import OptionError
from wqa.systems.cosinet.network import FILTERS, UNITS, WINDOW, WINDOWS
from wqa.systems.registry import build_network

#: Parameters that train, of Table 4, by the network and its recurrent layer.
COUNTS = {
    ("cosinet", "none"): 904_201,
    ("cosinet", "rnn"): 1_174_501,
    ("cosinet", "birnn"): 1_129_501,
    ("cosinet", "lstm"): 1_986_301,
    ("cosinet", "bilstm"): 1_806_301,
    ("compare_aggregate", "none"): 2_886_601,
    ("compare_aggregate", "rnn"): 5_045_401,
    ("compare_aggregate", "birnn"): 4_865_401,
    ("compare_aggregate", "lstm"): 11_529_001,
    ("compare_aggregate", "bilstm"): 10_809_001,
}


def batch(questions, lists, width=0, candidates=0):
    """Inputs of a network: ids of questions, and of the candidates of each, padded by zeros."""
    longest = max(map(len, questions)) + width
    most = max(map(len, lists)) + candidates
    widest = max(len(ids) for ids_of_list in lists for ids in ids_of_list) + width
    question_ids = np.zeros((len(questions), longest), np.int32)
    candidate_ids = np.zeros((len(lists), most, widest), np.int32)
    candidate_valid = np.zeros((len(lists), most), np.float32)
    for row, (question, ids_of_list) in enumerate(zip(questions, lists)):
        question_ids[row, : len(question)] = question
        for column, ids in enumerate(ids_of_list):
            candidate_ids[row, column, : len(ids)] = ids
            candidate_valid[row, column] = len(ids)
    counts = np.array([len(ids) for ids in questions], np.float32)
    list_counts = np.array([len(ids_of_list) for ids_of_list in lists], np.float32)
    arrays = (question_ids, counts, candidate_ids, candidate_valid, list_counts)
    return [mx.nd.array(array, dtype=array.dtype) for array in arrays]


def network(vectors, system="cosinet", **options):
    """A network on these vectors, the first of which is that of padding."""
    vectors = np.asarray(vectors, np.float32)
    made = build_network(system, rows=len(vectors), width=vectors.shape[1], **options)
    mx.random.seed(3)
    made.initialize(mx.init.Normal(0.3))
    made.vectors.set_data(mx.nd.array(vectors))
    if system == "compare_aggregate":  # a projected word is not 0 where its embedding is
        for block in (made.gate, made.update):
            block.bias.set_data(mx.nd.random.normal(0, 0.5, (UNITS,)))
    return made


def random_network(system="cosinet", **options):
    vectors = np.random.default_rng(2).normal(size=(12, 6))
    vectors[0] = 0
    return network(vectors, system, **options)


def encoded(made, questions, lists):
    """Encoded pairs, (Q, n, C)."""
    arrays = batch(questions, lists)[:-1]
    return made.encode(mx.nd, *arrays, vectors=made.vectors.data()).asnumpy()


# Parameters


@pytest.mark.parametrize("system, recurrent", COUNTS)
def test_parameters_that_train_are_as_many_as_published(system, recurrent):
    made = build_network(system, rows=40, width=300, recurrent=recurrent)
    parameters = made.collect_params().values()
    trained = [parameter for parameter in parameters if parameter.grad_req != "null"]
    assert sum(int(np.prod(parameter.shape)) for parameter in trained) == COUNTS[system, recurrent]
    assert made.vectors.grad_req == "null" and made.vectors.shape == (40, 300)


def test_an_encoder_is_refused(tiny_encoder):
    from wqa.pretrained import read_backbone_config

    with pytest.raises(OptionError, match="backbone: an encoder"):
        build_network("cosinet", read_backbone_config(tiny_encoder), rows=4, width=2)
    with pytest.raises(OptionError, match="0 rows of width 0"):
        build_network("cosinet")


# Values computed by hand

#: Words of two elements: cosines of 1 and 2, of 1 and 3, of 2 and 3, are 0, 1 / sqrt(2) and
#: 1 / sqrt(2); that of 1 and 4 is -1, and word 5 is zero.
WORDS = [[0, 0], [2, 0], [0, 3], [1, 1], [-4, 0], [0, 0]]


def single_filters(made, name, taps):
    """Give the first filters of a text one weight each: (channel, offset from the word, value)."""
    weight = np.zeros((FILTERS, 3, WINDOW), np.float32)
    for number, (channel, offset, value) in enumerate(taps):
        weight[number, channel, WINDOW // 2 + offset] = value
    filters = getattr(made, name)
    filters.weight.set_data(mx.nd.array(weight))
    filters.bias.set_data(mx.nd.zeros(FILTERS))


def test_relatedness_and_convolution_by_hand():
    made = network(WORDS)
    relatedness, negative = (2, 0, 1.0), (2, 0, -1.0)
    # Relatedness, its opposite, an element of the word itself, of the one two before it, and of the
    # one two behind it.
    taps = [relatedness, negative, (0, 0, 1.0), (0, -2, 1.0), (1, 2, 1.0)]
    for name in ("question_filters", "candidate_filters"):
        single_filters(made, name, taps)
    pairs = encoded(made, [[1, 2, 3]], [[[3], [4], [1, 2, 1, 2, 3, 3]]])
    # Relatedness of the question 1 2 3 with candidate 3: 1 / sqrt(2) twice, then 1; of that
    # candidate: 1. With candidate 4, the opposite of 1: -1, 0 and -1 / sqrt(2); of the candidate:
    # 0, with word 2. With the last candidate all words of both have cosine 1 with themselves.
    texts = [
        ([1, 0, 2, 2, 1], [1, 0, 1, 0, 0]),
        ([0, 1, 2, 2, 1], [0, 0, 0, 0, 0]),
        ([1, 0, 2, 2, 1], [1, 0, 2, 2, 3]),
    ]
    for row, (question, candidate) in zip(pairs[0], texts):
        product = np.multiply(question, candidate)
        difference = np.subtract(question, candidate)
        np.testing.assert_allclose(row[:5], product, atol=1e-6)
        np.testing.assert_allclose(row[FILTERS : FILTERS + 5], difference, atol=1e-6)


def test_a_score_by_hand():
    made = network(WORDS)
    for name in ("question_filters", "candidate_filters"):
        single_filters(made, name, [(2, 0, 1.0), (1, 0, 1.0)])
    weight = np.zeros((1, 2 * FILTERS), np.float32)
    weight[0, [0, 1, FILTERS, FILTERS + 1]] = [10, 100, 1000, 10000]
    made.out.weight.set_data(mx.nd.array(weight))
    made.out.bias.set_data(mx.nd.array([7]))
    # Question 1 2 and candidate 3: both texts have relatedness 1 / sqrt(2), their greatest second
    # elements are 3 and 1. Product 1/2 and 3, difference 0 and 2.
    [[score]] = made(*batch([[1, 2]], [[[3]]])).asnumpy()
    assert score == pytest.approx(7 + 10 * 0.5 + 100 * 3 + 1000 * 0 + 10000 * 2, rel=1e-6)


# Loops in NumPy


def convolved(filters, channels):
    """Greatest output of each filter, or 0, of a text of (L, D + 1)."""
    weight, bias = filters.weight.data().asnumpy(), filters.bias.data().asnumpy()
    outputs = []
    for position in range(len(channels)):
        output = bias.copy()
        for tap in range(WINDOW):
            source = position + tap - WINDOW // 2
            if 0 <= source < len(channels):
                output += weight[:, :, tap] @ channels[source]
        outputs.append(output)
    return np.maximum(np.max(outputs, axis=0), 0)


def cosinet_pair(made, question, candidate):
    vectors = made.vectors.data().asnumpy()
    first, second = vectors[question], vectors[candidate]
    cosines = np.zeros((len(first), len(second)))
    for i, word in enumerate(first):
        for j, other in enumerate(second):
            cosines[i, j] = word @ other / (np.linalg.norm(word) * np.linalg.norm(other))
    first = np.column_stack([first, cosines.max(axis=1)])
    second = np.column_stack([second, cosines.max(axis=0)])
    first = convolved(made.question_filters, first)
    second = convolved(made.candidate_filters, second)
    return np.concatenate([first * second, first - second])


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


def compare_aggregate_pair(made, question, candidate):
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


@pytest.mark.parametrize(
    "system, pair_of", [("cosinet", cosinet_pair), ("compare_aggregate", compare_aggregate_pair)]
)
def test_pairs_equal_loops(system, pair_of):
    made, rng = random_network(system), np.random.default_rng(4)
    questions = [rng.integers(1, 12, length) for length in (1, 7)]
    lists = [[rng.integers(1, 12, n) for n in (9, 1, 2)], [rng.integers(1, 12, n) for n in (4,)]]
    pairs = encoded(made, questions, lists)
    weight, bias = made.out.weight.data().asnumpy(), made.out.bias.data().asnumpy()
    scores = made(*batch(questions, lists)).asnumpy()
    for row, (question, candidates) in enumerate(zip(questions, lists)):
        for column, candidate in enumerate(candidates):
            expected = pair_of(made, question, candidate)
            np.testing.assert_allclose(pairs[row, column], expected, atol=2e-5)
            score = (weight @ expected + bias).item()
            assert scores[row, column] == pytest.approx(score, abs=1e-4)


# Hybridized, and padded


@pytest.mark.parametrize("system, recurrent", COUNTS)
def test_padding_and_hybridizing_change_no_score(system, recurrent):
    """Scores are those of each list alone, hybridized too, whatever stands at padding."""
    made = random_network(system, recurrent=recurrent)
    # Opposite words: a cosine of padding, 0, would be greater than all of theirs.
    made.vectors.set_data(made.vectors.data() * mx.nd.array([[1]] * 6 + [[-1]] * 6))
    questions = [[1, 2, 3], [4]]
    lists = [[[7, 8], [9], [10, 11, 7, 8, 9]], [[10, 6]]]
    scores = made(*batch(questions, lists)).asnumpy()
    assert scores[1, 1:].tolist() == [0, 0]
    for row, (question, candidates) in enumerate(zip(questions, lists)):
        alone = made(*batch([question], [candidates])).asnumpy()
        np.testing.assert_allclose(scores[row, : len(candidates)], alone[0], atol=1e-5)
    made.hybridize()
    np.testing.assert_allclose(made(*batch(questions, lists)).asnumpy(), scores, atol=1e-5)
    more = batch([*questions, [5]], [*lists, [[1]]], width=9, candidates=4)
    padded = made(*more).asnumpy()
    np.testing.assert_allclose(padded[:2, :3], scores, atol=1e-5)
    more[0][:, 12:], more[2][:, :, 13:] = 3, 4
    np.testing.assert_array_equal(made(*more).asnumpy(), padded)


def gradients(made, inputs):
    """Gradients of the sum of squared scores, of the parameters that train."""
    with mx.autograd.record():
        scores = made(*inputs)
        loss = (scores * scores).sum()
    loss.backward()
    arrays = {}
    for name, parameter in made._collect_params_with_prefix().items():
        if parameter.grad_req != "null":
            arrays[name] = parameter.grad().asnumpy().copy()
    return arrays


@pytest.mark.parametrize(
    "system, recurrent", [("cosinet", "none"), ("cosinet", "birnn"), ("compare_aggregate", "birnn")]
)
def test_gradients_do_not_reach_the_vectors_or_padding(system, recurrent):
    made = random_network(system, recurrent=recurrent)
    questions, lists = [[1, 2, 3], [4]], [[[7, 8], [9]], [[10, 6]]]
    plain = gradients(made, batch(questions, lists))
    padded = gradients(made, batch(questions, lists, width=5, candidates=3))
    assert "vectors" not in plain
    for name, gradient in plain.items():
        assert gradient.any() and np.isfinite(gradient).all(), name
        np.testing.assert_allclose(padded[name], gradient, rtol=1e-3, atol=1e-4, err_msg=name)


def test_work_is_counted_in_products_with_weights():
    made = build_network("cosinet", rows=40, width=300, recurrent="bilstm")
    assert made.word_work() == WINDOW * 301 * FILTERS
    assert made.list_work() == 2 * 4 * (600 * 150 + 150 * 150) + 300
    assert build_network("cosinet", rows=40, width=300).list_work() == 600
    made = build_network("compare_aggregate", rows=40, width=300, recurrent="rnn")
    assert made.word_work() == 2 * 300 * UNITS + 15 * UNITS * FILTERS
    assert made.list_work() == 3000 * 600 + 600 * 600 + 600
