"""Counts and figures of the recipe for the authors' released checkpoints."""

import runpy

import pytest
from conftest import ROOT

from wqa.data import Candidate, Question, write_questions
from wqa.errors import DataError
from wqa.evaluation import score_run
from wqa.evaluation.report import read_rows

HERE = ROOT / "recipes" / "checkpoints"
QRELS = {"q": {"a": 0, "b": 1, "c": 0}, "r": {"d": 1}}


@pytest.fixture
def released():
    return runpy.run_path(str(HERE / "released.py"))


def test_a_split_of_another_size_is_refused(released, tmp_path):
    labels = [(0, 1), (1,), (0,)]
    questions = []
    for number in range(244):
        candidates = [Candidate(f"text {number}", label) for label in labels[number % 3]]
        questions.append(Question(f"q{number}", "which ?", tuple(candidates)))
    write_questions(tmp_path / "test.jsonl", questions)
    expected = (
        r"test.jsonl: 163 questions by the filter no-all-negative; expected 243, as "
        r"cascade/table1; mhs/table1 counts those of wikiqa; make the split anew"
    )
    with pytest.raises(DataError, match=expected):
        released["count"](tmp_path / "test.jsonl", "wikiqa")


def test_the_test_questions_of_wikiqa_are_as_many_as_in_print(released, wikiqa_files):
    released["count"](wikiqa_files / "test.jsonl", "wikiqa")
    with pytest.raises(DataError, match="expected 243"):
        released["count"](wikiqa_files / "dev.jsonl", "wikiqa")


def test_every_corpus_has_its_counts_and_every_row_is_published(released):
    counted = {}
    for row in read_rows(HERE / "counts.tsv", ("corpus", "filter")):
        counted.setdefault(row["corpus"], set()).add(row["filter"])
    files = read_rows(HERE / "files.tsv", ("file", "corpus", "published", "row"))
    for row in files:
        assert counted[row["corpus"]] == set(released["FILTERS"])
        figures = released["published_figures"](row["corpus"], row["published"], row["row"])
        assert (figures["map"] != "-") == (row["published"] != "-"), row
    with pytest.raises(DataError, match="no row of nobody"):
        released["published_figures"]("wikiqa", files[4]["published"], "of nobody")


def test_predicted_classes_in_place_of_scores_give_higher_figures(released):
    """The correct candidate is the second of its class; the class ranks it first."""
    run = {"q": {"a": 2.5, "b": 0.1, "c": -1.0}, "r": {"d": -3.0}}
    assert score_run(run, QRELS, "clean")["map"] == 0.5
    classes = released["classes_of"](run, QRELS)
    assert score_run(classes, QRELS, "clean")["map"] == 1
    run["q"]["b"] = -0.1  # in the class of the wrong ones it comes behind the other
    assert score_run(released["classes_of"](run, QRELS), QRELS, "clean")["map"] == 0.5


def test_rows_of_a_checkpoint(released, tmp_path):
    (tmp_path / "f.json.0.trec").write_text("q Q0 a 1 2.5 x\nq Q0 b 2 0.1 x\nr Q0 d 1 -3 x\n")
    (tmp_path / "f.json.qrels").write_text("q 0 a 0\nq 0 b 1\nr 0 d 1\n")
    table = tmp_path / "released.tsv"
    published = ("mhs/published/table2.tsv", "14 MHS")
    for _ in range(2):  # rows are written anew
        released["row"](table, tmp_path / "f.json", "a.tar", "wikiqa", *published)
    released["row"](table, tmp_path / "f.json", "b.tar", "trecqa", "-", "-")
    first, second, third, other, *_ = read_rows(table, ("file", "counted"))
    assert first["counted"] == "no-all-negative" and first["map"] == "75.00"
    assert second["counted"] == "clean" and second["map"] == "50.00" and second["questions"] == "1"
    assert third["counted"] == "classes" and third["map"] == "100.00"
    assert first["published_p@1"] == "89.3" and other["published_map"] == "-"
