"""Calibration: temperatures, a no-answer threshold, the file of a run, and what ranks with them."""

import dataclasses
import json
import math
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from test_relevance import follows, ranker_of, ranking_of

from wqa.cli import main
from wqa.data import Candidate, Question, builtin_path, read_questions, write_questions
from wqa.data.digests import forget_digests
from wqa.errors import DataError, OptionError, RunDirectoryError
from wqa.evaluation.reliability import (
    best_threshold,
    expected_calibration_error,
    negative_log_likelihood,
)
from wqa.inference import Calibration, EnsembleRanker, SequentialRanker
from wqa.systems import SYSTEMS
from wqa.systems.load import load_ranker
from wqa.systems.saving import save_run
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


def test_temperatures_at_their_limits():
    scores = np.array([3.0, 1.0, -1.0, -3.0])
    assert fit_temperature(scores, np.array([1, 1, 0, 0])) == 0.01
    assert fit_temperature(scores, np.array([0, 0, 1, 1])) == 100
    assert fit_temperature(np.zeros(4), np.array([0, 0, 1, 1])) == 100


@given(
    st.lists(st.tuples(st.floats(-30, 30), st.booleans()), min_size=2, max_size=40),
    st.floats(0.01, 100),
)
def test_no_other_temperature_is_likelier(rows, other):
    scores = np.array([score for score, _ in rows])
    labels = np.array([label for _, label in rows], dtype=int)
    fitted = negative_log_likelihood(scores / fit_temperature(scores, labels), labels)
    assert fitted <= negative_log_likelihood(scores / other, labels) + 1e-9


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


def test_the_likelihood_by_hand():
    scores = np.array([math.log(3), -math.log(3)])
    assert negative_log_likelihood(scores, np.array([1, 1])) == pytest.approx(
        -(math.log(0.75) + math.log(0.25)) / 2
    )
    assert negative_log_likelihood(np.array([1e4, -1e4]), np.array([0, 1])) == pytest.approx(1e4)


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


def test_a_threshold_that_equal_values_leave():
    best = best_threshold(np.array([0.7, 0.7, 0.1]), np.array([False, True, False]), 1)
    assert best.answered == 2 and best.threshold == pytest.approx(0.4)
    below = np.nextafter(1.0, 0)
    best = best_threshold(np.array([1.0, below]), np.array([True, False]), 1)
    assert best.threshold > below
    alone = best_threshold(np.array([0.5]), np.array([True]), 1)
    assert alone.threshold == 0.25 and alone.f1 == 1


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


@pytest.mark.parametrize("system", ["cascade", "compare_aggregate"])
def test_every_kind_of_system(system, tiny_encoder, tmp_path):
    ranker = ranker_of(system, tiny_encoder)
    texts = [" ".join(TEXTS[:1] * number + ["slow river", "moon"]) for number in range(6)]
    questions = []
    for number in range(4):
        ranking = ranker.rank(f"{QUESTION} {'ice ' * number}", texts)
        answer = ranking.order[0 if number % 2 else -1]
        candidates = [Candidate(text, int(index == answer)) for index, text in enumerate(texts)]
        questions.append(Question(f"q{number}", f"{QUESTION} {'ice ' * number}", tuple(candidates)))
    write_questions(tmp_path / "dev.jsonl", questions)
    run = save_run(ranker.network, ranker.inputs, tmp_path / "run")
    result = calibrate(run, tmp_path / "dev.jsonl", engine="mxnet")
    assert len(result.exits) == ranker.capabilities.stages
    if ranker.capabilities.exits:
        assert tuple(figures.exit for figures in result.exits) == ranker.capabilities.exits
    loaded = load_ranker(run, engine="mxnet")
    assert loaded.capabilities.system == system
    ranking = loaded.rank(QUESTION, texts)
    temperature = result.calibration.temperatures[-1]
    assert temperature != 1
    np.testing.assert_allclose(ranking.probabilities, expit(ranking.scores / temperature))
    assert ranking.threshold == result.triggering.threshold
    follows(ranking)


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


def replace_ranker(monkeypatch, ranker):
    """Let cascades be ranked by another ranker."""
    replaced = dataclasses.replace(SYSTEMS["cascade"], ranker=ranker)
    monkeypatch.setitem(SYSTEMS, "cascade", replaced)


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


def error_of(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("error: ") and err.count("\n") == 1
    return err


def questions_of(*labels):
    questions = []
    for number, row in enumerate(labels):
        candidates = [Candidate(text, label) for text, label in zip(TEXTS, row)]
        questions.append(Question(f"q{number}", QUESTION, tuple(candidates)))
    return questions


@pytest.mark.parametrize(
    "labels, message",
    [
        ([(0, 0, 0), (0, 0, 0)], "every candidate with text is no answer; expected candidates of"),
        ([(1, 0, 1), (1, 1, 1)], "every candidate with text is an answer; expected candidates of"),
        ([(0, 1, 0)], "every candidate with text is no answer"),  # the blank one is labelled
        ([(1, None, 0)], "label"),
    ],
    ids=["no answer", "answers only", "a blank answer", "no label"],
)
def test_labels_that_calibrate_nothing(labels, message, copy, tmp_path, capsys):
    write_questions(tmp_path / "dev.jsonl", questions_of(*labels))
    before = (copy / "calibration.json").read_bytes()
    assert message in error_of(capsys, "calibrate", copy, "--data", tmp_path / "dev.jsonl")
    assert (copy / "calibration.json").read_bytes() == before
    load_ranker(copy)


def test_no_first_candidate_is_an_answer(copy, tmp_path):
    ranker = load_ranker(copy, engine="mxnet")
    last = int(ranker.rank(QUESTION, [TEXTS[0], TEXTS[2], TEXTS[3]]).order[-1])
    candidates = []
    for index, text in enumerate((TEXTS[0], TEXTS[2], TEXTS[3])):
        candidates.append(Candidate(text, int(index == last)))
    write_questions(tmp_path / "dev.jsonl", [Question("q", QUESTION, tuple(candidates))])
    with pytest.raises(DataError, match="no question has an answer as its first candidate"):
        calibrate(copy, tmp_path / "dev.jsonl", engine="mxnet")


def test_what_is_no_run_directory(copy, tmp_path, tiny_encoder, capsys, dev):
    sequence = tmp_path / "sequence.json"
    sequence.write_text(json.dumps({"rankers": ["rr", "copy"], "keep": 2}))
    for run, message in (
        ("bm25", "a baseline, which has no files; expected a run directory"),
        (sequence, "a file of several rankers; expected a run directory; calibrate its runs"),
        (tmp_path / "nothing", "there is no such directory"),
        (tiny_encoder, "a model of another library; expected a run directory"),
    ):
        assert message in error_of(capsys, "calibrate", run, "--data", dev)
    (copy / "model.params").unlink()
    assert "model.params" in error_of(capsys, "calibrate", copy, "--data", dev)


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
        ({"temperatures": [1.0, 2.0]}, "expected 3 numbers from 0.01 to 100, one for each exit"),
        ({"temperatures": [1.0, math.nan, 1.0]}, "calibration.json"),
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


def test_a_lost_file_and_a_new_calibration(copy, calibrated, dev):
    (copy / "calibration.json").unlink()
    with pytest.raises(RunDirectoryError, match=r"calibration.json: the file is missing.*wqa cal"):
        load_ranker(copy)
    calibrate(copy, dev, engine="mxnet")
    assert load_ranker(copy).calibration == calibrated[1].calibration


# The commands


def test_the_table(copy, capsys, dev):
    assert main(["calibrate", str(copy), "--data", str(dev)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    names = ["exit", "temperature", "nll_before", "nll_after", "ece_before", "ece_after"]
    assert lines[1].split() == names
    assert [line.split()[0] for line in lines[2:5]] == ["1", "2", "3"]
    assert lines[5].startswith("threshold 0.") and "F1" in lines[5]
    assert lines[6] == f"stored in {copy}/calibration.json"
    assert main(["calibrate", str(copy), "--data", str(dev), "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["file"] == f"{copy}/calibration.json" and len(result["exits"]) == 3
    assert result["triggering"]["threshold"] == load_ranker(copy).calibration.threshold


def test_none_of_these_at_the_command_line(copy, tiny_run, tmp_path, capsys):
    texts = tmp_path / "texts"
    texts.write_text("\n".join(TEXTS) + "\n")
    ask = ["--question", QUESTION, "--candidates", str(texts), "--engine", "mxnet"]
    ranking = load_ranker(copy, engine="mxnet").rank(QUESTION, TEXTS)
    first = float(ranking.relevance[ranking.order[0]])

    def result_of(run, *more):
        assert main(["rank", str(run), *ask, *more]) == 0
        out = capsys.readouterr().out
        assert main(["rank", str(run), *ask, *more, "--json", "-"]) == 0
        return out, json.loads(capsys.readouterr().out)

    out, result = result_of(copy, "--threshold")
    assert result["threshold"] == ranking.threshold
    assert result["answered"] == (first >= ranking.threshold) == ("none of these" not in out)
    assert result["ranking"][0]["relevance"] == pytest.approx(first, rel=1e-4)
    assert result["ranking"][-1]["relevance"] == 0 and result["ranking"][-1]["score"] is None
    out, result = result_of(tiny_run, "--threshold", "1")
    assert out.startswith("none of these: the relevance of the first, 0.")
    assert out.count("\n") == 1 and result["answered"] is False and result["threshold"] == 1
    assert len(result["ranking"]) == len(TEXTS)
    out, result = result_of("rr", "--threshold", "0")
    assert out.startswith("rank ") and result["answered"] is True
    _, result = result_of("rr")
    assert "answered" not in result
    texts.write_text("\n\n")
    out, result = result_of("rr", "--threshold", "0")
    assert out == "none of these: no candidate has text\n" and result["answered"] is False


@pytest.mark.parametrize(
    "threshold, message",
    [
        (["--threshold=1.01"], "--threshold: "),
        (["--threshold=high"], "--threshold: "),
        (["--threshold"], "--threshold: none; expected that of a calibrated run"),
    ],
)
def test_thresholds_that_do_not_fit(threshold, message, tiny_run, tmp_path, capsys):
    (tmp_path / "texts").write_text("ice\n")
    ask = ["--question", QUESTION, "--candidates", tmp_path / "texts", *threshold]
    assert message in error_of(capsys, "rank", tiny_run, *ask)
