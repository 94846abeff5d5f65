"""Measures of ir_measures beside the metrics that are built in."""

import json

import pytest

from wqa.cli import main
from wqa.data import builtin_path, read_questions
from wqa.errors import MissingDependency, OptionError
from wqa.evaluation import evaluate, metrics, qrels_from, score_run
from wqa.evaluation.metrics import UNJUDGED, metric, metrics_of
from wqa.evaluation.rankers import questions_that_count
from wqa.systems.load import load_ranker

ir_measures = pytest.importorskip("ir_measures", reason="ir_measures comes with the extra [ir]")


def test_hand_computed():
    ranked, judged = [0, 1, 0, 1], [0, 1, 0, 1, 1]
    assert metric("R@2")(ranked, judged) == pytest.approx(1 / 3)
    assert metric("Success@1")(ranked, judged) == 0
    assert metric("P@4")(ranked, judged) == 0.5
    assert metric("Judged@2")([1, UNJUDGED], [1, 0]) == 0.5
    assert metric("Judged@2")([1, 0], [1, 0]) == 1
    assert metric("R@2")([], [1]) == 0


def test_a_measure_that_needs_a_least_grade_counts_from_one():
    pytest.importorskip("cwl", reason="cwl-eval comes with the extra [ir]")
    value = metric("RBP(p=0.5)")([1, 0, 2], [1, 0, 2])
    assert value == pytest.approx(0.5 * (1 + 0.25), abs=1e-5)
    assert metric("RBP")([0, 1], [0, 1]) == pytest.approx(0.2 * 0.8, abs=1e-5)


def test_equal_to_the_built_in_ones_with_ties():
    questions = questions_that_count(read_questions(builtin_path("test")))
    rankings = list(load_ranker("wo").rank_all(questions))
    ties = sum(len(set(ranking.scores)) < len(ranking.scores) for ranking in rankings)
    assert ties > 5  # counts of words tie often
    ours, theirs = ["ndcg@10", "map", "mrr", "p@1"], ["nDCG@10", "AP", "RR", "P@1"]
    figures = evaluate(rankings, questions, metrics=[*ours, *theirs])
    for built_in, other in zip(ours, theirs):
        assert figures[built_in] == pytest.approx(figures[other], abs=1e-6), other
        assert 0 < figures[built_in] < 1
    # The library itself, on the scores that tie: trec_eval's rule is ours.
    run = {}
    for question, ranking in zip(questions, rankings):
        scores = [float(score) for score in ranking.scores]
        run[question.id] = dict(zip(question.document_ids, scores))
    measures = [ir_measures.parse_measure(name) for name in theirs]
    direct = ir_measures.calc_aggregate(measures, qrels_from(questions), run)
    for measure, name in zip(measures, theirs):
        assert figures[name] == pytest.approx(direct[measure], abs=1e-6), name


def test_a_trec_run_with_documents_that_nobody_judged():
    run = {"1": {"a": 3.0, "b": 2.0, "c": 1.0}, "2": {"a": 1.0}}
    qrels = {"1": {"a": 0, "c": 2, "d": 1}, "2": {"b": 1}}
    names = ["Bpref", "nDCG@2", "R@3", "Judged@10", "infAP"]
    figures = score_run(run, qrels, metrics=names)
    direct = ir_measures.calc_aggregate(
        [ir_measures.parse_measure(name) for name in names], qrels, run
    )
    for measure, value in direct.items():
        assert figures[str(measure)] == pytest.approx(value, abs=1e-6)


def test_on_the_command_line(capsys):
    data = str(builtin_path("dev"))
    names = "nDCG@20,R@100,P(rel=1)@3,map"
    assert main(["evaluate", "wo", "--data", data, "--metrics", names, "--json", "-"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["R@100"] == 1 and 0 < row["nDCG@20"] < 1 and "P(rel=1)@3" in row


@pytest.mark.parametrize("name", ["f1", "nDCG@0", "R@x", "nDCG(depth=3)", "NumRet", "", "p@0"])
def test_unknown_measures_list_examples(name, capsys):
    with pytest.raises(OptionError, match=r"metrics: .*ndcg@K.*such as nDCG@20, R@100"):
        metric(name)
    data = str(builtin_path("dev"))
    assert main(["evaluate", "wo", "--data", data, "--metrics", f"map,{name}"]) == 2
    assert "such as nDCG@20" in capsys.readouterr().err


def test_a_measure_that_the_library_refuses_is_one_line(capsys):
    data = str(builtin_path("dev"))
    assert main(["evaluate", "wo", "--data", data, "--metrics", "AP(rel=0)"]) == 2
    assert "relevance_level should be positive" in capsys.readouterr().err


def test_a_measure_whose_library_is_missing():
    with pytest.raises(MissingDependency, match="metric 'alpha_nDCG@20'.*pyndeval"):
        metric("alpha_nDCG@20")


def test_without_the_library(monkeypatch):
    monkeypatch.setattr("wqa.evaluation.metrics.importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        OptionError,
        match=r"'R@7'; expected map, .*: in a checkout of wqa: pip install -e '.\[ir\]'",
    ):
        metric("R@7")  # no other test looks it up, and what is looked up stays known
    assert metrics_of([1], [1], metrics.METRICS)["map"] == 1
