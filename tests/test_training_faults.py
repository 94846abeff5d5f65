"""Faults around a training and other writers: two processes, kills, forged and damaged files."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import child_environment

from wqa.data import atomic_writer
from wqa.data.locks import lock_output
from wqa.data.temporary import remove_abandoned, scratch_folder, temporary_path
from wqa.errors import OutputLocked

#: Takes the lock of an output and waits to be killed.
HOLDER = """
import sys, time
from wqa.data.locks import lock_output
with lock_output(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""
#: Begins to write a file and waits to be killed.
WRITER = """
import sys, time
from wqa.data import atomic_writer
with atomic_writer(sys.argv[1]) as file:
    print("open", flush=True)
    time.sleep(60)
"""
#: Makes a scratch folder and waits to be killed.
SCRATCH = """
import sys, time
from wqa.data.temporary import scratch_folder
with scratch_folder(sys.argv[1]) as folder:
    (folder / "big").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


def started(script, *arguments):
    """A process that runs a script, once it has printed its first line; and that line."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    return process, process.stdout.readline().strip()


def kill(process):
    process.kill()
    process.wait(timeout=10)
    process.stdout.close()


def take(path):
    """Take a lock and release it."""
    with lock_output(path):
        pass


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# Locks


def test_a_lock_names_its_holder_and_dies_with_it(tmp_path):
    out = tmp_path / "runs" / "wikiqa"
    process, _ = started(HOLDER, out)
    with pytest.raises(OutputLocked) as caught:
        take(tmp_path / "runs" / ".." / "runs" / "wikiqa")
    message = str(caught.value)
    assert f"locked by process {process.pid} on " in message and "wait until it ends" in message
    kill(process)
    take(out)
    assert names(tmp_path / "runs") == []


def test_a_lock_holds_between_threads_and_is_free_after_an_error(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(KeyError), lock_output(out):
        with pytest.raises(OutputLocked, match=f"process {os.getpid()} "):
            take(out)
        with ThreadPoolExecutor(1) as threads, pytest.raises(OutputLocked):
            threads.submit(take, out).result()
        raise KeyError
    take(out)


def test_a_lock_lies_in_an_output_whose_parent_is_read_only(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path and real(path, mode))
    with lock_output(out):
        assert names(out) == [".holder", ".lock"]
    assert names(out) == [] and names(tmp_path) == ["out"]


# Temporary files of dead processes


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path):
    path = tmp_path / "table.tsv"
    process, _ = started(WRITER, path)
    (left,) = names(tmp_path)
    with atomic_writer(path) as file:
        file.write("a")
    assert left in names(tmp_path)  # its writer lives
    kill(process)
    with atomic_writer(path) as file:
        file.write("b")
    assert names(tmp_path) == ["table.tsv"] and path.read_text() == "b"


def test_temporary_files_of_another_machine_stay_for_a_day(tmp_path):
    target = tmp_path / "table.tsv"
    own = temporary_path(target)
    elsewhere = tmp_path / ".table.tsv.00000000.1.tmp"
    unrelated = tmp_path / ".table.tsv.notes.tmp"
    for path in (own, elsewhere, unrelated):
        path.write_text("")
    remove_abandoned(target)
    assert own.exists() and elsewhere.exists()
    long_ago = time.time() - 2 * 24 * 3600
    for path in (own, elsewhere, unrelated):
        os.utime(path, (long_ago, long_ago))
    remove_abandoned(target)
    assert sorted(tmp_path.iterdir()) == sorted([own, unrelated])


def test_scratch_folders_of_killed_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    process, folder = started(SCRATCH, "test")
    assert pathlib.Path(folder).parent == tmp_path
    kill(process)
    with scratch_folder("test") as own:
        assert names(tmp_path) == [own.name]
    assert names(tmp_path) == []
