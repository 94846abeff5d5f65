"""Micro-batches side by side: their plan, scores, and what happens when one of them fails."""

import dataclasses
import os
import time

import numpy as np
import pytest
from conftest import SMALL, needs_onednn, run_python
from hypothesis import example, given
from hypothesis import strategies as st
from random_rankers import random_pairs, random_ranker

from wqa.config import EngineConfig
from wqa.engines.onednn.library import STREAMS
from wqa.engines.threads import in_threads
from wqa.inference.exit_ranker import CascadeRanker
from wqa.text import pack_batches

TOKENS = 256  # of a micro-batch; the longest input has 64


def engine_of(threads, **options):
    return EngineConfig(engine="onednn", threads=threads, batch_tokens=TOKENS, **options)


@pytest.fixture(scope="module", autouse=True)
def processors():
    """As many as the tests ask for, on any machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: set(range(3 * STREAMS)))
        yield


@pytest.fixture(scope="module")
def ranker(processors):
    return random_ranker(SMALL, (1, 2, 4), engine=engine_of(1))


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


@pytest.fixture(scope="module")
def plan_of_two():
    config = dataclasses.replace(SMALL, max_positions=TOKENS)
    return random_ranker(config, (4,), engine=engine_of(2))._engine.plan


@pytest.mark.onednn
@needs_onednn
@given(lengths=st.lists(st.integers(1, TOKENS), min_size=1, max_size=120).map(sorted))
@example(lengths=[40] * 99 + [TOKENS])
@example(lengths=[TOKENS] * 5)
def test_two_streams_have_as_many_tokens(plan_of_two, lengths):
    lengths = np.array(lengths)
    batches = plan_of_two(lengths)
    assert np.concatenate(batches).tolist() == list(range(len(lengths)))
    sizes = [lengths[batch].sum() for batch in batches]
    assert max(sizes) <= TOKENS
    assert len(batches) <= len(pack_batches(lengths, TOKENS)) + 1
    if lengths.sum() + 2 * lengths.max() < 2 * TOKENS and len(lengths) > 1:
        assert len(batches) == 2
        share = lengths.sum() / 2
        assert all(abs(size - share) <= (lengths.max() + 1) / 2 for size in sizes)


def test_other_threads_end_before_an_error_is_raised():
    ended = []

    def compute(part):
        if part == 0:
            raise ZeroDivisionError
        time.sleep(0.02)
        ended.append(part)

    with pytest.raises(ZeroDivisionError):
        in_threads(compute, range(5), 2)
    count = len(ended)
    time.sleep(0.1)
    assert len(ended) == count


AT_THE_END = """
import threading, time
from wqa.engines.threads import in_threads

def rank():
    time.sleep(0.5)  # the main thread has ended, and no executor takes work
    print(in_threads(lambda part: part + 1, range(3), 2))

threading.Thread(target=rank).start()
"""


def test_a_thread_that_outlives_the_main_one_computes_alone():
    done = run_python("-c", AT_THE_END)
    assert done.stdout == "[1, 2, 3]\n", done.stderr


@pytest.mark.onednn
@needs_onednn
def test_an_axis_that_is_added_to_an_array_is_dense():
    # NumPy gives it the stride 0, for which oneDNN has no fast kernel.
    from wqa.engines.onednn.library import Memory

    assert Memory.of(np.ones(4, dtype="float32")[None]).layout.strides == (4, 1)
