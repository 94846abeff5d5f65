"""The workers of a training without MXNet's store: exchange, launcher, variables."""

import contextlib
import copy
import dataclasses
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from conftest import ROOT, child_environment
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

from wqa.config import RunConfig, TrainingConfig
from wqa.errors import OptionError
from wqa.systems.train import _check_agreement
from wqa.text import split_rows
from wqa.training import workers
from wqa.training.logs import TrainingBar
from wqa.training.optimizer import clip_gradients
from wqa.training.schedules import UpdatePlan, dropout_seed
from wqa.training.workers import Workers, _quiet, check_variables, open_workers

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
    monkeypatch.setattr(workers, "_meet", lambda kvstore: store.of(next(ranks)))
    group = [workers._Group("dist_sync") for _ in range(3)]
    mine = [["a" * length, 0.1], {"β": [None, True]}, float("inf")]
    for turn in range(2):
        values = together(group, lambda rank, worker: worker.gather([mine[rank], turn]))  # noqa: B023
        assert values == [[[one, turn] for one in mine]] * 3


def test_sums_first_and_union():
    results = together(
        members(3),
        lambda rank, worker: (
            worker.sums({"a": 2.0**rank, "b": rank}),
            worker.first(f"of {rank}"),
            worker.union({rank, 7}),
        ),
    )
    assert results == [({"a": 7.0, "b": 3}, "of 0", {0, 1, 2, 7})] * 3
    alone = Workers()
    assert alone.sums({"a": 0.1}) == {"a": 0.1} and alone.union({3}) == {3}
    assert alone.first("x") == "x" and alone.writes and alone.count == 1


def test_worker_0_comes_first():
    order = []

    def act(rank, worker):
        time.sleep(0.2 * (rank == 0))
        with worker.in_turn():
            order.append(rank)

    together(members(3), act)
    assert order[0] == 0 and sorted(order) == [0, 1, 2]


def test_parameters_that_differ_are_an_error():
    def check(rank, worker, difference):
        value = np.float32(1 + (rank == 1) * difference)
        return worker.check_same([mx.nd.array([value])], 5)

    assert together(members(2), lambda rank, worker: check(rank, worker, 0)) == [None, None]
    errors = together(members(2), lambda rank, worker: check(rank, worker, 1.2e-7))
    for error in errors:
        assert isinstance(error, OptionError) and "after update 5' on worker 1" in str(error)


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"train_sha256": "b"}, "train_sha256"),
        ({"max_length": 96}, "max_length"),
        ({"training": TrainingConfig(seed=1)}, "seed"),
        ({"versions": {"mxnet": "1.9.0"}}, "versions"),
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


@given(st.integers(1, 300), st.integers(1, 5), st.integers(1, 4))
def test_the_rows_of_all_workers_are_those_of_one_process(rows, count, devices):
    shares = split_rows(rows, count * devices)
    spans = []
    for rank in range(count):
        spans += Member(rank, count).share(shares)
    assert spans == shares and sum(end - start for start, end in spans) == rows


@given(st.integers(1, 200), st.integers(1, 64), st.integers(1, 6), st.integers(1, 5), st.data())
def test_the_rows_of_a_worker_fit_its_tokens(rows, width, steps, workers, data):
    tokens = data.draw(st.integers(rows * width, 2 * rows * width))
    plan = UpdatePlan(tokens, steps)
    for part in plan.split({"ids": np.zeros((rows, width))}):
        for start, end in split_rows(len(part["ids"]), workers):
            assert (end - start) * width <= plan.step_tokens(width, workers)


def test_the_dropout_of_each_worker_is_its_own():
    assert dropout_seed(3, 4) == dropout_seed(3, 4, 0)
    seeds = {dropout_seed(3, update, rank) for update in range(5) for rank in range(5)}
    assert len(seeds) == 25


def test_gradients_are_scaled_to_the_norm():
    def clip(rank, worker):
        gradients = [mx.nd.array([3.0, 0.0]), mx.nd.array([[4.0]])]
        clip_gradients(gradients, 1.0, worker)
        small = [mx.nd.array([0.3])]
        clip_gradients(small, 1.0, worker)
        return [array.asnumpy().ravel().tolist() for array in (*gradients, *small)]

    for results in [*together(members(2), clip), clip(0, Workers())]:
        np.testing.assert_allclose(np.concatenate(results), [0.6, 0, 0.8, 0.3], rtol=1e-6)


def test_worker_0_prints_notes_and_bars_for_all():
    logger = logging.getLogger("wqa")
    for active in (True, False):
        with _quiet(active):
            assert not (active and logger.isEnabledFor(logging.WARNING))
            for bar in (tqdm(range(2)), TrainingBar(2, 0)):
                assert bar.disable == active
                bar.close()
    assert not tqdm(range(2)).disable


# Where there is no launcher

GIVEN = {
    "DMLC_ROLE": "worker",
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "9091",
    "DMLC_NUM_WORKER": "2",
    "DMLC_NUM_SERVER": "1",
}


@pytest.mark.parametrize(
    "name, value, problem",
    [(name, "", "is not set") for name in GIVEN]
    + [
        ("DMLC_PS_ROOT_PORT", "70000", "'70000'"),
        ("DMLC_NUM_WORKER", "two", "'two'"),
        ("DMLC_NUM_SERVER", "0", "'0'"),
        ("DMLC_ROLE", "servant", "'servant'"),
    ],
)
def test_variables_of_the_launcher(name, value, problem):
    check_variables(GIVEN)
    with pytest.raises(OptionError, match=f"^{name}: .*{problem}.*launch.sh"):
        check_variables({**GIVEN, name: value})


def test_a_training_that_was_not_launched(monkeypatch):
    for name in GIVEN:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OptionError, match="DMLC_ROLE: is not set, for kvstore=dist_sync"):
        open_workers("dist_sync").__enter__()
    with pytest.raises(OptionError, match="kvstore: 'dist_async'; expected one of device"):
        TrainingConfig(kvstore="dist_async")


def test_workers_that_do_not_come():
    script = "from wqa.training import workers\nworkers.MEETING = 1\n"
    script += "workers.open_workers('dist_sync').__enter__()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=child_environment(**{**GIVEN, "DMLC_PS_ROOT_PORT": "9", "DMLC_NODE_HOST": "127.0.0.1"}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("error: training: not all of the processes have started in 1 s")
    assert "2 workers and 1 servers that reach the scheduler at 127.0.0.1:9;" in done.stderr


def test_a_build_without_the_store(monkeypatch):
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(mx.runtime.Features, "is_enabled", lambda self, name: False)
    with pytest.raises(OptionError, match="dist_sync, which this build of MXNet lacks"):
        open_workers("dist_sync").__enter__()


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


def sleepers():
    """Numbers of the processes that sleep for this test."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", LONG.encode()]:
                found.append(path.parent.name)
    return found


def assert_none_is_left():
    deadline = time.monotonic() + 10
    while sleepers() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not sleepers()


def test_the_launcher_sets_the_variables():
    names = "$DMLC_ROLE $DMLC_NUM_WORKER $DMLC_NUM_SERVER $DMLC_PS_ROOT_URI $DMLC_NODE_HOST"
    done = launch("3", "bash", "-c", f"echo {names} $OMP_NUM_THREADS", OMP_NUM_THREADS="5")
    out, error = done.communicate(timeout=60)
    assert done.returncode == 0 and not error
    expected = [f"{role} 3 1 127.0.0.1 127.0.0.1 5" for role in ["worker"] * 3 + ["server"]]
    assert sorted(out.splitlines()) == sorted(
        [*expected, expected[0].replace("worker", "scheduler")]
    )


def test_one_of_several_machines():
    names = "$DMLC_ROLE $DMLC_NUM_WORKER $DMLC_NUM_SERVER $DMLC_PS_ROOT_URI:$DMLC_PS_ROOT_PORT"
    command = ["2", "bash", "-c", f"echo {names}"]
    given = {"MACHINES": "3", "DMLC_PS_ROOT_URI": "localhost", "DMLC_PS_ROOT_PORT": "4321"}
    for index, variable in enumerate(["MACHINE", "SLURM_NODEID", "JOB_COMPLETION_INDEX"]):
        done = launch(*command, **given, **{variable: str(index)})
        out, error = done.communicate(timeout=60)
        assert done.returncode == 0 and not error
        roles = ["server", "worker", "worker"] + ["scheduler"] * (index == 0)
        assert sorted(out.splitlines()) == sorted(f"{role} 6 3 127.0.0.1:4321" for role in roles)


@pytest.mark.parametrize(
    "machine, given, expected",
    [
        ("0", {}, "192.0.2.7"),
        ("0", {"DMLC_INTERFACE": "e1"}, "198.51.100.9"),
        ("1", {}, "127.0.1.1"),
    ],
)
def test_a_machine_whose_name_is_the_loopbacks(machine, given, expected, tmp_path):
    answers = {
        "getent": "127.0.1.1 STREAM node0",
        "hostname": "fd00::2 192.0.2.7 198.51.100.9",
        "ip": "2: e1    inet 198.51.100.9/24 brd 198.51.100.255 scope global e1",
    }
    for name, answer in answers.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{answer}'\n")
        (tmp_path / name).chmod(0o755)
    given = {**given, "MACHINES": "2", "MACHINE": machine, "DMLC_PS_ROOT_URI": "node0"}
    given["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    done = launch("1", "bash", "-c", "echo $DMLC_PS_ROOT_URI", **given)
    out, error = done.communicate(timeout=60)
    assert done.returncode == 0 and not error
    assert set(out.split()) == {expected}


@pytest.mark.parametrize(
    "arguments, variables, problem",
    [
        (["0", "true"], {}, "usage"),
        (["2"], {}, "usage"),
        (["two", "true"], {}, "usage"),
        (["2", "true"], {"MACHINES": "x"}, "MACHINES is 'x'"),
        (["2", "true"], {"MACHINES": "2"}, "MACHINE is ''"),
        (["2", "true"], {"MACHINES": "2", "MACHINE": "2"}, "MACHINE is '2'"),
        (["2", "true"], {"MACHINES": "2", "MACHINE": "1", "DMLC_PS_ROOT_URI": ""}, "ROOT_URI"),
    ],
)
def test_a_wrong_launch(arguments, variables, problem):
    done = launch(*arguments, **variables)
    _, error = done.communicate(timeout=60)
    assert done.returncode == 2 and problem in error and len(error.splitlines()) == 1


@pytest.mark.parametrize(
    "scripts, status, message",
    [
        ({"worker": "exit 0", "server": "exit 0", "scheduler": "exit 0"}, 0, ""),
        ({"worker": "exit 3"}, 3, ""),
        ({"worker": "kill -KILL $$"}, 137, "a worker ended with status 137"),
        ({"server": "exit 7"}, 7, "a server ended with status 7"),
        ({"scheduler": "exit 5"}, 5, "a scheduler ended with status 5"),
    ],
)
def test_where_one_ends_all_end(scripts, status, message):
    done = launch("2", *in_roles(**scripts), LAUNCH_GRACE="1")
    _, error = done.communicate(timeout=60)
    assert done.returncode == status
    assert error.strip() == (f"launch.sh: {message}" if message else "")
    assert_none_is_left()


def setpriv():
    """Path of the program that ends processes with their parent."""
    if "--pdeathsig" not in subprocess.getoutput("setpriv --help"):
        pytest.skip("setpriv, which ends processes with their parent, is missing here")
    return shutil.which("setpriv")


def test_a_process_that_is_tied_after_the_launcher_has_ended_ends_too(tmp_path):
    program, tied = setpriv(), tmp_path / "tied"
    slow = tmp_path / "setpriv"
    wait = f"until [[ -e {tied} ]]; do sleep 0.1; done; sleep 0.2"
    only = "[[ $1 == --help || $DMLC_ROLE == worker ]]"
    slow.write_text(f'#!/bin/bash\n{only} || {{ {wait}; }}\nexec {program} "$@"')
    slow.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = launch("1", *in_roles(worker="echo ready"), PATH=path)
    assert done.stdout.readline() == "ready\n"
    done.kill()
    done.wait(60)
    tied.touch()
    done.communicate(timeout=60)
    assert_none_is_left()


@pytest.mark.parametrize("name, status", [("TERM", 143), ("INT", 130), ("KILL", -9)])
def test_a_signal_to_the_launcher_reaches_the_workers(name, status, tmp_path):
    if name == "KILL":
        setpriv()
    note = tmp_path / "note"
    script = f"trap 'echo {name} >> {note}; exit {status}' {name}; echo ready; sleep {LONG} & wait"
    done = launch("2", *in_roles(worker=script if name != "KILL" else "echo ready"))
    for _ in range(2):
        assert done.stdout.readline() == "ready\n"
    done.send_signal(getattr(signal, f"SIG{name}"))
    done.communicate(timeout=60)
    assert done.returncode == status
    if name != "KILL":
        assert note.read_text().split() == [name] * 2
    assert_none_is_left()


def test_slurm_signals_the_workers_itself():
    script = "trap 'exit 143' TERM; echo ready; sleep 1 & wait; wait; exit 0"
    done = launch(
        "2", *in_roles(worker=script, server="exit 0", scheduler="exit 0"), SLURM_STEP_ID="0"
    )
    for _ in range(2):
        assert done.stdout.readline() == "ready\n"
    done.send_signal(signal.SIGTERM)
    done.communicate(timeout=60)
    assert done.returncode == 0
