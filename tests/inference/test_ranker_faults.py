"""Rankers after interrupts and exceptions, and scores that are not finite."""

import faulthandler
import random
import re
import signal
import sys
import threading
import time

import numpy as np
import pytest
from conftest import SMALL, needs_onednn
from random_rankers import random_pairs, random_ranker

from wqa.config import EngineConfig
from wqa.data import Candidate, Question, builtin_path, read_questions
from wqa.errors import InputError, ScoreError
from wqa.inference import Ranker, Ranking, SequentialRanker
from wqa.inference.dropping import FREE
from wqa.systems.load import load_ranker

ENGINES = ["mxnet", pytest.param("onednn", marks=needs_onednn)]
EXITS = (1, 2, 4)


def group():
    rng = np.random.default_rng(5)
    return [random_pairs(rng, 8, 4, 40, 200) for _ in range(2)]


def check_same(rankings, expected):
    assert len(rankings) == len(expected)
    for ranking, reference in zip(rankings, expected):
        np.testing.assert_array_equal(ranking.exit_scores, reference.exit_scores)
        np.testing.assert_array_equal(ranking.order, reference.order)


# Interrupts


@pytest.mark.parametrize("engine", ENGINES)
def test_signals_while_many_questions_are_ranked(tiny_run, engine):
    questions = list(read_questions(builtin_path("test")))[:8]
    ranker = load_ranker(tiny_run, drop_ratio=0.3, engine=engine)
    expected = list(ranker.rank_all(questions))
    begin = time.perf_counter()
    check_same(list(ranker.rank_all(questions)), expected)
    seconds = time.perf_counter() - begin
    generator = random.Random(11)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(5):
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds * generator.uniform(0.05, 0.9))
                list(ranker.rank_all(questions))
                time.sleep(seconds)
            except KeyboardInterrupt:
                pass
            signal.setitimer(signal.ITIMER_REAL, 0)
            check_same(list(ranker.rank_all(questions)), expected)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    other = threading.Thread(target=lambda: list(ranker.rank_all(questions)), daemon=True)
    other.start()  # no lock is held
    other.join(30)
    if other.is_alive():
        faulthandler.dump_traceback(sys.__stderr__)  # where all threads are
    assert not other.is_alive()


# Scores


def damaged_ranker(run, engine, value):
    """A ranker whose second exit scores ``value``; the run's parameters are finite."""
    intact = load_ranker(run, engine="mxnet")
    intact.network.heads[1].out.bias.set_data(np.full(1, value))
    return type(intact)(intact.network, intact.inputs, engine=EngineConfig(engine=engine))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("engine", ENGINES)
def test_scores_that_are_not_finite_name_the_question_and_the_layer(tiny_run, engine, value):
    ranker = damaged_ranker(tiny_run, engine, value)
    blank, *questions = list(read_questions(builtin_path("test")))[:3]
    blank = blank._replace(candidates=(Candidate(" "),))
    rankings = ranker.rank_all([blank, *questions])
    expected = f"question '{questions[0].id}', scores after layer 2: {value} for candidate 1;"
    with pytest.raises(ScoreError, match=re.escape(expected)):
        list(rankings)
    with pytest.raises(ScoreError, match=r"question 'how is ice .*', scores after layer 2"):
        ranker.rank("how is ice made in caves ?", ["", "by frost"])
    with pytest.raises(ScoreError, match=r"question '2', .*candidate 2"):
        pairs = ranker.inputs.encode("how is ice made ?", ["", "by frost"])
        ranker.rank_pairs([pairs[:1], pairs])
    [ranking] = ranker.rank_all([blank])
    assert ranking.scores.tolist() == [-np.inf] and ranking.blank.all()


class Broken(Ranker):
    """A system of its own, whose second candidate scores a given value."""

    def __init__(self, value):
        self._value = value

    def rank_all(self, questions):
        for _ in questions:
            scores, none = np.array([1.0, self._value]), np.zeros(2, dtype=bool)
            yield Ranking(np.arange(2), scores, none + 1, none, none, FREE, scores[None])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_system_ranks_by_scores_that_are_not_finite(value):
    question = Question("Q1", "how ?", (Candidate("a"), Candidate("b")))
    for ranker in (Broken(value), SequentialRanker([Broken(value)])):
        with pytest.raises(ScoreError, match=f"{value} for candidate 2"):
            list(ranker.rank_all([question]))
    assert list(SequentialRanker([Broken(0.0)]).rank_all([question]))[0].scores.tolist() == [1, 0]


# Pairs that no inputs of the network give


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "ids, message",
    [
        ([1, 200, 3], "question '2': token id 200 with candidate 2; expected ids from 0 to 199"),
        ([1, -5, 3], "token id -5 with candidate 2"),
        ([1] * 65, "65 tokens with candidate 2; expected at most 64"),
    ],
)
def test_pairs_outside_the_tables_of_the_network_are_refused(engine, ids, message):
    ranker = random_ranker(SMALL, EXITS, engine=EngineConfig(engine=engine, threads=1))
    pairs = group()[0]
    pairs[1] = pairs[1]._replace(token_ids=np.array(ids, np.int32))
    with pytest.raises(InputError, match=re.escape(message)):
        ranker.rank_pairs([group()[1], pairs])
