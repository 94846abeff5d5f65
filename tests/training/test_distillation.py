"""Knowledge distillation: its losses by hand, teachers' scores, and trainings of students."""

import dataclasses
import math
import shutil
import types

import mxnet as mx
import numpy as np
import pytest
from conftest import SMALL, logged
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd
from test_cascade_training import arrays
from test_schedules import stop_after

from wqa.cli import main
from wqa.config import TrainingConfig, read_run_config
from wqa.data import Candidate, Question, builtin_path, read_questions, write_questions
from wqa.data.scores import COUNTS, TYPES, StoredScores, candidate_keys, scores_output
from wqa.errors import DataError
from wqa.io.arrays import write_arrays
from wqa.systems import SYSTEMS
from wqa.systems.load import load_ranker
from wqa.systems.registry import build_network
from wqa.systems.scores import write_scores
from wqa.systems.train import train
from wqa.text import PairInputs, PairStore, build_store, load_tokenizer
from wqa.training.losses import cross_entropy, distillation_loss, soft_loss
from wqa.training.pairs import TrainingPairs
from wqa.training.teachers import BLANK_SCORE, scores_of_teachers

# Equations 1 to 3


def value_and_gradient(loss, score, *arguments):
    """A loss of one row, and its derivative by the score."""
    scores = mx.nd.array([score])
    scores.attach_grad()
    with autograd.record():
        result = loss(scores, *(mx.nd.array([value]) for value in arguments[:-1]), *arguments[-1])
    result.backward()
    return result.asscalar().item(), scores.grad.asscalar().item()


LOG3 = math.log(3)
#: KL of (1/4, 3/4) from (1/2, 1/2).
DIVERGENCE = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)


def test_the_soft_loss_by_hand():
    value, gradient = value_and_gradient(soft_loss, 0.0, LOG3, (1.0,))
    assert value == pytest.approx(DIVERGENCE, abs=1e-6) and value == pytest.approx(0.1308, abs=1e-4)
    assert gradient == pytest.approx(0.5 - 0.75, abs=1e-6)
    # At temperature 2 log-odds of 2 log 3 have the same probability, and half the gradient.
    value, gradient = value_and_gradient(soft_loss, 0.0, 2 * LOG3, (2.0,))
    assert value == pytest.approx(DIVERGENCE, abs=1e-6)
    assert gradient == pytest.approx((0.5 - 0.75) / 2, abs=1e-6)
    # The divergence is the teacher's from the student's, which is not symmetric.
    value, gradient = value_and_gradient(soft_loss, LOG3, 0.0, (1.0,))
    assert value == pytest.approx(0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25), abs=1e-6)
    assert gradient == pytest.approx(0.75 - 0.5, abs=1e-6)


def softmax(outputs, tau):
    powers = np.exp(np.asarray(outputs, np.float64) / tau)
    return powers / powers.sum()


def by_definition(student, teacher, label, alpha, tau):
    """Equations 1 to 3 on two outputs of teacher and student, in float64."""
    hard = -math.log(softmax(student, 1)[label])
    p, q = softmax(teacher, tau), softmax(student, tau)
    return alpha * hard + (1 - alpha) * tau**2 * float(np.sum(p * np.log(p / q)))


ALPHAS = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])
OUTPUTS = st.tuples(*[st.floats(-8, 8, width=32)] * 2)


@settings(max_examples=50)
@given(OUTPUTS, OUTPUTS, st.sampled_from([0, 1]), ALPHAS, st.floats(0.5, 8))
def test_log_odds_give_the_loss_of_two_outputs(student, teacher, label, alpha, tau):
    score, teacher_score = student[1] - student[0], teacher[1] - teacher[0]
    value, gradient = value_and_gradient(
        distillation_loss, score, float(label), teacher_score, (alpha, tau)
    )
    expected = by_definition(student, teacher, label, alpha, tau)
    assert value == pytest.approx(expected, rel=1e-4, abs=1e-5 * tau**2)
    # Finite differences of the definition, in the second output.
    losses = []
    for step in (1e-4, -1e-4):
        moved = (student[0], student[1] + step)
        losses.append(by_definition(moved, teacher, label, alpha, tau))
    assert gradient == pytest.approx((losses[0] - losses[1]) / 2e-4, rel=1e-3, abs=1e-4 * tau)


# Tasks


def make_task(system, teachers=3, teaching="sum", **options):
    """A task on random parameters without dropout, and a batch with teachers' scores."""
    dropout = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}
    backbone = dataclasses.replace(SMALL, num_layers=3, max_positions=16, **dropout)
    network = build_network(system, backbone, **options)
    mx.random.seed(1)
    network.initialize(mx.init.Normal(0.5))
    names = tuple(f"teacher {index}" for index in range(teachers))
    config = TrainingConfig(teachers=names, teaching=teaching, alpha=0.25, tau=3.0)
    inputs = types.SimpleNamespace(longest=16, names=PairInputs.names)
    task = SYSTEMS[system].task_type()(network, inputs, None, config)
    scores = mx.nd.array([[1.5, -2.0, 0.5], [0.5, 3.0, -4.0]])
    return task, {**arrays(), "teacher_scores": scores[:, :teachers]}


def expected_loss(scores, batch, teacher):
    labels, teachers = batch["labels"], batch["teacher_scores"]
    return distillation_loss(scores, labels, teachers[:, teacher], 0.25, 3.0).asnumpy()


@pytest.mark.parametrize("teaching, chosen", [("sum", [0, 1, 2]), ("round-robin", [1])])
@pytest.mark.parametrize("system", ["pairwise", "cascade"])
def test_the_exit_of_an_update_learns_from_the_teachers(system, teaching, chosen):
    task, batch = make_task(system, teaching=teaching, exits=(3,))
    loss = task.losses(batch, 2)["loss"].asnumpy()
    scores = task.scores(batch, 2)
    expected = sum(expected_loss(scores, batch, teacher) for teacher in chosen)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert task.taught_scores == 1


@pytest.mark.parametrize("distillation", [0.0, 0.4])
def test_all_exits_of_a_cascade_learn_from_the_teachers(distillation):
    """The last exit's share of an early exit's loss replaces that of equation 1."""
    task, batch = make_task(
        "cascade", exits=(1, 2, 3), trained_exits="all", distillation=distillation
    )
    losses = task.losses(batch, 1)
    scores = task.network.exit_scores(*task.network_inputs(batch))
    target = mx.nd.sigmoid(scores[-1])
    for index, layer in enumerate((1, 2, 3)):
        expected = sum(expected_loss(scores[index], batch, teacher) for teacher in range(3))
        if layer < 3:
            from_last = cross_entropy(scores[index], target).asnumpy()
            expected = (1 - distillation) * expected + distillation * from_last
        np.testing.assert_allclose(losses[f"exit_{layer}"].asnumpy(), expected, rtol=1e-5)


def head_scores(task, batch):
    inputs = (batch["token_ids"], batch["token_types"], batch["valid_length"])
    return task.network.separate_path()(*inputs)[1]


@pytest.mark.parametrize(
    "teaching, chosen",
    [("each", [[0], [1], [2]]), ("sum", [[0, 1, 2]] * 3), ("round-robin", [[1]] * 3)],
)
def test_heads_and_their_teachers(teaching, chosen):
    weights = (1.0, 0.5, 2.0)
    task, batch = make_task("mhs", teaching=teaching, head_weights=weights)
    losses = task.losses(batch, 2)
    scores = head_scores(task, batch)
    for index in range(3):
        expected = [expected_loss(scores[:, index], batch, teacher) for teacher in chosen[index]]
        loss = losses[f"head_{index + 1}"].asnumpy()
        np.testing.assert_allclose(loss, weights[index] * sum(expected), rtol=1e-5)
    assert len(losses) == 3 and task.taught_scores == 3


# Teachers' scores


@pytest.fixture(scope="module")
def questions():
    """Questions of which one has a candidate without a token."""
    blank = Question("blank", "who ?", (Candidate(" ", 1), Candidate("the moon", 0)))
    wrong = Question("wrong", "why ?", (Candidate("the sun", 0),))
    builtin = list(read_questions(builtin_path("dev")))[:6]
    return [*builtin[:3], blank, wrong, *builtin[3:]]


@pytest.fixture(scope="module")
def data(questions, tmp_path_factory):
    path = tmp_path_factory.mktemp("questions") / "train.jsonl"
    write_questions(path, questions)
    return path


@pytest.fixture(scope="module")
def inputs(tiny_encoder):
    return PairInputs(load_tokenizer(tiny_encoder), 64)


def write_folder(path, questions, score, order=None):
    """A folder of scores, by a function of question and candidate, in any order."""
    keys = np.concatenate([candidate_keys(question) for question in questions])
    scores = [score(q, c) for q in questions for c in range(len(q.candidates))]
    made_with = {"data_sha256": "0" * 64, "ranker_sha256": "1" * 64}
    order = np.arange(len(keys)) if order is None else order
    with write_arrays(scores_output(path), TYPES, made_with) as writer:
        writer.append("keys", keys[order])
        writer.append("scores", np.array(scores, np.float32)[order])
        writer.finish({**dict.fromkeys(COUNTS, 0), "pairs": len(order)})
    return path


def by_length(question, index):
    return len(question.candidates[index].text) + index / 100


@pytest.mark.parametrize("filter", ["all", "clean"])
@pytest.mark.parametrize("kind", ["memory", "store"])
def test_each_pair_has_the_score_of_its_candidate(questions, data, inputs, tmp_path, kind, filter):
    """Whatever the order of the folder, and with candidates and questions that are not trained."""
    count = sum(len(question.candidates) for question in questions)
    order = np.random.default_rng(0).permutation(count)
    folder = write_folder(tmp_path / "scores", questions, by_length, order)
    in_order = write_folder(tmp_path / "in_order", questions, by_length)
    train_file = str(data)
    if kind == "store":
        train_file = str(tmp_path / "train.store")
        build_store(data, train_file, inputs)
        pairs = TrainingPairs(PairStore(train_file), inputs, filter=filter)
    else:
        pairs = TrainingPairs(questions, inputs, filter=filter, with_keys=True)
    teachers = [StoredScores(path) for path in (folder, in_order)]
    scores = scores_of_teachers(teachers, pairs, train_file)
    kept = {"all": questions, "clean": [q for q in questions if q.id not in ("blank", "wrong")]}
    expected = []
    for question in kept[filter]:
        for index, text in enumerate(question.texts):
            if text.strip():
                expected.append(np.float32(by_length(question, index)))
    assert scores.dtype == np.float32
    assert scores.tolist() == [[score, score] for score in expected]


def test_a_blank_candidate_has_probability_0(questions, inputs, data, tmp_path):
    folder = write_folder(tmp_path / "scores", questions, lambda question, index: -math.inf)
    pairs = TrainingPairs(questions, inputs, with_keys=True)
    scores = scores_of_teachers([StoredScores(folder)], pairs, str(data))
    assert (scores == BLANK_SCORE).all()
    value, gradient = value_and_gradient(soft_loss, 1.0, BLANK_SCORE, (5.0,))
    assert value == pytest.approx(math.log1p(math.exp(0.2)), rel=1e-5)
    assert gradient == pytest.approx(1 / (1 + math.exp(-0.2)) / 5, rel=1e-5)


def test_scores_of_other_data_are_refused(questions, data, inputs, tmp_path):
    pairs = TrainingPairs(questions, inputs, with_keys=True)
    count = len(pairs)
    edited = [question._replace(question=question.question + " ?") for question in questions]
    fewer = [*questions[:3], questions[3]._replace(candidates=questions[3].candidates[:1])]
    for name, some, missing in (("other", edited, count), ("fewer", [*fewer, *questions[4:]], 1)):
        folder = write_folder(tmp_path / name, some, by_length)
        with pytest.raises(DataError, match=f"{missing} of {count} training candidates") as error:
            scores_of_teachers([StoredScores(folder)], pairs, str(data))
        assert "wqa score RUN --data FILE" in str(error.value) and str(folder) in str(error.value)


# Trainings

FEW_UPDATES = TrainingConfig(
    max_updates=6, learning_rate=1e-2, warmup_updates=1, tokens_per_batch=400, checkpoint_every=2
)


@pytest.fixture(scope="module")
def teacher(tiny_encoder, data, tmp_path_factory):
    """A monolithic ranker, and the folder of its scores."""
    folder = tmp_path_factory.mktemp("teacher")
    train("pairwise", str(data), str(folder / "run"), str(tiny_encoder), config=FEW_UPDATES)
    write_scores(folder / "run", data, folder / "scores")
    return folder


def command(encoder, data, out, *more, system="cascade"):
    words = ["train", system, "--encoder", encoder, "--train", data, "--out", out]
    settings = "--max-updates 6 --learning-rate 1e-2 --warmup-updates 1"
    settings += " --tokens-per-batch 400 --checkpoint-every 2 --max-length 64"
    return list(map(str, [*words, *settings.split(), *more]))


DISTIL = ("--alpha", "0.1", "--tau", "3")


def parameters(run):
    return (run / "model.params").read_bytes()


def test_a_corpus_and_its_store_give_the_same_student(
    tiny_encoder, data, teacher, inputs, tmp_path
):
    words = command(tiny_encoder, data, tmp_path / "folder", "--teachers", teacher / "scores")
    assert main([*words, *DISTIL]) == 0
    build_store(data, tmp_path / "train.store", inputs)
    stored = command(tiny_encoder, tmp_path / "train.store", tmp_path / "stored")
    assert main([*stored, "--teachers", str(teacher / "scores"), *DISTIL]) == 0
    assert parameters(tmp_path / "stored") == parameters(tmp_path / "folder")
    assert main(command(tiny_encoder, data, tmp_path / "labels")) == 0
    assert parameters(tmp_path / "labels") != parameters(tmp_path / "folder")
    config = read_run_config(tmp_path / "folder" / "config.json")
    assert config.training.teachers == (str(teacher / "scores"),)
    assert (config.training.alpha, config.training.tau) == (0.1, 3.0)
    assert len(config.teachers_sha256) == 1 and len(config.teachers_sha256[0]) == 64
    assert read_run_config(tmp_path / "labels" / "config.json").teachers_sha256 == ()
    load_ranker(tmp_path / "folder").rank("who ?", ["the moon"])


def test_a_student_with_heads_trains_from_three_teachers(tiny_encoder, data, teacher, tmp_path):
    names = ",".join([str(teacher / "scores")] * 3)
    out = tmp_path / "student"
    words = command(tiny_encoder, data, out, "--teachers", names, *DISTIL, system="mhs")
    assert main(words) == 0
    assert set(logged(out, "losses")[-1]) == {"head_1", "head_2", "head_3"}
    assert len(read_run_config(out / "config.json").teachers_sha256) == 3


def test_a_stopped_student_resumes_with_its_teachers_alone(
    tiny_encoder, data, questions, teacher, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "scores"
    shutil.copytree(teacher / "scores", folder)
    out = tmp_path / "run"
    words = command(tiny_encoder, data, out, "--teachers", folder, *DISTIL)
    with monkeypatch.context() as patch:
        stop_after(patch, 5)
        assert main(words) == 130
    resumed = [*words, "--resume"]
    assert main([*resumed, "--alpha", "0.2"]) == 2
    assert "alpha was 0.1" in capsys.readouterr().err
    # Other scores in the same folder.
    shutil.rmtree(folder)
    write_folder(folder, questions, by_length)
    assert main(resumed) == 2
    assert "teachers_sha256 was" in capsys.readouterr().err
    shutil.rmtree(folder)
    shutil.copytree(teacher / "scores", folder)
    assert main(resumed) == 0
    whole = command(tiny_encoder, data, tmp_path / "whole", "--teachers", folder, *DISTIL)
    assert main(whole) == 0
    assert parameters(out) == parameters(tmp_path / "whole")


# Teachers that are refused


@pytest.mark.parametrize(
    "system, count, more, expected",
    [
        ("cascade", 2, (), "--teachers: 2 for 1 score"),
        ("mhs", 3, ("--heads", "2"), "--teachers: 3 for 2 scores"),
    ],
)
def test_a_teacher_for_each_score(
    tiny_encoder, data, teacher, tmp_path, refusal, system, count, more, expected
):
    names = ",".join([str(teacher / "scores")] * count)
    out = tmp_path / "run"
    words = command(tiny_encoder, data, out, "--teachers", names, *more, system=system)
    assert expected in refusal(*words)
    run = str(teacher / "run")
    words[words.index("--teachers") + 1] = ",".join([run] * count)
    assert run in refusal(*words, "--teaching", "sum")
    assert not (out / "config.json").exists()
    words[words.index("--teachers") + 1] = names
    assert main([*words, "--teaching", "round-robin"]) == 0
