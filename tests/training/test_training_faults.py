"""Faults around a training and other writers: two processes, kills, forged and damaged files."""

import json
import shutil
import subprocess
import sys

import mxnet as mx
import numpy as np
import pytest
from conftest import child_environment, few_questions, logged, needs_onednn

from wqa.cli import main
from wqa.config import TrainingConfig
from wqa.errors import TrainingDiverged
from wqa.systems.train import train
from wqa.training.trainer import Trainer

#: Takes the lock of an output and waits to be killed.
HOLDER = """
import sys, time
from wqa.io.files import lock_output
with lock_output(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def started(popen):
    """Start a script and wait until it has printed its first line; return it and that line."""

    def start(script, *arguments):
        command = [sys.executable, "-c", script, *map(str, arguments)]
        process = popen(command, stdout=subprocess.PIPE, env=child_environment())
        return process, process.stdout.readline().strip()

    return start


def kill(process):
    process.kill()
    process.wait(timeout=10)
    process.stdout.close()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# Locks


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Five questions to train on."""
    return few_questions(tmp_path_factory.mktemp("few") / "train.jsonl", 5)


COMMANDS = {
    "train": "train pairwise --encoder {encoder} --train {data} --out {out} --max-length 64 "
    "--max-updates 1 --warmup-updates 1 --tokens-per-batch 300",
    "convert": "convert {encoder} {out}",
    "export": "export {run} {out}",
    "quantize": "quantize {run} --data {data}",
    "tune": "tune {run} --data {data} --grid 0.3",
}


#: The names of the commands, marked by what they need.
MARKED = [*COMMANDS, pytest.param("quantize", marks=needs_onednn)]
MARKED.remove("quantize")


@pytest.mark.parametrize("name", MARKED)
def test_a_command_is_refused_while_another_process_writes(
    name, few, tiny_encoder, tiny_run, tmp_path, capsys, started
):
    run, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(tiny_run, run)
    before = names(run)
    arguments = COMMANDS[name].format(encoder=tiny_encoder, data=few, run=run, out=out).split()
    process, _ = started(HOLDER, run if name in ("quantize", "tune") else out)
    assert main(arguments) == 2
    assert "locked by another process" in capsys.readouterr().err
    assert names(run) == before and not out.exists()
    kill(process)
    assert main(arguments) == 0
    assert names(tmp_path) == ["out", "run"] or names(tmp_path) == ["run"]


# A training that is interrupted in a test


class Interrupted(BaseException):
    """Stands for any exception."""


def interrupt():
    raise Interrupted


def at_call(monkeypatch, owner, name, number, action=interrupt):
    """Do something at a call of a function, before it."""
    real, calls = getattr(owner, name), []

    def raising(*arguments, **options):
        calls.append(1)
        if len(calls) == number:
            action()
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, raising)


def trained(encoder, data, out, resume=False, evaluator=None, **changes):
    """Six updates, two checkpoints."""
    settings = {"max_updates": 6, "epochs": 9, "learning_rate": 1e-2, "warmup_updates": 2}
    settings.update(tokens_per_batch=300, checkpoint_every=2, log_every=1, eval_every=3)
    settings.update(changes)
    config = TrainingConfig(**settings)
    start = {"encoder": str(encoder), "max_length": 64, "exits": (1, 3)}
    make = None if evaluator is None else lambda _: evaluator
    train(
        "cascade", str(data), str(out), config=config, resume=resume, make_evaluator=make, **start
    )


def interrupted(encoder, data, out, **changes):
    """A run that was interrupted at the fourth update, after a checkpoint of the second."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        at_call(patch, Trainer, "step", 4)
        trained(encoder, data, out, **changes)
    assert names(out / "checkpoints") == ["update-00000002"]


# The optimizer's state

ENDS = ("whole", "run")


@pytest.mark.parametrize("began, now", [("cpu:0-1", "cpu"), ("cpu", "cpu:0-2")])
def test_resumed_on_other_devices_an_update_keeps_its_rows(
    tiny_encoder, few, tmp_path, caplog, began, now
):
    """Without dropout, which each device draws, it ends as where it began, to rounding."""
    encoder = shutil.copytree(tiny_encoder, tmp_path / "encoder")
    config = json.loads((encoder / "config.json").read_text())
    config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (encoder / "config.json").write_text(json.dumps(config))
    settings = {"ctx": began, "eval_every": 0, "learning_rate": 1e-3}
    trained(encoder, few, tmp_path / "whole", **settings)
    interrupted(encoder, few, tmp_path / "run", **settings)
    trained(encoder, few, tmp_path / "run", resume=True, **{**settings, "ctx": now})
    assert any("goes on with" in message for message in caplog.messages)
    assert json.loads((tmp_path / "run/config.json").read_text())["training"]["ctx"] == began
    expected, found = (mx.nd.load(str(tmp_path / name / "model.params")) for name in ENDS)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name].asnumpy(), values.asnumpy(), atol=1e-4)
    expected, found = (logged(tmp_path / name, "loss") for name in ENDS)
    assert len(found) == 6 and found == pytest.approx(expected, abs=1e-4)


# metrics.jsonl


def test_damaged_lines_of_metrics_are_dropped(tiny_encoder, few, tmp_path):
    out = tmp_path / "run"
    interrupted(tiny_encoder, few, out)
    path = out / "metrics.jsonl"
    lines = path.read_bytes().splitlines()
    lines[1:1] = [b"", b"\xff\xfe", b"[]", b"{}", b'{"update": null}']
    path.write_bytes(b"\n".join(lines) + b'\n{"upda')
    trained(tiny_encoder, few, out, resume=True)
    assert logged(out, "update") == [1, 2, 3, 4, 5, 6]


# Divergence


def test_best_parameters_are_finite(tiny_encoder, few, tmp_path):
    def spoil(network):
        network.head(0).out.weight.data()[:] = np.nan
        return {"map": 1.0}

    out = tmp_path / "run"
    with pytest.raises(TrainingDiverged, match=r"head_1.out.weight is not finite"):
        trained(tiny_encoder, few, out, evaluator=spoil)
    assert names(out / "checkpoints") == ["update-00000002"]
