"""A few tries of every attack of `make soak`, so that its harness stays whole."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT
from soak.commands import CLOCK
from soak.interrupts import Interruption, disturb

RUN = [sys.executable, str(ROOT / "tests" / "soak" / "run.py")]


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    folder = tmp_path_factory.mktemp("soak") / "material"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*RUN, "--prepare", str(folder)], check=True, timeout=120, env=environment)
    return folder


@pytest.fixture
def start(tmp_path, material, popen):
    """Start a run whose temporary files and faults go to the test's folder."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    places = ["--material", str(material), "--faults", str(tmp_path / "faults")]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return lambda *options: popen([*RUN, *places, *options], env=environment, **streams)


@pytest.mark.nightly
def test_every_attack_makes_a_few_tries(tmp_path, start):
    process = start("--tries", "1", "--seed", "14686")
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    assert printed.endswith("\n0 faults\n"), printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_a_fault_is_kept_with_the_command_that_repeats_it(tmp_path, start):
    """Here of commands that cannot read what they work on."""
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    process = start("--tries", "2", "--only", "kills", "--material", str(wrong))
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 1 and printed.endswith("\n2 faults\n"), printed
    folders = sorted((tmp_path / "faults").iterdir())
    assert len(folders) == 2
    text = (folders[1] / "fault.txt").read_text()
    assert text.startswith("make soak SOAK='--only kills --seed 0 --first 1 --tries 1'\n")


@pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="needs /proc")
def test_sigterm_ends_the_workers(tmp_path, start):
    process = start("--only", "interrupts")
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    end = time.monotonic() + 60
    while len(workers := children.read_text().split()) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    process.terminate()
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, printed
    assert len(workers) == 2
    assert not any(pathlib.Path("/proc", number).exists() for number in workers)
    assert list(tmp_path.iterdir()) == []


def test_updates_are_not_decided_by_the_clock():
    for name in ("update", "max_updates", "best_update", "warmup_updates", "candidates"):
        assert not CLOCK.search(name)
    for name in ("seconds", "pairs_per_second", "seconds_of_ratio_0", "time_ratio", "date"):
        assert CLOCK.search(name)


class Always:
    """Stands for random numbers: an interruption at the first line of the package."""

    def choice(self, _):
        return Interruption

    def random(self):
        return 0.9

    def uniform(self, *_):
        return 0


def test_an_exception_that_takes_the_place_of_an_interrupt_is_told_from_another():
    from wqa.data import Candidate, Question

    def replaced():
        try:
            Question("q", "?", (Candidate("a"),)).texts  # noqa: B018
        except Interruption:
            raise TypeError from None

    def fails():
        raise TypeError

    assert disturb(Always(), replaced, 1) and not disturb(Always(), lambda: None, 1)
    with pytest.raises(TypeError):
        disturb(Always(), fails, 1)
