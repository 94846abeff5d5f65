"""Convolutions of word embeddings as sparse products, and recurrences over lists, against loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wqa.engines.sparse import engine
from wqa.engines.sparse.rows import Relatedness, Steps, WordRows, stretches, window_outputs

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=8).map(np.array)


def word_list(rng, candidates, words=30):
    """A question with so many candidates, of random words."""
    lengths = rng.integers(1, 9, candidates)
    question = rng.integers(1, words, rng.integers(1, 12))
    return question, rng.integers(1, words, lengths.sum()), lengths


# Steps


def test_steps_by_hand():
    steps = Steps(np.array([1, 3, 2]))
    assert steps.order.tolist() == [1, 2, 0]
    assert list(steps) == [(0, 3), (3, 5), (5, 6)]
    assert steps.ranks.tolist() == [0, 1, 2, 0, 1, 0]
    assert steps.steps.tolist() == [0, 0, 0, 1, 1, 2]
    assert steps.rows().tolist() == [1, 4, 0, 2, 5, 3]
    assert steps.rows(backwards=True).tolist() == [3, 5, 0, 2, 4, 1]


@given(LENGTHS, st.integers(0, 2**32 - 1))
def test_each_item_has_one_row_and_maxima_are_those_of_sequences(lengths, seed):
    values = np.random.default_rng(seed).normal(size=(lengths.sum(), 3)).astype(np.float32)
    steps = Steps(lengths)
    for rows in (steps.rows(), steps.rows(backwards=True)):
        assert sorted(rows) == list(range(len(values)))
    expected = [part.max(axis=0) for part in np.split(values, np.cumsum(lengths)[:-1])]
    maxima = steps.maxima(values[steps.rows()])
    np.testing.assert_array_equal(maxima, np.array(expected)[steps.order])


# Convolution


@settings(deadline=None)
@given(LENGTHS, st.sampled_from([1, 3, 5]), st.integers(0, 2**32 - 1))
def test_outputs_are_those_of_a_convolution(lengths, width, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(7, 4)).astype(np.float32)
    weight = rng.normal(size=(6, 5, width)).astype(np.float32)
    ids = rng.integers(1, 7, lengths.sum())
    related = rng.normal(size=len(ids)).astype(np.float32)
    table = WordRows(vectors, weight)
    rows = table.rows(ids)
    steps = Steps(lengths)
    outputs = np.empty((len(ids), 6))
    outputs[steps.rows()] = window_outputs(steps, rows, related, table.table)
    channels = np.concatenate([vectors[ids], related[:, None]], axis=1)
    ends = np.cumsum(lengths)
    for start, end in zip(ends - lengths, ends):
        text = np.pad(channels[start:end], ((width // 2,) * 2, (0, 0)))
        for position in range(end - start):
            window = text[position : position + width]  # (k, D + 1)
            expected = np.einsum("kd,fdk->f", window, weight)
            np.testing.assert_allclose(outputs[start + position], expected, atol=1e-4)


# Relatedness


@pytest.mark.parametrize("words", [1, 10, 4096])
def test_relatedness_is_the_greatest_cosine(words, monkeypatch):
    monkeypatch.setattr("wqa.engines.sparse.rows.WORDS", words)
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(30, 6)).astype(np.float32)
    vectors[7] = 0
    with np.errstate(invalid="ignore"):
        units = np.nan_to_num(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    for candidates in (3, 1, 6, 2):
        question, ids, lengths = own = word_list(rng, candidates)
        of_question, of_words = Relatedness(vectors)(own)
        cosines = [
            units[question] @ units[text].T for text in np.split(ids, np.cumsum(lengths)[:-1])
        ]
        expected = np.concatenate([one.max(axis=1) for one in cosines])
        np.testing.assert_allclose(of_question, expected, atol=1e-6)
        expected = np.concatenate([one.max(axis=0) for one in cosines])
        np.testing.assert_allclose(of_words, expected, atol=1e-6)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 40))
def test_stretches_hold_each_item_once_and_few_more_words(lengths, words):
    lengths = np.array(lengths)
    bounds = stretches(np.cumsum(lengths) - lengths, words)
    assert [item for first, last in bounds for item in range(first, last)] == list(
        range(len(lengths))
    )
    for first, last in bounds:
        # Without its last item, none exceeds the limit.
        assert lengths[first : last - 1].sum() < words


# Threads


def test_the_blas_of_a_wheel_computes_on_one_thread():
    functions = engine._openblas()
    if functions == (int, int):
        pytest.skip("this NumPy has no OpenBLAS of a wheel")
    before = functions[0]()
    with pytest.raises(KeyboardInterrupt), engine.one_blas_thread():
        assert functions[0]() == 1
        raise KeyboardInterrupt
    assert functions[0]() == before
