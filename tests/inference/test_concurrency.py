"""Threads, forks, look-ahead and memory of rankers."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from conftest import SMALL, lacks, needs_onednn, run_python
from hypothesis import given
from hypothesis import strategies as st
from random_rankers import random_pairs, random_ranker

from wqa.config import EngineConfig
from wqa.data import Candidate, Question, builtin_path, read_questions
from wqa.inference import EnsembleRanker, SequentialRanker
from wqa.inference.loop import read_ahead
from wqa.systems.load import load_ranker

ENGINES = ["mxnet", pytest.param("onednn", marks=needs_onednn)]
EXITS = (1, 2, 4)


def by(engine):
    return EngineConfig(engine=engine, threads=1)


def groups(count):
    rng = np.random.default_rng(3)
    return [[random_pairs(rng, 6, 4, 30, 200)] for _ in range(count)]


def is_same(ranking, expected):
    equal = np.array_equal(ranking.exit_scores, expected.exit_scores, equal_nan=True)
    return equal and np.array_equal(ranking.order, expected.order)


def in_threads(functions):
    """Run functions in threads at once; returns what they raised."""
    errors = []

    def run(function):
        try:
            function()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return errors


def check_rankings(ranker, parts, expected, rounds):
    def run():
        for _ in range(rounds):
            for part, settings in zip(parts, zip(*expected)):
                [ranking] = ranker.rank_pairs(part)
                assert any(is_same(ranking, reference) for reference in settings)

    return run


# Threads


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_share_a_ranker_and_set_its_drops(engine):
    parts = groups(3)
    expected = []
    for drop_ratio in (0.0, 0.4):
        alone = random_ranker(SMALL, EXITS, engine=by(engine), drop_ratio=drop_ratio)
        expected.append([alone.rank_pairs(part)[0] for part in parts])
    shared = random_ranker(SMALL, EXITS, engine=by(engine))

    def change_drops():
        for drop_ratio in [0.4, 0.0] * 20:
            shared.set_drops(drop_ratio)
            time.sleep(0.001)

    run = check_rankings(shared, parts, expected, 10 if engine == "onednn" else 1)
    assert in_threads([run, run, run, change_drops]) == []


# Forks

FORKS = """
import os, signal, sys, traceback
from wqa.data import builtin_path, read_questions
from wqa.errors import ProcessError
from wqa import load_ranker

run, *engines = sys.argv[1:]
question = next(read_questions(builtin_path("test")))

def refused(work):
    try:
        work()
    except ProcessError as error:
        return "spawn" in str(error)

def rank(ranker):
    return list(ranker.rank_all([question]))

for engine in engines:
    ranker = load_ranker(run, engine=engine)
    expected = rank(ranker)
    process = os.fork()
    if not process:
        signal.alarm(15)
        code = 1
        try:
            assert refused(lambda: rank(ranker))
            assert refused(lambda: rank(load_ranker(run, engine=engine)))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(process, 0)[1] == 0, engine
    assert rank(ranker)[0].order.tolist() == expected[0].order.tolist()
print("done")
"""


def test_a_forked_child_is_told_to_be_spawned(tiny_run):
    engines = ["mxnet", "onnxruntime", *([] if lacks() else ["onednn"])]
    threads = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    process = run_python("-c", FORKS, tiny_run, *engines, variables=threads)
    assert process.stdout == "done\n", process.stderr


# Look-ahead


def sized(size):
    return size, size


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 20))
def test_groups_depend_on_the_items_alone(sizes, limit):
    expected = []
    for size in sizes:
        if expected and sum(expected[-1]) + size <= limit:
            expected[-1].append(size)
        else:
            expected.append([size])
    assert list(read_ahead(iter(sizes), sized, limit)) == expected


def test_the_source_is_read_two_groups_ahead():
    given_items = []

    def source():
        for number in range(100):
            given_items.append(number)
            yield 1

    groups = read_ahead(source(), sized, 5)
    assert next(groups) == [1] * 5
    time.sleep(0.2)
    assert len(given_items) <= 16
    groups.close()


def waiting_threads():
    return [thread for thread in threading.enumerate() if thread.name == "wqa look-ahead"]


def await_no_thread():
    end = time.monotonic() + 10
    while waiting_threads() and time.monotonic() < end:
        time.sleep(0.01)
    assert waiting_threads() == []


@pytest.fixture(params=["cascade", "sequence", "ensemble"])
def ranker(request, tiny_run):
    cascade = load_ranker(tiny_run, drop_ratio=0.3, engine="mxnet")
    combined = {"sequence": SequentialRanker, "ensemble": EnsembleRanker}
    return combined[request.param]([cascade]) if request.param in combined else cascade


def question(number):
    return Question(f"Q{number}", "how are caves formed ?", (Candidate("by ice"), Candidate("no")))


def test_rankings_are_closed_while_the_source_blocks(ranker, monkeypatch):
    release = threading.Event()

    def source():
        for number in range(3):
            yield question(number)
        release.wait(60)

    for part in (ranker, *ranker.capabilities.rankers):
        monkeypatch.setattr(part, "_group_size", 1)
    rankings = ranker.rank_all(source())
    next(rankings)
    begin = time.monotonic()
    rankings.close()
    assert time.monotonic() - begin < 5
    release.set()
    await_no_thread()


def test_an_exception_of_the_source_comes_after_the_rankings_before_it(ranker):
    def source():
        yield question(1)
        yield question(2)
        raise LookupError("no more questions")

    rankings = ranker.rank_all(source())
    assert len(next(rankings).order) == len(next(rankings).order) == 2
    with pytest.raises(LookupError, match="no more questions"):
        next(rankings)
    await_no_thread()


def test_an_abandoned_generator_leaves_no_thread(ranker):
    rankings = ranker.rank_all(question(number) for number in range(100))
    next(rankings)
    del rankings
    await_no_thread()


# Memory


@pytest.mark.parametrize("engine", ENGINES)
def test_a_dropped_ranker_is_freed_at_once(tiny_run, engine):
    questions = list(read_questions(builtin_path("test")))[:3]
    gc.collect()
    gc.disable()
    try:
        ranker = load_ranker(tiny_run, drop_ratio=0.3, engine=engine)
        list(ranker.rank_all(questions))
        sequence = SequentialRanker([ranker])
        sequence.rank(questions[0].question, questions[0].texts)
        parameters = ranker.network.collect_params().values()
        owners = [ranker, ranker._engine, ranker.network, sequence, *parameters]
        if engine == "onednn":
            owners.append(ranker._engine._layers[0]._embeddings._words)
        references = list(map(weakref.ref, owners))
        del ranker, sequence, parameters, owners
        # A thread that has given its last result may hold the ranker for a moment more.
        deadline = time.monotonic() + 10
        while any(reference() is not None for reference in references):
            assert time.monotonic() < deadline, "the collector's cycles hold the ranker"
            time.sleep(0.01)
    finally:
        gc.enable()
