"""The joint model: its sizes, heads, positions, and its training for answer sentence selection."""

import math

import mxnet as mx
import numpy as np
import pytest
from conftest import assert_same, dev_run, values_of
from hypothesis import given
from hypothesis import strategies as st

from wqa.config import BackboneConfig, TrainingConfig
from wqa.data import builtin_path
from wqa.errors import OptionError
from wqa.pretrained import read_backbone_config
from wqa.systems import SYSTEMS
from wqa.systems.load import load_ranker
from wqa.systems.mspp.config import MSPPConfig
from wqa.systems.mspp.inputs import JointInputs
from wqa.systems.mspp.task import group_candidates
from wqa.systems.registry import build_network
from wqa.training.start import open_start
from wqa.training.task import Setup

pytestmark = pytest.mark.onednn  # engine="auto" is oneDNN where it is

SMALL = BackboneConfig(
    vocab_size=99, units=8, hidden_size=16, num_layers=2, num_heads=2, max_positions=64
)
#: Sizes of inputs that fit the encoders of the tests.
SIZES = {"k": 3, "segment_length": 32}
HEADS = ("IE_k", "AE_k", "IE_1", "AE_1")


def joint_network(backbone=SMALL, segment_length=12, k=3, **options):
    mx.random.seed(3)
    network = build_network("mspp", backbone, segment_length=segment_length, k=k, **options)
    network.initialize(mx.init.Normal(0.3))
    return network


def arrays_of(network, texts):
    """Arrays of inputs, of a question and its candidates each, for a network."""
    own = network.own_config
    inputs = JointInputs(Ids(), own.segment_length, own.k, own.positions, own.missing)
    joints = []
    for question, *candidates in texts:
        pairs = [inputs.assemble(question, candidate) for candidate in candidates]
        joints.append(inputs.join(pairs))
    return [mx.nd.array(array, dtype=array.dtype) for array in inputs.pad(joints)]


class Ids:
    """Special tokens of an encoder whose texts are ids already."""

    pair_form, start_id, separator_id, padding_id, vocab_size = "bert", 2, 3, 0, 99


#: A question with three candidates, and one with two.
TEXTS = [
    ([11, 12, 13], [21, 22], [31, 32, 33, 34, 35, 36, 37], [41]),
    ([14], [51, 52, 53], [61, 62]),
]


def dense(layer, rows):
    """A dense layer outside MXNet."""
    return rows @ layer.weight.data().asnumpy().T + layer.bias.data().asnumpy()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("hybrid", [False, True])
def test_a_head_reads_the_encodings_at_the_marks(head, hybrid):
    network = joint_network(head=head, labels=4)
    if hybrid:
        network.hybridize()
    ids, types, marks, valid = arrays_of(network, TEXTS)
    outputs = network(ids, types, marks, valid).asnumpy()
    hidden = network.backbone(ids, types, valid).asnumpy()
    # The first tokens of the segments, by hand.
    first = [[0, 5, 9, 18], [0, 3, 8]]
    for row, positions in enumerate(first):
        segments = hidden[row, positions]
        rows = {
            "IE_k": segments[1:],
            "AE_k": np.concatenate(
                [np.repeat(segments[:1], len(segments) - 1, 0), segments[1:]], 1
            ),
            "IE_1": segments[0],
            "AE_1": segments.mean(axis=0),
        }[head]
        inner = np.tanh(dense(network.head.dense, rows))
        logits = dense(network.head.out, inner)
        expected = logits
        if head.endswith("k"):
            expected = np.zeros(3)
            expected[: len(positions) - 1] = logits[:, 1] - logits[:, 0]
        np.testing.assert_allclose(outputs[row], expected, atol=1e-5)
    assert outputs.shape == ((2, 3) if head.endswith("k") else (2, 4))


@pytest.mark.parametrize("options", [{}, {"positions": "slots"}])
def test_padding_changes_nothing_and_candidates_change_one_another(options):
    network = joint_network(**options)
    together = network(*arrays_of(network, TEXTS)).asnumpy()
    for row, texts in enumerate(TEXTS):
        alone = network(*arrays_of(network, [texts])).asnumpy()
        np.testing.assert_allclose(together[row], alone[0], atol=1e-5)
    fewer = network(*arrays_of(network, [TEXTS[0][:3]])).asnumpy()
    assert np.abs(fewer[0, :2] - together[0, :2]).max() > 1e-3
    assert fewer[0, 2] == 0


def test_positions_of_every_family(family_encoder):
    backbone = read_backbone_config(family_encoder)
    tokens = joint_network(backbone)
    slots = joint_network(backbone, positions="slots")
    for target, source in zip(slots.collect_params().values(), tokens.collect_params().values()):
        target.set_data(source.data())
    # Where each segment fills its slot, both rules number the tokens alike.
    full = [(list(range(20, 30)),) * 4, (list(range(30, 40)),) * 4]
    expected = tokens(*arrays_of(tokens, full)).asnumpy()
    np.testing.assert_allclose(slots(*arrays_of(slots, full)).asnumpy(), expected, atol=1e-5)
    # Otherwise they do not; a slot has the position of its first token by hand.
    ids, types, positions, marks, valid = arrays_of(slots, TEXTS)
    assert positions.asnumpy()[0, [0, 5, 9, 18]].tolist() == [0, 12, 24, 36]
    embeddings = slots.backbone.embeddings
    word = embeddings.word.weight.data()[2] + embeddings.token_type.weight.data()[2]
    row = word + embeddings.position_weight.data()[backbone.first_position + 24]
    summed = embeddings.sums(mx.nd, ids, types, embeddings.position_weight.data(), positions)
    np.testing.assert_allclose(summed[0, 9].asnumpy(), row.asnumpy(), atol=1e-5)
    by_tokens = tokens(ids, types, marks, valid).asnumpy()
    by_slots = slots(*arrays_of(slots, TEXTS)).asnumpy()
    assert np.abs(by_tokens - by_slots).max() > 1e-4


@pytest.mark.parametrize(
    "options, where",
    [
        ({"head": "RE_k"}, "head"),
        ({"k": 0}, "k"),
        ({"segment_length": 2}, "segment_length"),
        ({"labels": 1}, "labels"),
        ({"type_initialisation": float("nan")}, "type_initialisation"),
    ],
)
def test_wrong_options_are_refused(options, where):
    with pytest.raises(OptionError, match=where):
        MSPPConfig(**options)


# Training


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=8),
    st.integers(1, 6),
    st.none() | st.integers(0, 99),
)
def test_each_candidate_is_in_one_group_of_its_question(counts, k, seed):
    questions = np.repeat(np.arange(len(counts)) * 3, counts).astype(np.int32)
    rng = None if seed is None else np.random.default_rng(seed)
    groups = group_candidates(questions, k, rng)
    members = groups[groups >= 0]
    assert sorted(members.tolist()) == list(range(len(questions)))
    assert len(groups) == sum(math.ceil(count / k) for count in counts)
    sizes = (groups >= 0).sum(axis=1)
    for group, size in zip(groups, sizes):
        assert (group[:size] >= 0).all() and len(set(questions[group[:size]])) == 1
    # All groups of a question but its last are whole.
    first = groups[:, 0]
    for question, count in zip(questions[first], sizes):
        others = sizes[questions[first] == question]
        assert (others[:-1] == k).all() and count <= k
    if rng is None:
        assert members.tolist() == list(range(len(questions)))


def make_task(folder, config=None, long_questions="error", **options):
    with open_start(str(folder)) as start:
        own = MSPPConfig(**{**SIZES, **options})
        config = config or TrainingConfig(long_questions=long_questions)
        setup = Setup(SYSTEMS["mspp"], start, own, str(builtin_path("train")), config, 128)
        return SYSTEMS["mspp"].task_type().create(setup)


def test_an_epoch_has_every_candidate_once_within_the_budget(tiny_encoder):
    task = make_task(tiny_encoder)
    plans = [task.plan(600, rng) for rng in (None, *map(np.random.default_rng, (0, 1, 0)))]
    assert len({len(plan) for plan in plans}) == 1
    groupings = []
    for plan in plans:
        members = np.concatenate([batch.ravel() for batch in plan])
        assert sorted(members[members >= 0].tolist()) == list(range(len(task.pairs)))
        groupings.append({frozenset(group.tolist()) for batch in plan for group in batch})
    assert groupings[1] == groupings[3]
    assert len(groupings[1] & groupings[2]) < len(groupings[1]) / 2
    for key in plans[1][:20]:
        batch = task.batch(key)
        assert batch["token_ids"].size <= 600
        assert task.pairs_of(batch) == (key >= 0).sum()
    assert len(plans[1][0]) > 1


def test_the_loss_is_the_cross_entropy_of_real_candidates(tiny_encoder):
    task = make_task(tiny_encoder)
    task.network.initialize(mx.init.Normal(0.3))
    key = task.plan(600)[0][:2].copy()
    key[1, 1:] = -1
    batch = {name: mx.nd.array(array, dtype=array.dtype) for name, array in task.batch(key).items()}
    scores = task.scores(batch, 1).asnumpy()
    labels = task.pairs.labels[key]
    losses = np.log1p(np.exp(-np.where(labels == 1, scores, -scores)))
    expected = [losses[0].sum() / 3, losses[1, 0] / 3]
    np.testing.assert_allclose(task.losses(batch, 1)["loss"].asnumpy(), expected, atol=1e-5)


# What a training starts from


def filled(start_options, network):
    with open_start(**start_options) as start:
        task = SYSTEMS["mspp"].task_type()
        built = task.make_network(Setup(SYSTEMS["mspp"], start, network, "", TrainingConfig(), 128))
        loader = object.__new__(task)
        loader.network = built
        mx.random.seed(0)
        line = loader.initialize(start, [mx.cpu()])
    return built, line


@pytest.fixture(scope="module")
def joint_run(tmp_path_factory, tiny_encoder):
    """A joint model that was trained for a few updates."""
    out = tmp_path_factory.mktemp("runs") / "joint"
    settings = {"max_updates": 6, "learning_rate": 1e-2, "warmup_updates": 2, **SIZES}
    return dev_run("mspp", out, tiny_encoder, tokens_per_batch=800, **settings)


def types_of(network):
    return network.backbone.embeddings.token_type.weight.data().asnumpy()


def test_the_token_types_of_an_encoder_are_extended(family_encoder):
    built, line = filled({"encoder": str(family_encoder)}, MSPPConfig(**SIZES))
    assert line == ""
    with open_start(str(family_encoder)) as start:
        source = build_network("pairwise", start.backbone())
        start.fill(source, [mx.cpu()])
    known = types_of(source)
    rows = types_of(built)
    assert len(rows) == 4 and len(known) == read_backbone_config(family_encoder).token_types
    np.testing.assert_array_equal(rows[: len(known)], known)
    assert 0.005 < rows[len(known) :].std() < 0.05
    theirs = values_of(source.backbone)
    for name, array in values_of(built.backbone).items():
        if not name.startswith("embeddings.token_type"):
            np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def test_the_row_of_the_question_can_be_drawn_anew(tiny_encoder):
    kept = types_of(filled({"encoder": str(tiny_encoder)}, MSPPConfig(**SIZES))[0])
    options = {**SIZES, "type_initialisation": 1.0}
    drawn = types_of(filled({"encoder": str(tiny_encoder)}, MSPPConfig(**options))[0])
    assert 0.4 < drawn[0].std() < 2 and np.abs(drawn[0] - kept[0]).max() > 0.1
    np.testing.assert_array_equal(drawn[1], kept[1])


def test_a_joint_run_is_taken_as_it_is(joint_run):
    built, line = filled({"init": str(joint_run)}, MSPPConfig(**SIZES))
    assert "(mspp)" in line and "kept: head" in line
    assert_same(built, load_ranker(joint_run).network)
    _, line = filled({"init": str(joint_run)}, MSPPConfig(**SIZES, head="AE_k"))
    assert "new: head" in line
