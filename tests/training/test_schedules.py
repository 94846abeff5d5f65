"""Warm-up, patience, and the schedules of the recipes."""

import dataclasses
import json
import math
import shutil
import subprocess

import pytest
from conftest import ROOT, child_environment

from wqa.cli import parse
from wqa.cli.train import training_config
from wqa.config import TrainingConfig, read_run_config
from wqa.data import builtin_path, read_questions, write_questions
from wqa.errors import OptionError, RunDirectoryError
from wqa.systems.train import train
from wqa.training import Trainer
from wqa.training.schedules import (
    Schedule,
    default_learning_rate,
    plan_schedule,
    plan_updates,
    triangular,
    with_chosen,
)

#: Settings of a training of six updates of the tiny encoder.
SHORT = {"max_updates": 6, "learning_rate": 1e-3, "tokens_per_batch": 300, "engine": "mxnet"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A file of three questions."""
    path = tmp_path_factory.mktemp("data") / "train.jsonl"
    write_questions(path, list(read_questions(builtin_path("dev")))[:3])
    return str(path)


# Warm-up


def test_a_share_of_the_updates():
    config = TrainingConfig(epochs=60, warmup_share=0.1)
    assert plan_schedule(config, range(24)) == Schedule(24, 1440, 144)
    limited = dataclasses.replace(config, max_updates=50)
    assert plan_schedule(limited, range(24)) == Schedule(24, 50, 5)
    assert plan_schedule(limited, iter(())) == Schedule(0, 50, 5)


def test_a_slanted_schedule_rises_over_a_tenth():
    config = TrainingConfig(epochs=3, schedule="slanted")
    assert plan_schedule(config, range(24)) == Schedule(24, 72, 7)
    for batches in (1, 2, 3):
        assert plan_schedule(config, range(batches)).reaches_peak


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("total", [1, 2, 3, 10, 1440])
def test_a_share_always_reaches_the_peak(share, total):
    schedule = plan_schedule(TrainingConfig(epochs=1, warmup_share=share), range(total))
    assert schedule.reaches_peak
    rates = [
        triangular(update, 1.0, schedule.warmup, total) for update in range(1, schedule.total + 1)
    ]
    # Without a warm-up the first update is a step below the peak.
    assert max(rates) == (1 if schedule.warmup else pytest.approx(total / (total + 1)))


def test_epochs_inside_the_warmup_are_refused(data, tiny_encoder, tmp_path):
    out = tmp_path / "run"
    settings = {**SHORT, "max_updates": 0, "epochs": 2}
    with pytest.raises(OptionError, match="warmup_updates: 4000, and epochs=2 gives .* updates"):
        long = TrainingConfig(**settings, warmup_updates=4000)
        train("pairwise", data, str(out), str(tiny_encoder), config=long)
    # A limit that the epochs do not reach cuts nothing short.
    limited = dataclasses.replace(long, max_updates=1000)
    with pytest.raises(OptionError, match="warmup_updates: 4000, and epochs=2 gives .* updates"):
        train("pairwise", data, str(out), str(tiny_encoder), config=limited)
    assert not (out / "config.json").exists()
    # The same directory takes the settings that the error names.
    config = TrainingConfig(**settings, warmup_share=0.1)
    state = train("pairwise", data, str(out), str(tiny_encoder), config=config)
    assert state.epoch == 2


def test_the_updates_of_two_devices_are_counted(data, tiny_encoder, tmp_path):
    settings = {**SHORT, "max_updates": 0, "epochs": 2, "ctx": "cpu:0-1", "log_every": 1}
    config = TrainingConfig(**settings, warmup_share=0.5)
    state = train("pairwise", data, str(tmp_path / "run"), str(tiny_encoder), config=config)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rates = [json.loads(line)["learning_rate"] for line in lines]
    assert (state.update, json.loads(lines[-1])["epoch"]) == (4, 2)
    # Two updates up to the peak, then two steps of the three down to 0.
    assert rates == pytest.approx([5e-4, 1e-3, 2e-3 / 3, 1e-3 / 3])


# What is chosen from the number of updates


def test_the_default_learning_rate_has_two_anchors():
    assert default_learning_rate(740) == pytest.approx(3e-5, rel=0.03)
    assert default_learning_rate(640_000) == 1e-6
    assert default_learning_rate(10_000) == 8e-6
    assert (default_learning_rate(1), default_learning_rate(10**9)) == (5e-5, 1e-6)
    rates = [default_learning_rate(total) for total in range(1, 3000)]
    assert rates == sorted(rates, reverse=True)
    # What is printed is what is computed with.
    assert all(float(str(rate)) == rate == float(f"{rate:.2e}") for rate in rates)


def test_the_default_warmup_is_a_tenth():
    assert plan_schedule(TrainingConfig(epochs=60), range(24)) == Schedule(24, 1440, 144)
    assert plan_schedule(TrainingConfig(max_updates=9), range(24)) == Schedule(24, 9, 0)
    assert with_chosen(TrainingConfig(epochs=60), Schedule(24, 1440, 144)).warmup_updates == 144
    slanted = with_chosen(TrainingConfig(schedule="slanted"), Schedule(24, 72, 7))
    assert slanted.warmup_updates is None and slanted.learning_rate == 5e-5
    given = TrainingConfig(learning_rate=1e-3, warmup_updates=0)
    assert with_chosen(given, Schedule(24, 72, 0)) is given


def chosen(**changes):
    """Settings of 20 updates that leave the learning rate and the warm-up out."""
    settings = {name: value for name, value in SHORT.items() if name != "learning_rate"}
    return TrainingConfig(**{**settings, "max_updates": 20, "epochs": 99, **changes})


def test_what_is_chosen_is_printed_recorded_and_resumed(
    data, tiny_encoder, tmp_path, monkeypatch, capsys
):
    config, whole, stopped = chosen(checkpoint_every=2, log_every=1), tmp_path / "1", tmp_path / "2"
    train("pairwise", data, str(whole), str(tiny_encoder), config=config)
    assert "learning_rate=5e-05 for 20 updates" in capsys.readouterr().err
    settings = read_run_config(whole / "config.json").training
    assert (settings.learning_rate, settings.warmup_updates, settings.warmup_share) == (5e-5, 2, 0)
    lines = (whole / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[1])["learning_rate"] == pytest.approx(5e-5)  # the peak
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, 3)
        train("pairwise", data, str(stopped), str(tiny_encoder), config=config)
    train("pairwise", data, str(stopped), str(tiny_encoder), config=config, resume=True)
    assert (stopped / "model.params").read_bytes() == (whole / "model.params").read_bytes()
    # The numbers that were chosen are the same settings; others are not.
    for same in ({}, {"learning_rate": 5e-5}, {"warmup_updates": 2}):
        again = dataclasses.replace(config, **same)
        state = train("pairwise", data, str(whole), str(tiny_encoder), config=again, resume=True)
        assert state.finished and state.update == 0
    for other in ({"learning_rate": 4e-5}, {"warmup_updates": 3}, {"warmup_share": 0.1}):
        again = dataclasses.replace(config, **other)
        with pytest.raises(RunDirectoryError, match="|".join(other) + "|warmup_updates"):
            train("pairwise", data, str(whole), str(tiny_encoder), config=again, resume=True)


def stop_after(monkeypatch, updates):
    """Let trainings end abruptly at an update, as a kill does."""
    step = Trainer.step

    def stopped(trainer, rate):
        if trainer.state.update > updates:
            raise KeyboardInterrupt
        step(trainer, rate)

    monkeypatch.setattr(Trainer, "step", stopped)


# Patience


@pytest.mark.parametrize("warmup, last", [(0, 4), (5, 8)])
def test_patience_counts_after_the_peak(data, tiny_encoder, tmp_path, warmup, last):
    settings = {**SHORT, "max_updates": 20, "warmup_updates": warmup}
    config = TrainingConfig(**settings, eval_every=1, patience=3)
    options = {"config": config, "make_evaluator": lambda inputs: lambda network: {"map": 0.5}}
    state = train("pairwise", data, str(tmp_path / "run"), str(tiny_encoder), **options)
    assert (state.best_update, state.update, state.finished) == (1, last, True)


def test_patience_counts_from_the_last_better_figure(data, tiny_encoder, tmp_path):
    figures = iter([0.5, 0.4, 0.4, 0.6, 0.6, 0.5, 0.5, 0.9])
    settings = {**SHORT, "max_updates": 20, "warmup_updates": 0}
    config = TrainingConfig(**settings, eval_every=1, patience=3)
    evaluator = {"make_evaluator": lambda inputs: lambda network: {"map": next(figures)}}
    run = str(tmp_path / "run")
    state = train("pairwise", data, run, str(tiny_encoder), config=config, **evaluator)
    assert (state.best_update, state.update, state.finished) == (4, 7, True)


# Recipes

#: Pairs and mean padded tokens of each training file, by the end of its path. Table 1 of Soldaini
#: and Moschitti 2020 has ASNQ's 57,242 questions of 413.3 candidates and GPD's 1,000 of 99.8. By
#: footnote 9, 16,000 tokens are 237.5 pairs of ASNQ; GPD, which is not public, counts as long.
#: `data_scripts/wikiqa.py` and `data_scripts/trecqa.py` count the other pairs; their lengths are
#: those of MiniLM's tokens in batches.
CORPORA = {
    "cascade_paper/asnq.store": (57_242 * 413.3, 67.4),
    "gpd/train.jsonl": (1_000 * 99.8, 67.4),
    "wikiqa/train.jsonl": (8_672, 42.7),
    "trecqa/train-all.jsonl": (53_417, 48.2),
    # TREC-QA's 89 judged questions: 159 updates of 2,000 tokens an epoch.
    "trecqa/train-clean.jsonl": (5_914, 159 * 2_000 / 5_914),
    # recipes/transfer_corpus.sh: 2,119 updates an epoch.
    "cascade_transfer/asnq.store": (1, 2_119 * 2_000),
}

#: Stands in for `wqa`: it writes down its arguments, and leaves the files that recipes copy.
RECORDER = """#!/bin/sh
printf '%s\\n' "$@" -- >> "$RECORD"
while [ $# -gt 0 ]; do
  if [ "$1" = --out ]; then mkdir -p "$2"; : > "$2/metrics.jsonl"; : > "$2/config.json"; fi
  shift
done
"""


def commands(recipe, folder, only="", **variables):
    """Options of each command that a recipe starts, or of one command alone, in order."""
    shutil.copytree(ROOT / "recipes", folder / "recipes", ignore=shutil.ignore_patterns("*.jsonl"))
    command, record = folder / "wqa", folder / "record"
    command.write_text(RECORDER)
    command.chmod(0o755)
    environment = child_environment(WQA=str(command), PYTHON="true", RECORD=str(record))
    environment.update(variables)
    for runs in ("cascade_transfer", "mhs_transfer"):
        transfer = folder / "runs" / runs / "transfer.jsonl"  # of SQuAD and SelQA
        transfer.parent.mkdir(parents=True)
        transfer.touch()
    script = folder / "recipes" / f"{recipe}.sh"
    subprocess.run(["bash", script], env=environment, timeout=60, capture_output=True)
    calls = record.read_text().split("\n--\n")[:-1] if record.exists() else []
    return [parse(call.split("\n")) for call in calls if call.startswith(only)]


def trainings(recipe, folder, **variables):
    """Training file and settings of each training that a recipe starts."""
    started = []
    for options in commands(recipe, folder, "train\n", **variables):
        started.append((options.train, training_config(options)))
    return started


def schedule_of(train_file, config, devices):
    """Schedule of a training on a corpus of the table, at its real number of updates an epoch."""
    pairs, tokens = next(CORPORA[name] for name in CORPORA if train_file.endswith(name))
    updates = math.ceil(pairs * tokens / plan_updates(config, devices).tokens)
    return plan_schedule(config, range(updates))


def test_the_schedule_of_the_paper(tmp_path):
    started = dict(trainings("cascade/adapt", tmp_path))
    transfer = started["runs/cascade_paper/asnq.store"]
    schedule = schedule_of("runs/cascade_paper/asnq.store", transfer, devices=8)
    assert schedule.warmup == 4000  # section 5.2
    assert {config.patience for config in started.values()} == {5}
    # Footnote 9: 950k pairs, or 4 % of the training set.
    assert schedule.warmup / schedule.updates_per_epoch == pytest.approx(0.04, abs=0.001)
    assert 57_242 * 413.3 / schedule.updates_per_epoch * 4000 == pytest.approx(950_000, rel=0.01)
    assert schedule_of("wikiqa/train.jsonl", started["data/wikiqa/train.jsonl"], devices=1) == (
        Schedule(24, 1440, 144)
    )
