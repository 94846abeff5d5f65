"""A training that was killed with SIGKILL, or whose disk was full, goes on and ends with the same
bits."""

import json
import os
import shlex
import shutil
import signal

import mxnet as mx
import pytest
from conftest import (
    contents,
    few_questions,
    limited_file_size,
    nightly,
    read_metrics,
    run_python,
    wqa,
)
from test_schedules import stop_after

from wqa.errors import RunDirectoryError

FEW = {}

#: Dies by SIGKILL at a given call of a given function, before or after it.
KILLER = """
import importlib, os, signal, sys
module, name, call, when = sys.argv[1:5]
place = importlib.import_module(module)
*path, name = name.split('.')
for part in path:
    place = getattr(place, part)
real, calls = getattr(place, name), []
def deadly(*arguments, **options):
    calls.append(1)
    if when == 'before' and len(calls) == int(call):
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*arguments, **options)
    if when == 'after' and len(calls) == int(call):
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(place, name, deadly)
from wqa.cli import main
sys.exit(main(sys.argv[5:]))
"""


@pytest.fixture(scope="module", autouse=True)
def all_threads():
    """As many threads as a process of its own has, whose bits are compared; tests before these may
    have set another number."""
    threads = int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0))))
    mx.base.check_call(mx.base._LIB.MXSetNumOMPThreads(threads))


@pytest.fixture(scope="module", autouse=True)
def few(tmp_path_factory):
    """Eight questions are enough to train on here, and three to evaluate on."""
    folder = tmp_path_factory.mktemp("few")
    FEW["train"] = few_questions(folder / "train.jsonl", 8)
    FEW["dev"] = few_questions(folder / "dev.jsonl", 11, 8)


def command(encoder, out, *more):
    files = {"--encoder": encoder, "--train": FEW["train"], "--dev": FEW["dev"], "--out": out}
    settings = "--exits 1,2,3 --max-length 64 --max-updates 14 --epochs 9 --seed 1"
    settings += " --learning-rate 1e-2 --warmup-updates 3 --tokens-per-batch 600"
    settings += " --checkpoint-every 4 --eval-every 3 --log-every 2"
    paths = [str(part) for option in files.items() for part in option]
    return ["train", "cascade", *paths, *settings.split(), *more]


def run(arguments, killer=(), **options):
    start = ["-c", KILLER, *killer] if killer else ["-m", "wqa"]
    return run_python(*start, *arguments, **options)


@pytest.fixture
def resume(run_main):
    """Run a command again with ``--resume``, in this process, and return what it prints."""

    def again(arguments):
        status, out, err = run_main(*arguments, "--resume")
        assert status == 0, err
        return out

    return again


def stopped_before(update, arguments):
    """Run a command, in this process, up to an update."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, update - 1)
        assert wqa(*arguments) == 130


@pytest.fixture(scope="module")
def uninterrupted(tiny_encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    done = run(command(tiny_encoder, out))
    assert done.returncode == 0, done.stderr
    return out


#: Module, function, its call, and whether the kill comes before or after it.
KILLS = {
    "parameters are written": "wqa.training.checkpoint write_parameters 5 before",
    "before old checkpoints are deleted": "wqa.training.checkpoint Checkpoints.all 3 before",
    "after an evaluation": "wqa.training.checkpoint Checkpoints.keep_best 2 after",
    "before the checkpoints are cleared away": "shutil copyfile 1 after",
}
LATER = {"before old checkpoints are deleted", "after an evaluation"}


@pytest.mark.parametrize("moment", nightly(KILLS, LATER))
def test_kill_and_resume(tiny_encoder, uninterrupted, tmp_path, moment, resume):
    out = tmp_path / "run"
    killed = run(command(tiny_encoder, out), KILLS[moment].split())
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (out / "model.params").exists()
    resume(command(tiny_encoder, out))
    assert (out / "model.params").read_bytes() == (uninterrupted / "model.params").read_bytes()
    assert read_metrics(out) == read_metrics(uninterrupted)
    assert not (out / "checkpoints").exists()
    assert "complete already" in resume(command(tiny_encoder, out))


def test_a_full_disk_while_a_checkpoint_is_written(
    tiny_encoder, uninterrupted, tmp_path, resume, refusal
):
    """A limit on the size of a file stands in for the disk: the write fails in the same place."""
    out = tmp_path / "run"
    stopped_before(6, command(tiny_encoder, out))
    checkpoint = out / "checkpoints" / "update-00000004"
    before = contents(checkpoint)
    with limited_file_size(len(before["model.params"]) // 2):
        assert "checkpoints" in refusal(*command(tiny_encoder, out, "--resume"))
    assert contents(checkpoint) == before
    assert not [path for path in (out / "checkpoints").iterdir() if path.name.endswith(".tmp")]
    resume(command(tiny_encoder, out))
    assert (out / "model.params").read_bytes() == (uninterrupted / "model.params").read_bytes()


def test_a_damaged_checkpoint_is_not_loaded(tiny_encoder, uninterrupted, tmp_path, resume, refusal):
    out = tmp_path / "run"
    stopped_before(10, command(tiny_encoder, out))
    newest = out / "checkpoints" / "update-00000008"
    whole = (newest / "optimizer.safetensors").read_bytes()
    (newest / "optimizer.safetensors").write_bytes(whole[:-10])
    error = refusal(*command(tiny_encoder, out, "--resume"))
    assert "optimizer.safetensors: cannot" in error and "update-00000008" in error
    shutil.rmtree(newest)  # as the message says
    resume(command(tiny_encoder, out))
    assert (out / "model.params").read_bytes() == (uninterrupted / "model.params").read_bytes()


def as_in_a_terminal():
    """SIGINT as in a terminal: a background job of a script inherits it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    "name, function, call", [("SIGINT", "Trainer.step", "6"), ("SIGTERM", "Trainer._evaluate", "2")]
)
def test_a_signal_ends_after_the_update_and_says_how_to_go_on(
    tiny_encoder, uninterrupted, tmp_path, name, function, call, resume
):
    out = tmp_path / "run"
    stopper = KILLER.replace("SIGKILL", name)
    place = ["wqa.training.trainer", function, call, "before"]
    start = ("-c", stopper, *place, *command(tiny_encoder, out))
    stopped = run_python(*start, preexec_fn=as_in_a_terminal)
    assert stopped.returncode == 128 + getattr(signal, name), stopped.stderr
    *_, said, go_on = stopped.stderr.splitlines()
    assert said == f"update 6 of 14: stopped by signal {int(getattr(signal, name))}; resume with:"
    assert "Traceback" not in stopped.stderr
    assert max(path.name for path in (out / "checkpoints").glob("update-*")) == "update-00000006"
    arguments = shlex.split(go_on)
    # The script's own arguments stand where those of `wqa` do.
    assert arguments[0] == "wqa" and arguments[-1] == "--resume"
    resume(command(tiny_encoder, out))
    assert (out / "model.params").read_bytes() == (uninterrupted / "model.params").read_bytes()
    assert read_metrics(out) == read_metrics(uninterrupted)


def test_a_resumed_training_keeps_its_development_data(tiny_encoder, tmp_path, refusal):
    arguments = command(tiny_encoder, tmp_path / "run")
    stopped_before(3, arguments)
    without = [part for part in arguments if part not in ("--dev", str(FEW["dev"]))]
    for changed in (without, [*without, "--dev", FEW["train"]]):
        assert "dev_sha256 was " in refusal(*changed, "--resume")


def test_a_checkpoint_of_the_version_before_is_refused(tmp_path):
    from wqa.training.checkpoint import _read_record

    folder = tmp_path / "update-00000004"
    folder.mkdir()
    values = {"state": {"update": 4, "epoch": 1, "batch": 2}, "sha256": {}}
    (folder / "state.json").write_text(json.dumps(values))
    with pytest.raises(RunDirectoryError, match="format 1.* delete update-00000004"):
        _read_record(folder)
