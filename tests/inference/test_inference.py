import json
import math

import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, SMALL
from random_rankers import random_pairs, random_ranker

from wqa.config import EngineConfig
from wqa.data import builtin_path, read_questions
from wqa.evaluation import evaluate
from wqa.inference import CascadeRanker
from wqa.inference.dropping import dropped
from wqa.systems.load import load_ranker
from wqa.systems.saving import save_run
from wqa.text import PairInputs, load_tokenizer, pad_pairs

pytestmark = pytest.mark.onednn

EXITS = (1, 2, 4)


def ranker_with(**options):
    ranker = random_ranker(SMALL, EXITS, **options)
    for name, parameter in ranker.network.collect_params().items():  # spread the scores out
        if name.endswith("weight"):
            parameter.set_data(parameter.data() * 5)
    return ranker


def full_scores(ranker, pairs):
    """Score of every pair at every exit, one pair at a time through the whole network."""
    rows = []
    for pair in pairs:
        padded = pad_pairs([pair], len(pair.token_ids), 0, False)
        arrays = [mx.nd.array(array, dtype=array.dtype) for array in padded]
        paths = [ranker.network.path(index)(*arrays)[1] for index in range(len(EXITS))]
        rows.append([float(score.asscalar()) for score in paths])
    return np.array(rows).T


def by_hand(scores, ratios, size=None):
    """The cascade on a table of scores, as section 4.3.2 tells it."""
    k = scores.shape[1]
    size = size or k
    pools = [list(range(start, min(start + size, k))) for start in range(0, k, size)]
    last = {}
    for layer, row, ratio in zip(EXITS, scores, ratios):
        kept = []
        for pool in pools:
            last.update({index: (layer, row[index]) for index in pool})
            best = sorted(pool, key=lambda index, row=row: (-row[index], index))
            kept.append(sorted(best[: len(pool) - dropped(ratio, len(pool))]))
        pools = kept
    order = sorted(range(k), key=lambda index: (-last[index][0], -last[index][1], index))
    return order, [last[index][0] for index in range(k)]


@pytest.fixture(scope="module")
def group():
    return [
        random_pairs(np.random.default_rng(seed), k, 4, 60, 200)
        for seed, k in enumerate((17, 1, 12))
    ]


@pytest.fixture(scope="module")
def scores_of_pairs(group):
    ranker = ranker_with()
    return [full_scores(ranker, pairs) for pairs in group]


@pytest.mark.parametrize("ratios", [0.0, 0.3, [0.0, 0.5], [0.25, 0.6], 0.99])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"engine": EngineConfig(engine="mxnet", batch_tokens=100)},
        {"pool": "batch", "pool_size": 7},
    ],
)
def test_equals_the_cascade_by_hand(ratios, options, group, scores_of_pairs):
    ranker = ranker_with(**options)
    ranker.set_drops(ratios)
    for pairs, ranking, expected in zip(group, ranker.rank_pairs(group), scores_of_pairs):
        reached = ~np.isnan(ranking.exit_scores)
        scores = expected.copy()
        np.testing.assert_allclose(ranking.exit_scores[reached], scores[reached], atol=1e-4)
        # From here on by the scores as they ran, which differ in the last bits where the padding
        # does.
        scores[reached] = ranking.exit_scores[reached]
        order, exits = by_hand(scores, ranker.drop_ratio, options.get("pool_size"))
        assert ranking.order.tolist() == order
        assert ranking.exits.tolist() == exits
        cost, work = ranking.cost, SMALL.layer_work
        tokens = sum(depth * len(pair.token_ids) for depth, pair in zip(exits, pairs))
        assert cost.candidate_work == work * sum(exits)
        assert cost.multiply_adds == work * tokens
        if "pool" not in options:
            assert ranking.cost.relative == pytest.approx(ranking.cost.paper)


def test_ties_keep_the_original_order():
    ranker = ranker_with(drop_ratio=0.5)
    pair = random_pairs(np.random.default_rng(0), 1, 9, 9, 200)[0]
    [ranking] = ranker.rank_pairs([[pair] * 8])
    assert ranking.order.tolist() == list(range(8))
    assert ranking.exits.tolist() == [4, 4, 2, 2, 1, 1, 1, 1]


def test_the_contract(tiny_run):
    ranker = load_ranker(tiny_run, drop_ratio=0.3)
    candidates = ["a glacier is ice .", "", "  \t", "the moon", "moon " * 500, "who ?", "bees"]
    ranking = ranker.rank("what is a glacier ?", candidates)
    assert sorted(ranking.order[:5].tolist()) == [0, 3, 4, 5, 6]
    assert ranking.order[5:].tolist() == [1, 2]
    assert ranking.blank.tolist() == [False, True, True, False, False, False, False]
    assert ranking.truncated.tolist() == [False] * 4 + [True, False, False]
    assert ranking.exits[1] == 0 and ranking.scores[1] == -math.inf
    assert set(ranking.exits.tolist()) <= {0, 1, 2, 3}
    assert np.isfinite(np.delete(ranking.scores, [1, 2])).all()
    # Blank candidates cost nothing.
    assert ranking.cost.full_candidate_work == 15 * ranker.network.config.layer_work
    only_blank = ranker.rank("what is a glacier ?", ["", " "])
    assert only_blank.order.tolist() == [0, 1] and only_blank.cost.relative == 0
    huge = ranker.rank("what is a glacier ?", ["ice " * 100_000, "ice"])
    assert huge.truncated.tolist() == [True, False]


def test_rank_all_equals_rank(tiny_run):
    ranker = load_ranker(tiny_run, drop_ratio=[0.2, 0.5])
    ranker._group_size = 2000
    questions = list(read_questions(builtin_path("test")))
    together = list(ranker.rank_all(questions))
    for question, ranking in zip(questions, together):
        alone = ranker.rank(question.question, question.texts)
        assert ranking.order.tolist() == alone.order.tolist()
        np.testing.assert_allclose(ranking.scores, alone.scores, atol=1e-4)
    assert evaluate(together, questions)["questions"] == 25


@pytest.mark.parametrize("system, exits", [("cascade", (1, 3)), ("pairwise", ())])
def test_trained_saved_and_loaded_scores_are_the_same(
    new_trainer, tiny_encoder, tmp_path, system, exits
):
    """The ranker of the model in memory and of its run directory agree to the bit."""
    trainer = new_trainer(system, tiny_encoder, {"max_updates": 2}, exits=exits)
    trainer.fit()
    inputs = PairInputs(load_tokenizer(tiny_encoder), 64)
    run = save_run(trainer.network, inputs, tmp_path / "run")
    questions = list(read_questions(builtin_path("test")))[:5]
    in_memory = list(CascadeRanker(trainer.network, inputs).rank_all(questions))
    loaded = list(load_ranker(run, engine="mxnet").rank_all(questions))
    for first, second in zip(in_memory, loaded):
        np.testing.assert_array_equal(first.scores, second.scores)


def test_a_run_of_the_version_before_still_loads():
    run = DATA / "run_0_2_0"
    expected = json.loads((run / "expected.json").read_text())
    ranker = load_ranker(run, drop_ratio=expected["drop_ratio"])
    assert ranker.capabilities.exits == (1, 3)
    questions = list(read_questions(builtin_path("test")))[: len(expected["rankings"])]
    for ranking, was in zip(ranker.rank_all(questions), expected["rankings"]):
        assert ranking.order.tolist() == was["order"] and ranking.exits.tolist() == was["exits"]
        np.testing.assert_allclose(ranking.scores, was["scores"], atol=1e-4)
