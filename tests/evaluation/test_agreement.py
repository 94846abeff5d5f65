import json
import sys

import mxnet as mx
import numpy as np
import pytest

from wqa.cli import main
from wqa.config import EngineConfig
from wqa.data import Candidate, Question, builtin_path, read_questions
from wqa.errors import DataError, OptionError
from wqa.evaluation.agreement import correct_answers, measure_agreement
from wqa.evaluation.comparison import NamedRanker
from wqa.inference import Capabilities, CascadeRanker, EnsembleRanker, Ranker, Ranking
from wqa.inference.dropping import FREE
from wqa.pretrained import read_backbone_config
from wqa.systems.load import load_ranker
from wqa.systems.registry import build_network
from wqa.text import PairInputs, load_tokenizer


class Fixed(Ranker):
    """Puts one candidate first, which it knows by the question's id."""

    def __init__(self, tops):
        self._tops = tops

    @property
    def capabilities(self):
        return Capabilities("fixed")

    def rank_all(self, questions):
        for question in questions:
            scores = np.zeros(len(question.candidates))
            scores[question.texts.index(self._tops[question.id])] = 1
            order, none = np.argsort(-scores, kind="stable"), np.zeros(len(scores), dtype=bool)
            yield Ranking(order, scores, none + 1, none, none, FREE, scores[None])


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
    members = named(x="aaaba", y="aabab", z="bbcaa")
    teachers = named(p="aabbb", q="bbbba", r="bbcaa")
    found = measure_agreement(members, teachers, QUESTIONS, "all")
    assert found.questions == 5
    assert found.members_correct == (4, 3, 0)  # x: 1, 2, 3, 4; y: 1, 2, 3
    assert found.teachers_correct == (4, 2, 0)  # p: 1, 2, 3, 4; q: 3, 4
    # x and p give the same correct answer to 1, 2, 4: both answers of 3 are correct, but differ.
    # x and q: 4. y and p: 1, 2, 3. y and q: 3. The wrong answers that z and r share do not count.
    assert found.agreed == ((3, 1, 0), (3, 1, 0), (0, 0, 0))
    assert found.shares == [[3 / 4, 1 / 4, 0], [1, 1 / 3, 0], [None, None, None]]
    assert found.rows()[1] == {
        "member": "x",
        "teacher": "q",
        "agreed": 1,
        "member_correct": 4,
        "teacher_correct": 2,
        "agreement": 1 / 4,
    }
    assert [line.split() for line in found.table().splitlines()] == [
        ["correct", "p", "q", "r"],
        ["x", "4", "0.750", "0.250", "0.000"],
        ["y", "3", "1.000", "0.333", "0.000"],
        ["z", "0", "-", "-", "-"],
        ["correct", "of", "the", "teacher", "4", "2", "0"],
    ]


def test_questions_without_an_answer_do_not_change_it():
    members, teachers = named(x="aaaba"), named(p="aabbb")
    everything = measure_agreement(members, teachers, QUESTIONS, "all")
    answered = measure_agreement(members, teachers, QUESTIONS)
    assert (everything.questions, answered.questions) == (5, 4)
    assert everything.shares == answered.shares


def test_the_top_of_candidates_that_tie_does_not_depend_on_their_order():
    """trec_eval's rule: the greater document id comes first."""

    class Constant(Fixed):
        def rank_all(self, questions):
            for question in questions:
                scores = np.zeros(len(question.candidates))
                none = np.zeros(len(scores), dtype=bool)
                order = np.arange(len(scores))
                yield Ranking(order, scores, none + 1, none, none, FREE, scores[None])

    for labels, correct in (([1, 0], 0), ([0, 1], 1)):
        first, second = (Candidate(text, label) for text, label in zip("ab", labels))
        tied = Question("1", "q", (first._replace(id="D1"), second._replace(id="D2")))
        for candidates in (tied.candidates, tied.candidates[::-1]):
            found = measure_agreement(
                [NamedRanker("x", Constant({}))],
                [NamedRanker("p", Constant({}))],
                [tied._replace(candidates=candidates)],
            )
            assert found.members_correct == (correct,)


def test_what_does_not_fit():
    members, teachers = named(x="aaaba"), named(p="aabbb")
    with pytest.raises(OptionError, match="members: none"):
        measure_agreement([], teachers, QUESTIONS)
    with pytest.raises(OptionError, match="teachers: none"):
        measure_agreement(members, [], QUESTIONS)
    with pytest.raises(DataError, match="rankings: 1; expected one for each of 5"):
        correct_answers([[0, 1]], QUESTIONS)
    with pytest.raises(DataError, match="question '2': a ranking of 2 candidates; expected its 3"):
        correct_answers([[0, 1], [0, 1], [0], [0], [0]], QUESTIONS)

    class Skipping(Fixed):
        def prepare(self, questions):
            prepared = super().prepare(questions)
            return prepared._replace(questions=prepared.questions[1:], skipped=1)

    skipping = NamedRanker("p", Skipping(dict(zip("12345", "aabbb"))))
    with pytest.raises(DataError, match="p: skips other over-long questions than x"):
        measure_agreement(members, [skipping], QUESTIONS)


def test_members_of_rankers(tiny_run, tmp_path, monkeypatch):
    ranker = load_ranker(tiny_run)
    assert ranker.members() == [("cascade", ranker)]
    path = tmp_path / "e.json"
    path.write_text(json.dumps({"ensemble": [str(tiny_run), str(tiny_run)]}))
    ensemble = load_ranker(path)
    assert ensemble.members() == [(str(tiny_run), inside) for inside in ensemble.rankers]
    # A network with several heads: a ranker for each of its members.
    network = ranker.network
    monkeypatch.setattr(type(network), "members", lambda self: [self, self])
    heads = ranker.members()
    assert [name for name, _ in heads] == ["head 1", "head 2"]
    monkeypatch.undo()
    questions = list(read_questions(builtin_path("dev")))[:2]
    expected = [ranking.scores for ranking in ranker.rank_all(questions)]
    for _, head in heads:
        assert isinstance(head, CascadeRanker) and head.network is network
        for ranking, scores in zip(head.rank_all(questions), expected):
            np.testing.assert_allclose(ranking.scores, scores, atol=1e-5)


def test_heads_of_a_student_are_its_members(tiny_encoder):
    """An ensemble of the heads ranks as the student does (equation 5)."""
    backbone = read_backbone_config(tiny_encoder)
    network = build_network("mhs", backbone, body=2, heads=3, head_layers=1)
    mx.random.seed(2)
    network.initialize(mx.init.Normal(0.3))
    student = CascadeRanker(network, PairInputs(load_tokenizer(tiny_encoder), 64), system="mhs")
    members = student.members()
    assert [name for name, _ in members] == ["head 1", "head 2", "head 3"]
    questions = list(read_questions(builtin_path("dev")))[:3]
    ensemble = EnsembleRanker([member for _, member in members])
    for one, two in zip(student.rank_all(questions), ensemble.rank_all(questions)):
        np.testing.assert_allclose(one.scores, two.scores, atol=1e-5)
    heads = [next(iter(member.rank_all(questions))).scores for _, member in members]
    assert np.ptp(heads, axis=0).max() > 0.01  # the heads differ
    # 8-bit weights are those of the network, whose layers the members number anew.
    student._config = EngineConfig(precision="int8")
    with pytest.raises(OptionError, match="precision: int8 for each head by itself"):
        student.members()


def test_the_command_writes_a_table_and_a_picture(tiny_run, tmp_path, capsys, monkeypatch):
    path = tmp_path / "two.json"
    path.write_text(json.dumps({"ensemble": [str(tiny_run), str(tiny_run)]}))
    out, rows = tmp_path / "out", tmp_path / "rows.json"
    arguments = ["agreement", str(path), str(tiny_run), "--data", str(builtin_path("test"))]
    assert main([*arguments, "--out", str(out), "--json", str(rows)]) == 0
    shown = capsys.readouterr().out
    assert "25 questions, filter no-all-negative" in shown and shown.count("1.000") == 2
    assert [row["agreement"] for row in json.loads(rows.read_text())["rows"]] == [1, 1]
    lines = (out / "agreement.tsv").read_text().splitlines()
    assert lines[0].split("\t")[-1] == "agreement" and lines[1].split("\t")[-1] == "1.000000"
    assert len(lines) == 3
    assert (out / "agreement.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert sorted(file.name for file in out.iterdir()) == ["agreement.png", "agreement.tsv"]
    # A plain run is its own only member, under its name.
    assert (
        main(["agreement", str(tiny_run), *arguments[2:], "--out", str(out), "--no-picture"]) == 0
    )
    assert (out / "agreement.tsv").read_text().splitlines()[1].startswith(f"{tiny_run}\t{tiny_run}")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([*arguments, "--out", str(out)]) == 2
    assert "'.[plots]'" in capsys.readouterr().err
