"""Candidates that do not fit, which are read in windows."""

import numpy as np
import pytest
from rankers import cascade_ranking

from wqa import load_ranker
from wqa.data import Candidate, Question
from wqa.errors import InputError, OptionError
from wqa.inference import Ranker, SequentialRanker
from wqa.inference.dropping import Drop
from wqa.inference.windows import WindowRanker, first_tokens
from wqa.text import Located

QUESTION = "how are glacier caves formed ?"
LONG = " ".join(f"ice {number} melts into the valley ." for number in range(40))
CANDIDATES = ["Glacier caves form in ice .", f"{LONG} Water carves caves . {LONG}", "", LONG]


class Words:
    """Inputs of four words a candidate."""

    def __init__(self):
        self.tokenizer = self

    def room_of(self, question, name=""):
        return 4

    def encode(self, texts, count):
        return [text.split()[:count] for text in texts]

    def locate(self, texts):
        places = []
        for text in texts:
            starts = np.array([i for i in range(len(text)) if not text[i].isspace()])
            places.append(Located(np.arange(len(starts)), starts, starts + 1))
        return places


class TwoExits(Ranker):
    """Scores by the texts, after two exits, of which the first drops half."""

    inputs = Words()

    def __init__(self, scores):
        self._scores = scores
        self.texts = []

    def rank_all(self, questions):
        for question in questions:
            self.texts.append(question.texts)
            scores = np.array([self._scores[text] for text in question.texts], float).T
            yield cascade_ranking(scores, (Drop(0.5), Drop()), (3, 6))


def test_a_candidate_has_the_scores_of_its_windows_by_hand():
    inner = TwoExits(
        {"a b c d": (1, 9), " c d e f": (5, 2), " e f g": (4, 3), "h i": (3, 7), "j": (2, 8)}
    )
    question = Question("q", "q", tuple(map(Candidate, ["h i", "a b c d e f g", "j"])))
    [ranking] = WindowRanker(inner).rank_all([question])
    assert inner.texts == [("h i", "a b c d", " c d e f", " e f g", "j")]
    # Half of five windows are dropped by 5, 4, 3: "c d e f", "e f g" and "h i" go on.
    assert ranking.order.tolist() == [0, 1, 2]
    assert ranking.scores.tolist() == [7, 3, 2]
    assert ranking.exits.tolist() == [6, 6, 3]
    assert ranking.dropped.tolist() == [False, False, True]
    np.testing.assert_array_equal(ranking.exit_scores, [[3, 5, 2], [7, 3, np.nan]])
    assert [ranking.window(index) for index in range(3)] == [None, [8, 13], None]
    assert [row["window"] for row in ranking.to_dicts()] == [None, [8, 13], None]
    assert len(ranking.relevance) == 3 and np.all(np.diff(ranking.relevance) < 0)


def test_the_score_is_the_greatest_of_the_windows(tiny_run):
    plain = load_ranker(tiny_run)
    ranker = load_ranker(tiny_run, long_candidates="windows")
    assert plain.rank(QUESTION, CANDIDATES).truncated.tolist() == [False, True, False, True]
    ranking = ranker.rank(QUESTION, CANDIDATES, return_documents=True)
    assert not ranking.truncated.any()
    assert ranking.blank.tolist() == [False, False, True, False]
    [divided] = [ranker._divide(Question("", QUESTION, tuple(map(Candidate, CANDIDATES))))]
    for index in (1, 3):
        windows = [CANDIDATES[index][slice(*ranking.window(index))]]
        for window in np.flatnonzero(divided.owners == index):
            windows.append(divided.question.candidates[window].text)
        scores = plain.predict([(QUESTION, window) for window in windows])
        assert len(windows) > 5
        assert ranking.scores[index] == pytest.approx(scores.max(), abs=1e-5)
        assert scores[0] == pytest.approx(scores.max(), abs=1e-5)
    rows = {row["index"]: row for row in ranking.to_dicts()}
    assert rows[1]["text"] == CANDIDATES[1] and rows[0]["window"] is None


def test_exits_drop_windows_and_the_ranker_answers_as_the_one_inside(tiny_run):
    ranker = load_ranker(tiny_run, drop_ratio=0.5, long_candidates="windows")
    ranking = ranker.rank(QUESTION, CANDIDATES)
    assert sorted(ranking.order) == [0, 1, 2, 3]
    assert ranking.cost.relative < 1
    assert ranker.drop_ratio == [0.5, 0.5, 0]
    assert ranker.capabilities.exits == (1, 2, 3)
    before = ranker.drops
    ranker.set_drops(keep=2)
    assert [drop.keep for drop in ranker.drops] == [2, 2, 0]
    ranker.restore_drops(before)
    assert ranker.drop_ratio == [0.5, 0.5, 0]
    with pytest.raises(InputError, match="candidate list is empty"):
        ranker.rank(QUESTION, [])


def test_windows_fit_every_ranker_of_a_sequence(tiny_run, dcbert_run):
    """DC-BERT reads 38 tokens of a document, the cascade what its question leaves of 64."""
    sequence = SequentialRanker([load_ranker(tiny_run), load_ranker(dcbert_run)], drop_ratio=0.3)
    ranking = WindowRanker(sequence).rank(QUESTION, CANDIDATES)
    assert not ranking.truncated.any()
    assert sorted(ranking.order) == [0, 1, 2, 3]


def test_refusals(tiny_run, dcbert_run, tmp_path):
    with pytest.raises(OptionError, match="long_candidates"):
        load_ranker(tiny_run, long_candidates="half")
    with pytest.raises(OptionError, match="long_candidates: windows, with a document cache"):
        load_ranker(dcbert_run, long_candidates="windows", cache=tmp_path / "cache")


def test_first_tokens(tiny_run):
    ranker = load_ranker(tiny_run)
    texts = ["ice melts .", LONG, ""]
    shortened = first_tokens(ranker, texts, 4)
    assert shortened == ["ice melts .", LONG[: len(shortened[1])], ""]
    [ids] = ranker.inputs.tokenizer.encode([shortened[1]], 100)
    [whole] = ranker.inputs.tokenizer.encode([LONG], 100)
    assert list(ids) == list(whole[:4])
    assert first_tokens(load_ranker("wo"), texts, 4) == texts
