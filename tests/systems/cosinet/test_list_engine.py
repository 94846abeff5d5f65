"""Sparse products rank by Cosinet as its Gluon blocks do."""

import os
import signal

import numpy as np
import pytest
from conftest import wqa
from test_lists import files as files
from test_lists import questions as questions
from test_lists import small_ranker, training

from wqa.config import EngineConfig, TrainingConfig
from wqa.data import Candidate, Question
from wqa.engines.choice import choose_training_engine
from wqa.engines.mxnet import MXNetEngine
from wqa.engines.sparse.engine import SparseEngine
from wqa.errors import OptionError, ProcessError
from wqa.systems.cosinet.lists import RECURRENT
from wqa.systems.load import build_ranker, load_ranker
from wqa.systems.registry import build_network

MXNET, SPARSE = EngineConfig(engine="mxnet"), EngineConfig(engine="auto")


@pytest.fixture(params=[1, 2], ids=["1 thread", "2 threads"])
def threads(request, monkeypatch):
    """Number of threads that compute, also where tests have one processor."""
    monkeypatch.setattr("wqa.engines.sparse.engine.count_threads", lambda: request.param)
    return request.param


def rankers(recurrent):
    """A ranker by MXNet, and one by sparse products on the same parameters."""
    by_mxnet = small_ranker(recurrent, engine=MXNET)
    network, inputs = by_mxnet.network, by_mxnet.inputs
    return by_mxnet, build_ranker("cosinet", network, inputs, engine=SPARSE)


def random_texts(rng, count, longest=14):
    """Texts of words of the table, unknown words and blank texts among them."""
    made = []
    for length in rng.integers(0, longest, count):
        numbers = rng.integers(0, 13, length)
        made.append(" ".join(f"w{number}" for number in numbers))
    return tuple(made)


def random_questions(rng, counts):
    asked = []
    for number, count in enumerate(counts):
        candidates = tuple(Candidate(text) for text in random_texts(rng, count))
        asked.append(Question(str(number), "w1 " + random_texts(rng, 1)[0], candidates))
    return asked


# Ranking


@pytest.mark.parametrize("recurrent", RECURRENT)
def test_scores_are_those_of_the_blocks(recurrent, threads):
    by_mxnet, sparse = rankers(recurrent)
    asked = random_questions(np.random.default_rng(3), [1, 5, 2, 40, 1, 7])
    for expected, ranking in zip(by_mxnet.rank_all(asked), sparse.rank_all(asked)):
        np.testing.assert_allclose(ranking.scores, expected.scores, atol=1e-4)
        np.testing.assert_array_equal(ranking.blank, expected.blank)
        assert ranking.cost == expected.cost


def test_a_long_list_in_tables_of_few_words(threads, monkeypatch):
    by_mxnet, sparse = rankers("none")
    monkeypatch.setattr("wqa.engines.sparse.engine.PASS_WORDS", 20)
    monkeypatch.setattr("wqa.engines.sparse.engine.POSITIONS", 8)
    small = SparseEngine(by_mxnet.network, SPARSE, most_bytes=32 * 4 * 5 * 300)
    tables = small._questions.rows, small._candidates.rows
    assert [len(rows.table) for rows in tables] == [10, 21]
    sparse._engine = small
    asked = random_questions(np.random.default_rng(8), [9, 30, 4])
    for expected, ranking in zip(by_mxnet.rank_all(asked), sparse.rank_all(asked)):
        np.testing.assert_allclose(ranking.scores, expected.scores, atol=1e-4)


def test_a_forked_child_is_told_to_be_spawned():
    _, ranker = rankers("birnn")
    child = os.fork()
    if not child:
        signal.alarm(60)  # a child that waits for threads of its parent fails
        status = 1
        try:
            ranker.rank("w1", ["w2"])
        except ProcessError as error:
            status = int("spawn" not in str(error))
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


# Choice of the engine


def test_engines_that_rank(run_of_none):
    for engine, kind in (("auto", SparseEngine), ("onednn", SparseEngine)):
        assert type(load_ranker(run_of_none, engine=engine)._engine) is kind
    assert type(load_ranker(run_of_none, engine="mxnet")._engine) is MXNetEngine


@pytest.fixture(scope="module")
def run_of_none(files, tiny_words, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "none"
    assert wqa(*training(files, tiny_words, out)) == 0
    return out


def test_mxnet_trains_networks_on_lists():
    for system in ("compare_aggregate", "cosinet"):
        network = build_network(system, rows=9, width=4)
        assert choose_training_engine(network, TrainingConfig()) == "mxnet"
        with pytest.raises(OptionError):
            choose_training_engine(network, TrainingConfig(engine="onednn"))
