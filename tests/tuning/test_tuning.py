import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wqa.data import Candidate, Question
from wqa.errors import DataError, OptionError
from wqa.evaluation import evaluate
from wqa.inference.dropping import Cost, dropped
from wqa.inference.ranker import Ranking
from wqa.tuning import (
    GRID,
    Configuration,
    ScoredQuestions,
    full_grid,
    pareto_front,
    pick,
    placements,
)
from wqa.tuning.configurations import check_grid

EXITS, DEPTH = (2, 3, 6), 6


def scored(draws):
    """Questions and rankings at drop ratio 0 from (scores at each exit, label, blank) of each
    candidate."""
    questions, rankings = [], []
    for number, rows in enumerate(draws):
        blank = np.array([row[2] for row in rows])
        scores = np.array([row[0] for row in rows], dtype=float).T
        scores[:, blank] = np.nan
        questions.append(
            Question(
                str(number), "q", tuple(Candidate("" if row[2] else "c", row[1]) for row in rows)
            )
        )
        none = np.zeros(len(rows))
        rankings.append(
            Ranking(
                np.arange(len(rows)), scores[-1], none, blank, blank, Cost(0, 0, 0, 0, 0, 0), scores
            )
        )
    return questions, rankings


def by_hand(ranking, ratios):
    """Order and layers of a cascade on a table of scores."""
    scores = np.nan_to_num(ranking.exit_scores, nan=-np.inf)
    left, tail, layers, below = (
        np.flatnonzero(~ranking.blank).tolist(),
        np.flatnonzero(ranking.blank).tolist(),
        0,
        0,
    )
    for place, (exit_, ratio) in enumerate(zip(EXITS, [*ratios, 0.0])):
        layers, below = layers + (exit_ - below) * len(left), exit_
        ranked = sorted(left, key=lambda index: (-scores[place, index], index))  # noqa: B023 - used at once
        kept = 0 if place == len(EXITS) - 1 else len(left) - dropped(ratio, len(left))
        tail, left = ranked[kept:] + tail, sorted(ranked[:kept])
    return tail, layers


candidate = st.tuples(st.tuples(*[st.integers(-3, 3)] * 3), st.integers(0, 1), st.booleans())


@given(
    st.lists(st.lists(candidate, min_size=1, max_size=14), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.29, 0.5, 0.9]), st.sampled_from([0.0, 0.3, 0.75])),
        min_size=1,
        max_size=6,
    ),
)
def test_equals_the_cascade_by_hand(draws, configurations):
    questions, rankings = scored(draws)
    found = ScoredQuestions(rankings, questions, EXITS, DEPTH).evaluate(configurations)
    assert [configuration.ratios for configuration in found] == [
        (*ratios, 0.0) for ratios in configurations
    ]
    full = DEPTH * sum(int((~ranking.blank).sum()) for ranking in rankings)
    for configuration in found:
        orders, layers = zip(*(by_hand(ranking, configuration.ratios[:-1]) for ranking in rankings))
        expected = evaluate(orders, questions)
        for name, value in configuration.metrics.items():
            assert value == pytest.approx(expected[name]), name
        assert configuration.cost == pytest.approx(sum(layers) / full if full else 0)


def test_grids():
    assert len(full_grid(GRID, 5)) == 6**4
    assert check_grid([0.5, 0.1, 0.5]) == (0.1, 0.5)
    for grid in ([1.0], [-0.1, 0.2], [float("nan")], []):
        with pytest.raises(OptionError, match="grid: "):
            check_grid(grid)


def test_placements_of_exits():
    assert placements([0.3], 4, 2) == [(0.3, 0, 0), (0, 0.3, 0), (0, 0, 0.3)]
    assert len(placements(GRID, 5, 3)) == 6 * 6
    assert placements([0.5], 3, 1) == [(0, 0)]
    for used in (0, 4):
        with pytest.raises(OptionError, match="place_exits: "):
            placements([0.3], 3, used)


def configuration(cost, value):
    return Configuration((cost, 0.0), cost, cost, {"map": value})


def test_the_front_and_the_pick():
    all_ = [
        configuration(*pair)
        for pair in ((0.5, 0.7), (0.6, 0.7), (0.7, 0.9), (0.6, 0.8), (0.4, 0.2), (0.9, 0.85))
    ]
    front = [(found.cost, found.metrics["map"]) for found in pareto_front(all_)]
    assert front == [(0.4, 0.2), (0.5, 0.7), (0.6, 0.8), (0.7, 0.9)]
    assert pick(all_, max_cost=0.65).cost == 0.6
    assert pick(all_, min_metric=0.75).cost == 0.6
    with pytest.raises(OptionError, match="max_cost: 0.3; expected at least 0.4"):
        pick(all_, max_cost=0.3)
    with pytest.raises(OptionError, match="min_metric: 0.95; expected at most 0.9"):
        pick(all_, min_metric=0.95)
    for limits in ({}, {"max_cost": 1, "min_metric": 0.1}):
        with pytest.raises(OptionError, match="expected one of them"):
            pick(all_, **limits)


def test_the_pick_by_a_loss():
    """The cheapest that loses no more beside the configuration that drops nothing."""
    full = Configuration((0.0, 0.0), 1.0, 1.0, {"map": 0.8})
    all_ = [full, *(configuration(*pair) for pair in ((0.4, 0.7), (0.5, 0.78), (0.6, 0.8)))]
    picked = [pick(all_, max_loss=loss).cost for loss in (0, 0.01, 0.02, 0.1, 0.5)]
    assert picked == [0.6, 0.6, 0.5, 0.4, 0.4]
    assert pick([full, configuration(0.5, 0.79)], max_loss=0) is full
    with pytest.raises(OptionError, match="max_loss: 0.1; expected a configuration that drops"):
        pick(all_[1:], max_loss=0.1)
    for wrong in (-0.1, float("nan"), float("inf")):
        with pytest.raises(OptionError, match="max_loss: .*; expected a number from 0"):
            pick(all_, max_loss=wrong)


def test_nothing_to_tune_on():
    with pytest.raises(DataError, match="no question is left"):
        ScoredQuestions([], [], EXITS, DEPTH)
    questions, rankings = scored([[((1, 2, 3), None, False)]])
    with pytest.raises(DataError, match="has no label"):
        ScoredQuestions(rankings, questions, EXITS, DEPTH)


def test_the_papers_grid_takes_seconds():
    """340 questions of 100 candidates, as GPD's dev, and all 1,296 configurations."""
    import time

    rng = np.random.default_rng(0)
    draws = [
        [(tuple(rng.normal(size=5)), int(rng.random() < 0.03), False) for _ in range(100)]
        for _ in range(340)
    ]
    questions, rankings = scored(draws)
    prepared = ScoredQuestions(rankings, questions, (4, 6, 8, 10, 12), 12)
    begin = time.perf_counter()
    found = prepared.evaluate(full_grid(GRID, 5))
    assert len(found) == 1296 and time.perf_counter() - begin < 60


def test_the_pareto_front_is_thinned_for_a_table(tmp_path):
    from wqa.tuning import Tuning

    front = [configuration(cost / 100, cost / 200) for cost in range(1, 51)]
    tuning = Tuning(3, 0.1, front, front, ("exit_2",), tmp_path)
    rows = tuning.front_rows(5)
    assert [row["exit_2"] for row in rows] == [0.01, 0.13, 0.25, 0.37, 0.5]
    assert tuning.front_rows(100) == tuning.front_rows(50)
    assert rows[0] == {"exit_2": 0.01, "cost": 0.01, "paper_cost": 0.01, "map": 0.005}


def test_what_can_be_tuned(tiny_run, tmp_path):
    from wqa.data import builtin_path
    from wqa.tuning import tune

    with pytest.raises(OptionError, match="max_cost and min_metric: together"):
        tune(tiny_run, builtin_path("dev"), max_cost=0.5, min_metric=0.5)
    with pytest.raises(OptionError, match="place_exits: 9"):
        tune(tiny_run, builtin_path("dev"), place_exits=9, picture=False, out=tmp_path)
    tuning = tune(tiny_run, builtin_path("dev"), (0.5,), picture=False, out=tmp_path)
    assert tuning.columns == ("exit_1", "exit_2") and tuning.picked is None
    assert len(tuning.configurations) == 1 and tuning.questions == 25
    assert not (tiny_run / "tuned.json").exists()
    # The grid has no ratio of 0; a loss is measured beside it all the same.
    copy = shutil.copytree(tiny_run, tmp_path / "copy")
    tuning = tune(copy, builtin_path("dev"), (0.5,), max_loss=0, picture=False)
    full = next(found for found in tuning.configurations if not found.discards)
    assert len(tuning.configurations) == 2 and full.cost == 1
    assert tuning.picked.configuration.metrics["map"] >= full.metrics["map"]
    assert json.loads((copy / "tuned.json").read_text())["chosen_by"]["max_loss"] == 0
