"""Trainings of two workers by MXNet's distributed store, started by recipes/scale/launch.sh."""

import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import ROOT, child_environment, few_questions, needs_precision, read_metrics

import wqa.models  # noqa: F401 - prepares the process before MXNet is imported

import mxnet as mx  # isort: skip
from wqa.cli import main
from wqa.io.parameter_files import read_array, read_layout

pytestmark = pytest.mark.skipif(
    not mx.runtime.Features().is_enabled("DIST_KVSTORE"),
    reason="this build of MXNet has no distributed store",
)

#: Trains, and notes the digests of the parameters on each device after every update. At one update
#: one worker may get a signal, before the update or in the middle of its sums of gradients.
WORKER = """
import hashlib, os, pathlib, signal, sys, time
folder, name, victim, update, place = sys.argv[1:6]
folder = pathlib.Path(folder)
import mxnet  # the scheduler and the server stay here
from wqa.__main__ import main
from wqa.training import workers
from wqa.training.trainer import Trainer
step, gather = Trainer.step, workers._Group.gather
def signalled():
    (folder / "signalled").write_text(str(time.time()))
    os.kill(os.getpid(), getattr(signal, name))
def noted(trainer, rate):
    number, rank = trainer.state.update, trainer.workers.rank
    is_last, is_victim = bool(name) and number == int(update), rank == int(victim)
    if is_last and is_victim and place == "before":
        signalled()
    def joined(group, value):
        joint = gather(group, value)
        if is_last and is_victim and place == "sums":
            signalled()
        return joint
    workers._Group.gather = joined
    step(trainer, rate)
    workers._Group.gather = gather
    if is_last and place == "sums":
        return  # reading the parameters would wait for the gradients
    line = [str(number)]
    for device in trainer.devices:
        digest = hashlib.sha256()
        for parameter in trainer._parameters.values():
            digest.update(parameter.data(device).asnumpy().tobytes())
        line.append(digest.hexdigest())
    with open(folder / f"worker-{rank}", "a") as file:
        file.write(" ".join(line) + "\\n")
Trainer.step = noted
sys.argv = ["wqa", *sys.argv[6:]]
sys.exit(main())
"""
#: Seconds of a launch, on a busy machine.
LIMIT = 150


@pytest.fixture(scope="module")
def material(tmp_path_factory, tiny_encoder):
    """Encoders without and with dropout, and a few questions to train and to evaluate on."""
    folder = tmp_path_factory.mktemp("material")
    for name, rate in (("encoder", 0.0), ("dropout", 0.1)):
        shutil.copytree(tiny_encoder, folder / name)
        path = folder / name / "config.json"
        config = json.loads(path.read_text())
        config.update(hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
        path.write_text(json.dumps(config))
    few_questions(folder / "train.jsonl", 8)
    few_questions(folder / "dev.jsonl", 11, 8)
    return folder


def arguments(material, out, *more):
    words = ["train", "cascade", "--encoder", material / "encoder", "--out", out]
    words += ["--train", material / "train.jsonl", "--dev", material / "dev.jsonl"]
    settings = "--exits 1,2,3 --max-length 64 --max-updates 8 --epochs 9 --learning-rate 1e-3"
    settings += " --warmup-updates 3 --checkpoint-every 2 --eval-every 3 --log-every 1"
    return list(map(str, [*words, *settings.split(), *more]))


def launch(notes, words, blow=("", 0, 0, ""), **variables):
    """Exit status, output, messages, and seconds since the signal, of a launch of two workers."""
    notes.mkdir()
    launcher = [ROOT / "recipes" / "scale" / "launch.sh", 2, sys.executable, "-c", WORKER, notes]
    process = subprocess.Popen(
        [*map(str, [*launcher, *blow, *words, "--kvstore", "dist_sync"])],
        env=child_environment(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, error = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()  # its processes end with it
        _, error = process.communicate(timeout=30)
        raise AssertionError(error) from None
    seconds = 0.0
    if blow[0]:
        seconds = time.time() - float((notes / "signalled").read_text())
    return process.returncode, out, error, seconds


def digests(notes):
    """Digests by update of each worker's devices, the last of an update that was repeated."""
    workers = []
    for rank in range(2):
        lines = (notes / f"worker-{rank}").read_text().splitlines()
        workers.append({int(line.split()[0]): line.split()[1:] for line in lines})
    return workers


def assert_equal_on_all(notes, updates, devices):
    first, second = digests(notes)
    assert sorted(first) == sorted(second) == list(range(1, updates + 1))
    for update, values in first.items():
        assert len(values) == devices and len({*values, *second[update]}) == 1, update
    assert len({values[0] for values in first.values()}) == updates


def losses(run):
    return {line["update"]: line["loss"] for line in read_metrics(run) if "loss" in line}


#: Updates of several mini-batches of few rows, which the workers do not share evenly.
SETTINGS = ["--ctx", "cpu:0-1", "--tokens-per-batch", 60, "--tokens-per-update", 500]
SETTINGS += ["--clip-norm", 0.5, "--weight-decay", 0.01, "--seed", 1]


@pytest.fixture(scope="module")
def whole(material, tmp_path_factory):
    """A training of two workers with two devices each, which nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    words = arguments(material, folder / "run", *SETTINGS)
    status, out, error, _ = launch(folder / "notes", [*words, "--json", "-"])
    assert status == 0, error
    (folder / "out").write_text(out)
    return folder


def test_workers_have_the_same_parameters_after_every_update(whole):
    assert_equal_on_all(whole / "notes", 8, 2)


def test_they_train_as_one_process_does(whole, material, tmp_path):
    settings = ["cpu:0-3" if word == "cpu:0-1" else word for word in SETTINGS]
    assert main(arguments(material, tmp_path / "run", *settings)) == 0
    ours, theirs = losses(whole / "run"), losses(tmp_path / "run")
    assert list(ours) == list(theirs) == list(range(1, 9))
    np.testing.assert_allclose(list(ours.values()), list(theirs.values()), atol=1e-5)
    ours, theirs = (folder / "run" / "model.params" for folder in (whole, tmp_path))
    layout = read_layout(ours)
    for name, stored in read_layout(theirs).items():
        values = read_array(ours, layout[name]), read_array(theirs, stored)
        np.testing.assert_allclose(*values, atol=1e-5, err_msg=name)


def test_worker_0_writes_the_run(whole):
    result = json.loads((whole / "out").read_text())  # of one worker alone
    assert result["updates"] == 8 and not result["was_complete"]
    config = json.loads((whole / "run" / "config.json").read_text())
    assert config["workers"] == 2 and config["training"]["kvstore"] == "dist_sync"
    lines = read_metrics(whole / "run")
    updates = [line["update"] for line in lines]
    assert updates == sorted(updates) and sum("dev" in line for line in lines) == 3
    names = {path.name for path in (whole / "run").iterdir()}
    files = {"README.md", "config.json", "metrics.jsonl", "model.params", "tokenizer.json"}
    assert names == files | {"ensemble.json"}


def assert_lost(status, error, seconds):
    """Worker 1 is killed, and the launcher says so and ends the other."""
    assert status == 137 and seconds < 60, error
    assert "Traceback" not in error


@pytest.mark.nightly
def test_a_lost_worker_ends_the_others_and_the_run_goes_on(material, tmp_path):
    words = [*arguments(material, tmp_path / "run"), "--max-updates", "7", "--ctx", "cpu:0-1"]
    words[words.index("--encoder") + 1] = str(material / "dropout")
    lost, resumed = tmp_path / "lost", tmp_path / "resumed"
    # The other worker meets it in Python, while MXNet waits for gradients that do not come.
    blow = ("SIGKILL", 1, 7, "sums")
    status, _, error, seconds = launch(lost, words, blow)
    assert_lost(status, error, seconds)
    assert (tmp_path / "run" / "checkpoints" / "update-00000004").is_dir()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "update-00000006")
    status, _, error, _ = launch(resumed, [*words, "--resume"])
    assert status == 0, error
    first, again = digests(lost), digests(resumed)
    assert sorted(first[0]) == list(range(1, 7)) and sorted(again[0]) == [5, 6, 7]
    for update in (5, 6):
        assert len({*first[0][update], *first[1][update]}) == 1
        assert again[0][update] == again[1][update] == first[0][update]


@pytest.mark.once
@needs_precision("bfloat16")
def test_onednn_in_bfloat16_until_a_signal(material, tmp_path):
    settings = ["--engine", "onednn", "--precision", "bfloat16", "--tokens-per-batch", 100]
    settings += ["--accumulate", 2, "--max-updates", 4]
    words = arguments(material, tmp_path / "run", *settings)
    # A signal to one worker stops all after the same update, with a checkpoint.
    blow = ("SIGTERM", 1, 3, "before")
    status, _, error, _ = launch(tmp_path / "notes", words, blow)
    assert status == 143 and "update 3 of 4: stopped by signal 15" in error
    assert (tmp_path / "run" / "checkpoints" / "update-00000003").is_dir()
    assert_equal_on_all(tmp_path / "notes", 3, 1)
    settings[settings.index(100)] = 200  # a mini-batch of both workers
    assert main(arguments(material, tmp_path / "one", *settings)) == 0
    ours, theirs = losses(tmp_path / "run"), losses(tmp_path / "one")
    assert list(ours) == [1, 2, 3]
    for update, loss in ours.items():
        assert loss == pytest.approx(theirs[update], abs=2e-3)
