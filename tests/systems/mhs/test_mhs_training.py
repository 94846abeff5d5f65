"""Training of the Multiple-Heads Student: its losses, their gradients, and what it starts from."""

import json

import mxnet as mx
import numpy as np
import pytest
from conftest import assert_same, dev_run, lacks, needs_onednn
from mxnet import autograd
from test_cascade_training import ROWS, Pairs, arrays, gradients_of

from wqa.config import EngineConfig, TrainingConfig
from wqa.data import builtin_path, read_questions
from wqa.errors import OptionError
from wqa.models import parse_devices
from wqa.systems import SYSTEMS
from wqa.systems.load import build_ranker, load_ranker
from wqa.systems.registry import build_network
from wqa.training.losses import cross_entropy
from wqa.training.start import open_start
from wqa.training.task import Setup

pytestmark = pytest.mark.onednn  # engine="auto" is oneDNN where it is


@pytest.fixture
def make_trainer(new_trainer):
    """Builds a student on an encoder's sizes, with random parameters, and its trainer."""

    def make(folder, engine="auto", precision="float32", **options):
        settings = {"engine": engine, "precision": precision, "max_updates": 9}
        options = {"pairs": Pairs(), "dropout": 0.0, "sigma": 0.2, **options}
        return new_trainer("mhs", folder, settings, **options)

    return make


def gradients_of_head(trainer, index):
    """Gradients of one head's loss alone."""
    with autograd.record():
        loss = trainer.task.losses(arrays(), 1)[f"head_{index + 1}"].mean()
    loss.backward()
    return gradients_of(trainer)


SHAPES = [{"heads": 3}, {"body": 1, "heads": 2, "head_layers": 2}]


@pytest.mark.once
@pytest.mark.parametrize("options", SHAPES)
@pytest.mark.parametrize("engine", ["auto", "mxnet"])
def test_a_head_learns_from_its_loss_alone_and_the_body_from_all(
    family_encoder, make_trainer, engine, options
):
    trainer = make_trainer(family_encoder, engine, **options)
    names = [f"head_{index + 1}" for index in range(options["heads"])]
    assert list(trainer.backward([ROWS])) == names
    together = gradients_of(trainer)
    alone = [gradients_of_head(trainer, index) for index in range(len(names))]
    for name, gradient in together.items():
        parts = [part[name] for part in alone]
        for index, part in enumerate(parts):
            if "branch_" in name and f"branch_{index + 1}." not in name:
                assert not part.any(), (name, index)
        np.testing.assert_allclose(gradient, sum(parts), atol=2e-6, err_msg=name)
        if name.startswith("backbone.layers.0.ffn_1.weight"):
            assert all(np.abs(part).max() > 1e-4 for part in parts)


def test_the_losses_are_weighted(tiny_encoder, make_trainer):
    trainer = make_trainer(tiny_encoder, head_weights=(1.0, 0.0, 2.5))
    batch = arrays()
    inputs = [batch[name] for name in ("token_ids", "token_types", "valid_length")]
    losses = trainer.task.losses(batch, 1)
    for weight, member, loss in zip((1.0, 0.0, 2.5), trainer.network.members(), losses.values()):
        expected = weight * cross_entropy(member(*inputs), batch["labels"]).asnumpy()
        np.testing.assert_allclose(loss.asnumpy(), expected, atol=1e-5)
    trainer.backward([ROWS])
    gradients = gradients_of(trainer)
    assert not gradients["head_3.branch_2.head.out.weight"].any()
    assert gradients["head_3.branch_3.head.out.weight"].any()


@needs_onednn
@pytest.mark.parametrize("options", SHAPES)
def test_onednn_has_the_gradients_of_mxnet(family_encoder, make_trainer, options):
    results = []
    for engine in ("onednn", "mxnet"):
        trainer = make_trainer(family_encoder, engine, **options)
        assert bool(trainer._engines) == (engine == "onednn")
        losses = trainer.backward([ROWS])
        results.append((losses, gradients_of(trainer)))
    (fast, computed), (slow, expected) = results
    assert fast == pytest.approx(slow, abs=1e-4)
    for name, gradient in expected.items():
        scale = max(1, np.abs(gradient).max())
        np.testing.assert_allclose(computed[name], gradient, atol=1e-4 * scale, err_msg=name)


# The student as the last exit of a cascade


def test_an_update_trains_one_exit_and_the_last_one_all_heads(tiny_encoder, make_trainer):
    trainer = make_trainer(tiny_encoder, body=2, exits=(1,), heads=2)
    reached = {}
    for update in range(1, 9):
        trainer.state.update = update
        assert list(trainer.backward([ROWS])) == ["loss"]
        gradients = gradients_of(trainer)
        parts = {name.split(".layers")[0] for name, values in gradients.items() if values.any()}
        reached.setdefault(trainer.task.drawn_exit(update), []).append(
            {
                "early": any(part.startswith("head_1.") for part in parts),
                "first": any(part.startswith("head_3.branch_1") for part in parts),
                "second": any(part.startswith("head_3.branch_2") for part in parts),
                "upper": bool(gradients["backbone.layers.1.qkv.weight"].any()),
                "embeddings": bool(gradients["backbone.embeddings.word.weight"].any()),
            }
        )
    early = {"early": True, "first": False, "second": False, "upper": False, "embeddings": True}
    last = {name: name != "early" for name in early}
    assert set(reached) == {0, 1}
    assert all(parts == early for parts in reached[0])
    assert all(parts == last for parts in reached[1])


def question():
    return next(iter(read_questions(builtin_path("test"))))


# Starts


def started(start, **options):
    """A student with the parameters that it starts from, and the log line."""
    own = build_network("mhs", read_backbone_config_of(start), **options).own_config
    with open_start(**start) as opened:
        config = TrainingConfig(max_updates=1)
        data = str(builtin_path("dev"))
        setup = Setup(SYSTEMS["mhs"], opened, own, data, config, 64)
        task = SYSTEMS["mhs"].task_type().create(setup)
        mx.random.seed(4)
        line = task.initialize(opened, parse_devices("cpu"))
    return task.network, line


def read_backbone_config_of(start):
    with open_start(**start) as opened:
        return opened.backbone()


def short(out, system, start, **options):
    settings = {"max_updates": 2, "learning_rate": 1e-2, "warmup_updates": 1, "max_length": 64}
    dev_run(system, out, tokens_per_batch=300, **settings, **start, **options)
    return load_ranker(out, engine="mxnet").network


def test_a_student_starts_from_the_first_layers_of_any_encoder(family_encoder):
    start = {"encoder": str(family_encoder)}
    network, line = started(start, body=1, heads=2, head_layers=1)
    with open_start(**start) as opened:
        encoder = build_network("pairwise", opened.backbone())
        opened.fill(encoder, parse_devices("cpu"))
    assert_same(network.backbone.embeddings, encoder.backbone.embeddings)
    assert_same(network.backbone.layers[0], encoder.backbone.layers[0])
    first, second = network.heads[-1].branches()
    for branch in (first, second):
        assert_same(branch.layers[0], encoder.backbone.layers[1])
    pooler = encoder.heads[0].pooler
    if pooler is not None:
        assert_same(first.head.dense, pooler)
    # New outputs differ, so that heads with the same loss do not stay the same.
    outputs = [branch.head.out.weight.data().asnumpy() for branch in (first, second)]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-4
    assert line == f"{family_encoder}; every head starts from layers 2"


def test_a_student_starts_from_a_classifier_at_its_last_layer(tiny_encoder, tmp_path):
    start = {"encoder": str(tiny_encoder)}
    teacher = short(tmp_path / "pairwise", "pairwise", start)
    start = {"init": str(tmp_path / "pairwise")}
    network, line = started(start, body=1, heads=3, head_layers=2)
    for branch in network.heads[-1].branches():
        assert_same(branch.layers[0], teacher.backbone.layers[1])
        assert_same(branch.layers[1], teacher.backbone.layers[2])
        assert_same(branch.head.dense, teacher.heads[0].dense)
    # Every head, and so the student, scores as the classifier.
    inputs = load_ranker(tmp_path / "pairwise").inputs
    text = question()
    expected = load_ranker(tmp_path / "pairwise", engine="mxnet").rank(text.question, text.texts)
    ranker = build_ranker("mhs", network, inputs, engine=EngineConfig("mxnet"))
    ranking = ranker.rank(text.question, text.texts)
    np.testing.assert_allclose(ranking.scores, expected.scores, atol=1e-5)
    name = tmp_path / "pairwise"
    assert line == (
        f"encoder of {name} (pairwise); heads kept at 3; every head starts from layers 2, 3"
    )


def test_a_student_starts_from_a_student_of_its_shape(tiny_encoder, tmp_path):
    options = {"body": 1, "heads": 2, "head_layers": 2}
    first = short(tmp_path / "first", "mhs", {"encoder": str(tiny_encoder)}, **options)
    start = {"init": str(tmp_path / "first")}
    network, line = started(start, exits=(1,), **options)
    assert_same(network.backbone, first.backbone)
    assert_same(network.heads[-1], first.heads[-1])
    assert line == f"encoder of {tmp_path / 'first'} (mhs); heads kept at 3; heads new at 1"
    run = tmp_path / "second"
    with pytest.raises(OptionError, match="init: a run with body=1"):
        dev_run("mhs", run, max_updates=1, max_length=64, **start)
    assert not (run / "config.json").exists()


# The command line


@pytest.mark.once
def test_the_commands_train_rank_tune_and_start_from_a_student(tiny_encoder, tmp_path, run_main):
    dev, run = builtin_path("dev"), tmp_path / "run"
    settings = ["--train", dev, "--max-updates", 4, "--warmup-updates", 1]
    settings += ["--learning-rate", "1e-3", "--tokens-per-batch", 400, "--max-length", 64]
    shape = ["--body", 2, "--heads", 2, "--exits", 1, "--head-weights", "1,0.5"]
    code, out, err = run_main(
        "train", "mhs", "--encoder", tiny_encoder, *settings, "--dev", dev, "--out", run, *shape
    )
    assert code == 0 and "best dev MAP" in out, err
    candidates = tmp_path / "candidates.txt"
    candidates.write_text("caves form in ice\nthe moon\nmeltwater carves caves\n")
    for engine in ["mxnet"] + ["onednn"] * (not lacks()):
        options = ["--drop-ratio", "0.4", "--engine", engine, "--json", "-"]
        code, out, err = run_main(
            "rank", run, "--question", "how do caves form", "--candidates", candidates, *options
        )
        exits = [row["exit"] for row in json.loads(out)["ranking"]]
        assert code == 0 and sorted(exits) == [1, 3, 3], err
    code, out, err = run_main("tune", run, "--data", dev, "--grid", "0.5")
    assert code == 0, err
    code, _, err = run_main(
        "train", "mhs", "--init", run, *settings, "--out", tmp_path / "second", *shape[2:]
    )
    assert code == 0 and "heads kept at 1, 3" in err
