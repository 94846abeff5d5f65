"""Scoring and encoding on several devices, a process each."""

import os
import signal

import pytest
from conftest import contents, few_questions

from wqa.cli import main
from wqa.cluster import run_on_devices
from wqa.config.environment import device_numbers
from wqa.errors import ClusterError, DeviceError, OptionError, Stopped
from wqa.io.progress import StopRequest
from wqa.systems.development import evaluation_engine
from wqa.systems.scores import ScoringTask

SMALL = 500


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return few_questions(tmp_path_factory.mktemp("questions") / "few.jsonl")


def test_devices_give_the_bytes_of_one(tiny_run, data, tmp_path, capsys):
    command = ["score", str(tiny_run), "--data", str(data), "--threads", "1"]
    command += ["--partition-tokens", str(SMALL)]
    for name, ctx in [("one", "cpu"), ("three", "cpu:0,cpu:1-2")]:
        assert main([*command, "--out", str(tmp_path / name), "--ctx", ctx]) == 0
        assert f"{tmp_path / name}: 9 questions" in capsys.readouterr().out
        assert not (tmp_path / f"{name}.partitions").exists()
    assert contents(tmp_path / "three") == contents(tmp_path / "one")


@pytest.mark.nightly
def test_documents_are_encoded_on_devices(tiny_encoder, tmp_path, capsys):
    documents = tmp_path / "documents.jsonl"
    lines = [f'{{"id": "{number}", "text": "the tea of day {number}"}}\n' for number in range(40)]
    documents.write_text("".join(lines), encoding="utf-8")
    command = ["encode", f"cosine:{tiny_encoder}", "--documents", str(documents), "--threads", "1"]
    command += ["--partition-tokens", "100"]
    for name, ctx in [("one", "cpu"), ("two", "cpu:0-1")]:
        assert main([*command, "--out", str(tmp_path / name), "--ctx", ctx]) == 0
        assert "40 documents" in capsys.readouterr().out
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_a_device_that_cannot_load_the_run_is_named(tiny_run, data, tmp_path):
    out = tmp_path / "out"
    task = ScoringTask(str(tiny_run), str(data), str(out), "all", "logits", SMALL, {"threads": 1})
    with pytest.raises(ClusterError, match="1 of 2 devices: gpu:7: .*gpu:7"):
        run_on_devices(task, ["cpu:0", "gpu:7"])
    assert list((tmp_path / "out.partitions").glob("*.npz"))  # what is computed stays


@pytest.mark.nightly
def test_a_signal_ends_the_processes(data, tmp_path):
    stop = StopRequest()
    stop.signal = signal.SIGTERM
    task = ScoringTask("wo", str(data), str(tmp_path / "out"), options={"threads": 1})
    with pytest.raises(Stopped):
        run_on_devices(task, ["cpu:0", "cpu:1"], stop=stop)


class Signalled(ScoringTask):
    """Scoring whose process gets a signal twice: of its group, and from its parent."""

    def compute(self, partition):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        return super().compute(partition)


@pytest.mark.nightly
def test_a_signal_of_the_whole_group_lets_partitions_end(data, tmp_path):
    task = Signalled("wo", str(data), str(tmp_path / "out"), options={"threads": 1})
    with pytest.raises(ClusterError, match="a process was stopped by a signal"):
        run_on_devices(task, ["cpu:0", "cpu:1"])


def test_what_cannot_be_divided_is_refused(tiny_run, data, tmp_path, capsys):
    with pytest.raises(OptionError, match="different devices"):
        run_on_devices(ScoringTask("wo", str(data), str(tmp_path / "out")), ["cpu", "cpu"])
    command = ["score", str(tiny_run), "--data", str(data), "--out", str(tmp_path / "out")]
    for option in (["--shard", "1/2"], ["--cluster", "local"]):
        assert main([*command, "--ctx", "cpu:0-1", *option]) == 2
        assert "one device for each process" in capsys.readouterr().err


@pytest.mark.parametrize(
    "ctx, numbers",
    [("gpu", [0]), ("gpu:3", [3]), ("gpu:2-4", [2, 3, 4]), ("gpu:0,gpu:2-3", [0, 2, 3])],
)
def test_numbers_of_devices(ctx, numbers):
    assert device_numbers(ctx) == ("gpu", numbers)


@pytest.mark.parametrize("ctx", ["gpu:1", "gpu:1-4", "gpu:1,gpu:3", "gpu:1-2,gpu:5"])
def test_a_training_on_several_devices_is_evaluated_on_the_first(ctx):
    assert evaluation_engine("auto", ctx).ctx == "gpu:1"


@pytest.mark.parametrize(
    "ctx", ["", "tpu", "gpu:", "gpu:x", "gpu:3-1", "gpu:0,cpu:1", "gpu:0,gpu:0", "gpu:0,", 1]
)
def test_what_is_no_device_is_refused(ctx):
    with pytest.raises(DeviceError, match="expected cpu, gpu:0"):
        device_numbers(ctx)
