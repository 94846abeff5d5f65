"""SelQA to questions with candidates, and to an open collection."""

import gzip
import importlib
import json

import pytest
from conftest import shared_corpus

from wqa.data import Candidate, read_questions
from wqa.data.documents import Document, read_documents

selqa = importlib.import_module("selqa")

BREAD = ["Rye keeps for a week.", "", "Bakers in Turku add a sour dough."]


def entry(**fields):
    known = {"question": " where is it sour ? ", "article": "Rye bread", "section": "Dough"}
    return {**known, "candidates": BREAD, "answers": [2], **fields}


def convert(folder, out, split="dev", *entries):
    folder.mkdir(exist_ok=True)
    (folder / f"selqa-ass-{split}.json").write_text(json.dumps(entries))
    return selqa.main(["--archive", str(folder), "--out", str(out)])


def test_candidates_are_the_sentences_of_the_section(tmp_path, capsys):
    salt = entry(question="how heavy ?", article="Salt", candidates=["Forty.", "Kilos."])
    (tmp_path / "in").mkdir()
    second = json.dumps([{**salt, "answers": []}]).encode()
    (tmp_path / "in" / "selqa-ass-test.json.gz").write_bytes(gzip.compress(second))
    out = tmp_path / "out"
    assert convert(tmp_path / "in", out, "dev", entry(), entry(answers=[0, 2])) == 0
    first, other = read_questions(out / "dev.jsonl")
    assert (first.id, first.question) == ("dev-1", "where is it sour ?")
    assert first.candidates == tuple(map(Candidate, BREAD, (0, 0, 1)))
    assert other.labels == (1, 0, 1)
    [test] = read_questions(out / "test.jsonl")
    assert test.id == "test-1" and test.labels == (0, 0)
    answers = {}
    for split in ("dev", "test"):
        path = out / f"{split}.questions.jsonl"
        for question in read_questions(path, with_candidates=False):
            answers[question.id] = question.answers
    assert answers == {"dev-1": (BREAD[2],), "dev-2": (BREAD[0], BREAD[2]), "test-1": ()}
    assert list(read_documents(out / "documents.jsonl")) == [
        Document("Rye_bread-0", f"{BREAD[0]} {BREAD[2]}", "Rye bread"),
        Document("Salt-1", "Forty. Kilos.", "Salt"),
    ]
    assert "2 questions" in capsys.readouterr().out


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"answers": [3]}, "answers is [3]; expected a list of indices below 3"),
        ({"answers": [True]}, "answers is [True]; expected a list of indices"),
        ({"answers": None}, "answers is None; expected a list of indices"),
        ({"question": " "}, "no question or no candidate; expected both"),
        ({"candidates": [], "answers": []}, "no question or no candidate; expected both"),
        ({"question": 3}, "question is 3; expected a string"),
        ({"candidates": "a"}, "question 2: "),
    ],
)
def test_a_question_that_does_not_fit(tmp_path, capsys, fields, message):
    assert convert(tmp_path / "in", tmp_path / "out", "dev", entry(), entry(**fields)) == 2
    error = capsys.readouterr().err
    assert message in error and "selqa-ass-dev.json, question 2" in error, error
    assert error.count("\n") == 1 and not (tmp_path / "out" / "stats.json").exists()


def test_two_files_of_one_split(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "selqa-ass-dev.json.gz").write_bytes(gzip.compress(b"[]"))
    assert convert(tmp_path / "in", tmp_path / "out", "dev", entry()) == 2
    assert "a second file of dev" in capsys.readouterr().err


def test_counts_of_the_release(tmp_path):
    assert selqa.main(["--archive", str(shared_corpus("selqa")), "--out", str(tmp_path)]) == 0
    stats = json.loads((tmp_path / "stats.json").read_text())
    for split, counts in (("dev", (785, 9419, 893)), ("test", (1590, 19519, 1798))):
        figures = stats[split]["all"]
        assert tuple(figures[name] for name in ("questions", "candidates", "correct")) == counts
    assert stats["collection"]["documents"]["documents"] == 1482
