"""Scoring on Ray: a real cluster on this machine whose processes are killed, and the driver alone.

The driver's own tests take a transport in place of Ray that calls the workers at once.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types

import pytest
from conftest import child_environment

import wqa.cluster.ray_cluster as ray_module
from wqa.cli import main
from wqa.cluster import PartitionScorer, ScoringJob, run_on_cluster
from wqa.cluster.partition_files import ATTEMPTS, MOST_IN_A_ROW, HandOut, read_manifest
from wqa.cluster.ray_cluster import Outcome, Worker, connect
from wqa.data import builtin_path, read_questions, write_questions
from wqa.errors import ClusterError, MissingDependency, OptionError, Stopped
from wqa.io.progress import StopRequest
from wqa.systems.scores import write_scores

QUESTIONS = list(read_questions(builtin_path("dev")))
SMALL = 500


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("questions") / "few.jsonl"
    write_questions(path, QUESTIONS[:9])
    return path


@pytest.fixture
def job(data, tmp_path):
    return ScoringJob("wo", str(data), str(tmp_path / "out"), partition_tokens=SMALL)


# The driver, with workers in this process


class Dead(Exception):
    pass


class Reference:
    def __init__(self, name, call):
        self.name, self.call, self.made = name, call, time.monotonic()


class FakeRay:
    """Calls the methods of workers when their answers are read; `deaths` are calls that kill."""

    exceptions = types.SimpleNamespace(RayActorError=Dead, RayError=(Dead, ValueError))

    def __init__(self, deaths=(), make=Worker):
        self.deaths, self.make = deaths, make
        self.calls, self.killed, self.made, self.alive = [], [], 0, True

    def remote(self, kind):
        return types.SimpleNamespace(options=self._options)

    def _options(self, **resources):
        self.resources = resources
        return types.SimpleNamespace(remote=self._actor)

    def _actor(self, *arguments):
        self.made += 1
        worker, number = self.make(*arguments), self.made

        def method(name):
            def remote(*values):
                return Reference(name, lambda: self._call(worker, number, name, values))

            return types.SimpleNamespace(remote=remote)

        names = ("here", "begin", "compute")
        return types.SimpleNamespace(**{name: method(name) for name in names})

    def _call(self, worker, number, name, values):
        call = (number, name, *values)
        self.calls.append(call)
        if call in self.deaths or call[1:] in self.deaths or (name,) in self.deaths:
            raise Dead
        return getattr(worker, name)(*values)

    def wait(self, references, num_returns, timeout):
        assert references and num_returns == 1
        return references[:1], references[1:]

    def get(self, reference):
        return reference.call()

    def kill(self, worker):
        self.killed.append(worker)

    def nodes(self):
        return [{"Alive": False}, {"Alive": self.alive}]


@pytest.fixture
def ray(monkeypatch):
    """Take a fake of Ray with two workers; the test sets its deaths."""
    fake = FakeRay()

    @contextlib.contextmanager
    def connected(cluster, threads, on_gpus):
        yield fake, 2

    monkeypatch.setattr(ray_module, "connect", connected)
    monkeypatch.setattr(ray_module, "_PAUSE", 0)
    return fake


def expected(job, folder):
    write_scores(job.run, job.data, folder, partition_tokens=SMALL)
    return contents(folder)


def contents(folder):
    return {file.name: file.read_bytes() for file in sorted(pathlib.Path(folder).iterdir())}


def test_workers_score_every_partition_once(job, ray, tmp_path):
    report = run_on_cluster(job, "local:2")
    assert (report.partitions, report.computed, report.missing) == (5, 5, 0)
    scored = [call[2] for call in ray.calls if call[1] == "compute"]
    assert sorted(scored) == list(range(5)) and ray.made == 2
    assert ray.resources["num_cpus"] == 1 and ray.resources["num_gpus"] == 0
    assert contents(job.out) == expected(job, tmp_path / "one")
    # Merged scores stay; the workers say so.
    again = run_on_cluster(job, "local:2")
    assert again.meta == report.meta and again.computed == 0


def test_a_worker_that_dies_is_replaced(job, ray, tmp_path, capsys):
    ray.deaths = {(1, "compute", 0), (2, "begin")}
    assert run_on_cluster(job, "local:2").computed == 5
    assert ray.made == 4
    assert "a worker died while it scored partition 0" in capsys.readouterr().err
    assert contents(job.out) == expected(job, tmp_path / "one")


def test_a_partition_that_fails_three_times_is_named_and_the_rest_goes_on(
    job, ray, data, tmp_path, capsys
):
    ray.deaths = {("compute", 2)}
    command = ["score", "wo", "--data", str(data), "--out", job.out, "--cluster", "local:2"]
    command += ["--partition-tokens", str(SMALL)]
    assert main(command) == 2
    error = capsys.readouterr().err.rpartition("error: ")[2]
    manifest = read_manifest(job.folder)
    first, count = manifest.partitions[2].line, manifest.partitions[2].read
    lines = f"lines {first} to {first + count - 1} of {data}"
    assert f"1 of 5 partitions: failed 3 times: partition 2, {lines}: the worker died" in error
    assert "run the command again" in error
    assert len([call for call in ray.calls if call[2:] == (2,)]) == ATTEMPTS
    assert len(list(job.folder.glob("*/*.partition"))) == len(manifest.partitions) - 1
    ray.deaths = ()
    assert main(command) == 0
    assert contents(job.out) == expected(job, tmp_path / "one")


def test_errors_of_a_partition_are_repeated(job, ray, monkeypatch):
    compute = PartitionScorer.compute

    def wrong(scorer, manifest, index):
        if index == 4:
            raise OSError(28, "No space left on device")
        compute(scorer, manifest, index)

    monkeypatch.setattr(PartitionScorer, "compute", wrong)
    with pytest.raises(ClusterError, match="partition 4, lines .*: worker on .*No space left"):
        run_on_cluster(job, "local:2")


def test_a_worker_that_cannot_begin_is_left_out(job, ray, monkeypatch, capsys, tmp_path):
    """A machine with other data, or another version; the others go on. If all are such, it ends."""
    load = ScoringJob.load

    def refuse(job):
        if ray.calls[-1][0] == 1:
            raise OptionError("data", "other data", "the same")
        return load(job)

    with monkeypatch.context() as patch:
        patch.setattr(ScoringJob, "load", refuse)
        assert run_on_cluster(job, "local:2").computed == 5
    assert "a worker cannot begin: worker on" in capsys.readouterr().err and len(ray.killed) == 1
    other = ScoringJob("no", job.data, str(tmp_path / "other"))
    with pytest.raises(ClusterError, match="no worker can begin; worker on .*no such directory"):
        run_on_cluster(other, "local:2")


def test_workers_that_die_before_they_begin(job, ray):
    ray.deaths = {("begin",)}
    with pytest.raises(ClusterError, match="workers die before they have begun"):
        run_on_cluster(job, "local:2")
    assert 3 <= ray.made <= 12


def test_a_cluster_without_room(job, ray, monkeypatch):
    """Workers that never begin, as no processor is free."""
    monkeypatch.setattr(ray_module, "START_TIMEOUT", 0.05)
    monkeypatch.setattr(ray, "wait", lambda *_, **__: time.sleep(0.01) or ([], []))
    with pytest.raises(ClusterError, match="no worker has started for 0 s"):
        run_on_cluster(job, "local:2")


def test_a_cluster_whose_machines_fail(job, ray, monkeypatch):
    """The workers die with their machine, and no machine is left for those in their place."""

    def wait(references, num_returns, timeout):
        time.sleep(0.01)
        if ray.made > 2:
            ray.alive = False
            return [], references
        return references[:1], references[1:]

    monkeypatch.setattr(ray, "wait", wait)
    ray.deaths = {("compute", index) for index in range(9)}
    with pytest.raises(ClusterError, match="all of its machines have failed; .*; what is comp"):
        run_on_cluster(job, "local:2")


def test_a_plan_may_take_longer_than_the_start_of_a_worker(job, ray, monkeypatch):
    """The worker that comes first reads the whole corpus before it answers."""

    def wait(references, num_returns, timeout):
        time.sleep(0.01)
        for reference in references:
            if reference.name != "begin" or time.monotonic() > reference.made + 0.5:
                return [reference], []
        return [], references

    monkeypatch.setattr(ray_module, "START_TIMEOUT", 0.2)
    monkeypatch.setattr(ray, "wait", wait)
    assert run_on_cluster(job, "local:2").computed == 5


def test_workers_that_die_before_they_try_a_partition_do_not_count(job, ray, monkeypatch):
    """Machines that were taken away while their workers had nothing to do."""
    call, dead = ray._call, set()

    def called(worker, number, name, values):
        if name == "compute" and number < 6 or number in dead:
            dead.add(number)
            raise Dead
        return call(worker, number, name, values)

    monkeypatch.setattr(ray, "_call", called)
    assert run_on_cluster(job, "local:2").computed == 5
    assert len(dead) == 5 > ATTEMPTS
    work = HandOut([3])
    while not work.is_done:  # they all die
        work.put_back(work.take())
    assert work.take() is None


def test_a_signal_ends_the_driver(job, ray):
    stop = StopRequest()
    stop.signal = signal.SIGTERM
    with pytest.raises(Stopped, match="stopped by signal 15"):
        run_on_cluster(job, "local:2", stop=stop)


def test_workers_see_the_manifest_but_the_driver_does_not(job, ray, monkeypatch):
    monkeypatch.setattr(ray_module, "read_manifest", lambda folder: None)
    with pytest.raises(ClusterError, match="a folder that all machines share"):
        run_on_cluster(job, "local:2")


def test_nothing_more_is_handed_out_where_everything_fails():
    work = HandOut(range(100))
    attempts = 0
    while not work.is_done:
        work.fail(work.take(), "full disk")
        attempts += 1
    assert attempts == MOST_IN_A_ROW and work.take() is None
    work = HandOut([3, 4])
    for index in (3, 4, 3, 4, 3):
        assert work.take() == index
        work.fail(index, "no")
    assert work.take() == 4
    assert work.take() is None and not work.is_done
    work.succeed()
    assert work.is_done and work.computed == 1


def test_a_worker_answers_with_text(tmp_path, data):
    """Errors of any type reach a driver that does not know them."""
    worker = Worker(ScoringJob("wo", str(data), str(tmp_path / "out")), str(tmp_path / "no"))
    assert "No such file" in worker.begin().error
    assert "AssertionError" in worker.compute(0).error
    # Where all paths are absolute, the working directory need not be there.
    job = ScoringJob(str(tmp_path / "run"), str(data), str(tmp_path / "out"))
    assert str(tmp_path / "run") in Worker(job, str(tmp_path / "no")).begin().error
    assert worker.here() == Outcome()
    assert Outcome() == ("", False)


# Addresses


@pytest.mark.parametrize(
    "text", ["", "remote", "local:0", "local:x", "ray://", "http://a", "ray:a"]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(OptionError, match="cluster: .*expected local, local:N"), connect(text):
        pass


def test_without_ray(monkeypatch, data, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    missing = r"ray: cannot be imported.*'\.\[ray\]'"
    with pytest.raises(MissingDependency, match=missing), connect("local"):
        pass
    command = ["score", "wo", "--data", str(data), "--out", str(tmp_path / "o"), "--cluster"]
    assert main([*command, "local", "--shard", "1/2"]) == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_an_address_that_does_not_answer(monkeypatch, job):
    """Nothing listens there, or no name leads there: an error at once, before Ray tries."""
    pytest.importorskip("ray", reason="ray is not installed")
    started = time.monotonic()
    for address in ("ray://127.0.0.1:9", "ray://no-such-host.invalid", "ray://[::1]:9"):
        with pytest.raises(ClusterError, match="cluster: .* does not answer on port") as caught:
            run_on_cluster(job, address)
        assert "ray start --head" in str(caught.value)
    assert time.monotonic() - started < 60


def test_what_ray_cannot_start_is_an_error(monkeypatch):
    """A time limit of Ray's own, on a busy machine, is tried again."""
    errors = ["it timed out", "no room\nmore"]

    def init(**options):
        assert options["include_dashboard"] is False and os.environ["OMP_NUM_THREADS"] == "3"
        raise RuntimeError(errors.pop(0))

    fake = types.SimpleNamespace(
        init=init, shutdown=lambda: None, is_initialized=lambda: False, __version__="2.60.0"
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    before, handler = os.environ["OMP_NUM_THREADS"], signal.getsignal(signal.SIGTERM)
    with pytest.raises(ClusterError, match=r"does not start \(no room\)"), connect("local:2", 3):
        pass
    assert os.environ["OMP_NUM_THREADS"] == before
    assert signal.getsignal(signal.SIGTERM) == handler


def test_a_session_of_the_caller_is_kept(monkeypatch):
    """A notebook that uses Ray itself would lose its own work."""
    fake = types.SimpleNamespace(is_initialized=lambda: True)  # without shutdown()
    monkeypatch.setitem(sys.modules, "ray", fake)
    with pytest.raises(ClusterError, match="connected to Ray already"), connect("local"):
        pass


# A real cluster


def descendants(pid):
    """Processes that a process has started, and those that they have, with their command lines."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, ValueError):
                continue
            children.setdefault(parent, {})[int(entry.name)] = command
    below = {}
    waiting = [pid]
    while waiting:
        started = children.get(waiting.pop(), {})
        below.update(started)
        waiting += started
    return below


def living():
    """Numbers of all processes but those that have ended and wait for their parent."""
    numbers = set()
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    numbers.add(int(entry.name))
    return numbers


def wait_for(condition, process, seconds=400):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        assert process is None or process.poll() is None, "the command has ended"
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


#: `wqa` whose workers on Ray hold before they write a partition, until a file lets it through.
DRIVER = """
import sys
from wqa.cli import main
from wqa.cluster import ray_cluster
holds = sys.argv.pop(1)
class HeldWorker:
    def __init__(self, *arguments):
        import os, pathlib, time
        from wqa.cluster import ray_cluster
        from wqa.cluster.partition_files import PartitionFiles
        write, folder = PartitionFiles.write, pathlib.Path(holds)
        def held(files, index, *rest):
            (folder / f"held-{index}-{os.getpid()}").touch()
            while not (folder / f"free-{index}").exists():
                time.sleep(0.02)
            write(files, index, *rest)
        PartitionFiles.write = held
        self.worker = ray_cluster.Worker(*arguments)
    def here(self):
        return self.worker.here()
    def begin(self):
        return self.worker.begin()
    def compute(self, index):
        return self.worker.compute(index)
ray_cluster.Worker = HeldWorker
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.nightly  # each of them is tested apart
def test_kills_of_a_worker_and_of_the_driver(tiny_run, tmp_path, popen):
    """Resumed without Ray, every question is scored once, to the bytes of one process."""
    pytest.importorskip("ray", reason="ray is not installed")
    data, out, errors = (tmp_path / name for name in ("data", "out", "errors"))
    write_questions(data, QUESTIONS)
    words = ["score", str(tiny_run), "--data", str(data), "--out", str(out), "--threads", "1"]
    words += ["--partition-tokens", str(SMALL)]
    for index in (0, 1, 3):  # what is scored when the processes die, on every machine
        (tmp_path / f"free-{index}").touch()
    with open(errors, "w") as stream:
        driver = popen(
            [sys.executable, "-c", DRIVER, str(tmp_path), *words, "--cluster", "local:2"],
            env=child_environment(PYTHONUNBUFFERED="1"),
            stdout=subprocess.DEVNULL,
            stderr=stream,
        )
    folder = tmp_path / "out.partitions"

    def written():
        return len(list(folder.glob("*/*.partition")))

    wait_for(lambda: holder(tmp_path, 2) and holder(tmp_path, 4), driver)
    os.kill(holder(tmp_path, 2), signal.SIGKILL)
    wait_for(lambda: "a worker died while it scored partition 2" in errors.read_text(), driver)
    (tmp_path / "free-4").touch()  # the other worker goes on
    wait_for(lambda: written() == 4, driver)
    started = descendants(driver.pid)
    workers = {int(path.name.rpartition("-")[2]) for path in tmp_path.glob("held-*")}
    driver.kill()
    driver.wait()
    try:
        wait_for(lambda: not workers & living(), None)  # they end with their driver
    finally:
        for pid in set(started) & living():  # what Ray has beside them, which ends a minute later
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert written() == 4
    total = len(read_manifest(folder).partitions)
    assert main([*words, "--shard", "1/1", "--json", str(tmp_path / "figures.json")]) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["computed"] == total - 4 > 4
    assert figures["meta"]["questions"] == len(QUESTIONS)
    assert not folder.exists()
    write_scores(tiny_run, data, tmp_path / "one", partition_tokens=SMALL, threads=1)
    assert contents(out) == contents(tmp_path / "one")


def holder(folder, index):
    """Process that holds a partition; None before one does."""
    for path in folder.glob(f"held-{index}-*"):
        return int(path.name.rpartition("-")[2])
    return None
