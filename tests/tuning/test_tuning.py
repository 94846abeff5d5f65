import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankers import cascade_ranking

from wqa.data import Candidate, Question, builtin_path
from wqa.errors import OptionError, RunDirectoryError
from wqa.evaluation import evaluate
from wqa.inference.dropping import Drop
from wqa.inference.ranker import Capabilities, Ranker
from wqa.tuning import Configuration, pareto_front, pick, tune
from wqa.tuning.replay import ScoredQuestions

EXITS, DEPTH = (2, 3, 6), 6


class Stored(Ranker):
    """Gives (scores at each exit, label, blank) of each candidate as rankings at drop ratio 0."""

    def __init__(self, draws):
        self._draws = draws

    @property
    def capabilities(self):
        return Capabilities("stored", len(EXITS), EXITS, DEPTH)

    def questions(self):
        questions = []
        for number, rows in enumerate(self._draws):
            # Ids in the order by which ties break.
            candidates = [
                Candidate("" if blank else "c", label, f"{len(rows) - place:03}")
                for place, (_, label, blank) in enumerate(rows)
            ]
            questions.append(Question(str(number), "q", tuple(candidates)))
        return questions

    def rank_all(self, questions):
        for scores in self.tables():
            yield cascade_ranking(scores, (Drop(),) * len(EXITS), EXITS)

    def tables(self):
        """Scores of each question's candidates, NaN for blank ones."""
        for rows in self._draws:
            scores = np.array([row[0] for row in rows], dtype=float).T
            scores[:, [row[2] for row in rows]] = np.nan
            yield scores


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
    ranker = Stored(draws)
    questions = ranker.questions()
    tables = list(ranker.tables())
    drops = [tuple(map(Drop, ratios)) for ratios in configurations]
    evaluated = ScoredQuestions(ranker, questions).evaluate(drops)
    assert [configuration.drops for configuration in evaluated] == drops
    full = DEPTH * sum(int((~np.isnan(scores[0])).sum()) for scores in tables)
    for configuration in evaluated:
        given = (*configuration.drops, Drop())
        rankings = [cascade_ranking(scores, given, EXITS) for scores in tables]
        layers = [ranking.cost.candidate_work for ranking in rankings]
        expected = evaluate([ranking.order for ranking in rankings], questions)
        for name, value in configuration.metrics.items():
            assert value == pytest.approx(expected[name]), name
        assert configuration.cost == pytest.approx(sum(layers) / full if full else 0)


def configuration(cost, value):
    return Configuration((Drop(cost),), cost, cost, {"map": value})


def test_the_front_and_the_pick():
    all_ = [
        configuration(*pair)
        for pair in ((0.5, 0.7), (0.6, 0.7), (0.7, 0.9), (0.6, 0.8), (0.4, 0.2), (0.9, 0.85))
    ]
    front = [(found.cost, found.metrics["map"]) for found in pareto_front(all_)]
    assert front == [(0.4, 0.2), (0.5, 0.7), (0.6, 0.8), (0.7, 0.9)]
    assert pick(all_, max_cost=0.65).cost == 0.6
    with pytest.raises(OptionError, match="max_cost: 0.3; expected at least 0.4"):
        pick(all_, max_cost=0.3)


def test_the_pick_by_a_loss():
    """The cheapest that loses no more beside the configuration that drops nothing."""
    full = Configuration((Drop(),), 1.0, 1.0, {"map": 0.8})
    all_ = [full, *(configuration(*pair) for pair in ((0.4, 0.7), (0.5, 0.78), (0.6, 0.8)))]
    picked = [pick(all_, max_loss=loss).cost for loss in (0, 0.01, 0.02, 0.1, 0.5)]
    assert picked == [0.6, 0.6, 0.5, 0.4, 0.4]
    assert pick([full, configuration(0.5, 0.79)], max_loss=0) is full


def test_what_can_be_tuned(tiny_run, tmp_path):
    with pytest.raises(OptionError, match="max_cost and max_loss: together"):
        tune(tiny_run, builtin_path("dev"), max_cost=0.5, max_loss=0.5)
    tuning = tune(tiny_run, builtin_path("dev"), (0.5,), out=tmp_path)
    assert tuning.columns == ("exit_1", "exit_2") and tuning.picked is None
    assert len(tuning.configurations) == 1 and tuning.questions == 25
    assert not (tiny_run / "tuned.json").exists()
    # The grid has no ratio of 0; a loss is measured beside it all the same.
    grids = [{"grid": grid} for grid in ([1.0], [-0.1, 0.2], [float("nan")], ["x"], [])]
    for options in (*grids, {"pool": "batch"}, {"long_candidates": "windows"}):
        with pytest.raises(OptionError, match=f"^{[*options][0]}: "):
            tune(tiny_run, builtin_path("dev"), **options)
    (tmp_path / "sum.json").write_text('{"ensemble": ["bm25", "wo"]}')
    with pytest.raises(RunDirectoryError, match="an ensemble"):
        tune(tmp_path / "sum.json", builtin_path("dev"), max_cost=1)
    copy = shutil.copytree(tiny_run, tmp_path / "copy")
    tuning = tune(copy, builtin_path("dev"), (0.5,), max_loss=0)
    full = next(row for row in tuning.configurations if not row.discards)
    assert len(tuning.configurations) == 2 and full.cost == 1
    assert tuning.picked.metrics["map"] >= full.metrics["map"]
    assert json.loads((copy / "tuned.json").read_text())["chosen_by"]["max_loss"] == 0
