"""Calibration: temperatures, a no-answer threshold, the file of a run, and what ranks with them."""

import dataclasses
import json
import math
import shutil

import numpy as np
import pytest
from rankers import ranking_of
from scipy.special import expit
from test_relevance import follows

from wqa.data import builtin_path, read_questions, write_questions
from wqa.data.digests import forget_digests
from wqa.errors import OptionError, RunDirectoryError
from wqa.evaluation.reliability import best_threshold, expected_calibration_error
from wqa.inference import Calibration, EnsembleRanker, SequentialRanker
from wqa.systems.load import load_ranker
from wqa.tuning import calibrate, fit_temperature

QUESTION = "what is a glacier ?"
TEXTS = ["ice", "", "the moon is bright", "a glacier is a body of slow ice", "tea", "a river"]


@pytest.fixture(scope="module")
def dev(tiny_run, tmp_path_factory):
    """The built-in questions, labelled so that the run ranks an answer first in half of them."""
    questions = []
    ranker = load_ranker(tiny_run, engine="mxnet")
    read = list(read_questions(builtin_path("dev")))
    for number, (question, ranking) in enumerate(zip(read, ranker.rank_all(read))):
        answers = {0: ranking.order[:1], 1: ranking.order[2:4], 2: ranking.order[:0]}
        chosen = answers[number % 4 % 3]
        candidates = []
        for index, candidate in enumerate(question.candidates):
            candidates.append(candidate._replace(label=int(index in chosen)))
        questions.append(question._replace(candidates=tuple(candidates)))
    path = tmp_path_factory.mktemp("dev") / "dev.jsonl"
    write_questions(path, questions)
    return path


@pytest.fixture(scope="module")
def calibrated(tiny_run, dev, tmp_path_factory):
    """A copy of the run with exits 1, 2 and 3, calibrated, and what the calibration returned."""
    run = shutil.copytree(tiny_run, tmp_path_factory.mktemp("calibrated") / "run")
    return run, calibrate(run, dev, engine="mxnet")


@pytest.fixture
def copy(calibrated, tmp_path):
    return shutil.copytree(calibrated[0], tmp_path / "copy")


# By hand


def test_a_temperature_by_hand():
    # Of scores 2 three in four are answers, of scores -2 one in four: sigmoid(2 / T) = 3 / 4.
    scores = np.array([2.0] * 4 + [-2.0] * 4)
    labels = np.array([1, 1, 1, 0, 1, 0, 0, 0])
    assert fit_temperature(scores, labels) == pytest.approx(2 / math.log(3), rel=1e-9)
    assert fit_temperature(10 * scores, labels) == pytest.approx(20 / math.log(3), rel=1e-9)


def test_the_calibration_error_by_hand():
    probabilities, labels = np.array([0.1, 0.3, 0.9, 0.9]), np.array([0, 1, 1, 1])
    # Up to 0.5: 0.2 on average, and half of them are answers; above: 0.9, and all are.
    error = (2 * 0.3 + 2 * 0.1) / 4
    assert expected_calibration_error(probabilities, labels, 2) == pytest.approx(error)
    assert expected_calibration_error(probabilities, labels, 1) == pytest.approx(0.75 - 0.55)
    # 0.5 belongs to the first of two bins, 0 too, and 1 to the last.
    edges = np.array([0.0, 0.5, 1.0])
    assert expected_calibration_error(edges, np.array([0, 0, 1]), 2) == pytest.approx(0.5 / 3)
    assert expected_calibration_error(edges, np.array([0, 1, 1]), 2) == pytest.approx(0.5 / 3)
    # With bins of their own nothing cancels.
    assert expected_calibration_error(np.array([0.2, 0.8]), np.array([1, 0]), 1) == 0
    assert expected_calibration_error(np.array([0.2, 0.8]), np.array([1, 0])) == pytest.approx(0.8)


def test_a_threshold_by_hand():
    relevance = np.array([0.9, 0.8, 0.6, 0.4, 0.2])
    right = np.array([True, True, False, True, False])
    # Of 4 questions with an answer; F1 is 2 right / (answered + 4).
    f1 = [2 / 5, 4 / 6, 4 / 7, 6 / 8, 6 / 9]
    best = best_threshold(relevance, right, 4)
    assert best.threshold == pytest.approx(0.3) and best.f1 == max(f1)
    assert (best.precision, best.recall, best.answered) == (3 / 4, 3 / 4, 4)
    shuffled = np.array([3, 0, 4, 2, 1])
    assert best_threshold(relevance[shuffled], right[shuffled], 4) == best
    # Of equal F1 the greatest threshold: 2 / (1 + 1), then 4 / (3 + 1).
    assert best_threshold(np.array([0.9, 0.5, 0.1]), np.array([1, 0, 1]), 1).answered == 1


def test_probabilities_by_hand():
    none = math.nan
    scores = np.array([[2.0, 4.0, none, -6.0], [none, 3.0, none, none]])
    probabilities = Calibration((2.0, 0.5)).probabilities(scores)
    np.testing.assert_allclose(probabilities, [expit(1), expit(6), 0, expit(-3)])
    np.testing.assert_array_equal(
        Calibration().probabilities(scores), [expit(2.0), expit(3.0), 0, expit(-6.0)]
    )


# A run


def test_a_calibrated_run(calibrated, tiny_run, dev):
    run, result = calibrated
    temperatures = np.array(result.calibration.temperatures)
    assert len(temperatures) == 3 and len(set(temperatures)) == 3
    for figures in result.exits:
        assert figures.nll_after <= figures.nll_before and 0 <= figures.ece_after <= 1
    assert [figures.exit for figures in result.exits] == [1, 2, 3]
    questions = list(read_questions(dev))
    assert result.counts["questions"] == len(questions)
    before = load_ranker(tiny_run, engine="mxnet", drop_ratio=0.3)
    after = load_ranker(run, engine="mxnet", drop_ratio=0.3)
    assert after.calibration == result.calibration and before.calibration == Calibration()
    for one, two in zip(before.rank_all(questions), after.rank_all(questions)):
        np.testing.assert_array_equal(one.scores, two.scores)
        np.testing.assert_array_equal(one.order, two.order)
        stages = np.searchsorted((1, 2, 3), two.exits)
        expected = expit(two.scores / temperatures[stages])
        np.testing.assert_allclose(two.probabilities, expected, rtol=1e-12)
        follows(two)
    as_before = load_ranker(run, engine="mxnet", calibrated=False).rank(QUESTION, TEXTS)
    np.testing.assert_array_equal(as_before.probabilities, expit(as_before.scores))
    pairs = [(QUESTION, TEXTS[0]), (QUESTION, "")]
    score, blank = after.predict(pairs)
    assert after.predict(pairs, probabilities=True).tolist() == [
        pytest.approx(expit(score / temperatures[2])),
        0,
    ]
    assert blank == -math.inf


def test_a_sequence_has_the_temperatures_of_its_rankers(calibrated):
    run, result = calibrated
    cascade = load_ranker(run, engine="mxnet")
    ranker = SequentialRanker([load_ranker("rr"), cascade], keep=2)
    ranking = ranker.rank(QUESTION, TEXTS)
    last = result.calibration.temperatures[-1]
    divisors = np.where(np.isnan(ranking.exit_scores[1]), 1.0, last)
    np.testing.assert_allclose(ranking.probabilities, expit(ranking.scores / divisors))
    assert (divisors == last).sum() == 2 and ranking.threshold == result.triggering.threshold
    follows(ranking)
    assert ranker.rank(QUESTION, [" ", ""]).threshold == ranking.threshold
    assert SequentialRanker([cascade, load_ranker("rr")]).rank(QUESTION, TEXTS).threshold is None


def test_an_ensemble_has_the_mean_of_calibrated_probabilities(calibrated):
    run, result = calibrated
    cascade, other = load_ranker(run, engine="mxnet"), load_ranker("rr")
    ranking = EnsembleRanker([cascade, other], [3, 1]).rank(QUESTION, TEXTS)
    parts = [part.rank(QUESTION, TEXTS).probabilities for part in (cascade, other)]
    np.testing.assert_allclose(ranking.probabilities, 0.75 * parts[0] + 0.25 * parts[1])
    plain = load_ranker(run, engine="mxnet", calibrated=False)
    as_before = EnsembleRanker([plain, other], [3, 1]).rank(QUESTION, TEXTS)
    np.testing.assert_array_equal(ranking.scores, as_before.scores)
    np.testing.assert_allclose(as_before.probabilities, expit(as_before.scores), rtol=1e-9)
    assert ranking.threshold is None
    np.testing.assert_array_equal(np.argsort(-ranking.relevance, kind="stable"), ranking.order)


# None of these


def test_answered():
    ranking = ranking_of([[0.0, 2.0, -1.0]])
    top = float(expit(2.0))
    assert ranking.answered(top) and ranking.answered(0.0) and ranking.answered(np.float32(0.5))
    assert not ranking.answered(np.nextafter(top, 1)) and not ranking.answered(1)
    assert ranking.top(1).answered(top)
    own = dataclasses.replace(ranking, threshold=0.9)
    assert not own.answered() and own.answered(0.8)
    blank = ranking_of([[math.nan]])
    assert not blank.answered(0.0)
    for wrong in (-0.1, 1.1, math.nan, "0.5", True):
        with pytest.raises(OptionError, match="threshold: .*; expected a number from 0 to 1"):
            ranking.answered(wrong)
    with pytest.raises(OptionError, match="threshold: none; .*calibrate the run with `wqa calib"):
        ranking.answered()


# Bad input


def rewrite(run, **changes):
    """Change fields of a calibration, whose digest is then not recorded; None removes a field."""
    forget_digests(run, ["calibration.json"])
    path = run / "calibration.json"
    values = {**json.loads(path.read_text()), **changes}
    kept = {name: value for name, value in values.items() if value is not None}
    path.write_text(json.dumps(kept))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model_sha256": "0" * 64}, "fitted to the scores of other weights than model.params"),
        ({"temperatures": [1.0, 2.0]}, "expected 3 numbers, one for each exit"),
        ({"temperatures": "1, 1, 1"}, "temperatures is"),
        ({"threshold": 1.5}, "threshold is 1.5; expected a number from 0 to 1"),
    ],
)
def test_a_calibration_that_does_not_fit(copy, changes, message, dev):
    rewrite(copy, **changes)
    with pytest.raises(RunDirectoryError, match=f"{message}.*wqa calibrate .* --data DEV"):
        load_ranker(copy)
    load_ranker(copy, calibrated=False)


def test_a_damaged_file(copy):
    path = copy / "calibration.json"
    path.write_bytes(b"{")
    with pytest.raises(RunDirectoryError, match="calibration.json: has changed.*wqa calibrate"):
        load_ranker(copy)
    forget_digests(copy, ["calibration.json"])
    with pytest.raises(RunDirectoryError, match=r"calibration.json: .*wqa calibrate"):
        load_ranker(copy)
    path.unlink()
    assert load_ranker(copy).calibration == Calibration()
