"""A training that was killed with SIGKILL, or whose disk was full, goes on and ends with the same
bits."""

import contextlib
import io
import json
import os
import resource
import shlex
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
    return [
        "train",
        "cascade",
        "--encoder",
        str(encoder),
        "--train",
        str(FEW["train"]),
        "--dev",
        str(FEW["dev"]),
        "--out",
        str(out),
        "--exits",
        "1,2,3",
        "--max-length",
        "64",
        "--max-updates",
        "14",
        "--epochs",
        "9",
        "--seed",
        "1",
        "--learning-rate",
        "1e-2",
        "--warmup-updates",
        "3",
        "--tokens-per-batch",
        "600",
        "--checkpoint-every",
        "4",
        "--eval-every",
        "3",
        "--log-every",
        "2",
        *more,
    ]


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


KILLS = {
    "before the first checkpoint": ("wqa.training.trainer", "Trainer.step", "3", "before"),
    "between checkpoints": ("wqa.training.trainer", "Trainer.step", "11", "after"),
    "while a checkpoint's parameters are written": (
        "wqa.training.checkpoint",
        "write_parameters",
        "5",
        "before",
    ),
    "while a checkpoint is complete but not yet renamed": (
        "wqa.training.checkpoint",
        "sha256",
        "9",
        "after",
    ),
    "after the rename, before the old ones are deleted": (
        "wqa.training.checkpoint",
        "Checkpoints._prune",
        "3",
        "before",
    ),
    "after an evaluation, before its checkpoint": (
        "wqa.training.checkpoint",
        "Checkpoints.keep_best",
        "2",
        "after",
    ),
    "after the last update": ("wqa.training.checkpoint", "Checkpoints.finish", "1", "before"),
    "before the checkpoints are cleared away": ("shutil", "copyfile", "1", "after"),
}


@pytest.mark.parametrize("moment", KILLS)
def test_kill_and_resume(tiny_encoder, uninterrupted, tmp_path, moment):
    out = tmp_path / "run"
    killed = run(command(tiny_encoder, out), KILLS[moment])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (out / "model.params").exists()
    resume(command(tiny_encoder, out))
    assert (out / "model.params").read_bytes() == (uninterrupted / "model.params").read_bytes()
    assert metrics(out) == metrics(uninterrupted)
    assert not (out / "checkpoints").exists()
    assert "complete already" in resume(command(tiny_encoder, out))


def test_two_devices_resume_too(tiny_encoder, tmp_path):
    outs = []
    for name, killer in (
        ("whole", ()),
        ("killed", ("wqa.training.trainer", "Trainer.step", "10", "before")),
    ):
        out = tmp_path / name
        arguments = command(tiny_encoder, out, "--ctx", "cpu:0-1", "--clip-norm", "0.5")
        done = run(arguments, killer)
        if killer:
            assert done.returncode == -signal.SIGKILL
            resume(arguments)
        else:
            assert done.returncode == 0, done.stderr
        outs.append((out / "model.params").read_bytes())
    assert outs[0] == outs[1]


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
    assert (
        "could not be written" in full.stderr.splitlines()[-1]
        and "checkpoints" in full.stderr.splitlines()[-1]
    )
    assert {
        path.name: path.read_bytes() for path in (out / "checkpoints" / "update-00000004").iterdir()
    } == before
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
    assert "delete update-00000008" in refused.stderr
    import shutil

    shutil.rmtree(newest)  # as the message says
    resume(command(tiny_encoder, out))
    assert (out / "model.params").read_bytes() == (uninterrupted / "model.params").read_bytes()


def as_in_a_terminal():
    """SIGINT as in a terminal: a background job of a script inherits it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("function, call", [("Trainer.step", "6"), ("Trainer._evaluate", "2")])
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


def test_an_interrupt_from_outside(tiny_encoder, tmp_path, popen):
    out = tmp_path / "run"
    arguments = command(tiny_encoder, out, "--epochs", "5000", "--max-updates", "100000")
    process = popen(
        [sys.executable, "-m", "wqa", *arguments],
        stderr=subprocess.PIPE,
        env=child_environment(PYTHONUNBUFFERED="1"),
        preexec_fn=as_in_a_terminal,
    )
    for line in iter(lambda: process.stderr.readline(), ""):
        if "dev map" in line:
            break
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in rest
    assert rest.splitlines()[-1] == shlex.join(["wqa", *arguments, "--resume"])


def test_state_that_is_no_json(tmp_path):
    from wqa.training.checkpoint import _read_record

    (tmp_path / "state.json").write_text("{")
    with pytest.raises(RunDirectoryError, match="state.json"):
        _read_record(tmp_path)


def test_a_checkpoint_of_the_version_before_is_refused(tmp_path):
    from wqa.training.checkpoint import _read_record

    folder = tmp_path / "update-00000004"
    folder.mkdir()
    values = {"state": {"update": 4, "epoch": 1, "batch": 2}, "sha256": {}}
    (folder / "state.json").write_text(json.dumps(values))
    with pytest.raises(RunDirectoryError, match="format 1.* delete update-00000004"):
        _read_record(folder)
