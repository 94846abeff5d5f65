"""Relevance follows the order of every ranker, also where scores do not."""

import json
import math

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rankers import ranking_of

from wqa.data import Candidate, Question
from wqa.data.word_vectors import WordVectors
from wqa.inference import EnsembleRanker, Ranker, SequentialRanker
from wqa.inference.ranking import LEAST, STEP, decreasing
from wqa.pretrained import read_backbone_config
from wqa.systems.load import build_ranker, load_ranker
from wqa.systems.registry import SYSTEMS, build_network
from wqa.text import WordTokenizer, embedding_matrix, load_tokenizer

#: Options of a tiny network of each system that ranks.
OPTIONS = {
    "cascade": {"exits": (1, 2, 3)},
    "pairwise": {},
    "mhs": {"body": 1, "heads": 2, "exits": (1,)},
    "dcbert": {"layers": 3, "exits": (1, 2, 3), "question_length": 12},
    "mspp": {"k": 3, "segment_length": 20},
    "mspp_pretraining": {"k": 3, "segment_length": 20},
    "cosinet": {"recurrent": "birnn"},
    "compare_aggregate": {},
}
SENTENCE = "what is a glacier ice the moon slow bright body of river rock tea whistle"
WORDS = SENTENCE.split()


def initialised(network):
    mx.random.seed(3)
    network.initialize(mx.init.Normal(0.4))
    return network


def ranker_of(system, folder, **options):
    """A ranker of random weights; its scores do not follow from exit to exit."""
    kind = SYSTEMS[system].network_type()
    if hasattr(kind.Config(), "rows"):
        vectors = np.random.default_rng(1).normal(size=(len(WORDS), 4)).astype(np.float32)
        table = WordVectors(WORDS, vectors)
        tokenizer, matrix = WordTokenizer.of_table(table, 8), embedding_matrix(table, 8)
        network = build_network(system, rows=len(matrix), width=4, **OPTIONS[system])
        initialised(network).vectors.set_data(mx.nd.array(matrix))
    else:
        tokenizer = load_tokenizer(folder)
        network = initialised(
            build_network(system, read_backbone_config(folder), **OPTIONS[system])
        )
    inputs = network.text_inputs(tokenizer, 48)
    return build_ranker(system, network, inputs, **options)


def follows(ranking):
    """Check a ranking's relevance; returns the relevance in order."""
    relevance = ranking.relevance
    assert relevance.dtype == np.float64 and relevance.shape == ranking.scores.shape
    np.testing.assert_array_equal(np.argsort(-relevance, kind="stable"), ranking.order)
    assert relevance.min() >= 0 and relevance.max() <= 1
    np.testing.assert_array_equal(relevance == 0, ranking.blank)
    rows = list(zip(ranking.order[:-1], ranking.order[1:]))
    for above, below in rows:
        if ranking.blank[below]:
            continue
        alike = ranking.scores[above] == ranking.scores[below]
        stages = [set(np.flatnonzero(~np.isnan(ranking.exit_scores[:, i]))) for i in (above, below)]
        if alike and stages[0] == stages[1] and ranking.exits[above] == ranking.exits[below]:
            assert relevance[above] == relevance[below]
        else:
            assert np.float32(relevance[above]) > np.float32(relevance[below])
    first = ranking.order[0]
    if not ranking.blank[first] and ranking.probabilities[first] > 1e-30:
        assert relevance[first] == ranking.probabilities[first]
    for row, index in zip(ranking.to_dicts(), ranking.order):
        assert row["relevance"] == relevance[index] and math.isfinite(row["score"] or 0)
        json.dumps(row, allow_nan=False)
    return relevance[ranking.order]


def sigmoid(score):
    return 1 / (1 + math.exp(-score))


# By hand


def test_a_dropped_candidate_comes_below_the_survivors():
    none = math.nan
    # Exits 1 and 2: candidates 0 and 3 are dropped, with scores above the last survivor's.
    ranking = ranking_of([[3.0, 4.0, 5.0, 3.5, none], [none, -1.0, 2.0, none, none]])
    assert ranking.order.tolist() == [2, 1, 3, 0, 4]
    low = sigmoid(-1)
    expected = [sigmoid(2), low, low * (1 - STEP), low * (1 - STEP) ** 2, 0.0]
    np.testing.assert_allclose(follows(ranking), expected, rtol=1e-12)
    assert ranking.relevance[2] == ranking.probabilities[2]
    assert ranking.relevance[1] == ranking.probabilities[1]
    assert ranking.scores.tolist() == [3.0, -1.0, 2.0, 3.5, -math.inf]
    np.testing.assert_allclose(ranking.probabilities[[0, 3]], [sigmoid(3), sigmoid(3.5)])


def test_candidates_that_tie_have_one_relevance():
    none = math.nan
    # The first exit scores 0, 1 and 2 alike; 2 is dropped there and does not tie with the others.
    ranking = ranking_of([[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, none, none]])
    top = sigmoid(1)
    assert follows(ranking)[:2].tolist() == [top, top]
    assert ranking.relevance[2] == pytest.approx(top * (1 - STEP), rel=1e-12)
    assert ranking.relevance[3] == 0.5


def test_the_top_has_the_relevance_of_the_whole():
    rng = np.random.default_rng(0)
    stages = rng.normal(size=(2, 30)) * 60
    stages[1, stages[0] < 0] = np.nan
    ranking = ranking_of(stages)
    for count in (1, 7, 30):
        top = ranking.top(count)
        np.testing.assert_array_equal(top.relevance[top.order], ranking.relevance[top.order])
        left_out = np.delete(top.relevance, top.order)
        assert not left_out.any() and len(left_out) == 30 - count
        assert [row["relevance"] for row in top.to_dicts()] == top.relevance[top.order].tolist()


# Properties


@given(st.lists(st.floats(0, 1), min_size=1, max_size=80), st.data())
def test_any_probabilities(values, data):
    ties = st.lists(st.booleans(), min_size=len(values) - 1, max_size=len(values) - 1)
    differs = np.array(data.draw(ties), dtype=bool)
    probabilities = np.array(values)
    corrected = decreasing(probabilities, differs, len(values))
    assert corrected.max() <= 1 and corrected.min() > 0
    single = corrected.astype(np.float32)
    np.testing.assert_array_equal(single[1:] < single[:-1], differs)
    np.testing.assert_array_equal(corrected[1:] < corrected[:-1], differs)
    # What needs no correction has none, and nothing is raised but from practically 0.
    assert (corrected <= np.maximum(probabilities, LEAST * 1.001)).all()
    again = decreasing(corrected, differs, len(values))
    np.testing.assert_allclose(again, corrected, rtol=1e-12)


# Every system

TEXTS = st.lists(
    st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), min_size=1, max_size=12
)


@pytest.fixture(scope="module", params=[*OPTIONS, "sequence", "ensemble", "pools", "wo+rr", "bm25"])
def ranker(request, tiny_encoder):
    if request.param in ("wo+rr", "bm25"):
        return load_ranker(request.param)
    made = {}
    for system in {"cascade", "cosinet", "mspp", request.param} & set(OPTIONS):
        made[system] = ranker_of(system, tiny_encoder)
        if made[system].capabilities.stages > 1:
            made[system].set_drops(0.4)
    if request.param == "sequence":
        first = load_ranker("bm25")
        rankers = [first, made["cascade"], made["cosinet"], made["mspp"]]
        return SequentialRanker(rankers, 0.3)
    if request.param == "ensemble":
        return EnsembleRanker([made["cascade"], load_ranker("wo"), made["mspp"]])
    if request.param == "pools":
        return ranker_of("cascade", tiny_encoder, drop_ratio=0.5, pool="batch", pool_size=3)
    return made[request.param]


def test_relevance_follows_the_order_of_every_system(ranker):
    @settings(max_examples=25)
    @given(st.lists(TEXTS, min_size=1, max_size=3))
    def check(lists):
        questions = []
        for number, texts in enumerate(lists):
            candidates = tuple(Candidate(text) for text in texts)
            questions.append(Question(f"q{number}", "what is a glacier", candidates))
        for ranking in ranker.rank_all(questions):
            follows(ranking)

    check()


class Reads(Ranker):
    """Scores 0 but for the texts that it cannot read, which are blank to it."""

    def __init__(self, blank):
        self._blank = blank

    def rank_all(self, questions):
        for question in questions:
            blank = np.array([text in self._blank for text in question.texts])
            stages = np.where(blank, np.nan, [float(len(text)) for text in question.texts])
            yield ranking_of(stages)


def test_a_candidate_that_only_the_second_ranker_finds_blank_comes_last():
    ranker = SequentialRanker([Reads(()), Reads(("cccc",))], keep=3)
    ranking = ranker.rank("?", ["aa", "b", "cccc", "ddd", "", "eeeee"])
    assert ranking.order.tolist() == [5, 3, 0, 1, 4, 2]
    assert ranking.blank.tolist() == [False, False, True, False, False, False]
    follows(ranking)
