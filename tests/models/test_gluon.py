"""What users of Gluon call: encoders by name, lengths, float16, parts, runs of their own."""

import shutil
import warnings

import mxnet as mx
import numpy as np
import pytest
from conftest import make_tar, values_of
from mxnet import autograd, gluon
from test_models import random_arrays, small_model

from wqa.data import builtin_path, read_questions
from wqa.errors import EncoderError
from wqa.models import attention_mask, train_only
from wqa.pretrained import initialize_from, load_backbone, read_backbone_config
from wqa.systems.load import load_ranker
from wqa.systems.registry import build_network
from wqa.systems.saving import save_run
from wqa.text import PairInputs, load_tokenizer

TYPES = ("float32", "float64", "float16", "int32", "int64")


@pytest.fixture
def encoder_tar(tiny_encoder, tmp_path):
    return make_tar(tmp_path / "tiny.tar.gz", tiny_encoder)


def rows(seed=0):
    return random_arrays(np.random.default_rng(seed))


def test_every_function_takes_a_directory_and_a_tar(tiny_encoder, encoder_tar):
    expected, texts = load_backbone(tiny_encoder), ["what is a tide ?"]
    config = read_backbone_config(encoder_tar)
    assert config == expected.config
    assert load_tokenizer(encoder_tar).encode(texts) == load_tokenizer(tiny_encoder).encode(texts)
    network = build_network("cascade", config, exits=(1, 3))
    initialize_from(network, encoder_tar)
    np.testing.assert_array_equal(
        network.backbone.layers[0].qkv.weight.data().asnumpy(),
        expected.layers[0].qkv.weight.data().asnumpy(),
    )


def test_every_function_takes_the_name_of_an_installed_encoder(minilm):
    tokenizer = load_tokenizer("minilm")
    assert tokenizer.encode(["a tide"]) == load_tokenizer(minilm).encode(["a tide"])
    assert read_backbone_config("minilm") == read_backbone_config(minilm)


@pytest.mark.parametrize("load", [load_backbone, load_tokenizer, read_backbone_config])
def test_an_encoder_that_is_absent(load, tmp_path):
    with pytest.raises(EncoderError, match="no such directory or archive.*or one of minilm"):
        load(str(tmp_path / "absent"))


@pytest.mark.parametrize("hybrid", [False, True])
def test_lengths_and_types_are_optional(hybrid):
    backbone, (ids, types, lengths) = small_model().backbone, rows()
    full = mx.nd.array([ids.shape[1]] * len(ids))
    none = mx.nd.zeros_like(ids)
    whole = backbone(ids, none, full).asnumpy()
    masked = backbone(ids, types, lengths).asnumpy()
    if hybrid:
        backbone.hybridize()
    for _ in range(2):  # from None to an array and back
        np.testing.assert_array_equal(backbone(ids).asnumpy(), whole)
        np.testing.assert_allclose(
            backbone(ids, types, lengths).asnumpy(), masked, rtol=1e-5, atol=1e-6
        )
        np.testing.assert_array_equal(backbone(ids, None, full).asnumpy(), whole)
    assert abs(whole - masked).max() > 1e-3
    states = backbone.hidden_states(ids)
    np.testing.assert_allclose(states[-1].asnumpy(), whole, rtol=1e-5, atol=1e-6)


class FirstState(gluon.HybridBlock):
    """A block that gives its backbone token ids alone."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def hybrid_forward(self, F, token_ids):
        return F.slice_axis(self.backbone(token_ids), axis=1, begin=0, end=1)


def test_a_compiled_block_around_a_backbone_without_lengths():
    block, (ids, _, _) = FirstState(small_model().backbone), rows()
    expected = block(ids).asnumpy()
    block.hybridize()
    np.testing.assert_array_equal(block(ids).asnumpy(), expected)
    np.testing.assert_array_equal(block(ids[:2]).asnumpy(), expected[:2])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_mask_is_finite(dtype):
    hidden = mx.nd.ones((2, 3, 4), dtype=dtype)
    lengths = mx.nd.array([1, 3], dtype="int32")
    mask = attention_mask(mx.nd, hidden, lengths, 1)
    assert mask.dtype == np.dtype(dtype)
    far = np.array(-6e4, dtype)  # float16 has a number near it
    expected = [[[0, far, far]] * 3, [[0, 0, 0]] * 3]
    np.testing.assert_array_equal(mask.asnumpy(), np.array(expected, dtype))
    symbol = attention_mask(mx.sym, mx.sym.var("hidden"), mx.sym.var("lengths"), 1)
    [compiled] = symbol.eval(hidden=hidden, lengths=lengths)
    np.testing.assert_array_equal(compiled.asnumpy(), mask.asnumpy())
    weights = mx.nd.softmax(mask + 1).asnumpy()
    np.testing.assert_array_equal(weights[0], np.array([[1, 0, 0]] * 3, dtype))


def single_products(monkeypatch):
    """Compute products of float16, which MXNet has on GPUs alone, in float32."""

    def in_single(product, cast):
        def run(*arrays, **options):
            singles = [cast(array, dtype="float32") for array in arrays if array is not None]
            return cast(product(*singles, **options), dtype="float16")

        return run

    for module in (mx.nd, mx.sym):
        for name in ("FullyConnected", "batch_dot"):
            monkeypatch.setattr(module, name, in_single(getattr(module, name), module.cast))


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("system", ["cascade", "pairwise"])
def test_scores_in_float16_are_finite(system, hybrid, monkeypatch):
    model = small_model(system, exits=(1, 2, 4) if system == "cascade" else (4,))
    ids, types, lengths = rows()
    expected = model(ids, types, lengths).asnumpy()
    single_products(monkeypatch)
    model.cast("float16")
    if hybrid:
        model.hybridize()
    for typed in (lengths, lengths.astype("int32"), lengths.astype("float16")):
        scores = model(ids, types, typed)
        assert scores.dtype == np.float16
        np.testing.assert_allclose(scores.asnumpy(), expected, atol=0.02, rtol=0.02)


def steps(network, parameters, arrays):
    """Two updates of the first exit's ranker."""
    trainer = gluon.Trainer(parameters, "sgd", {"learning_rate": 0.1})
    path = network.path(0)
    for _ in range(2):
        with autograd.record():
            _, scores = path(*arrays)
            loss = (scores**2).sum()
        loss.backward()
        trainer.step(1)


def test_a_path_trains_alone_without_a_warning():
    network, arrays = small_model(), rows()
    with pytest.raises(UserWarning, match="stale"):  # what the function is for
        steps(network, network.collect_params(), arrays)
    before = values_of(network)
    parameters = train_only(network, network.path(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps(network, parameters, arrays)
        steps(network, network.collect_params(), arrays)
    after = values_of(network)
    moved = {name for name in before if (before[name] != after[name]).any()}
    assert "head_1.out.weight" in moved and "backbone.layers.0.qkv.weight" in moved
    stays = ("head_2", "head_4", "backbone.layers.1", "backbone.layers.2", "backbone.layers.3")
    assert not any(name.startswith(stays) for name in moved)
    assert set(train_only(network, network)) == set(network.collect_params())
    assert {parameter.grad_req for parameter in network.collect_params().values()} == {"write"}


def test_a_run_of_ones_own_model_ranks(tiny_encoder, tmp_path):
    network = build_network("cascade", read_backbone_config(tiny_encoder), exits=(1, 3))
    initialize_from(network, tiny_encoder)
    inputs = PairInputs(load_tokenizer(tiny_encoder), max_length=48)
    assert save_run(network, inputs, tmp_path / "own") == tmp_path / "own"
    ranker = load_ranker(tmp_path / "own", engine="mxnet")
    question = next(iter(read_questions(builtin_path("dev"))))
    pairs = inputs.encode(question.question, question.texts)
    arrays = inputs.pad(pairs)
    expected = network(*(mx.nd.array(array, dtype=array.dtype) for array in arrays))
    ranking = ranker.rank(question.question, question.texts)
    np.testing.assert_allclose(ranking.scores, expected.asnumpy(), atol=1e-5)
    assert ranker.inputs.max_length == 48
    shutil.move(str(tmp_path / "own"), str(tmp_path / "moved"))
    again = load_ranker(tmp_path / "moved", engine="mxnet").rank(question.question, question.texts)
    np.testing.assert_array_equal(again.scores, ranking.scores)


@pytest.mark.parametrize("hybrid", [False, True])
def test_the_scores_of_all_exits_in_one_pass(hybrid):
    network, arrays = small_model(exits=(1, 2, 4)), rows()
    expected = [network.path(index)(*arrays)[1].asnumpy() for index in range(3)]
    if hybrid:
        network.hybridize()
    with autograd.record(train_mode=False):  # without dropout
        scores = network.exit_scores(*arrays)
        losses = [(row**2).sum() for row in scores]
    autograd.backward(losses)
    for alone, together in zip(expected, scores):
        np.testing.assert_allclose(together.asnumpy(), alone, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(network(*arrays).asnumpy(), expected[-1], rtol=1e-5, atol=1e-6)
    weights = [network.head(index).out.weight for index in range(3)]
    assert all(abs(weight.grad().asnumpy()).max() > 0 for weight in weights)
