import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from wqa.data import Candidate, Question
from wqa.errors import DataError, OptionError
from wqa.evaluation import (
    average_precision,
    beyond_retrieval,
    evaluate,
    hit,
    lost_by_ranking,
    ndcg,
    precision,
    qrels_from,
    read_qrels,
    read_run,
    reciprocal_rank,
    score_run,
    write_qrels,
    write_run,
)
from wqa.evaluation.metrics import metric
from wqa.evaluation.trec import trec_order

pytrec_eval = pytest.importorskip(
    "pytrec_eval", reason="trec_eval's own code comes with the extra [test]"
)

RANKED = [0, 1, 0, 2, 0]


def test_hand_computed():
    judged = [*RANKED, 1]  # one relevant candidate was not ranked
    assert average_precision(RANKED, judged) == pytest.approx((1 / 2 + 2 / 4 + 0) / 3)
    assert reciprocal_rank(RANKED, judged) == 0.5
    assert precision(RANKED, judged, 1) == 0 and precision(RANKED, judged, 10) == 0.2
    dcg, best = 1 / math.log2(3) + 2 / math.log2(5), 2 + 1 / math.log2(3) + 1 / 2
    assert ndcg(RANKED, judged, 10) == pytest.approx(dcg / best)
    assert ndcg(RANKED, judged, 2) == pytest.approx((1 / math.log2(3)) / (2 + 1 / math.log2(3)))
    for function in (average_precision, reciprocal_rank, precision, ndcg):
        assert function([0, 0], [0, 0]) == 0 and function([], [1]) == 0


def test_what_ranking_gains_and_loses_among_the_first_by_hand():
    """Of three candidates with grades 0, 1, 2, by the order in which they were retrieved."""
    grades = [0, 1, 2]
    assert beyond_retrieval(grades, [0, 2, 1], 2) == 1  # the second was retrieved third
    assert beyond_retrieval(grades, [2, 1, 0], 2) == 0  # a wrong one was, or it is among both
    assert beyond_retrieval(grades, [0, 1, 2], 2) == 0
    assert lost_by_ranking(grades, [2, 0, 1], 2) == 1  # the third was retrieved second
    assert lost_by_ranking(grades, [0, 1, 2], 2) == 0  # retrieved third, it is not lost
    assert lost_by_ranking([2, 1, 0], [2, 1, 0], 2) == 0  # a wrong one is lost
    assert lost_by_ranking([0, 0, 1], [1, 2, 0], 2) == 1
    assert beyond_retrieval([1], [10]) == 1 and beyond_retrieval([1], [9]) == 0
    assert lost_by_ranking([0] * 10 + [1], [*range(1, 11), 0]) == 1
    assert hit([0, 0, 1], [1], 3) == 1 and hit([0, 0, 1], [1], 2) == 0 and hit([], [1]) == 0


def test_metric_names():
    assert metric("p@3")([1, 1, 0], [1, 1]) == pytest.approx(2 / 3)
    for name in ("p", "p@0", "ndcg@x", "f1"):
        with pytest.raises(OptionError, match="p@K"):
            metric(name)


DOCS = st.sampled_from(["a", "b", "c", "d", "é", "日", "Z", "a-10", "a-9"])
# Scores that tie, tie in single precision only, or are huge.
SCORES = st.one_of(
    st.sampled_from([0.0, 1.0, 1.00000001, -1.0, 1e-45, 1e39, 16777216.0, 16777217.0]),
    st.floats(-1e6, 1e6),
)
RUNS = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3"]), st.dictionaries(DOCS, SCORES, min_size=1), min_size=1
)
QRELS = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3"]),
    st.dictionaries(DOCS, st.integers(-1, 3), min_size=1),
    min_size=1,
)


@settings(max_examples=60)
@given(run=RUNS, qrels=QRELS)
def test_equal_to_trec_eval(run, qrels):
    names = {
        "map": "map",
        "recip_rank": "mrr",
        "P_1": "p@1",
        "P_5": "p@5",
        "ndcg_cut_5": "ndcg@5",
        "ndcg_cut_10": "ndcg@10",
    }
    theirs = pytrec_eval.RelevanceEvaluator(
        qrels, {"map", "recip_rank", "P.1,5", "ndcg_cut.5,10"}
    ).evaluate(run)
    assume(theirs)
    ours = score_run(run, qrels, metrics=list(names.values()))
    assert ours["questions"] == len(theirs)
    for their_name, name in names.items():
        expected = np.mean([row[their_name] for row in theirs.values()])
        assert ours[name] == pytest.approx(expected, abs=1e-6), name


QUESTIONS = [
    Question("q1", "?", (Candidate("a", 0), Candidate("b", 1), Candidate("c", 0))),
    Question("q2", "?", (Candidate("a", 0), Candidate("b", 0))),
    Question("q3", "?", (Candidate("a", 1),)),
]
ORDERS = [[1, 0, 2], [0, 1], [0]]


@pytest.mark.parametrize(
    "filter, questions, mean", [("all", 3, 2 / 3), ("no-all-negative", 2, 1), ("clean", 1, 1)]
)
def test_filters_name_what_counts(filter, questions, mean):
    figures = evaluate(ORDERS, QUESTIONS, filter)
    assert figures["questions"] == questions
    for name in ("map", "mrr", "p@1", "ndcg@10"):
        assert figures[name] == pytest.approx(mean)
    run = {
        q.id: {f"{q.id}-{index}": -rank for rank, index in enumerate(order)}
        for q, order in zip(QUESTIONS, ORDERS)
    }
    assert score_run(run, qrels_from(QUESTIONS), filter)["map"] == pytest.approx(mean)


def test_evaluate_refuses_what_does_not_fit():
    with pytest.raises(DataError, match="each of its 3 candidates once"):
        evaluate([[0, 1, 1], [0, 1], [0]], QUESTIONS)
    with pytest.raises(DataError, match="q3"):
        evaluate(ORDERS[:2], QUESTIONS)
    with pytest.raises(DataError, match="more than 3"):
        evaluate([*ORDERS, [0]], QUESTIONS)
    with pytest.raises(OptionError):
        evaluate(ORDERS, QUESTIONS, "best")
    with pytest.raises(OptionError):
        score_run({}, {}, "best")


def test_questions_that_a_run_leaves_out():
    run, qrels = {"q1": {"a": 1.0}, "q9": {"a": 1.0}}, {"q1": {"a": 1}, "q2": {"a": 1}}
    assert score_run(run, qrels)["map"] == 1
    assert score_run(run, qrels)["missing"] == 1 and score_run(run, qrels)["unjudged"] == 1


def test_figures_of_no_question_are_an_error():
    run, qrels = {"q8": {"a": 1.0}}, {"q1": {"a": 1, "b": 0}, "q2": {"a": 0}}
    with pytest.raises(DataError, match="1 questions, of which none is among the 2 judged ones"):
        score_run(run, qrels)
    with pytest.raises(DataError, match="none is among the 1 judged ones"):
        score_run({"q2": {"a": 1.0}}, qrels, "no-all-negative")


class Fake:
    def __init__(self, order, scores):
        self.order, self.scores = order, scores


def test_a_written_run_keeps_the_order(tmp_path):
    # A dropped candidate may have the higher score, candidates may tie, and a blank one scores
    # minus infinity.
    rankings = [Fake([2, 0, 1], [0.5, 9.0, 0.5]), Fake([1, 0], [-math.inf, 0.0])]
    rankings.append(Fake([0], [-math.inf]))
    write_run(tmp_path / "run", QUESTIONS, rankings)
    write_qrels(tmp_path / "qrels.gz", QUESTIONS)
    run, qrels = read_run(tmp_path / "run"), read_qrels(tmp_path / "qrels.gz")
    assert qrels == qrels_from(QUESTIONS)
    ours, trec = evaluate([r.order for r in rankings], QUESTIONS), score_run(run, qrels)
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"map"}).evaluate(run)
    assert trec["map"] == pytest.approx(np.mean([row["map"] for row in theirs.values()]))
    assert ours["map"] == pytest.approx(trec["map"])
    assert ours["map"] == pytest.approx((1 / 3 + 0 + 1) / 3)


@st.composite
def ranked_questions(draw):
    """Questions with and without ids of candidates, and a ranking of each."""
    ids = st.text(st.characters(blacklist_categories=("Cs",)), max_size=4)
    ids = ids.map(lambda text: "".join(text.split())).filter(bool)
    # Ids that candidates without one may have.
    ids = ids | st.sampled_from(["Q0-0", "Q0-1", "Q1-2", "D"])
    scores = st.sampled_from([-math.inf, -1.5, 0.0, 1.0, 1.0000001, 3e38])
    questions, rankings = [], []
    for number in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 5))
        candidates = [
            Candidate("text", draw(st.sampled_from([0, 1, None])), draw(st.none() | ids))
            for _ in range(count)
        ]
        question = Question(f"Q{number}", "?", tuple(candidates))
        assume(len(set(question.document_ids)) == count)
        questions.append(question)
        order = draw(st.permutations(range(count)))
        rankings.append(Fake(order, draw(st.lists(scores, min_size=count, max_size=count))))
    return questions, rankings


@settings(max_examples=25)
@given(ranked_questions())
def test_a_run_that_is_read_has_the_documents_that_were_ranked(tmp_path_factory, ranked):
    questions, rankings = ranked
    folder = tmp_path_factory.mktemp("trec")
    write_run(folder / "run", questions, rankings)
    run = read_run(folder / "run")
    assert list(run) == [question.id for question in questions]
    for question, ranking in zip(questions, rankings):
        documents = [question.document_ids[index] for index in ranking.order]
        assert list(run[question.id]) == trec_order(run[question.id]) == documents
    judged = [question for question in questions if set(question.labels) != {None}]
    if judged:
        write_qrels(folder / "qrels", judged)
        assert read_qrels(folder / "qrels") == qrels_from(judged)


@pytest.mark.parametrize(
    "line, found",
    [
        ("q1 Q0 a 1 0.5", "5 columns"),
        ("q1 Q0 a 1 best tag", "score 'best'"),
        ("q1 Q0 a 1 nan tag", "score 'nan'"),
        ("q0 Q0 a 1 0.5 tag", "ranked twice"),
        (b"\xff Q0 a 1 0.5 tag", "not UTF-8"),
    ],
)
def test_bad_runs(jsonl, line, found):
    with pytest.raises(DataError) as caught:
        read_run(jsonl("q0 Q0 a 1 0.5 tag", line, name="run"))
    assert "line 2" in str(caught.value) and found in str(caught.value)


@pytest.mark.parametrize(
    "line, found",
    [("q1 0 a", "3 columns"), ("q1 0 a 0.5", "rel '0.5'"), ("q0 0 a 0", "judged twice")],
)
def test_bad_qrels(jsonl, line, found):
    with pytest.raises(DataError) as caught:
        read_qrels(jsonl("q0 0 a 1", line, name="qrels"))
    assert "line 2" in str(caught.value) and found in str(caught.value)


def test_empty_and_absent_files(tmp_path):
    (tmp_path / "empty").write_text("")
    for read in (read_run, read_qrels):
        with pytest.raises(DataError, match="holds no"):
            read(tmp_path / "empty")
        with pytest.raises(DataError, match="cannot be read"):
            read(tmp_path / "absent")
    with pytest.raises(DataError, match="white space"):
        write_qrels(tmp_path / "q", [QUESTIONS[0]._replace(id="a b")])
