"""Micro-batches side by side: their plan, scores, and what happens when one of them fails."""

import os
import threading
import time

import numpy as np
import pytest
from conftest import needs_onednn
from hypothesis import given
from hypothesis import strategies as st

from wqa.config import BackboneConfig, EngineConfig
from wqa.engines.onednn.streams import STREAMS
from wqa.engines.threads import in_threads
from wqa.inference.exit_ranker import CascadeRanker
from wqa.systems.random import random_pairs, random_ranker

CONFIG = BackboneConfig(
    vocab_size=200, units=16, hidden_size=32, num_layers=4, num_heads=2, max_positions=64
)
TOKENS = 256  # of a micro-batch; the longest input has 64


def engine_of(threads, **options):
    return EngineConfig(engine="onednn", threads=threads, batch_tokens=TOKENS, **options)


@pytest.fixture(scope="module", autouse=True)
def processors():
    """As many as the tests ask for, on any machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: set(range(STREAMS + 5)))
        yield


@pytest.fixture(scope="module")
def ranker(processors):
    return random_ranker(CONFIG, (1, 2, 4), engine=engine_of(1))


def by_threads(ranker, threads):
    return CascadeRanker(ranker.network, ranker.inputs, drop_ratio=0.3, engine=engine_of(threads))


@pytest.mark.onednn
@needs_onednn
def test_scores_do_not_depend_on_the_number_of_streams(ranker):
    rng = np.random.default_rng(4)
    groups = [random_pairs(rng, count, 4, 60, 200) for count in (1, 7, 90)]
    expected = by_threads(ranker, 1).rank_pairs(groups)
    for threads in (2, 3, STREAMS + 1):
        for ranking, reference in zip(by_threads(ranker, threads).rank_pairs(groups), expected):
            np.testing.assert_allclose(ranking.exit_scores, reference.exit_scores, atol=1e-5)
            assert ranking.order.tolist() == reference.order.tolist()
            assert ranking.cost == reference.cost


@pytest.mark.onednn
@needs_onednn
def test_streams_share_weights_and_no_buffer(ranker):
    streams = by_threads(ranker, 3)._engine._streams
    first, *others = streams.all
    assert streams.count == 3 and len(others) == 2
    for other in others:
        assert other._layers is first._layers
        assert not np.shares_memory(other.encodings, first.encodings)
    assert by_threads(ranker, STREAMS + 5)._engine._streams.count == STREAMS


@pytest.fixture(scope="module")
def plan_of_two(ranker):
    return by_threads(ranker, 2)._engine.plan


@pytest.mark.onednn
@needs_onednn
@given(lengths=st.lists(st.integers(1, 64), min_size=1, max_size=120).map(sorted))
def test_two_streams_have_as_many_tokens(plan_of_two, lengths):
    batches = plan_of_two(np.array(lengths))
    assert [row for batch in batches for row in batch] == list(range(len(lengths)))
    sizes = [sum(lengths[row] for row in batch) for batch in batches]
    assert max(sizes) <= TOKENS
    share = sum(lengths) / len(sizes)
    if len(lengths) > 1 and max(lengths) < share:
        assert len(sizes) % 2 == 0
        assert all(abs(size - share) <= max(lengths) + 1 for size in sizes)


@pytest.mark.onednn
@needs_onednn
def test_an_engine_works_after_a_stream_has_failed(ranker, monkeypatch):
    several = by_threads(ranker, 2)
    group = [random_pairs(np.random.default_rng(5), 60, 4, 60, 200)]
    [expected] = several.rank_pairs(group)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        failing = several._engine._streams.all[1]
        patch.setattr(failing, "layer", lambda *_: 1 / 0)
        several.rank_pairs(group)
    [ranking] = several.rank_pairs(group)
    assert ranking.order.tolist() == expected.order.tolist()
    np.testing.assert_allclose(ranking.exit_scores, expected.exit_scores, atol=1e-5)


def test_other_threads_end_before_an_error_is_raised():
    """They stop at their next part, and compute nothing after the call."""
    begun, ended = [], []
    both = threading.Barrier(2, timeout=30)

    def compute(part):
        begun.append(part)
        if part < 2:
            both.wait()  # a part of each thread
        if part == 0:
            raise ZeroDivisionError
        time.sleep(0.2)
        ended.append(part)

    with pytest.raises(ZeroDivisionError):
        in_threads(compute, range(20), 2)
    assert ended == [1] and sorted(begun) == [0, 1]
