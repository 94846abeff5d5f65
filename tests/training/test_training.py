import dataclasses
import json
import logging

import mxnet as mx
import numpy as np
import pytest
from conftest import dev_run, few_questions, logged, read_metrics, values_of

from wqa.cli import main
from wqa.config import TrainingConfig, read_run_config
from wqa.data import builtin_path, read_questions
from wqa.errors import DataError, OptionError, RunDirectoryError, TrainingDiverged, WqaError
from wqa.evaluation import evaluate_ranker
from wqa.evaluation.reliability import wilson_interval
from wqa.systems.load import load_ranker
from wqa.systems.train import train
from wqa.training.schedules import dropout_seed, exit_of_update, slanted_triangular, triangular

pytestmark = pytest.mark.onednn  # engine="auto" is oneDNN where it is

TIED = [{"text": "ice", "label": 1, "id": "a"}, {"text": "ice", "label": 0, "id": "b"}]


def test_triangular_schedule():
    rates = [triangular(update, 1.0, 4, 9) for update in range(1, 10)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
    assert triangular(1, 2.0, 0, 1) == pytest.approx(1.0)
    assert triangular(10, 1.0, 4000, 10) == pytest.approx(10 / 4000)  # shorter than its warm-up


def test_slanted_triangular_schedule():
    # Of 20 updates 2 rise. Equation 3 with cut_frac 0.1 and ratio 32: at cut the peak, half-way
    # down (1 + 31 / 2) / 32 of it, at the end 1 / 32.
    rates = [slanted_triangular(update, 1.0, 2, 20) for update in range(1, 21)]
    assert rates[:3] == pytest.approx([(1 + 31 / 2) / 32, 1, (1 + 31 * (1 - 1 / 18)) / 32])
    assert (rates[10], rates[-1]) == pytest.approx(((1 + 31 / 2) / 32, 1 / 32))
    # As the paper writes it, for whole tenths.
    for total in (10, 20, 500):
        cut = total // 10
        for update in range(1, total + 1):
            share = update / cut
            if update >= cut:
                share = 1 - (update - cut) / (cut * (1 / 0.1 - 1))
            expected = 0.01 * (1 + share * 31) / 32
            assert slanted_triangular(update, 0.01, cut, total) == pytest.approx(expected)


def test_exits_are_drawn_uniformly_and_without_state():
    draws = [exit_of_update(7, update, 5) for update in range(1, 5001)]
    assert np.bincount(draws, minlength=5) == pytest.approx([1000] * 5, abs=120)
    assert exit_of_update(7, 4000, 5) == draws[3999]
    assert [exit_of_update(8, update, 5) for update in range(1, 50)] != draws[:49]
    assert len({dropout_seed(7, update) for update in range(100)}) == 100


def stored(run):
    """Parameters of a run."""
    arrays = mx.nd.load(str(run / "model.params"))
    return {name: array.asnumpy() for name, array in arrays.items()}


@pytest.fixture
def make_trainer(tiny_encoder, new_trainer):
    def make(name="run", system="cascade", exits=(1, 2, 3), dropout=None, **settings):
        return new_trainer(system, tiny_encoder, settings, name, dropout=dropout, exits=exits)

    return make


def test_a_batch_with_fewer_rows_than_devices(make_trainer):
    # A budget of one token makes every row a batch of its own.
    one = make_trainer(
        "one", dropout=0.0, tokens_per_batch=1, max_updates=4, ctx="cpu", engine="mxnet"
    )
    two = make_trainer("two", dropout=0.0, tokens_per_batch=1, max_updates=4, ctx="cpu:0-1")
    assert one.updates_per_epoch == len(one.task.pairs)
    one.fit()
    two.fit()
    second = two.network._collect_params_with_prefix()
    for name, value in values_of(one.network).items():
        other = second[name].data(mx.cpu(1)).asnumpy()
        np.testing.assert_allclose(value, other, atol=1e-6, err_msg=name)


def test_layers_above_the_sampled_exit_are_not_touched(make_trainer):
    trainer = make_trainer(max_updates=30)
    before, touched_top = values_of(trainer.network), False
    for update in range(1, 31):
        index = exit_of_update(0, update, 3)
        trainer.total = update
        trainer.fit()
        after = values_of(trainer.network)
        for name in after:
            layer = int(name.split(".")[2]) if name.startswith("backbone.layers") else 0
            head = int(name.split(".")[0][5:]) - 1 if name.startswith("head_") else index
            if layer > index or head != index:
                np.testing.assert_array_equal(before[name], after[name], err_msg=name)
        for name in ("backbone.embeddings.position_weight", f"head_{index + 1}.out.weight"):
            assert (before[name] != after[name]).any()
        touched_top |= index == 2
        before = after
    assert touched_top


def test_an_epoch_sees_every_pair_once(make_trainer):
    trainer, seen = make_trainer(epochs=2), []
    for _ in range(trainer.updates_per_epoch):
        [key], *place = next(trainer._batches)
        seen += key.tolist()
    assert sorted(seen) == list(range(len(trainer.task.pairs)))
    assert place == [1, 0]
    [again], *_ = next(trainer._batches)
    assert again.tolist() != seen[: len(again)]


@pytest.mark.once
def test_training_learns_and_repeats_bit_for_bit(tiny_encoder, tmp_path):
    settings = {"epochs": 6, "learning_rate": 5e-3, "warmup_updates": 5, "tokens_per_batch": 1000}
    config = TrainingConfig(log_every=1, **settings)
    for name in ("a", "b"):
        dev_run("pairwise", tmp_path / name, tiny_encoder, log_every=1, max_length=64, **settings)
    first, second = (tmp_path / name / "model.params" for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    losses = logged(tmp_path / "a", "loss")
    assert np.mean(losses[-6:]) < 0.8 * losses[0]
    record = read_run_config(tmp_path / "a" / "config.json")
    assert record.system == "pairwise" and record.network == {"exits": [3]}
    assert record.training == config
    assert set(record.versions) >= {"wqa", "mxnet", "numpy"}
    assert not (tmp_path / "a" / "checkpoints").exists()


def test_a_nan_loss_names_the_update_and_keeps_the_checkpoint(make_trainer, tmp_path):
    trainer = make_trainer(max_updates=20, checkpoint_every=2, learning_rate=1e-3)
    real, calls = trainer.backward, []

    def backward(batches):
        calls.append(exit_of_update(0, trainer.state.update, 3))
        if len(calls) == 6:
            trainer.network.head(calls[-1]).out.bias.set_data(mx.nd.array([np.nan]))
        return real(batches)

    trainer.backward = backward
    with pytest.raises(TrainingDiverged, match="update 6: the loss is nan"):
        trainer.fit()
    kept = [path.name for path in trainer.checkpoints.all()]
    assert kept == ["update-00000002", "update-00000004"]
    trainer.resume()
    assert trainer.state.update == 4
    assert all(np.isfinite(value).all() for value in values_of(trainer.network).values())


def test_early_stopping_keeps_the_best(make_trainer):
    trainer = make_trainer(max_updates=40, eval_every=2, patience=3, checkpoint_every=1000)
    maps, kept = iter([0.1, 0.5, 0.4, 0.5, 0.3, 0.9]), {}

    def evaluator(model):
        kept[trainer.state.update] = values_of(model)
        return {"map": next(maps), "questions": 1}

    trainer.evaluator = evaluator
    state = trainer.fit()
    assert (state.update, state.best_update, state.best_figure) == (10, 4, 0.5)
    assert state.finished and state.loss_updates == 0
    lines = read_metrics(trainer.metrics.path.parent)
    assert lines[-1]["update"] == 10 and "loss" in lines[-1]  # though none was due
    trainer.checkpoints.finish(trainer.network, trainer.metrics.path.with_name("model.params"))
    best = mx.nd.load(str(trainer.metrics.path.with_name("model.params")))
    for name, value in kept[4].items():
        np.testing.assert_array_equal(best[name].asnumpy(), value)


@pytest.mark.parametrize(
    "system, exits, said, kept",
    [
        ("cascade", (1, 2, 3), "heads kept at 1, 2, 3", {1, 2, 3}),
        ("cascade", (2, 3), "heads kept at 2, 3", {2, 3}),
        ("pairwise", (2,), "heads new at 2", set()),
    ],
)
def test_heads_are_kept_where_shapes_agree_and_the_log_says_so(
    tiny_run, tmp_path, capsys, system, exits, said, kept
):
    settings = {"max_updates": 1, "learning_rate": 1e-12, "tokens_per_batch": 200}
    settings["max_length"] = 64
    out = dev_run(system, tmp_path / system, init=str(tiny_run), exits=exits, **settings)
    first = read_metrics(out)[0]
    assert first == {"update": 0, "start": f"encoder of {tiny_run} (cascade); {said}"}
    assert f"start: {first['start']}" in capsys.readouterr().err
    source, target = stored(tiny_run), stored(out)
    is_kept = {layer: [] for layer in exits}
    for name, value in target.items():
        same = name in source and source[name].shape == value.shape
        same = same and np.allclose(source[name], value, atol=1e-7)
        if name.startswith("backbone."):
            assert same, name
        elif name.endswith("weight"):
            is_kept[int(name.split(".")[0][5:])].append(same)
    for layer, values_kept in is_kept.items():
        assert values_kept and all(values_kept) == (layer in kept)


def test_refusals(tiny_encoder, tiny_run, tmp_path, jsonl):
    data, encoder = str(builtin_path("dev")), str(tiny_encoder)
    with pytest.raises(RunDirectoryError, match="holds a run already"):
        train("cascade", data, str(tiny_run), encoder)
    config = read_run_config(tiny_run / "config.json").training
    slow = dataclasses.replace(config, learning_rate=1e-6)
    same = {"exits": (1, 2, 3), "config": config}
    for name, source, change in (
        ("learning_rate was 0.01", data, {"config": slow}),
        ("exits was", data, {"exits": (1, 3)}),
        ("train_sha256 was", str(builtin_path("test")), {}),
    ):
        options = {**same, **change, "max_length": 64, "resume": True}
        with pytest.raises(RunDirectoryError, match=name):
            train("cascade", source, str(tiny_run), encoder, **options)
    with pytest.raises(OptionError, match="one of the two"):
        train("cascade", data, str(tmp_path / "x"))
    with pytest.raises(DataError, match="no label"):
        path = jsonl('{"id": "a", "question": "b ?", "candidates": [{"text": "x"}]}')
        train("cascade", str(path), str(tmp_path / "x"), encoder)
    assert not (tmp_path / "x").exists()


# Development questions


@pytest.mark.once
def test_train_takes_development_questions_as_the_command_does(tiny_encoder, tmp_path):
    dev, data = str(builtin_path("dev")), str(builtin_path("train"))
    settings = {"max_updates": 2, "eval_every": 2, "learning_rate": 1e-3, "warmup_updates": 1}
    config = TrainingConfig(**settings)
    options = {"encoder": str(tiny_encoder), "config": config, "exits": (1, 3)}
    state = train("cascade", data, str(tmp_path / "a"), dev=dev, **options)
    assert state.best_update == 2 and 0 < state.best_figure < 1
    command = ["train", "cascade", "--train", data, "--dev", dev, "--out", str(tmp_path / "b")]
    command += ["--encoder", str(tiny_encoder), "--exits", "1,3"]
    for name, value in settings.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    assert main(command) == 0
    for run in ("a", "b"):
        [figures] = logged(tmp_path / run, "dev")
        assert figures["map"] == state.best_figure
    with pytest.raises(OptionError, match="dev and make_evaluator: both"):
        train("cascade", data, str(tmp_path / "c"), dev=dev, make_evaluator=print, **options)


def trained_beside_others(tmp_path, caplog, name, **options):
    """Lines of ``metrics.jsonl`` of a training with a few development questions."""
    config = TrainingConfig(max_updates=2, learning_rate=1e-3, warmup_updates=1)
    run, dev = tmp_path / name, str(few_questions(tmp_path / "few.jsonl", 3))
    with open(dev, "a") as file:  # candidates that tie
        file.write(json.dumps({"id": "t", "question": "what is ice ?", "candidates": TIED}) + "\n")
    with caplog.at_level(logging.INFO):
        train("cascade", dev, str(run), dev=dev, config=config, exits=(1, 3), **options)
    return read_metrics(run)


@pytest.mark.once
def test_a_resumed_training_is_compared_with_none(tiny_encoder, tmp_path, caplog):
    encoder = {"encoder": str(tiny_encoder)}
    first = trained_beside_others(tmp_path, caplog, "a", **encoder)
    (tmp_path / "a" / "ensemble.json").unlink()
    with open(tmp_path / "a" / "metrics.jsonl", "a") as file:
        file.write('{"update": 2, "comp')  # the disk was full
    resumed = trained_beside_others(tmp_path, caplog, "a", resume=True, **encoder)
    assert resumed == [*first, first[-1]]
    assert (tmp_path / "a" / "ensemble.json").exists()


@pytest.mark.once
def test_a_training_is_compared_with_none(tiny_encoder, tmp_path, caplog):
    lines = trained_beside_others(tmp_path, caplog, "a", encoder=str(tiny_encoder))
    maxsim = f"maxsim:{tiny_encoder}"
    names = ["bm25", maxsim, f"bm25+{maxsim}"]
    assert list(lines[0]["untrained"]) == names and lines[0]["update"] == 0
    compared = lines[-1]["compared"]
    assert list(compared) == [*names, "run", "ensemble.json"]
    questions = list(read_questions(tmp_path / "few.jsonl"))
    rankers = [*names, tmp_path / "a", tmp_path / "a" / "ensemble.json"]
    for figures, ranker in zip(compared.values(), rankers):
        [row] = evaluate_ranker(load_ranker(ranker), questions)
        assert figures["map"] == pytest.approx(row["map"])
    low, high = wilson_interval(compared["run"]["map"], 4)
    assert f"map may be from {100 * low:.0f} to {100 * high:.0f}" in caplog.text
    best = max(compared[name]["map"] for name in names)
    assert ("the run ranks worse than" in caplog.text) == (compared["run"]["map"] < best)
    ensemble = load_ranker(tmp_path / "a" / "ensemble.json")
    assert ensemble.weights == (1 / 3,) * 3 and ensemble.combine == "scores"


def test_a_dev_question_without_a_token_leaves_no_run(tiny_encoder, tmp_path):
    data, dev, run = str(builtin_path("dev")), tmp_path / "dev.jsonl", tmp_path / "run"
    dev.write_text(json.dumps({"id": "q", "question": "\u200b", "candidates": TIED}) + "\n")
    with pytest.raises(WqaError, match="dev.jsonl, question 'q'"):
        train("pairwise", data, str(run), str(tiny_encoder), dev=dev)
    assert not (run / "config.json").exists()


@pytest.mark.once
def test_a_run_to_start_from_is_what_a_training_is_compared_with(tiny_run, tmp_path, caplog):
    lines = trained_beside_others(tmp_path, caplog, "b", init=str(tiny_run))
    assert "start" in lines[0]
    assert list(lines[0]["untrained"]) == ["bm25", str(tiny_run), f"bm25+{tiny_run}"]
