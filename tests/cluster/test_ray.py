"""Scoring by the workers of a real Ray on this machine, which die or fail, and its addresses."""

import os
import signal
import sys
import types

import pytest
from conftest import contents
from test_devices import data as data

from wqa.cli import main
from wqa.cluster import run_on_ray
from wqa.data.parts import run_parts
from wqa.errors import ClusterError, MissingDependency, OptionError, Stopped
from wqa.io.progress import StopRequest
from wqa.systems.scores import ScoringTask, write_scores

SMALL = 500


@pytest.fixture
def needs_ray():
    ray = pytest.importorskip("ray", reason="ray is not installed")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have it


def failing_task(data, tmp_path, fails):
    """A task whose second part calls a function in the worker, with the path of a mark."""
    mark = str(tmp_path / "mark")

    whole = ScoringTask("wo", str(data), "", partition_tokens=SMALL)
    second = list(whole.divide())[1].start

    class Failing(ScoringTask):
        def compute(self, partition):
            if partition.start == second:
                fails(mark)
            return ScoringTask.compute(self, partition)

    task = Failing("wo", str(data), str(tmp_path / "out"), partition_tokens=SMALL)
    task.options = {"threads": 1}
    return task


def die_once(mark):
    if not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)


def test_workers_give_the_bytes_of_one_process(needs_ray, tiny_run, data, tmp_path, capsys):
    command = ["score", str(tiny_run), "--data", str(data), "--threads", "1"]
    command += ["--partition-tokens", str(SMALL)]
    out = tmp_path / "out"
    assert main([*command, "--out", str(out), "--cluster", "local:2"]) == 0
    assert f"{out}: 9 questions" in capsys.readouterr().out
    assert main([*command, "--out", str(tmp_path / "one")]) == 0
    assert contents(out) == contents(tmp_path / "one")
    assert not (tmp_path / "out.partitions").exists()
    # What is merged is merged, without a cluster.
    assert main([*command, "--out", str(out), "--cluster", "local:2"]) == 0


@pytest.mark.nightly
def test_the_part_of_a_worker_that_dies_is_computed_by_another(needs_ray, data, tmp_path):
    task = failing_task(data, tmp_path, die_once)
    report = run_on_ray(task, "local:2")
    assert (report.partitions, report.computed, report.missing) == (5, 5, 0)
    assert (tmp_path / "mark").exists()
    write_scores("wo", data, tmp_path / "one", partition_tokens=SMALL, threads=1)
    assert contents(tmp_path / "out") == contents(tmp_path / "one")


@pytest.mark.nightly
def test_a_part_that_fails_is_named_and_the_rest_is_computed(needs_ray, data, tmp_path):
    def fails(mark):
        raise ValueError("no room")

    task = failing_task(data, tmp_path, fails)
    with pytest.raises(ClusterError, match="1 of 5 partitions.*partition 1, lines .*no room"):
        run_on_ray(task, "local:1")
    files = sorted(path.name for path in (tmp_path / "out.partitions").glob("*.npz"))
    assert files == ["000000.npz", "000002.npz", "000003.npz", "000004.npz"]
    whole = ScoringTask("wo", str(data), task.out, "all", "logits", SMALL, {"threads": 1})
    assert run_parts(whole).computed == 1


@pytest.mark.nightly
def test_a_run_that_no_worker_can_load_ends_the_command(needs_ray, data, tmp_path, tiny_run):
    task = ScoringTask(str(tiny_run), str(data), str(tmp_path / "out"), "all", "logits", SMALL)
    task.options = {"threads": 1, "ctx": "gpu:7"}
    with pytest.raises(ClusterError, match="no worker can begin: worker on .*gpu:7"):
        run_on_ray(task, "local:1")


@pytest.mark.nightly
def test_a_signal_ends_the_driver(needs_ray, data, tmp_path):
    stop = StopRequest()
    stop.signal = signal.SIGTERM
    task = ScoringTask("wo", str(data), str(tmp_path / "out"), options={"threads": 1})
    with pytest.raises(Stopped):
        run_on_ray(task, "local:1", stop=stop)
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_IGN


@pytest.mark.parametrize("text", ["", "local:0", "local:x", "10.0.0.1", "ray://", "ray://a b", "x"])
def test_what_is_no_address_is_refused(data, tmp_path, text):
    task = ScoringTask("wo", str(data), str(tmp_path / "out"))
    with pytest.raises(OptionError, match="cluster: .*expected local, local:N"):
        run_on_ray(task, text)


def test_without_ray(monkeypatch, data, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"ray: cannot be imported.*\[ray\]"):
        run_on_ray(ScoringTask("wo", str(data), str(tmp_path / "out")), "local")
    command = ["score", "wo", "--data", str(data), "--out", str(tmp_path / "out")]
    assert main([*command, "--cluster", "local"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("message, attempts", [("it timed out", 4), ("no such host", 1)])
def test_what_ray_cannot_start_is_an_error(monkeypatch, data, tmp_path, message, attempts):
    calls = []

    def init(**options):
        calls.append(options["address"])
        raise ConnectionError(message)

    fake = types.SimpleNamespace(
        is_initialized=lambda: False, init=init, shutdown=lambda: None, __version__="2"
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    task = ScoringTask("wo", str(data), str(tmp_path / "out"))
    with pytest.raises(ClusterError, match=f"local does not answer.*{message}"):
        run_on_ray(task, "local")
    assert calls == ["local"] * attempts


def test_a_session_of_the_caller_is_kept(monkeypatch, data, tmp_path):
    """A notebook that uses Ray itself would lose its own work."""
    fake = types.SimpleNamespace(is_initialized=lambda: True)  # without shutdown()
    monkeypatch.setitem(sys.modules, "ray", fake)
    task = ScoringTask("wo", str(data), str(tmp_path / "out"))
    with pytest.raises(ClusterError, match="connected to Ray already"):
        run_on_ray(task, "local")
