"""The agreement of a student's heads with teachers, by hand and by the script."""

import runpy

import numpy as np
from conftest import ROOT, script_result
from rankers import ranking_of

from wqa.data import Candidate, Question, builtin_path
from wqa.evaluation.comparison import NamedRanker
from wqa.evaluation.report import read_rows
from wqa.inference import Ranker

SCRIPT = ROOT / "recipes" / "mhs" / "agreement.py"


class Fixed(Ranker):
    """Puts one candidate first, which it knows by the question's id."""

    def __init__(self, tops):
        self._tops = tops

    def rank_all(self, questions):
        for question in questions:
            scores = np.zeros(len(question.candidates))
            scores[question.texts.index(self._tops[question.id])] = 1
            yield ranking_of(scores)


def question(qid, labels):
    """Candidates a, b, c, ..., the first of which comes last in the order of evaluation."""
    texts = "abcdefgh"[: len(labels)]
    return Question(qid, "q", tuple(map(Candidate, texts, labels)))


#: a is correct in 1 and 2, a and b in 3, b in 4, none in 5.
QUESTIONS = [
    question("1", [1, 0]),
    question("2", [1, 0, 0]),
    question("3", [1, 1, 0]),
    question("4", [0, 1]),
    question("5", [0, 0]),
]


def named(**tops):
    return [NamedRanker(name, Fixed(dict(zip("12345", texts)))) for name, texts in tops.items()]


def test_by_hand():
    script = runpy.run_path(str(SCRIPT))
    members, teachers = named(x="aaaba", y="aabab", z="bbcaa"), named(p="aabbb", q="bbbba")
    answers = script["answers_of"]([*members, *teachers], QUESTIONS)
    rows = script["agreement_rows"]("xyz", "pq", answers)
    assert [row["member_correct"] for row in rows] == [4, 4, 3, 3, 0, 0]
    assert [row["teacher_correct"] for row in rows] == [4, 2] * 3
    # x and p give the same correct answer to 1, 2, 4: both answers of 3 are correct, but differ.
    # x and q: 4. y and p: 1, 2, 3. y and q: 3.
    assert [row["agreed"] for row in rows] == [3, 1, 3, 1, 0, 0]
    assert [row["agreement"] for row in rows] == [3 / 4, 1 / 4, 1, 1 / 3, None, None]


def test_the_script_writes_a_table(tiny_run, tmp_path):
    out = tmp_path / "out"
    data = ("--data", builtin_path("test"), "--out", out)
    assert script_result(SCRIPT, tiny_run, tiny_run, "wo", *data)[0] == 0
    rows = read_rows(out / "agreement.tsv", ("member", "teacher"))
    assert [row["teacher"] for row in rows] == [str(tiny_run), "wo"]
    assert rows[0]["agreement"] == "1.000000"
