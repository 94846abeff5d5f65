"""Rankers evaluated, compared and timed, on a ranker whose scores are a table."""

import json
import math

import numpy as np
import pytest
from rankers import cascade_ranking

from wqa.data import Candidate, Question
from wqa.errors import DataError, OptionError
from wqa.evaluation import dev_evaluator, evaluate, evaluate_ranker, read_qrels, read_run
from wqa.evaluation.comparison import (
    NamedRanker,
    compare_rankers,
    compare_trec_runs,
    comparison_table,
    evaluate_seeds,
)
from wqa.inference import Capabilities, Ranker
from wqa.inference.timing import ranks_at_drops, time_latency, time_rankers

QUESTIONS = [
    Question("q1", "?", (Candidate("a", 0), Candidate("b", 1), Candidate("c", 0))),
    Question("q2", "?", (Candidate("a", 0), Candidate("b", 0))),
    Question("q3", "?", (Candidate("a", 1), Candidate("b", 0))),
]
#: Scores of each question's candidates a, b, c after the two stages.
EARLY = {"q1": [3, 2, 1], "q2": [1, 2], "q3": [2, 1]}
LATE = {"q1": [1, 3, 2], "q2": [2, 1], "q3": [1, 2]}


class TableRanker(Ranker):
    """Two stages; the first keeps the best of every question as its drop says."""

    def __init__(self, early=EARLY, late=LATE, exits=(2, 6)):
        self.tables, self.exits, self.calls = (early, late), exits, 0
        self.set_drops()

    @property
    def capabilities(self):
        return Capabilities("table", 2, self.exits, 6 if self.exits else 0)

    def rank_all(self, questions):
        for question in questions:
            self.calls += 1
            yield self._ranking(question)

    def _ranking(self, question):
        rows = ["abc".index(text) for text in question.texts]  # in whatever order they come
        scores = np.array([np.array(table[question.id], float)[rows] for table in self.tables])
        return cascade_ranking(scores, self.drops, (2, 6))


SETTINGS = {"0": {"drop_ratio": 0.0}, "keep=1": {"keep": 1}}


def test_settings_and_exits():
    rows = evaluate_ranker(TableRanker(), QUESTIONS, SETTINGS, "all", ("map",), per_exit=True)
    assert [row["drop_ratio"] for row in rows] == ["0", "keep=1", "exit 2", "exit 6"]
    full, one, early, late = rows
    assert full["questions"] == 3 and full["filter"] == "all"
    assert full["map"] == late["map"] == pytest.approx((1 + 0 + 1 / 2) / 3)
    assert one["map"] == early["map"] == pytest.approx((1 / 2 + 0 + 1) / 3)
    assert full["cost"] == full["token_cost"] == 1
    assert one["cost"] == pytest.approx((2 * 7 + 4 * 3) / (6 * 7))
    assert early["cost"] == early["token_cost"] == pytest.approx(1 / 3) and late["cost"] == 1
    assert one["seconds"] > 0 and early["seconds"] is None


def test_a_ranker_as_it_is():
    ranker = TableRanker()
    assert evaluate_ranker(ranker, QUESTIONS, filter="all")[0]["drop_ratio"] == "0"
    ranker.set_drops(keep=1)
    [row] = evaluate_ranker(ranker, iter(QUESTIONS), filter="clean")
    assert row["drop_ratio"] == "stored" and row["questions"] == 2 and row["cost"] < 1
    assert ranker.calls == 3 + 2  # questions that do not count are not ranked


def test_trec_files_of_an_evaluation(tmp_path):
    names = str(tmp_path / "{}.trec"), str(tmp_path / "qrels")
    evaluate_ranker(
        TableRanker(), QUESTIONS, SETTINGS, "clean", trec_run=names[0], trec_qrels=names[1]
    )
    assert set(read_run(tmp_path / "keep=1.trec")) == set(read_qrels(tmp_path / "qrels"))
    assert set(read_run(tmp_path / "0.trec")) == {"q1", "q3"}
    with pytest.raises(OptionError, match="trec_run: 2 drop ratios; expected a file for each"):
        evaluate_ranker(TableRanker(), QUESTIONS, SETTINGS, trec_run=str(tmp_path / "one"))
    ranker, blank = TableRanker(), QUESTIONS[0]._replace(id="q 1")
    with pytest.raises(DataError, match="the id holds white space"):
        evaluate_ranker(ranker, [blank], trec_run=str(tmp_path / "one"))
    assert not ranker.calls


def test_what_an_evaluation_refuses():
    with pytest.raises(OptionError, match="per_exit: a ranker without exits"):
        evaluate_ranker(TableRanker(exits=()), QUESTIONS, per_exit=True)
    with pytest.raises(OptionError, match="filter: clean leaves no question"):
        evaluate_ranker(TableRanker(), QUESTIONS[1:2], filter="clean")


@pytest.mark.parametrize("live, built", [(False, 2), (True, 1)])
def test_evaluating_a_network_while_it_trains(live, built):
    networks = []

    def build(network):
        networks.append(network)
        return TableRanker()

    figures_of = dev_evaluator(QUESTIONS, build, live)
    first = figures_of("network")
    assert figures_of("network") == first and networks == ["network"] * built
    rankings = list(TableRanker().rank_all(QUESTIONS))
    assert first == {**evaluate(rankings, QUESTIONS), "exit_2_map": pytest.approx(0.5)}
    assert "exit_2_map" not in dev_evaluator(QUESTIONS, lambda _: TableRanker(exits=()))("network")


def test_rankers_are_compared_with_the_first():
    loaded = []

    def entries():
        for name in ("one", "two", "three"):
            loaded.append(name)
            ranker = TableRanker() if name != "two" else TableRanker(late=EARLY)
            yield NamedRanker(name, ranker, "0" if name == "three" else "-")

    result = compare_rankers(entries(), QUESTIONS, "all", ("map", "p@1"))
    assert loaded == ["one", "two", "three"]
    assert [row["run"] for row in result["rows"]] == loaded
    changed, same = result["comparisons"]
    assert (changed["first"], changed["second"], same["second"]) == ("one", "two", "three at 0")
    by_map, by_precision = changed["metrics"]
    assert (by_map["metric"], by_precision["metric"]) == ("map", "p@1")
    assert (by_map["questions"], by_map["changed"]) == (3, 2)
    assert by_map["second"] - by_map["first"] == pytest.approx(by_map["difference"])
    assert same["spearman"] == 1 and same["metrics"][0]["t_test"] == 1
    text = comparison_table(changed)
    assert text.startswith("two less one; Spearman's rho") and "2 of 3" in text
    json.dumps(result)
    with pytest.raises(OptionError, match="at least two"):
        compare_rankers([NamedRanker("one", TableRanker())], QUESTIONS)


def test_rankers_over_seeds():
    entries = [NamedRanker("0", TableRanker()), NamedRanker("1", TableRanker(late=EARLY))]
    rows = evaluate_seeds(entries, QUESTIONS, "all", ("map",))
    assert [row["run"] for row in rows] == ["0", "1", "mean", "deviation"]
    assert rows[2]["map"] == pytest.approx((rows[0]["map"] + rows[1]["map"]) / 2)
    assert rows[3]["cost"] == 0 and rows[2]["questions"] == 3 and rows[2]["token_cost"] is None
    with pytest.raises(OptionError, match="at least two"):
        evaluate_seeds(entries[:1], QUESTIONS)


def test_trec_runs_are_compared_on_the_questions_that_count():
    qrels = {"q1": {"a": 1, "b": 0}, "q2": {"a": 0, "b": 0}, "q3": {"a": 1, "b": 0}}
    right, wrong = {"a": 2.0, "b": 1.0}, {"a": 1.0, "b": 2.0}
    runs = [("one", dict.fromkeys(qrels, right)), ("two", {"q1": wrong, "q2": right, "q3": right})]
    for filter, questions, rho in (("all", 3, 1 / 3), ("clean", 2, 0)):
        result = compare_trec_runs(runs, qrels, filter, ("map",))
        [comparison] = result["comparisons"]
        assert comparison["metrics"][0]["questions"] == questions
        assert comparison["metrics"][0]["first"] == pytest.approx(result["rows"][0]["map"])
        assert comparison["metrics"][0]["second"] == pytest.approx(result["rows"][1]["map"])
        assert comparison["spearman"] == pytest.approx(rho)
    del runs[1][1]["q3"]
    with pytest.raises(DataError, match="1 only in the first"):
        compare_trec_runs(runs, qrels)
    with pytest.raises(OptionError, match="at least two"):
        compare_trec_runs(runs[:1], qrels)


def test_timing():
    ranker = TableRanker()
    ranks = ranks_at_drops(ranker, SETTINGS)
    rows = time_rankers(ranks, QUESTIONS, rounds=2, column="drop_ratio")
    assert [row["drop_ratio"] for row in rows] == ["0", "keep=1"]
    assert rows[0]["time_ratio"] == rows[0]["cost"] == 1 and rows[1]["cost"] < 1
    assert ranker.calls == len(QUESTIONS) * len(SETTINGS) * 3  # a round to warm up
    assert rows[0]["candidates_per_second"] == pytest.approx(7 / rows[0]["seconds"])
    for rounds, questions in ((0, QUESTIONS), (1, [])):
        with pytest.raises(OptionError, match="rounds: "):
            time_rankers(ranks, questions, rounds)


def test_timing_of_single_questions():
    groups = []

    def rank(questions):
        groups.append(questions)
        return []

    [row] = time_latency({"0": rank}, QUESTIONS, 4)
    ids = [question.id for [question] in groups]
    assert ids == ["q1", "q1", "q2", "q3", "q1"]  # the first one warms up
    assert row["questions"] == 4 and 0 < row["p50_ms"] <= row["p99_ms"]
    assert not math.isnan(row["first_ms"])
    with pytest.raises(OptionError, match="count: "):
        time_latency({"0": rank}, QUESTIONS, 1)
