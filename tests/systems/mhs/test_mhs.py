"""The Multiple-Heads Student: its score, its sizes, and its engines."""

import math
import shutil

import mxnet as mx
import numpy as np
import pytest
from conftest import SMALL, dev_run, needs_onednn, needs_precision
from test_engine import both
from test_models import random_arrays

from wqa.config import BACKBONES
from wqa.data import builtin_path, read_questions
from wqa.data.digests import forget_digests
from wqa.errors import OptionError, RunDirectoryError
from wqa.pretrained import read_backbone_config
from wqa.systems.load import load_ranker
from wqa.systems.mhs.network import MHSConfig, MultipleHeads, MultipleHeadsStudent
from wqa.systems.quantize import quantize
from wqa.systems.registry import build_network
from wqa.text import PairInputs, load_tokenizer
from wqa.tuning import tune

pytestmark = pytest.mark.onednn

#: Shapes of students on an encoder of three layers, with and without early exits.
SHAPES = [
    {},
    {"body": 1, "heads": 2, "head_layers": 2},
    {"body": 1, "heads": 3, "exits": (1,)},
    {"body": 2, "heads": 1, "exits": (1, 2)},
]


def student(backbone=SMALL, **options):
    mx.random.seed(5)
    network = build_network("mhs", backbone, **options)
    network.initialize(mx.init.Normal(0.3))
    return network


def probability(scores):
    return 1 / (1 + np.exp(-np.asarray(scores, dtype=np.float64)))


def parameter_count(network):
    """Number of parameters, by their shapes alone."""
    parameters = network.collect_params().values()
    return sum(math.prod(parameter.shape) for parameter in parameters)


@pytest.mark.parametrize(
    "shape, count",
    [
        ((11, 3, 1), 124_843_782),
        ((10, 3, 2), 139_019_526),
        ((8, 3, 4), 167_371_014),
        ((6, 3, 6), 195_722_502),
    ],
)
def test_parameters_are_those_of_the_reference(shape, count):
    network = MultipleHeadsStudent(BACKBONES["electra_12_768_12"], MHSConfig((), *shape))
    assert parameter_count(network) == count


# Two candidates with the logits of three heads. By mean logit (1.0 and 0.9) the first is better, by
# mean probability (0.651 and 0.708) the second.
LOGITS = np.array([[3.0, 0.0, 0.0], [1.1, 1.1, 0.5]], np.float32)


def combined(F, scores):
    """Run the head's own combination on scores of branches."""
    heads = MultipleHeads([])
    heads.branches = lambda: [lambda *inputs, score=score: score for score in scores]
    return MultipleHeads.hybrid_forward(heads, F, None, None)


def test_the_score_is_the_log_odds_of_the_mean_probability():
    mean = probability(LOGITS).mean(axis=1)
    assert mean == pytest.approx([0.65086, 0.70766], abs=1e-4)
    expected = np.log(mean / (1 - mean))
    columns = [mx.nd.array(LOGITS[:, number]) for number in range(3)]
    scores = combined(mx.nd, columns).asnumpy()
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert LOGITS.mean(axis=1).argmax() == 0 and scores.argmax() == 1
    np.testing.assert_allclose(MultipleHeads([]).combine(LOGITS), expected, atol=1e-6)


@pytest.mark.parametrize("options", SHAPES)
def test_paths_stages_and_members_are_parts_of_the_network(options):
    network = student(**options)
    inputs = random_arrays(np.random.default_rng(0), vocab=200)
    expected = network(*inputs).asnumpy()
    _, separate = network.separate_path()(*inputs)
    members = [member(*inputs).asnumpy() for member in network.members()]
    np.testing.assert_allclose(separate.asnumpy().T, members, atol=1e-6)
    mean = probability(members).mean(axis=0)
    np.testing.assert_allclose(expected, np.log(mean / (1 - mean)), atol=1e-5)
    blocks = [network, network.separate_path(), *network.stages()]
    for block in blocks:
        block.hybridize()
    state = inputs
    for stage in blocks[2:]:
        hidden, scores = stage(*state)
        state = [hidden, inputs[2]]
    np.testing.assert_allclose(scores.asnumpy(), expected, atol=1e-5)
    np.testing.assert_allclose(network(*inputs).asnumpy(), expected, atol=1e-5)
    np.testing.assert_allclose(blocks[1](*inputs)[1].asnumpy().T, members, atol=1e-5)
    assert len(network.stages()) == len(network.exits) == 1 + len(options.get("exits", ()))


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"body": 3, "head_layers": 2}, r"body and head_layers: 3 \+ 2 = 5 layers; .* at most 4"),
        ({"head_layers": 4}, "head_layers: 4; expected fewer than 4"),
        ({"heads": 0}, "heads: 0; expected a whole number from 1"),
        ({"head_weights": (1.0, 2.0)}, "head_weights: 2 weights; expected 3"),
        ({"head_weights": (1.0, -2.0, 1.0)}, "head_weights: -2.0"),
        ({"head_weights": (0.0, 0.0, 0.0)}, "head_weights: 0 for all heads"),
        ({"body": 2, "exits": (3,)}, "exits: layer 3; expected at most 2"),
    ],
)
def test_shapes_that_do_not_fit(options, reason):
    with pytest.raises(OptionError, match=reason):
        build_network("mhs", SMALL, **options)


# Engines


def on_family(folder, options):
    network = student(read_backbone_config(folder), **options)
    return network, PairInputs(load_tokenizer(folder), 96)


@needs_onednn
@pytest.mark.parametrize("options", SHAPES[1:3])
def test_every_family_has_the_scores_of_mxnets_engine(family_encoder, options):
    network, inputs = on_family(family_encoder, options)
    questions = list(read_questions(builtin_path("test")))[:3]
    slow, fast = both(network, inputs)
    for first, second in zip(slow.rank_all(questions), fast.rank_all(questions)):
        np.testing.assert_allclose(second.exit_scores, first.exit_scores, rtol=1e-4, atol=1e-4)


@needs_onednn
@pytest.mark.parametrize("body, exits", [(1, (1,)), (2, (1,)), (2, (1, 2))])
def test_the_student_is_the_last_exit_of_a_cascade(tiny_encoder, body, exits):
    """Survivors of the drop rule have the student's scores, and the cost counts all its layers."""
    network, inputs = on_family(tiny_encoder, {"body": body, "exits": exits, "heads": 3})
    [question] = list(read_questions(builtin_path("test")))[:1]
    for ranker in both(network, inputs):
        whole = ranker.rank(question.question, question.texts)
        ranker.set_drops(0.4, None)
        ranking = ranker.rank(question.question, question.texts)
        left, layers, below = np.arange(len(question.texts)), 0, 0
        for index, layer in enumerate(exits):
            layers += (layer - below) * len(left)
            below = layer
            count = len(left) - int(0.4 * len(left))
            order = np.argsort(-whole.exit_scores[index, left], kind="stable")
            left = np.sort(left[order[:count]])
        layers += (body - below + 3) * len(left)
        np.testing.assert_array_equal(np.flatnonzero(ranking.exits == body + 1), left)
        np.testing.assert_allclose(ranking.scores[left], whole.scores[left], atol=1e-4)
        assert ranking.cost.candidate_work == layers * network.config.layer_work
        assert whole.cost.relative == pytest.approx((body + 3) / 3)


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_encoder):
    """A student with an early exit, trained for a few updates."""
    out = tmp_path_factory.mktemp("mhs") / "run"
    settings = {"max_updates": 12, "learning_rate": 1e-2, "warmup_updates": 2}
    shape = {"body": 1, "exits": (1,), "heads": 2, "head_layers": 2, "max_length": 64}
    return dev_run("mhs", out, tiny_encoder, tokens_per_batch=500, **settings, **shape)


def test_drop_ratios_that_were_tuned_for_a_student_are_read(run, tmp_path):
    run = shutil.copytree(run, tmp_path / "run")
    tune(run, builtin_path("dev"), [0.3], max_cost=5)
    assert [drop.ratio for drop in load_ranker(run, drop_ratio="tuned").drops] == [0.3, 0]


def scores_of(run, **options):
    question = next(iter(read_questions(builtin_path("test"))))
    return load_ranker(run, **options).rank(question.question, question.texts).exit_scores


@needs_precision("int8")
def test_int8_calibrates_every_branch(run, tmp_path):
    run = shutil.copytree(run, tmp_path / "run")
    quantize(run, read_questions(builtin_path("dev")), most=5)
    exact, rounded = scores_of(run), scores_of(run, precision="int8")
    assert 0 < np.abs(exact - rounded).max() < 0.5 * exact.std(axis=1).max()
    # Without the last layer of the last branch: body 1, then two branches of two layers.
    forget_digests(run, ["int8.safetensors"])
    content = (run / "int8.safetensors").read_bytes()
    assert b'"layers.4.outer.weight"' in content and b'"layers.5.' not in content
    renamed = content.replace(b'"layers.4.outer.weight"', b'"layers.5.outer.weight"')
    (run / "int8.safetensors").write_bytes(renamed)
    with pytest.raises(RunDirectoryError, match="int8.safetensors: does not load"):
        load_ranker(run, precision="int8")
