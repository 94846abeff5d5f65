"""Gradients by oneDNN, held to MXNet's own."""

import json

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd

from wqa.config import BackboneConfig, TrainingConfig
from wqa.data import builtin_path, read_questions
from wqa.errors import MissingDependency, OptionError, PrecisionError
from wqa.models import build_network
from wqa.models.onednn import check_precision
from wqa.pretrained import initialize_from, read_backbone_config
from wqa.text import PairEncoder, load_tokenizer
from wqa.training import train
from wqa.training.fused import FusedNetwork
from wqa.training.losses import cross_entropy
from wqa.training.pairs import TrainingPairs
from wqa.training.trainer import Trainer

try:
    check_precision("bfloat16")
except (PrecisionError, MissingDependency) as error:
    pytest.skip(f"tests of oneDNN's gradients: {error}", allow_module_level=True)

SIZE = {
    "vocab_size": 60,
    "units": 32,
    "hidden_size": 48,
    "num_layers": 3,
    "num_heads": 2,
    "max_positions": 40,
}
DRY = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}
FAMILIES = {
    "bert": {},
    "roberta": {"layout": "roberta", "token_types": 1, "first_position": 2, "activation": "relu"},
    "electra": {"layout": "electra", "embedding_size": 8},
    "albert": {
        "layout": "albert",
        "embedding_size": 8,
        "shared_layers": True,
        "activation": "gelu_tanh",
    },
}


def network(system="cascade", exits=(1, 2, 3), **changes):
    model = build_network(system, BackboneConfig(**{**SIZE, **changes}), exits=exits)
    mx.random.seed(1)
    model.initialize(mx.init.Normal(0.3))
    return model


def batch_of(pairs=5, length=16, padding=0, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, length + 1, pairs).astype(np.float32)
    token_ids = rng.integers(3, 60, (pairs, length)).astype(np.int32)
    token_ids[np.arange(length) >= lengths[:, None]] = padding
    token_types = np.zeros((pairs, length), np.int32)
    token_types[:, 6:] = padding == 0
    return token_ids, token_types, lengths, rng.integers(0, 2, pairs).astype(np.float32)


def gradients(model):
    return {
        name: parameter.grad().asnumpy()
        for name, parameter in model._collect_params_with_prefix().items()
    }


def clear(model):
    for parameter in model.collect_params().values():
        parameter.zero_grad()
    mx.nd.waitall()


def by_mxnet(model, index, batch):
    clear(model)
    arrays = [mx.nd.array(array, dtype=array.dtype) for array in batch]
    with autograd.record():
        _, scores = model.path(index)(*arrays[:3])
        loss = cross_entropy(scores, arrays[3]).mean()
    loss.backward()
    return loss.asscalar(), gradients(model)


def by_onednn(model, index, batch, kind="float32", seed=3, fused=None):
    clear(model)
    fused = fused or FusedNetwork(model, kind, 200, 40)
    loss = fused.gradients(index, batch, cross_entropy, seed)
    mx.nd.waitall()
    return loss, gradients(model)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "system, index", [("cascade", 0), ("cascade", 1), ("cascade", 2), ("pairwise", 0)]
)
def test_gradients_equal_mxnets(family, system, index):
    model = network(system, (1, 2, 3) if system == "cascade" else (3,), **FAMILIES[family], **DRY)
    batch = batch_of(padding=1 if family == "roberta" else 0)
    loss, expected = by_mxnet(model, index, batch)
    found_loss, found = by_onednn(model, index, batch)
    assert found_loss == pytest.approx(float(loss), abs=1e-6)
    for name, array in expected.items():
        np.testing.assert_allclose(
            found[name], array, atol=2e-5 * (np.abs(array).max() + 1e-2), err_msg=name
        )


def test_bfloat16_gradients_point_the_same_way():
    model, batch = network(**DRY), batch_of(pairs=12)
    _, exact = by_mxnet(model, 2, batch)
    _, rounded = by_onednn(model, 2, batch, "bfloat16")
    for name, array in exact.items():
        if np.abs(array).max() > 1e-4:
            cosine = (
                (array * rounded[name]).sum()
                / np.linalg.norm(array)
                / np.linalg.norm(rounded[name])
            )
            assert cosine > 0.99, name


def test_several_shapes_and_changed_parameters():
    """What is compiled for one shape does not disturb another, and new weights are taken up."""
    model = network(**DRY)
    fused = FusedNetwork(model, "float32", 200, 40)
    for step, batch in enumerate((batch_of(), batch_of(3, 40), batch_of(12, 8), batch_of(seed=7))):
        _, expected = by_mxnet(model, step % 3, batch)
        _, found = by_onednn(model, step % 3, batch, fused=fused)
        for name, array in expected.items():
            np.testing.assert_allclose(
                found[name], array, atol=2e-5 * (np.abs(array).max() + 1e-2), err_msg=name
            )
        for parameter in model.collect_params().values():
            parameter.set_data(parameter.data() * 0.9 + 0.01)


@pytest.mark.parametrize("system, exits", [("cascade", (1, 3)), ("pairwise", (3,))])
def test_dropout_is_the_same_forward_and_back(system, exits):
    """The slope along a direction is that of the loss itself, for one draw of the masks."""
    model, last = (
        network(system, exits, dropout=0.3, attention_dropout=0.2, head_dropout=0.0),
        len(exits) - 1,
    )
    batch, fused = batch_of(), FusedNetwork(model, "float32", 200, 40)
    _, slopes = by_onednn(model, last, batch, seed=5, fused=fused)
    rng = np.random.default_rng(0)
    parameters = model._collect_params_with_prefix()
    ways = {name: rng.normal(size=array.shape).astype(np.float32) for name, array in slopes.items()}
    start = {name: parameter.data().asnumpy() for name, parameter in parameters.items()}
    losses = []
    for sign in (1, -1):
        for name, parameter in parameters.items():
            parameter.set_data(mx.nd.array(start[name] + sign * 1e-4 * ways[name]))
        losses.append(by_onednn(model, last, batch, seed=5, fused=fused)[0])
    expected = sum((slopes[name] * ways[name]).sum() for name in slopes)
    assert (losses[0] - losses[1]) / 2e-4 == pytest.approx(expected, rel=0.05)
    assert (
        by_onednn(model, last, batch, seed=6, fused=fused)[0]
        != by_onednn(model, last, batch, seed=5, fused=fused)[0]
    )


def test_dropout_keeps_its_share_and_its_mean():
    model = network(dropout=0.3, attention_dropout=0.1)
    fused = FusedNetwork(model, "float32", 4000, 40)
    fused.gradients(2, batch_of(100, 40), cross_entropy, 9)
    masks = {name: data for masks in fused._operations._masks.values() for name, data, _ in masks}
    assert len(masks) == 1 + 3 * 3
    for name, data in masks.items():
        rate = 0.1 if "weights" in name else 0.3
        assert np.unique(data).tolist() == [0, pytest.approx(1 / (1 - rate))]
        assert (data == 0).mean() == pytest.approx(rate, abs=0.01) and data.mean() == pytest.approx(
            1, abs=0.02
        )


def losses_of(tiny_encoder, folder, **changes):
    encoder = PairEncoder(load_tokenizer(tiny_encoder), 64)
    config = TrainingConfig(
        max_updates=12,
        learning_rate=1e-2,
        warmup_updates=2,
        tokens_per_batch=500,
        log_every=1,
        **changes,
    )
    model = build_network("cascade", read_backbone_config(tiny_encoder), exits=(1, 2, 3))
    mx.random.seed(0)
    initialize_from(model, tiny_encoder)
    folder.mkdir()
    trainer = Trainer(
        model, TrainingPairs(read_questions(builtin_path("dev")), encoder), config, folder
    )
    trainer.fit()
    return trainer, (folder / "metrics.jsonl").read_text().splitlines()


def test_training_learns_as_with_mxnet(tiny_encoder, tmp_path):
    curves = {}
    for name, changes in (
        ("mxnet", {"engine": "mxnet"}),
        ("float32", {"engine": "onednn"}),
        ("bfloat16", {"precision": "bfloat16"}),
    ):
        trainer, lines = losses_of(tiny_encoder, tmp_path / name, **changes)
        assert trainer._uses_onednn == (name != "mxnet")
        curves[name] = np.mean([json.loads(line)["loss"] for line in lines][-4:])
    assert (
        abs(curves["float32"] - curves["mxnet"]) < 0.1
        and abs(curves["bfloat16"] - curves["float32"]) < 0.1
    )


def test_engine_and_precision_must_go_together(tiny_encoder, tmp_path):
    for changes, match in (({"precision": "int8"}, "--precision"), ({"engine": "tvm"}, "--engine")):
        with pytest.raises(OptionError, match=match):
            TrainingConfig(**changes)
    for changes in (
        {"precision": "bfloat16", "engine": "mxnet"},
        {"precision": "bfloat16", "ctx": "cpu:0-1"},
        {"engine": "onednn", "ctx": "cpu:0-1"},
    ):
        with pytest.raises(OptionError, match="oneDNN computes on one CPU"):
            train(
                "cascade",
                str(builtin_path("dev")),
                str(tmp_path / "run"),
                str(tiny_encoder),
                config=TrainingConfig(**changes),
            )
        assert not (tmp_path / "run").exists()
