"""`wqa train --log-dir`: the figures of metrics.jsonl as TensorBoard reads them."""

import glob
import json
import struct
import sys

import pytest

from wqa.cli import main
from wqa.data import builtin_path
from wqa.training import Trainer

tensorboardX = pytest.importorskip("tensorboardX")


def events(folder):
    """Events of all files of a folder, in order: update, and name and number of each figure."""
    from tensorboardX.proto import event_pb2

    found = []
    for path in sorted(glob.glob(f"{folder}/events*")):
        with open(path, "rb") as file:
            while header := file.read(12):  # length and its checksum; another one follows the event
                event = event_pb2.Event.FromString(file.read(struct.unpack("<Q", header[:8])[0]))
                file.read(4)
                values = {value.tag: value.simple_value for value in event.summary.value}
                found.append((event.step, values))
    return found


def figures(folder):
    """Figures by update and name, the last where there are several."""
    numbers = {}
    for update, values in events(folder):
        for name, value in values.items():
            numbers[update, name] = value
    return numbers


def expected(run):
    """The same of metrics.jsonl."""
    numbers = {}
    for text in (run / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        update = line.pop("update")
        for name, value in line.pop("dev", {}).items():
            numbers[update, f"dev/{name}".replace("@", "_")] = value
        numbers.update({(update, name): value for name, value in line.items()})
    return numbers


@pytest.fixture
def command(tiny_encoder, tmp_path):
    dev = str(builtin_path("dev"))
    words = ["train", "pairwise", "--encoder", str(tiny_encoder), "--train", dev, "--dev", dev]
    words += ["--out", str(tmp_path / "run"), "--tokens-per-batch", "300", "--engine", "mxnet"]
    words += ["--max-updates", "6", "--eval-every", "3", "--log-every", "1"]
    return [*words, "--checkpoint-every", "2", "--log-dir", str(tmp_path / "log" / "run")]


def test_the_figures_are_those_of_the_metrics(command, tmp_path):
    assert main(command) == 0
    written, metrics = figures(tmp_path / "log" / "run"), expected(tmp_path / "run")
    assert written.keys() == metrics.keys()
    assert {update for update, _ in written} == set(range(1, 7))
    assert {(6, "loss"), (6, "learning_rate"), (3, "dev/map"), (6, "dev/p_1")} <= written.keys()
    for key, value in metrics.items():
        assert written[key] == pytest.approx(value, rel=1e-6), key


def test_a_training_that_was_killed_goes_on_in_the_same_folder(command, tmp_path, monkeypatch):
    step = Trainer.step

    def killed(trainer, rate):
        if trainer.state.update == 4:
            raise KeyboardInterrupt
        step(trainer, rate)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", killed)
        assert main(command) == 130
    assert {update for update, _ in figures(tmp_path / "log" / "run")} == {1, 2, 3}
    assert main([*command, "--resume"]) == 0
    written, metrics = figures(tmp_path / "log" / "run"), expected(tmp_path / "run")
    assert written.keys() == metrics.keys()
    for key, value in metrics.items():
        assert written[key] == pytest.approx(value, rel=1e-6), key


def test_without_the_library(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "'.[tensorboard]'" in error and "log_dir" in error
    assert not (tmp_path / "run").exists() and not (tmp_path / "log").exists()
    assert main(command[:-2]) == 0  # it is imported only where it is asked for
