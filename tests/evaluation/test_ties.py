"""Evaluation orders candidates that tie by trec_eval's rule, and never by the labels."""

import json
import random

import numpy as np
import pytest
from conftest import needs_onednn
from hypothesis import given, settings
from hypothesis import strategies as st
from rankers import ranking_of

from wqa.cli import main
from wqa.data import Candidate, Question, builtin_path, read_questions
from wqa.data.formats import write_questions
from wqa.engines.mxnet import MXNetEngine
from wqa.errors import ScoreError
from wqa.evaluation import (
    METRICS,
    by_document_id,
    dev_evaluator,
    evaluate,
    evaluate_ranker,
    write_run,
)
from wqa.evaluation.comparison import NamedRanker, compare_rankers, evaluate_seeds
from wqa.evaluation.significance import per_question
from wqa.inference import Cost, Ranker, SequentialRanker
from wqa.inference.dropping import Drop
from wqa.systems.load import load_ranker
from wqa.tuning.replay import ScoredQuestions

SETTINGS = {"0": {}, "0.3": {"drop_ratio": 0.3}, "keep=2": {"keep": 2}}


def positives_first(count=25):
    """Questions whose correct candidates come first, as in TREC-QA's files, and ids at random."""
    generator = random.Random(0)
    questions = []
    for question in list(read_questions(builtin_path("dev")))[:count]:
        candidates = sorted(question.candidates, key=lambda candidate: -candidate.label)
        numbers = generator.sample(range(100), len(candidates))
        named = [one._replace(id=f"D{number}") for one, number in zip(candidates, numbers)]
        questions.append(question._replace(candidates=tuple(named)))
    return questions


def permuted(questions, seed):
    """The questions with their candidates, and the ids of these, in another order."""
    generator = random.Random(seed)
    result = []
    for question in questions:
        candidates = generator.sample(question.candidates, len(question.candidates))
        result.append(question._replace(candidates=tuple(candidates)))
    return result


def map_of_equal_scores(questions):
    """MAP by trec_eval's rule where all scores are equal: by document id, descending."""
    total = 0.0
    for question in questions:
        rows = [(candidate.id, candidate.label) for candidate in question.candidates]
        labels = [label for _, label in sorted(rows, reverse=True)]
        precisions = []
        for rank, label in enumerate(labels, 1):
            if label:
                precisions.append(sum(labels[:rank]) / rank)
        total += sum(precisions) / len(precisions) if precisions else 0
    return total / len(questions)


def figures(row):
    return {name: row[name] for name in METRICS}


class TextRanker(Ranker):
    """A stage that scores texts by a table, and all others alike."""

    def __init__(self, table=()):
        self._table = dict(table)

    def rank_all(self, questions):
        for question in questions:
            scores = [self._table.get(text, 0.0) if text else -np.inf for text in question.texts]
            yield ranking_of(scores, Cost(0, 1, 1, 1, 1))


@pytest.fixture
def dead(monkeypatch):
    """Every network scores all candidates alike."""
    monkeypatch.setattr(MXNetEngine, "_scores", lambda engine, stage, rows: rows * 0)


@pytest.fixture
def coarse(monkeypatch):
    """Networks score so coarsely that many candidates tie."""

    def scores(engine, stage, rows):
        return np.round(rows * (3 + stage)) / 4

    monkeypatch.setattr(MXNetEngine, "_scores", scores)


def test_a_ranker_of_equal_scores_does_not_profit_from_the_order_of_a_file(tiny_run, dead):
    questions = positives_first()
    expected = map_of_equal_scores(questions)
    assert 0.1 < expected < 0.6
    ranker = load_ranker(tiny_run, engine="mxnet")
    rows = evaluate_ranker(ranker, questions, SETTINGS, per_exit=True)
    assert len(rows) == 3 + 3
    for row in rows:
        assert row["map"] == pytest.approx(expected), row["drop_ratio"]


def test_evaluation_keeps_the_original_order_for_rankers_that_read_it():
    """Candidates come by their ids, and yet a ranker that reads the order gets the original one."""

    class Reader(TextRanker):
        def rank_all(self, questions):
            for question in questions:
                self._table = {}
                for rank, index in enumerate(question.original_order):
                    self._table[question.texts[index]] = -rank
                yield from super().rank_all([question])

    questions = positives_first()
    [row] = evaluate_ranker(Reader(), questions)
    assert row["map"] == pytest.approx(np.mean([any(one.labels) for one in questions]))
    assert dev_evaluator(questions, lambda _: Reader())("network")["map"] == row["map"]
    for file in (by_document_id(questions), by_document_id(by_document_id(questions))):
        assert evaluate_ranker(Reader(), file)[0]["map"] == row["map"]


def test_comparison_and_tuning_break_ties_alike(tiny_run, dead):
    questions = positives_first()
    expected = pytest.approx(map_of_equal_scores(questions))
    entries = [NamedRanker("one", TextRanker()), NamedRanker("two", TextRanker())]
    compared = compare_rankers(entries, questions)
    assert [row["map"] for row in compared["rows"]] == [expected, expected]
    assert compared["comparisons"][0]["metrics"][0]["first"] == expected
    assert [row["map"] for row in evaluate_seeds(entries, questions)[:3]] == [expected] * 3
    scored = ScoredQuestions(load_ranker(tiny_run, engine="mxnet"), questions)
    for configuration in scored.evaluate([(Drop(), Drop()), (Drop(0.5), Drop(0.3))]):
        assert configuration.metrics["map"] == expected


def test_rankings_for_people_keep_the_original_order_and_evaluate_does_not(tmp_path):
    questions = positives_first()
    rankings = list(TextRanker().rank_all(questions))
    for question, ranking in zip(questions, rankings):
        assert ranking.order.tolist() == list(range(len(question.candidates)))
    expected = map_of_equal_scores(questions)
    assert evaluate(rankings, questions)["map"] == pytest.approx(expected)
    assert np.mean(list(per_question(rankings, questions)["map"].values())) == (
        pytest.approx(expected)
    )
    write_run(tmp_path / "run", questions, rankings)
    documents = [line.split()[2] for line in (tmp_path / "run").read_text().splitlines()]
    first = len(questions[0].candidates)
    assert documents[:first] == sorted(questions[0].document_ids, reverse=True)


def test_tuning_equals_evaluation_where_candidates_tie(tiny_run, coarse):
    questions = positives_first()
    ranker = load_ranker(tiny_run, engine="mxnet")
    ratios = [(0.0, 0.0), (0.3, 0.3), (0.6, 0.2)]
    drops = [tuple(map(Drop, pair)) for pair in ratios]
    tuned = ScoredQuestions(ranker, questions).evaluate(drops)
    settings = {str(pair): {"drop_ratio": [*pair, 0.0]} for pair in ratios}
    for configuration, row in zip(tuned, evaluate_ranker(ranker, questions, settings)):
        assert configuration.metrics == pytest.approx(figures(row))


candidates = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "c", "d"]), st.integers(0, 1)), min_size=1, max_size=9
)


@settings(max_examples=30)
@given(
    st.lists(candidates, min_size=1, max_size=3),
    st.sampled_from([{}, {"drop_ratio": 0.3}, {"drop_ratio": 0.5}, {"keep": 2}]),
    st.integers(0, 9),
)
def test_no_permutation_changes_a_figure(drawn, drops, seed):
    generator = random.Random(seed)
    questions = []
    for number, rows in enumerate(drawn):
        ids = generator.sample(["D1", "D10", "D2", "é", "日", "Z", "a", "D9", "0"], len(rows))
        named = [Candidate(text, label, name) for (text, label), name in zip(rows, ids)]
        questions.append(Question(f"Q{number}", "?", tuple(named)))
    first, second = TextRanker({"a": 1.0, "b": 1.0}), TextRanker({"b": 2.0, "c": 2.0, "d": 3.0})
    ranker = SequentialRanker([first, second], **drops)
    expected = evaluate_ranker(ranker, questions, filter="all")
    again = evaluate_ranker(ranker, permuted(questions, seed), filter="all")
    assert figures(expected[0]) == figures(again[0])


def test_figures_are_those_of_the_trec_run(tiny_run, coarse, tmp_path, capsys):
    """Ties, two blank candidates, candidates with and without ids."""
    questions = positives_first(20)
    blank = (Candidate("", 1), *questions[0].candidates[1:], Candidate(" ", 0))
    questions[0] = questions[0]._replace(candidates=blank)
    nameless = tuple(candidate._replace(id=None) for candidate in questions[1].candidates)
    questions[1] = questions[1]._replace(candidates=nameless)
    data = tmp_path / "data.jsonl"
    write_questions(data, questions)

    def rows(*arguments):
        assert main(["evaluate", *map(str, arguments), "--json", "-"]) == 0
        return json.loads(capsys.readouterr().out)

    files = ("--trec-run", tmp_path / "run.{}", "--write-qrels", tmp_path / "qrels")
    drops = ("--drop-ratio", "0", "--drop-ratio", "0.3", "--keep", "2")
    ours = rows(tiny_run, "--engine", "mxnet", "--data", data, *drops, *files)
    for row in ours:
        run = tmp_path / f"run.{row['drop_ratio']}"
        theirs = rows("--run", run, "--qrels", tmp_path / "qrels")
        assert theirs["questions"] == 20
        assert figures(theirs) == pytest.approx(figures(row))


def test_an_error_names_the_candidate_by_its_document(tiny_run, monkeypatch):
    """Evaluation ranks the candidates in another order, in which their numbers differ."""
    question = positives_first(1)[0]
    scores = iter([np.array([0.0, np.nan]), np.array([0.0, np.nan])])
    monkeypatch.setattr(MXNetEngine, "_scores", lambda engine, stage, rows: next(scores))
    texts = ("short", "a longer text than the one before")  # micro-batches are by length
    candidates = (Candidate(texts[1], 1, "D1"), Candidate(texts[0], 0, "D2"))
    question = question._replace(candidates=candidates)
    ranker = load_ranker(tiny_run, engine="mxnet")
    with pytest.raises(ScoreError, match="scores after layer 1: nan for document 'D1'"):
        evaluate_ranker(ranker, [question])
    with pytest.raises(ScoreError, match="scores after layer 1: nan for candidate 1"):
        ranker.rank(question.question, question.texts)


@pytest.mark.parametrize("engine", ["mxnet", pytest.param("onednn", marks=needs_onednn)])
def test_identical_candidates_are_in_index_order(tiny_run, engine):
    texts = ["ice melts in the sun and caves form in it .", "the moon is far away from here ."]
    question = "how are glacier caves formed ?"
    alone = load_ranker(tiny_run, engine=engine).rank(question, texts)
    ranking = load_ranker(tiny_run, engine=engine).rank(question, texts * 200)
    best = int(alone.order[0])
    assert ranking.order.tolist() == [*range(best, 400, 2), *range(1 - best, 400, 2)]
    for first in (0, 1):
        assert len(set(ranking.scores[first::2])) == 1
    np.testing.assert_allclose(ranking.scores[:2], alone.scores, atol=1e-5)
    # The drop rule counts candidates, not texts; the first ones stay.
    dropped = load_ranker(tiny_run, engine=engine, keep=[100, 10]).rank(question, texts * 200)
    kept = np.flatnonzero(dropped.exits == dropped.exits.max()).tolist()
    assert len(kept) == 10 and dropped.scored_by_stage.tolist() == [400, 100, 10]
    assert kept == list(range(kept[0], kept[0] + 20, 2))
