import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, run_python
from mxnet import autograd

from wqa.config import BACKBONES, BackboneConfig
from wqa.errors import OptionError
from wqa.models import parse_devices
from wqa.models.heads import FirstPositionHead, Head, MeanHead, score
from wqa.pretrained import initialize_from, load_backbone
from wqa.systems.cascade.network import CascadeConfig, CascadeTransformer
from wqa.systems.pairwise.network import PairwiseTransformer
from wqa.systems.registry import build_network

SMALL = BackboneConfig(
    vocab_size=50, units=16, hidden_size=32, num_layers=4, num_heads=2, max_positions=40
)


def random_arrays(rng, rows=5, length=12, vocab=50):
    lengths = rng.integers(4, length + 1, rows)
    ids = rng.integers(5, vocab, (rows, length))
    ids[np.arange(length)[None] >= lengths[:, None]] = 0
    types = (np.arange(length)[None] >= 3).astype(int) * np.ones((rows, 1), int)
    return (
        mx.nd.array(ids, dtype="int32"),
        mx.nd.array(types, dtype="int32"),
        mx.nd.array(lengths),
    )


def small_model(system="cascade", exits=(1, 2, 4)):
    mx.random.seed(3)
    model = build_network(system, SMALL, exits=exits)
    model.initialize(mx.init.Normal(0.2))
    return model


def test_padding_changes_nothing():
    backbone, row = load_backbone(DATA / "tiny_bert"), mx.nd.array([[7, 8, 9, 10]], dtype="int32")
    padded = mx.nd.array([[7, 8, 9, 10, 33, 34, 35]], dtype="int32")
    alone = backbone.hidden_states(row, mx.nd.array([4]))[-1].asnumpy()
    beside = backbone.hidden_states(padded, mx.nd.array([4]))[-1].asnumpy()[:, :4]
    np.testing.assert_allclose(alone, beside, atol=1e-6)


def test_layer_slices_run_on_hidden_states():
    backbone, (ids, types, lengths) = (
        small_model().backbone,
        random_arrays(np.random.default_rng(0)),
    )
    states = backbone.hidden_states(ids, lengths, types)
    np.testing.assert_array_equal(
        backbone.layers[1:3](states[1], lengths).asnumpy(), states[3].asnumpy()
    )
    assert len(backbone.layers) == 4 and len(backbone.layers[1:3]) == 2
    assert backbone.layers[1:3][0] is backbone.layers[1]


def test_stages_compose_to_the_full_model_and_to_paths():
    model, arrays = small_model(), random_arrays(np.random.default_rng(1))
    full = model(*arrays).asnumpy()
    state, scores = arrays, []
    for index in range(3):
        hidden, score = model.stage(index)(*state)
        state = (hidden, arrays[2])
        scores.append(score.asnumpy())
        np.testing.assert_array_equal(model.path(index)(*arrays)[1].asnumpy(), scores[-1])
    np.testing.assert_array_equal(scores[-1], full)
    for block in [model, *map(model.path, range(3))]:
        block.hybridize()
    np.testing.assert_allclose(model(*arrays).asnumpy(), full, atol=1e-5)
    for index in range(3):
        np.testing.assert_allclose(
            model.path(index)(*arrays)[1].asnumpy(), scores[index], atol=1e-5
        )


def test_mean_head_takes_positions_1_to_m():
    head = MeanHead(2, dropout=0.0)
    head.initialize()
    for name, parameter in head.collect_params().items():
        parameter.set_data(mx.nd.full(parameter.shape, float(name.endswith("weight"))))
    hidden = mx.nd.array([[[9, 9], [0.1, 0.2], [0.3, 0.0], [7, 7]]])
    # Means (0.2, 0.1); each dense layer of ones gives the sum in both units.
    value = np.tanh(2 * np.tanh(2 * np.tanh(0.3)))
    assert score(mx.nd, head, hidden, mx.nd.array([3])).asnumpy() == pytest.approx(
        [2 * value], abs=1e-6
    )
    assert len(head.dense) == 6  # three dense layers, each with its dropout


def test_first_position_head():
    head = FirstPositionHead(2)
    head.initialize(mx.init.One())
    hidden = mx.nd.array([[[0.1, 0.2], [5, 5]]])
    assert score(mx.nd, head, hidden, mx.nd.array([2])).asnumpy() == pytest.approx(
        [2 * np.tanh(0.3)], abs=1e-6
    )


def test_a_head_reads_as_many_first_positions_as_it_declares():
    class TwoPositions(Head):
        positions = 2

        def hybrid_forward(self, F, first):
            return first

    hidden = mx.nd.array([[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]])
    read = score(mx.nd, TwoPositions(), hidden, mx.nd.array([3, 2]))
    assert read.asnumpy().tolist() == [[1, 2, 3, 4], [7, 8, 9, 10]]


def test_the_loss_of_an_exit_reaches_the_embeddings_and_nothing_above():
    model, arrays = small_model(), random_arrays(np.random.default_rng(2))
    for parameter in model.collect_params().values():
        parameter.zero_grad()
    with autograd.record():
        loss = model.path(1)(*arrays)[1].sum()
    loss.backward()
    norms = {
        name: float(parameter.grad().norm().asscalar())
        for name, parameter in model._collect_params_with_prefix().items()
    }
    for name, norm in norms.items():
        below = name.startswith(
            ("backbone.embeddings", "backbone.layers.0", "backbone.layers.1", "head_2")
        )
        if below and "qkv.bias" not in name:
            assert norm > 0, name
        if not below:
            assert norm == 0, name


def test_default_exits():
    assert CascadeTransformer.default_exits(BACKBONES["roberta_12_768_12"]) == (4, 6, 8, 10, 12)
    assert CascadeTransformer.default_exits(BackboneConfig(num_layers=6)) == (2, 4, 6)
    assert PairwiseTransformer.default_exits(BackboneConfig()) == (12,)


@pytest.mark.parametrize("exits", [(2, 2), (4, 2), (0, 2), (2, 5), (-1,)])
def test_exits_that_do_not_fit(exits):
    with pytest.raises(OptionError, match="exits"):
        CascadeTransformer(SMALL, CascadeConfig(exits))


def test_devices():
    assert parse_devices("cpu:0-1") == [mx.cpu(0), mx.cpu(1)] and parse_devices("cpu") == [
        mx.cpu(0)
    ]


def test_pooler_starts_the_monolithic_head(tiny_encoder):
    from safetensors.numpy import load_file

    model = build_network("pairwise", load_backbone(tiny_encoder).config)
    initialize_from(model, tiny_encoder)
    pooler = load_file(str(tiny_encoder / "model.safetensors"))["pooler.dense.weight"]
    np.testing.assert_array_equal(model.head(0).dense.weight.data().asnumpy(), pooler)


def test_without_mxnet_the_extra_is_named():
    code = (
        "import sys; sys.modules['mxnet'] = None\n"
        "from wqa.errors import MissingDependency\n"
        "try: import wqa.models\n"
        "except MissingDependency as error: print(error)"
    )
    out = run_python("-c", code)
    assert "'.[cpu]'" in out.stdout and "'.[cu112]'" in out.stdout, out.stderr


def test_every_layer_prepares_the_process_before_mxnet_loads():
    prepared = "models engines.mxnet pretrained training systems.mhs.network"
    without_mxnet = dict.fromkeys(("inference", "systems.load", "engines.sparse"), 4)
    for name, status in {**dict.fromkeys(prepared.split(), 0), **without_mxnet}.items():
        code = (
            "import os; os.environ.pop('OMP_NUM_THREADS', None)\n"
            "import builtins; real = builtins.__import__\n"
            "def check(name, *rest, **more):\n"
            "    if name == 'mxnet': os._exit(0 if 'OMP_NUM_THREADS' in os.environ else 3)\n"
            "    return real(name, *rest, **more)\n"
            f"builtins.__import__ = check\nimport wqa.{name}\nos._exit(4)  # without MXNet"
        )
        out = run_python("-c", code)
        assert out.returncode == status, out.stderr
