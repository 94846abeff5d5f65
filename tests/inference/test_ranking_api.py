"""What a caller of one ranker uses: rank, predict, and what a ranking turns into."""

import json
import math

import numpy as np
import pytest
from conftest import run_python

from wqa.data import Candidate, Question
from wqa.errors import DataError, InputError, OptionError
from wqa.inference import SequentialRanker
from wqa.systems.load import load_ranker

QUESTION = "what is a glacier ?"
TEXTS = ["ice", "", "the moon is bright", "a glacier is a body of slow ice"]


@pytest.fixture(scope="module")
def cascade(tiny_run):
    """Exits 1, 2 and 3, half of the candidates are dropped at the first."""
    return load_ranker(tiny_run, drop_ratio=[0.5, 0])


def test_top_k_cuts_the_order_alone(cascade):
    whole = cascade.rank(QUESTION, TEXTS)
    for count in (1, 2, 4, np.int64(3), 100):
        top = cascade.rank(QUESTION, TEXTS, top_k=count)
        assert top.order.tolist() == whole.order.tolist()[:count]
        np.testing.assert_array_equal(top.scores, whole.scores)
    for wrong in (0, -1, 1.0, True, "2"):
        with pytest.raises(OptionError, match="top_k: .*; expected a whole number from 1"):
            cascade.rank(QUESTION, TEXTS, top_k=wrong)


def test_dicts_say_what_became_of_each_candidate(cascade):
    documents = [Candidate(text, id=f"D{index}") for index, text in enumerate(TEXTS)]
    ranking = cascade.rank(QUESTION, documents, return_documents=True)
    rows = ranking.to_dicts()
    assert json.loads(json.dumps(rows)) == rows
    assert [row["rank"] for row in rows] == [1, 2, 3, 4]
    assert [row["index"] for row in rows] == ranking.order.tolist()
    # Two of three go on: floor(0.5 * 3) = 1 is dropped, the blank one at no exit.
    assert [row["dropped"] for row in rows] == [False, False, True, False]
    assert [row["exit"] for row in rows] == [3, 3, 1, 0]
    for row in rows:
        assert (row["id"], row["text"]) == (f"D{row['index']}", TEXTS[row["index"]])
        assert row["blank"] == (row["text"] == "")
        if not row["blank"]:
            assert row["score"] == ranking.scores[row["index"]]
            assert row["probability"] == pytest.approx(1 / (1 + math.exp(-row["score"])))
    assert (rows[-1]["score"], rows[-1]["probability"]) == (None, 0.0)
    assert "text" not in cascade.rank(QUESTION, TEXTS).to_dicts()[0]


def test_pairs_are_scored_each_by_itself(cascade):
    pairs = [(QUESTION, TEXTS[3]), ("who wrote it ?", "ice"), (QUESTION, ""), (QUESTION, TEXTS[0])]
    scores = cascade.predict(iter(pairs))
    assert scores.shape == (4,) and scores[2] == -np.inf
    for (question, text), score in zip(pairs, scores):
        assert score == pytest.approx(cascade.rank(question, [text]).scores[0], abs=1e-5)
    probabilities = cascade.predict(pairs, probabilities=True)
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-scores)), atol=1e-7)
    assert cascade.predict([]).shape == (0,)
    with pytest.raises(InputError, match=r"candidate 1: \['a'\]; expected a text"):
        cascade.predict([pairs[0], (QUESTION, ["a"])])


def test_importing_the_package_is_quick_and_quiet():
    code = "import sys, wqa; dir(wqa); assert not {'mxnet', 'numpy'} & set(sys.modules)"
    assert run_python("-W", "error", "-c", code, check=True).stderr == ""


@pytest.mark.parametrize("run", ["wo+rr", "bm25", "tiny", "sequence"])
def test_every_ranker_takes_what_rank_takes(run, tiny_run):
    ranker = load_ranker(tiny_run if run in ("tiny", "sequence") else run)
    if run == "sequence":
        ranker = SequentialRanker([load_ranker("wo+rr"), ranker], keep=2)
    ranking = ranker.rank(QUESTION, iter(TEXTS), top_k=2, return_documents=True)
    assert len(ranking.order) == 2 and len(ranking.to_dicts()) == 2
    for wrong, message in (
        ("ice", "not a string and a list of strings"),
        (b"ice", "not a string and a list of strings"),
        (["ice", 3], "candidate 2: 3; expected a text or a Candidate"),
        ([], "the candidate list is empty"),
    ):
        with pytest.raises(InputError, match=message):
            ranker.rank(QUESTION, wrong)
    with pytest.raises(InputError, match="not a string and a list"):
        ranker.rank(7, TEXTS)
    with pytest.raises(InputError, match="question 'Q7': the candidate list is empty"):
        list(ranker.rank_all([Question("Q7", QUESTION, ())]))
    twice = [Candidate("ice", id="D1"), Candidate("snow", id="D1")]
    with pytest.raises(DataError, match="candidate 2: document id 'D1' belongs to candidate 1 too"):
        ranker.rank(QUESTION, twice)
