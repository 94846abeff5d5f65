"""The workers of a training without MXNet's store: exchange, launcher, variables."""

import copy
import dataclasses
import os
import signal
import subprocess
import threading
import time

import mxnet as mx
import numpy as np
import pytest
from conftest import ROOT, child_environment

from wqa.config import RunConfig, TrainingConfig
from wqa.errors import OptionError
from wqa.systems.train import _check_agreement
from wqa.training.workers import VARIABLES, Workers, _Group, clip_gradients, open_workers

LAUNCH = ROOT / "recipes" / "scale" / "launch.sh"
#: Seconds that no other process sleeps.
LONG = f"98.{os.getpid():08}"


def together(workers, act):
    """Results of an act of all workers at once, or the errors that they raise."""
    results = [None] * len(workers)

    def run(rank):
        try:
            results[rank] = act(rank, workers[rank])
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return results


class Member(Workers):
    """A worker that is a thread of this process."""

    def __init__(self, rank, count, barrier=None, shared=None):
        self.rank, self.count, self._barrier, self._shared = rank, count, barrier, shared

    def gather(self, value):
        self._shared[self.rank] = value
        self._barrier.wait(30)
        values = list(self._shared)
        self._barrier.wait(30)
        return values


def members(count):
    barrier, shared = threading.Barrier(count), [None] * count
    return [Member(rank, count, barrier, shared) for rank in range(count)]


class SummingStore:
    """Sums what the threads of this process push, as the servers of MXNet's store do."""

    def __init__(self, count):
        self.num_workers, self._barrier = count, threading.Barrier(count)
        self._sums, self._lock = {}, threading.Lock()

    def of(self, rank):
        store = copy.copy(self)
        store.rank = rank
        return store

    def init(self, key, array):
        pass

    def push(self, key, array):
        with self._lock:
            self._sums[key] = self._sums.get(key, 0) + array.asnumpy()

    def pull(self, key, out):
        self._barrier.wait(30)
        out[:] = self._sums[key]
        self._barrier.wait(30)
        self._sums.pop(key, None)
        self._barrier.wait(30)


@pytest.mark.parametrize("length", [0, 4095, 4096, 20000])
def test_all_workers_get_the_values_of_all(monkeypatch, length):
    """Texts of several exchanges, of a length that differs between workers."""
    store, ranks = SummingStore(3), iter(range(3))
    monkeypatch.setattr(mx.kv, "create", lambda kvstore: store.of(next(ranks)))
    group = [_Group("dist_sync") for _ in range(3)]
    mine = [["a" * length, 0.1], {"β": [None, True]}, float("inf")]
    for turn in range(2):
        values = together(group, lambda rank, worker: worker.gather([mine[rank], turn]))  # noqa: B023
        assert values == [[[one, turn] for one in mine]] * 3


def test_all_workers_get_the_value_of_the_first():
    results = together(members(3), lambda rank, worker: worker.first(f"of {rank}"))
    assert results == ["of 0"] * 3
    alone = Workers()
    assert alone.first("x") == "x" and alone.writes and alone.count == 1


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"train_sha256": "b"}, "train_sha256"),
        ({"training": TrainingConfig(seed=1)}, "seed"),
        ({"command": "on another machine"}, ""),
    ],
)
def test_workers_that_train_something_else(changes, name):
    record = RunConfig("cascade", training=TrainingConfig(), train_sha256="a", workers=2)

    def check(rank, worker):
        _check_agreement(dataclasses.replace(record, **changes) if rank else record, worker)

    errors = together(members(2), check)
    if not name:
        assert errors == [None, None]
    for error in errors if name else ():
        assert isinstance(error, OptionError) and str(error).startswith(f"{name}: ")
        assert "on worker 1" in str(error)


def test_gradients_are_scaled_to_the_norm():
    def clip(rank, worker):
        gradients = [mx.nd.array([3.0, 0.0]), mx.nd.array([[4.0]])]
        clip_gradients(gradients, 1.0, worker)
        small = [mx.nd.array([0.3])]
        clip_gradients(small, 1.0, worker)
        return [array.asnumpy().ravel().tolist() for array in (*gradients, *small)]

    for results in [*together(members(2), clip), clip(0, Workers())]:
        np.testing.assert_allclose(np.concatenate(results), [0.6, 0, 0.8, 0.3], rtol=1e-6)


# Where there is no launcher


def test_a_training_that_was_not_launched(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OptionError, match="DMLC_ROLE: is not set, for kvstore=dist_sync"):
        open_workers("dist_sync").__enter__()
    with pytest.raises(OptionError, match="kvstore: 'dist_async'; expected one of device"):
        TrainingConfig(kvstore="dist_async")


# The launcher


def launch(*arguments, **variables):
    for name in ("MACHINE", "MACHINES", "SLURM_NODEID", "SLURM_STEP_ID", "JOB_COMPLETION_INDEX"):
        variables.setdefault(name, "")
    return subprocess.Popen(
        [str(LAUNCH), *arguments],
        env=child_environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As in a terminal: a background job of a script inherits it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def in_roles(**scripts):
    """A command that runs one script in each role, and sleeps long in the others."""
    lines = [f"if [[ $DMLC_ROLE == {role} ]]; then {text}; fi" for role, text in scripts.items()]
    return ["bash", "-c", "\n".join([*lines, f"exec sleep {LONG}"])]


def assert_none_is_left():
    """No process sleeps for this test."""
    deadline = time.monotonic() + 10
    while subprocess.run(["pgrep", "-f", f"^sleep {LONG}"], capture_output=True).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize(
    "variables, scheduler, counts",
    [
        ({}, True, "3 1 127.0.0.1 127.0.0.1"),
        ({"MACHINES": "2", "MACHINE": "0"}, True, "6 2 127.0.0.1"),
        ({"MACHINES": "2", "SLURM_NODEID": "1"}, False, "6 2 127.0.0.1"),
    ],
)
def test_the_launcher_sets_the_variables(variables, scheduler, counts):
    names = "$DMLC_NUM_WORKER $DMLC_NUM_SERVER $DMLC_PS_ROOT_URI $DMLC_NODE_HOST"
    command = ["bash", "-c", f"echo $DMLC_ROLE {names} $OMP_NUM_THREADS"]
    done = launch("3", *command, OMP_NUM_THREADS="5", DMLC_PS_ROOT_URI="localhost", **variables)
    out, error = done.communicate(timeout=60)
    assert done.returncode == 0 and not error
    roles = ["scheduler"] * scheduler + ["server", *["worker"] * 3]
    assert sorted(out.splitlines()) == [f"{role} {counts} 5" for role in roles]


@pytest.mark.parametrize(
    "scripts, status",
    [
        ({"worker": "exit 0", "server": "exit 0", "scheduler": "exit 0"}, 0),
        pytest.param({"worker": "exit 3"}, 3, marks=pytest.mark.nightly),
        ({"worker": "kill -KILL $$"}, 137),
        pytest.param({"server": "exit 7"}, 7, marks=pytest.mark.nightly),
        pytest.param({"scheduler": "exit 5"}, 5, marks=pytest.mark.nightly),
    ],
)
def test_where_one_ends_all_end(scripts, status):
    done = launch("2", *in_roles(**scripts))
    done.communicate(timeout=60)
    assert done.returncode == status
    assert_none_is_left()
