"""A few tries of every attack of `make soak`, so that its harness stays whole."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT
from soak import report
from soak.commands import CLOCK
from soak.interrupts import Interruption, is_caused_by
from soak.supervisor import Tally
from soak.worker import ATTACKS, keep

RUN = [sys.executable, str(ROOT / "tests" / "soak" / "run.py")]


@contextlib.contextmanager
def running(folder, *options):
    """A soak run whose temporary files go to a folder; it ends its workers at the end."""
    # Threads of one operation only wait for each other beside other tests.
    environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*RUN, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        process.terminate()  # a kill would leave the workers, which have sessions of their own
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    folder = tmp_path_factory.mktemp("soak") / "material"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*RUN, "--prepare", str(folder)], check=True, timeout=120, env=environment)
    return folder


def test_every_attack_makes_a_few_tries(tmp_path, material):
    page = tmp_path / "soak.md"
    options = ["--tries", "1", "--seed", "14686", "--material", str(material)]
    options += ["--faults", str(tmp_path / "faults"), "--page", str(page)]
    with running(tmp_path, *options) as process:
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    assert printed.endswith("\nno fault\n"), printed
    assert not (tmp_path / "faults").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["soak.md"]
    written = page.read_text(encoding="utf-8")
    assert "minutes with seed 14686, 2 processes at a time:" in written
    for name in ATTACKS:
        (row,) = [line for line in written.splitlines() if line.startswith(f"| {name} | ")]
        assert int(row.split()[3].replace(",", "")) > 0, row
        assert f"- **{name}**: " in written


@pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="needs /proc")
def test_sigterm_ends_the_workers_and_writes_no_page(tmp_path, material):
    page = tmp_path / "soak.md"
    options = ["--only", "corpora", "--material", str(material), "--page", str(page)]
    options += ["--faults", str(tmp_path / "faults")]
    with running(tmp_path, *options) as process:
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


def test_repeating_a_fault_keeps_the_earlier_one(tmp_path):
    worker = tmp_path / "worker"
    worker.mkdir()
    folders = [keep("kills", 7, 0, "fault", worker, tmp_path / "faults") for _ in range(3)]
    assert len(set(folders)) == 3
    assert all(pathlib.Path(folder, "fault.txt").exists() for folder in folders)


def test_an_attack_without_tries_is_no_success():
    tallies = [Tally(name) for name in ("kills", "forks")]
    tallies[1].units = 3
    assert report.summary(tallies) == "no try: kills"
    assert "| kills | no try | 0 | 0 |" in report.table(tallies)


def test_updates_are_not_decided_by_the_clock():
    for name in ("update", "max_updates", "best_update", "warmup_updates", "candidates"):
        assert not CLOCK.search(name)
    for name in ("seconds", "pairs_per_second", "seconds_of_ratio_0", "time_ratio", "date"):
        assert CLOCK.search(name)


def test_an_exception_that_takes_the_place_of_an_interrupt_is_told_from_another():
    try:
        try:
            raise Interruption
        except Interruption:
            raise TypeError from None
    except TypeError as error:
        assert is_caused_by(error, Interruption)
        assert not is_caused_by(error, KeyboardInterrupt)
    assert not is_caused_by(TypeError(), Interruption)


def test_attacks_are_described():
    for name in ATTACKS:
        tally = Tally(name)
        assert tally.doc.strip() and tally.unit
