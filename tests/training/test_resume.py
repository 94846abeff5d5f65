"""A training that was killed with SIGKILL, or whose disk was full, goes on and ends with the same
bits."""

import contextlib
import io
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys

import mxnet as mx
import pytest
from conftest import child_environment

from wqa.cli import main
from wqa.data import builtin_path, read_questions, write_questions
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
    questions = list(read_questions(builtin_path("dev")))
    FEW["train"], FEW["dev"] = (
        tmp_path_factory.mktemp("few") / f"{name}.jsonl" for name in ("train", "dev")
    )
    write_questions(FEW["train"], questions[:8])
    write_questions(FEW["dev"], questions[8:11])


def command(encoder, out, *more):
    files = {"--encoder": encoder, "--train": FEW["train"], "--dev": FEW["dev"], "--out": out}
    settings = "--exits 1,2,3 --max-length 64 --max-updates 14 --epochs 9 --seed 1"
    settings += " --learning-rate 1e-2 --warmup-updates 3 --tokens-per-batch 600"
    settings += " --checkpoint-every 4 --eval-every 3 --log-every 2"
    paths = [str(part) for option in files.items() for part in option]
    return ["train", "cascade", *paths, *settings.split(), *more]


def run(arguments, killer=(), **options):
    start = [sys.executable, "-c", KILLER, *killer] if killer else [sys.executable, "-m", "wqa"]
    return subprocess.run(
        [*start, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=child_environment(),
        **options,
    )


def resume(arguments):
    """Run a command again with ``--resume``, in this process, and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        assert main([*arguments, "--resume"]) == 0, printed.getvalue()
    return printed.getvalue()


def metrics(out):
    """metrics.jsonl without what the clock decides."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("pairs_per_second", None)
    return lines


@pytest.fixture(scope="module")
def uninterrupted(tiny_encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    done = run(command(tiny_encoder, out))
    assert done.returncode == 0, done.stderr
    return out


#: Module, function, its call, and whether the kill comes before or after it.
KILLS = {
    "between checkpoints": "wqa.training.trainer Trainer.step 11 after",
    "while a checkpoint's parameters are written": (
        "wqa.training.checkpoint write_parameters 5 before"
    ),
    "after the rename, before the old ones are deleted": (
        "wqa.training.checkpoint Checkpoints.all 3 before"
    ),
    "after an evaluation, before its checkpoint": (
        "wqa.training.checkpoint Checkpoints.keep_best 2 after"
    ),
    "before the checkpoints are cleared away": "shutil copyfile 1 after",
}


@pytest.mark.parametrize("moment", KILLS)
def test_kill_and_resume(tiny_encoder, uninterrupted, tmp_path, moment):
    out = tmp_path / "run"
    killed = run(command(tiny_encoder, out), KILLS[moment].split())
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (out / "model.params").exists()
    resume(command(tiny_encoder, out))
    assert (out / "model.params").read_bytes() == (uninterrupted / "model.params").read_bytes()
    assert metrics(out) == metrics(uninterrupted)
    assert not (out / "checkpoints").exists()
    assert "complete already" in resume(command(tiny_encoder, out))


def test_a_full_disk_while_a_checkpoint_is_written(tiny_encoder, uninterrupted, tmp_path):
    """A limit on the size of a file stands in for the disk: the write fails in the same place."""
    out = tmp_path / "run"
    stopped = run(
        command(tiny_encoder, out), ("wqa.training.trainer", "Trainer.step", "6", "before")
    )
    assert stopped.returncode == -signal.SIGKILL
    before = {
        path.name: path.read_bytes() for path in (out / "checkpoints" / "update-00000004").iterdir()
    }
    limit = len(before["model.params"]) // 2
    full = run(
        command(tiny_encoder, out, "--resume"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert full.returncode == 2 and "Traceback" not in full.stderr
    assert "checkpoints" in full.stderr.splitlines()[-1]
    checkpoint = out / "checkpoints" / "update-00000004"
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == before
    assert not [path for path in (out / "checkpoints").iterdir() if path.name.endswith(".tmp")]
    resume(command(tiny_encoder, out))
    assert (out / "model.params").read_bytes() == (uninterrupted / "model.params").read_bytes()


def test_a_damaged_checkpoint_is_not_loaded(tiny_encoder, uninterrupted, tmp_path):
    out = tmp_path / "run"
    run(command(tiny_encoder, out), ("wqa.training.trainer", "Trainer.step", "10", "before"))
    newest = out / "checkpoints" / "update-00000008"
    whole = (newest / "optimizer.safetensors").read_bytes()
    (newest / "optimizer.safetensors").write_bytes(whole[:-10])
    refused = run(command(tiny_encoder, out, "--resume"))
    assert refused.returncode == 2 and "optimizer.safetensors: cannot" in refused.stderr
    assert "update-00000008" in refused.stderr
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
    tiny_encoder, uninterrupted, tmp_path, name, function, call
):
    out = tmp_path / "run"
    stopper = KILLER.replace("SIGKILL", name)
    place = ["wqa.training.trainer", function, call, "before"]
    stopped = subprocess.run(
        [sys.executable, "-c", stopper, *place, *command(tiny_encoder, out)],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=as_in_a_terminal,
        env=child_environment(),
    )
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
    assert metrics(out) == metrics(uninterrupted)


def test_a_checkpoint_of_the_version_before_is_refused(tmp_path):
    from wqa.training.checkpoint import _read_record

    folder = tmp_path / "update-00000004"
    folder.mkdir()
    values = {"state": {"update": 4, "epoch": 1, "batch": 2}, "sha256": {}}
    (folder / "state.json").write_text(json.dumps(values))
    with pytest.raises(RunDirectoryError, match="format 1.* delete update-00000004"):
        _read_record(folder)
