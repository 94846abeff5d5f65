"""Warm-up, patience, and the schedules of the recipes."""

import dataclasses

import pytest
from conftest import few_questions, logged

from wqa.config import TrainingConfig, read_run_config
from wqa.errors import OptionError, RunDirectoryError
from wqa.systems.train import train
from wqa.training import Trainer
from wqa.training.schedules import Schedule, default_learning_rate, plan_schedule, with_chosen

#: Settings of a training of six updates of the tiny encoder.
SHORT = {"max_updates": 6, "learning_rate": 1e-3, "tokens_per_batch": 300, "engine": "mxnet"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A file of three questions."""
    return str(few_questions(tmp_path_factory.mktemp("data") / "train.jsonl", 3))


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
        schedule = plan_schedule(config, range(batches))
        assert schedule.warmup < schedule.total


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


def test_an_unknown_filter_is_refused_before_the_training():
    for name in ("train_filter", "dev_filter"):
        with pytest.raises(OptionError, match=f"{name}: 'clear'; expected .*no-all-negative"):
            TrainingConfig(**{name: "clear"})


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
    assert logged(whole, "learning_rate")[1] == pytest.approx(5e-5)  # the peak
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
