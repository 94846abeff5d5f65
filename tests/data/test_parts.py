"""Work in parts: a toy task, which squares the numbers of a file, in shards, stopped and killed."""

import pathlib
import signal
import threading
import time

import numpy as np
import pytest
from conftest import ROOT, needs_full_device, run_python

import wqa.data.parts as parts_module
from wqa.data.partitions import Partition
from wqa.data.parts import MANIFEST, PartTask, open_parts, parse_shard, run_parts, run_whole
from wqa.errors import DataError, OptionError, OutputLocked, Stopped, StorageError
from wqa.io.arrays import Output
from wqa.io.files import lock_output
from wqa.io.progress import StopRequest

NUMBERS = list(range(1, 12))


class Squares(PartTask):
    """Squares of numbers, a part for every two lines; `computed` counts the parts."""

    verb, unit = "square", "number"

    def __init__(self, data, out, power=2):
        self.data, self.out, self.power = str(data), str(out), power
        self.computed = []

    @property
    def settings(self):
        return {"power": self.power, "data": pathlib.Path(self.data).read_text()[:20]}

    def loaded_settings(self):
        return {"model": "toy"}

    def machine_settings(self):
        return {"threads": 1}

    def divide(self):
        count = len(pathlib.Path(self.data).read_text().split())
        for start in range(0, count, 2):
            size = min(2, count - start)
            yield Partition(start, size, size)

    def compute(self, partition):
        numbers = pathlib.Path(self.data).read_text().split()
        self.computed.append(partition.start // 2)
        end = partition.start + partition.read
        values = [int(number) ** self.power for number in numbers[partition.start : end]]
        return {"values": np.array(values, np.int64)}

    def destination(self):
        return Output(self.out, 1, "folder of squares", ["values.txt"])

    def finished(self, settings):
        meta = self.destination().meta()
        for name, value in settings.items() if meta else ():
            if meta.get(name) != value:
                raise DataError(self.out, f"made with {name} {meta.get(name)}", value)
        return meta

    def merge(self, settings, parts):
        output = self.destination()
        with output.writing() as folder:
            values = [value for arrays in parts for value in arrays["values"].tolist()]
            (folder / "values.txt").write_text(" ".join(map(str, values)))
            output.write_meta(folder, settings)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("\n".join(map(str, NUMBERS)))
    return path


@pytest.fixture
def task(data, tmp_path):
    return Squares(data, tmp_path / "out")


def check_merged(task):
    values = (pathlib.Path(task.out) / "values.txt").read_text()
    assert values.split() == [str(number**2) for number in NUMBERS]
    assert not folder_of(task).exists()


def folder_of(task):
    return pathlib.Path(f"{task.out}.partitions")


# Shards


def test_one_process_computes_and_merges_all_parts(task):
    report = run_parts(task)
    assert (report.partitions, report.computed, report.missing) == (6, 6, 0)
    assert report.meta["power"] == 2 and report.meta["model"] == "toy"
    check_merged(task)
    again = Squares(task.data, task.out)
    assert run_parts(again).meta == report.meta
    assert again.computed == []


def test_shards_in_any_order_give_the_same(data, tmp_path):
    for count, index in enumerate([3, 1, 2], 1):
        task = Squares(data, tmp_path / "out")
        report = run_parts(task, (index, 3))
        assert task.computed == [index - 1, index + 2]
        assert (report.meta is None) == (count < 3)
        assert report.missing == 6 - 2 * count
    check_merged(task)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/3/5"])
def test_a_shard_out_of_range_is_refused(text):
    with pytest.raises(OptionError):
        parse_shard(text)
    assert parse_shard("2/3") == (2, 3)


# Stopped and killed


def test_a_signal_stops_after_a_part_and_the_next_command_continues(task, data, tmp_path):
    stop = StopRequest()
    compute = task.compute

    def with_signal(partition):
        stop.signal = signal.SIGTERM if partition.start == 4 else 0
        return compute(partition)

    task.compute = with_signal
    with pytest.raises(Stopped):
        run_parts(task, stop=stop)
    again = Squares(data, tmp_path / "out")
    assert run_parts(again).computed == 3 and again.computed == [3, 4, 5]
    check_merged(again)


#: Runs the task until a part or the merge, and kills itself there.
KILLED = """
import os, pathlib, signal, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import wqa.data.parts as parts_module
from test_parts import Squares
from wqa.io.arrays import Output
target, name = {"part": (Squares, "compute"), "merge": (Output, "write_meta"),
                "remove": (parts_module, "remove_parts")}[sys.argv[5]]
real, calls = getattr(target, name), []
def deadly(*arguments):
    calls.append(1)
    if sys.argv[5] != "part" or len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
setattr(target, name, deadly)
parts_module.run_parts(Squares(sys.argv[3], sys.argv[4]))
"""


@pytest.mark.parametrize("where, computed", [("part", 4), ("merge", 0), ("remove", 0)])
def test_a_killed_process_is_continued(task, where, computed):
    tests = [str(ROOT / "tests"), str(ROOT / "tests" / "data")]
    killed = run_python("-c", KILLED, *tests, task.data, task.out, where)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(list(folder_of(task).glob("*.npz"))) == (2 if where == "part" else 6)
    run_parts(task)
    assert len(task.computed) == computed
    check_merged(task)


def test_others_wait_for_the_manifest(task, data, tmp_path, monkeypatch):
    monkeypatch.setattr(parts_module, "PAUSE", 0.01)
    divide, entered, release = task.divide, threading.Event(), threading.Event()

    def slow():
        entered.set()
        assert release.wait(30)
        return divide()

    task.divide = slow
    first = threading.Thread(target=run_parts, args=(task, (1, 2)))
    first.start()
    assert entered.wait(30)
    other = Squares(data, tmp_path / "out")
    second = threading.Thread(target=run_parts, args=(other, (2, 2)))
    second.start()
    time.sleep(0.1)
    assert other.computed == []
    release.set()
    first.join(30)
    second.join(30)
    assert (task.computed, other.computed) == ([0, 2, 4], [1, 3, 5])
    check_merged(task)


def test_who_finds_the_merge_locked_leaves_it(task):
    with lock_output(task.out):
        report = run_parts(task)
        with pytest.raises(OutputLocked):
            run_whole(task)
    assert (report.meta, report.computed, report.missing) == (None, 6, 0)
    assert run_parts(task).computed == 0
    check_merged(task)


@needs_full_device
def test_a_full_disk_keeps_what_is_computed(task, monkeypatch):
    def full(file, **arrays):
        with open("/dev/full", "wb", buffering=0) as device:
            device.write(b"1")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        with pytest.raises(StorageError, match="No space left"):
            run_parts(task, (1, 2))
    assert [path.name for path in folder_of(task).iterdir()] == [MANIFEST]
    run_parts(task)
    check_merged(task)


# Damage, and files of others


@pytest.mark.parametrize("damage", ["cut", "changed", "other"])
def test_a_damaged_part_is_named(task, damage):
    with lock_output(task.out):
        run_parts(task)
    path = folder_of(task) / "000002.npz"
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[:-30]
    if damage == "changed":
        place = content.index(np.int64(25).tobytes())
        content[place] ^= 1
    path.write_bytes(content)
    if damage == "other":
        np.savez(path, manifest=np.array("0"), values=np.array([25, 36]))
    with pytest.raises(DataError, match="000002.npz: cannot be read"):
        run_parts(task)
    path.unlink()
    run_parts(task)
    check_merged(task)


@pytest.mark.parametrize("content", ["", "{}", '{"format": 4, "settings": 1}'])
def test_a_damaged_manifest_is_named(task, content):
    folder_of(task).mkdir()
    (folder_of(task) / MANIFEST).write_text(content)
    with pytest.raises(DataError, match=MANIFEST):
        run_parts(task)


def test_parts_of_other_work_are_refused(task, data, tmp_path):
    run_parts(task, (1, 2))
    for shard in ((1, 1), (2, 2)):
        with pytest.raises(DataError, match="made with power 2"):
            run_parts(Squares(data, tmp_path / "out", 3), shard)
    other = Squares(data, tmp_path / "out")
    other.machine_settings = lambda: {"threads": 4}
    with pytest.raises(DataError, match="made with threads 1"):
        run_parts(other)
    run_parts(task)
    with pytest.raises(DataError, match="made with power 2"):
        run_parts(Squares(data, tmp_path / "out", 3))
    check_merged(task)


def test_a_single_process_begins_again_with_other_settings(task, data, tmp_path):
    def fails(partition):
        raise DataError("numbers.txt, line 1", "no number")

    task.compute = fails
    with pytest.raises(DataError, match="line 1"):
        run_parts(task)
    report = run_parts(Squares(data, tmp_path / "out", 3))
    assert report.computed == 6 and report.meta["power"] == 3


def test_files_of_others_among_the_parts_stay(task):
    run_parts(task, (1, 2))
    (folder_of(task) / "notes.txt").write_text("mine")
    assert run_parts(task).meta is not None
    assert [path.name for path in folder_of(task).iterdir()] == ["notes.txt"]


def test_nothing_is_written_where_the_manifest_is_gone(task):
    run_parts(task, (1, 2))
    parts = open_parts(task)
    (folder_of(task) / MANIFEST).unlink()
    with pytest.raises(DataError, match="the manifest is gone"):
        parts.compute(1)
    assert not parts.path(1).exists()


def test_parts_without_a_manifest_are_made_again(task, data, tmp_path):
    """Those of a process that was killed while it removed them."""
    folder_of(task).mkdir()
    (folder_of(task) / "000001.npz").write_bytes(b"old")
    run_parts(task)
    check_merged(task)
