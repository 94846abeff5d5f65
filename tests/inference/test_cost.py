"""The published costs of the Cascade Transformer (Soldaini and Moschitti 2020).

They are computed by the formula, and counted while a cascade of this depth ranks.
"""

import numpy as np
import pytest
from random_rankers import random_pairs, random_ranker

from wqa.config import BackboneConfig
from wqa.engines.mxnet import MXNetEngine
from wqa.errors import OptionError
from wqa.inference import relative_cost
from wqa.inference.dropping import dropped

EXITS = (4, 6, 8, 10, 12)


CONFIG = BackboneConfig(
    vocab_size=50, units=8, hidden_size=16, num_layers=12, num_heads=2, max_positions=32
)


def percent(cost):
    """A relative cost as the paper prints it: the difference to the full encoder, in per cent."""
    return 100 * (cost - 1)


@pytest.mark.parametrize("alpha, published", [(0.3, -37), (0.4, -45), (0.5, -51)])
def test_cascades_of_table_3(alpha, published):
    assert round(percent(relative_cost(EXITS, alpha))) == published
    assert relative_cost(EXITS, (alpha,) * 4) == relative_cost(EXITS, alpha)


@pytest.mark.parametrize(
    "alpha, published",
    [
        (0.3, 53),  # 53.59, whose fraction the paper cuts off
        (0.4, 18),  # 18.29
        (0.5, -10),  # -8.33, which the paper rounds to tens
    ],
)
def test_sequences_of_table_3(alpha, published):
    """A sequence runs all layers of each ranker on the candidates that are left."""
    left = [(1 - alpha) ** dropping for dropping in range(len(EXITS))]
    by_hand = sum(layers * share for layers, share in zip(EXITS, left)) / 12
    cost = relative_cost(EXITS, alpha, shared=False)
    assert cost == pytest.approx(by_hand)
    assert percent(cost) == pytest.approx(published, abs=2)


def test_the_worked_example():
    """Section 4.3.2, alpha 0.3 and b = 128: 128, 90, 63, 45, 32 candidates reach the five exits.

    The paper goes on from 63 with 44 and then 28 (in its sum) or 31 (in its text), where
    floor(0.3 * 63) = 18 leaves 45, of which floor(0.3 * 45) = 13 leave 32. So its average batch is
    80.2, where the rule has 81; both are below the 84 of its example.
    """
    reach = [128]
    for _ in EXITS[1:]:
        reach.append(reach[-1] - dropped(0.3, reach[-1]))
    assert reach == [128, 90, 63, 45, 32]


@pytest.fixture
def ran(monkeypatch):
    """Layers times candidates, and layers times tokens, that engines have run."""
    counts = {"candidates": 0, "tokens": 0}
    run = MXNetEngine._run

    def counted(engine, work):
        exits = [0, *engine._inputs.network.exits]
        layers = exits[work.stages[-1] + 1] - exits[work.stages[0]]
        counts["candidates"] += layers * len(work.pairs)
        counts["tokens"] += layers * sum(len(pair.token_ids) for pair in work.pairs)
        return run(engine, work)

    monkeypatch.setattr(MXNetEngine, "_run", counted)
    return counts


@pytest.fixture(scope="module")
def cascade():
    return random_ranker(CONFIG, EXITS)


@pytest.mark.parametrize("alpha, published", [(0.0, 0), (0.3, -37), (0.4, -45), (0.5, -51)])
def test_a_cascade_runs_what_table_3_publishes(cascade, ran, alpha, published):
    cascade.set_drops(alpha)
    pairs = random_pairs(np.random.default_rng(0), 300, 4, 8, CONFIG.vocab_size)
    [ranking] = cascade.rank_pairs([pairs])
    tokens = sum(len(pair.token_ids) for pair in pairs)
    assert percent(ran["candidates"] / (12 * 300)) == pytest.approx(published, abs=0.8)
    # The cost that the ranking reports is what has run.
    assert ranking.cost.relative == pytest.approx(ran["candidates"] / (12 * 300))
    assert ranking.cost.paper == pytest.approx(ranking.cost.relative)
    assert ranking.cost.relative_tokens == pytest.approx(ran["tokens"] / (12 * tokens))
    assert ranking.exits.sum() == ran["candidates"]  # the layer that each candidate has reached


def test_each_pool_keeps_its_own_candidates():
    ranker = random_ranker(CONFIG, EXITS, drop_ratio=0.3, pool="batch", pool_size=4)
    pairs = random_pairs(np.random.default_rng(0), 16, 4, 8, CONFIG.vocab_size)
    [ranking] = ranker.rank_pairs([pairs])
    scored = (4, 3, 3, 3, 3)  # of four candidates 30 % are one, of three none
    cost = sum(count * layers for count, layers in zip(scored, (4, 2, 2, 2, 2))) / (4 * 12)
    assert ranking.cost.paper == pytest.approx(cost) == pytest.approx(ranking.cost.relative)


@pytest.mark.parametrize(
    "arguments, where",
    [
        (((),), "exits"),
        (((4, 2),), "exits"),
        (((0, 2),), "exits"),
        (((4, 6), 0.3, 5), "exits"),
        (((2, 4), 1.0), "drop_ratio"),
        (((2, 4), (0.1,) * 3), "drop_ratio"),
    ],
)
def test_what_does_not_fit(arguments, where):
    with pytest.raises(OptionError, match=where):
        relative_cost(*arguments)
