import json

import numpy as np
import pytest
from conftest import dev_run
from rankers import Table

from wqa.data import Candidate, Question, builtin_path, read_questions
from wqa.errors import InputError, RunDirectoryError
from wqa.inference import Cost, Ranker, SequentialRanker
from wqa.systems.load import load_ranker


def question(*texts):
    return Question("q", "q", tuple(Candidate(text) for text in texts))


class OriginalOrder(Ranker):
    """Scores by the ranks of the candidates alone."""

    def __init__(self):
        self.ranks = []

    def rank_all(self, questions):
        for question in questions:
            self.ranks.append(question.ranks)
            table = Table(dict(zip(question.texts, [-rank for rank in question.ranks])))
            yield from table.rank_all([question])


def test_a_later_ranker_sees_the_survivors_in_their_original_order():
    """With their ranks among all candidates, whatever the ranker before it or evaluation does."""
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        second = OriginalOrder()
        ranker = SequentialRanker([Table({"a": 2, "b": 1, "c": 4, "d": 3}), second], keep=3)
        candidates = [Candidate(text, rank=rank) for rank, text in enumerate("abcd")]
        asked = question()._replace(candidates=tuple(candidates[index] for index in order))
        [ranking] = ranker.rank_all([asked])
        assert [asked.texts[index] for index in ranking.order] == ["a", "c", "d", "b"]
        assert sorted(second.ranks[0]) == [0, 2, 3]
    assert ranker.rank("q", list("abcd")).order.tolist() == [0, 2, 3, 1]
    assert second.ranks[1] == (0, 2, 3)


def test_by_hand():
    first = Table({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, layers=2, depth=6)
    second = Table({"a": 9, "b": 8, "c": 5, "d": 5, "e": 7}, layers=4, depth=6)
    third = Table({"c": 1, "d": 2, "e": 0, "b": 5}, layers=6, depth=6)
    ranker = SequentialRanker([first, second, third], [0.2, None], [None, 3])
    [ranking] = ranker.rank_all([question("a", "", "b", "c", "d", "e")])
    # 5 candidates, floor(0.2 * 5) = 1 dropped: a. Of b, c, d, e the best three of (8, 5, 5, 7): b,
    # e and, first of a tie, c.
    assert second.ranked == [("b", "c", "d", "e")] and third.ranked == [("b", "c", "e")]
    assert ranking.order.tolist() == [2, 3, 5, 4, 0, 1]  # b, c, e by the third; d; a; the blank one
    assert ranking.scores.tolist() == [1, -np.inf, 5, 1, 5, 0]
    assert ranking.exits.tolist() == [2, 0, 6, 6, 4, 6]
    assert ranking.blank.tolist() == [False, True, False, False, False, False]
    np.testing.assert_array_equal(ranking.exit_scores[1], [np.nan, np.nan, 8, 5, 5, 7])
    assert ranking.order_at(0).tolist() == [5, 4, 3, 2, 0, 1]
    assert ranking.cost == Cost(pytest.approx((2 * 5 + 4 * 4 + 6 * 3) / 30), 44, 30, 220, 150)


def test_blank_questions_and_groups():
    first, second = Table({"a": 1, "b": 2}, 1, 2), Table({"a": 4, "b": 3}, 2, 2)
    ranker = SequentialRanker([first, second], 0.5)
    ranker._group_size = 3
    blank, *rest = ranker.rank_all([question("", ""), *[question("a", "b", "")] * 4])
    assert blank.order.tolist() == [0, 1] and blank.cost.relative == 0 and blank.blank.all()
    assert [ranking.order.tolist() for ranking in rest] == [[1, 0, 2]] * 4
    assert ranker.rank("q", ["b", "a"]).order.tolist() == [0, 1]


def test_questions_before_a_bad_one_are_ranked():
    ranked = []
    ranker = SequentialRanker([load_ranker("rr"), load_ranker("wo")], keep=1)
    good = question("q", "b")
    with pytest.raises(InputError, match="the question is empty"):
        ranked.extend(ranker.rank_all([good, good, good._replace(question=" "), good]))
    assert [ranking.order.tolist() for ranking in ranked] == [[0, 1]] * 2
    assert ranker.ties == load_ranker("wo").ties == "pessimistic"


def test_a_last_ranker_to_which_all_is_blank():
    """A character that one tokenizer keeps and another one drops."""
    first = Table({"\u200b": 2, "a": 1}, 1, 2)
    second = Table({}, 2, 2)
    second.rank_all = lambda questions: Table({}, 2, 2).rank_all(question("") for _ in questions)
    [ranking] = SequentialRanker([first, second], keep=1).rank_all([question("\u200b", "a")])
    assert ranking.order.tolist() == [1, 0] and ranking.blank.tolist() == [True, False]
    assert ranking.cost.relative == 0.5  # the first ranker's share of its own depth


@pytest.fixture(scope="module")
def shallow(tiny_encoder, tmp_path_factory):
    """Independently trained monolithic rankers of 1, 2 and 3 layers."""
    folder = tmp_path_factory.mktemp("sr")
    for depth in (1, 2, 3):
        settings = {"max_updates": 2, "learning_rate": 1e-2, "warmup_updates": 1, "seed": depth}
        dev_run("pairwise", folder / f"d{depth}", tiny_encoder, exits=(depth,), **settings)
    return folder


def test_the_papers_sequence_costs_what_table_3_says(shallow):
    """SR over rankers of 1, 2 and 3 layers of one encoder: the cost as run is the analytic one by
    the floor rule."""
    (shallow / "sr.json").write_text(json.dumps({"rankers": ["d1", "d2", "d3"], "drop_ratio": 0.5}))
    ranker = load_ranker(shallow / "sr.json")
    assert ranker.capabilities.system == "sequence" and ranker.drop_ratio == [0.5, 0.5, 0.0]
    questions = list(read_questions(builtin_path("test")))[:6]
    rankings = list(ranker.rank_all(questions))
    for ranking, each in zip(rankings, questions):
        k = len(each.candidates)
        assert sorted(ranking.order.tolist()) == list(range(k))
        second = k - k // 2
        expected = (k + 2 * second + 3 * (second - second // 2)) / (3 * k)
        assert ranking.cost.relative == pytest.approx(expected) == pytest.approx(ranking.cost.paper)
    full = load_ranker(shallow / "d3")
    for ranking, whole in zip(
        load_ranker(shallow / "sr.json", drop_ratio=0.0).rank_all(questions),
        full.rank_all(questions),
    ):
        assert ranking.order.tolist() == whole.order.tolist()


def test_a_cascade_followed_by_another_ranker(shallow, tiny_run):
    (shallow / "then.json").write_text(
        json.dumps({"rankers": [{"run": str(tiny_run), "drop_ratio": 0.3}, "d3"], "keep": 4})
    )
    ranker, alone = load_ranker(shallow / "then.json"), load_ranker(tiny_run, drop_ratio=0.3)
    assert ranker.capabilities.stages == 2 and ranker.capabilities.rankers[0].drop_ratio[0] == 0.3
    work = alone.network.config.layer_work
    each = next(iter(read_questions(builtin_path("test"))))
    ranking, cascade = ranker.rank(each.question, each.texts), alone.rank(each.question, each.texts)
    assert set(ranking.order[:4].tolist()) == set(cascade.order[:4].tolist())
    assert ranking.order[4:].tolist() == cascade.order[4:].tolist()
    assert ranking.cost.candidate_work == cascade.cost.candidate_work + 4 * 3 * work


@pytest.mark.parametrize(
    "text, found",
    [
        ('{"rankers": [{"run": "d1", "precision": "int4"}]}', "precision is 'int4', expected one"),
        ("[]", "is no sequence"),
        ('{"rankers": "d1"}', "rankers is 'd1'"),
        ('{"rankers": ["d1"], "k": 3}', "besides"),
        ('{"rankers": []}', "rankers: none"),
        ('{"rankers": ["d1", "d2"], "drop_ratio": 1.5}', "drop_ratio: 1.5"),
        ('{"rankers": ["d1", "absent"]}', "no such directory"),
    ],
)
def test_files_of_sequences_that_do_not_fit(shallow, text, found):
    path = shallow / "bad.json"
    path.write_text(text)
    with pytest.raises(RunDirectoryError, match=found):
        load_ranker(path)


def test_a_sequence_hands_on_what_has_a_relevance():
    first, second = load_ranker("bm25"), load_ranker("wo")
    texts = ["ice cave", "a glacier cave forms", "tea", "glacier ice"]
    relevances = first.rank("how do glacier caves form ?", texts).probabilities
    sequence = SequentialRanker([first, second])
    sequence.set_drops(drop_below=float(np.sort(relevances)[2]))
    ranking = sequence.rank("how do glacier caves form ?", texts)
    assert sorted(np.flatnonzero(ranking.dropped)) == sorted(np.argsort(relevances)[:2])
    # What a sequence inside drops may have a probability above those that it keeps.
    inner = SequentialRanker([second, first], keep=1)
    outer = SequentialRanker([inner, second])
    outer.set_drops(drop_below=0.7)
    texts = ["ice caves melt", "ice caves", "ice", "x"]
    assert inner.rank("ice caves melt ?", texts).probabilities.max() > 0.7
    assert outer.rank("ice caves melt ?", texts).dropped.tolist() == [False, True, True, True]
