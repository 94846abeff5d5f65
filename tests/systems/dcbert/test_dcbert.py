"""DC-BERT: its interactions, its start and its training."""

import dataclasses
import json

import mxnet as mx
import numpy as np
import pytest
import test_gradients
from conftest import DATA, assert_same, gradients_of, logged, needs_onednn, nightly, values_of
from mxnet import autograd

from wqa.config import BackboneConfig, TrainingConfig
from wqa.data import Candidate, Question, write_questions
from wqa.engines.onednn import GradientEngine
from wqa.errors import InputError, OptionError, RunDirectoryError
from wqa.models import parse_devices
from wqa.pretrained import load_backbone, read_backbone_config
from wqa.pretrained.load import load_parameters
from wqa.systems import SYSTEMS
from wqa.systems.dcbert.interactions import PairRows
from wqa.systems.dcbert.network import DCBERTConfig
from wqa.systems.export import export_mxnet
from wqa.systems.registry import build_network
from wqa.systems.train import train
from wqa.text import SingleInputs, SplitInputs, load_tokenizer
from wqa.text.batching import bucketed
from wqa.training.start import EncoderStart, RunStart
from wqa.training.task import Setup
from wqa.training.trainer import Trainer

SIZE = {**test_gradients.SIZE, "units": 16, "hidden_size": 24}
FAMILIES = {
    "bert": {},
    "roberta": {"layout": "roberta", "token_types": 1, "first_position": 2},
    "electra_small": {"layout": "electra", "embedding_size": 8},
    "albert": {"layout": "albert", "embedding_size": 8, "shared_layers": True},
}
#: Interactions, by the options that choose them.
INTERACTIONS = {
    "one layer": {},
    "two exits": {"layers": 2, "exits": (1,)},
    "linear": {"interaction": "linear"},
    "lstm": {"interaction": "lstm"},
    "comparing": {"classifier": "comparison"},
}
QUESTION_LENGTH = 12


def decoupled(family="bert", sigma=0.3, **options):
    if options.get("interaction") == "lstm":
        sigma = 0.1  # the sums of its bilinear layer are long
    network = build_network(
        "dcbert",
        BackboneConfig(**{**SIZE, **FAMILIES[family]}),
        question_length=QUESTION_LENGTH,
        **options,
    )
    mx.random.seed(1)
    network.initialize(mx.init.Normal(sigma))
    return network


def texts(lengths, width, seed=0, padding=0):
    """Token ids of texts and their lengths."""
    ids = np.random.default_rng(seed).integers(5, 60, (len(lengths), width))
    ids[np.arange(width) >= np.array(lengths)[:, None]] = padding
    return [mx.nd.array(ids, dtype="int32"), mx.nd.array(lengths)]


def pairs_of(family="bert"):
    """Four questions and four documents."""
    padding = 1 if family == "roberta" else 0
    questions = texts([9, 3, 6, 12], 12, 0, padding)
    return questions + texts([17, 24, 3, 8], 24, 1, padding)


def values(parameter):
    return parameter.data(parameter.list_ctx()[0]).asnumpy()


# Interactions


def encodings(lengths, width, seed):
    rng = np.random.default_rng(seed)
    return mx.nd.array(rng.normal(size=(len(lengths), width, 16))), mx.nd.array(lengths)


def joint_by_hand(network, question, question_valid, document, document_valid):
    """Rows of each pair, one at a time: first rows, question, document."""
    positions, kinds = values(network.position_weight), values(network.type_weight)
    results = []
    for index, (count, length) in enumerate(zip(question_valid, document_valid)):
        asked = question[index, : int(count)] + positions[: int(count)] + kinds[0]
        start = QUESTION_LENGTH
        read = document[index, : int(length)] + positions[start : start + int(length)] + kinds[1]
        rows = np.concatenate([asked[:1], read[:1], asked[1:], read[1:]])
        results.append(rows)
    return results


@pytest.mark.parametrize("hybridized", [False, True])
def test_joint_sequences_are_those_of_one_pair_at_a_time(hybridized):
    network = decoupled()
    join = network.join()
    assert isinstance(join, PairRows)
    join.hybridize(hybridized)
    for seed, widths in enumerate([(9, 17), (16, 30)]):
        inputs = encodings([9, 1, 2, 5], widths[0], seed) + encodings([1, 17, 9, 2], widths[1], 9)
        rows, valid_length = join(*inputs)
        expected = joint_by_hand(network, *(array.asnumpy() for array in inputs))
        assert valid_length.asnumpy().tolist() == [10, 18, 11, 7]
        assert rows.shape == (4, sum(widths), 16)
        for row, reference in zip(rows.asnumpy(), expected):
            np.testing.assert_allclose(row[: len(reference)], reference, atol=1e-5)
        # The padding of a pair is its own: another pair's values, even NaN, do not reach it.
        inputs[2][1] = float("nan")
        changed = join(*inputs)[0].asnumpy()
        assert np.isnan(changed[1]).any() and not np.isnan(changed[[0, 2, 3]]).any()


def dense(block, rows):
    return rows @ values(block.weight).T + values(block.bias)


def sigmoid(array):
    return 1 / (1 + np.exp(-array))


def test_a_comparing_classifier_by_hand():
    network = decoupled(classifier="comparison")
    [head] = network.heads
    first = np.random.default_rng(0).normal(size=(3, 2, 16)).astype(np.float32)
    asked, read = first[:, 0], first[:, 1]
    features = np.concatenate([asked, read, asked * read, np.abs(asked - read)], axis=1)
    hidden = np.tanh(features @ values(head.dense.weight).T + values(head.dense.bias))
    expected = (hidden @ values(head.out.weight).T + values(head.out.bias))[:, 0]
    scores = head(mx.nd.array(first.reshape(3, 32)))
    np.testing.assert_allclose(scores.asnumpy(), expected, atol=1e-5)


def test_the_linear_variant_reads_both_pooled_texts_and_their_difference():
    for family in ("bert", "roberta"):
        network = decoupled(family, interaction="linear")
        inputs = encodings([9, 3], 9, 0) + encodings([4, 5], 6, 1)
        head = network.heads[0]
        question, document = (inputs[index].asnumpy()[:, 0] for index in (0, 2))
        assert (head.question_pooler is None) == (family == "roberta")
        if family == "bert":
            question = np.tanh(dense(head.question_pooler, question))
            document = np.tanh(dense(head.document_pooler, document))
        joint = np.concatenate([question, document, question - document], axis=1)
        expected = dense(head.out, np.tanh(dense(head.dense, joint)))
        scores = network.interaction_path()(*inputs).asnumpy()
        np.testing.assert_allclose(scores, expected, atol=1e-5)


def lstm_by_hand(block, rows):
    """Outputs of one direction on the rows of one text; MXNet's gates are i, f, g, o."""
    names = {name[3:]: values(item) for name, item in block._reg_params.items()}
    state = memory = np.zeros(16, np.float32)
    outputs = []
    for row in rows:
        gates = names["i2h_weight"] @ row + names["i2h_bias"]
        gates = gates + names["h2h_weight"] @ state + names["h2h_bias"]
        enter, keep, new, leave = np.split(gates, 4)
        memory = sigmoid(keep) * memory + sigmoid(enter) * np.tanh(new)
        state = sigmoid(leave) * np.tanh(memory)
        outputs.append(state)
    return np.array(outputs)


@pytest.mark.parametrize("family", ["bert", "electra_small"])
def test_the_lstm_variant_equals_a_reference_of_one_pair(family):
    network = decoupled(family, interaction="lstm")
    inputs = encodings([4, 6], 6, 0) + encodings([7, 3], 7, 1)
    block = network.interaction_path()
    scores = block(*inputs).asnumpy()
    block.hybridize()
    np.testing.assert_allclose(block(*inputs).asnumpy(), scores, atol=1e-5)
    question, counts, document, lengths = (array.asnumpy() for array in inputs)
    for index in range(2):
        asked = question[index, : int(counts[index])]
        read = document[index, : int(lengths[index])]
        keys, queries = (np.maximum(dense(block.alignment, rows), 0) for rows in (asked, read))
        weights = np.exp(queries @ keys.T)
        weights /= weights.sum(axis=1, keepdims=True)
        hidden, outputs = np.concatenate([read, weights @ asked], axis=1), []
        for layer in block.lstm:
            ahead = lstm_by_hand(layer.ahead, hidden)
            back = lstm_by_hand(layer.back, hidden[::-1])[::-1]
            hidden = np.concatenate([ahead, back], axis=1)
            outputs.append(hidden)
        hidden = dense(block.document_dense, np.concatenate(outputs, axis=1))
        pooled = asked[0]
        if family == "bert":
            pooled = np.tanh(dense(block.question_pooler, pooled))
        pooled = dense(block.question_dense, pooled)
        tensor = values(block.bilinear.weight).reshape(128, 128, 128)
        joint = np.einsum("md,kdq,q->mk", hidden, tensor, pooled) + values(block.bilinear_bias)
        expected = dense(block.out, joint.max(axis=0))
        np.testing.assert_allclose(scores[index], expected, rtol=1e-4, atol=1e-4)


# Scores


def public(count):
    """A network of the weights that public code was run with, and what that code computed."""
    expected = np.load(DATA / "dcbert_expected.npz")
    encoder = load_backbone(DATA / "tiny_bert")
    config = dataclasses.replace(encoder.config, dropout=0.0, attention_dropout=0.0)
    network = build_network("dcbert", config, layers=count, question_length=10)
    network.initialize()
    head = network.heads[0]
    for name, block, part in [("dense", head.dense, "weight"), ("out", head.out, "weight")]:
        getattr(block, part).set_data(mx.nd.array(expected[name]))
    head.dense.bias.set_data(mx.nd.array(expected["dense_bias"]))
    arrays = values_of(encoder)
    for backbone, factor in ((network.question_encoder, 0.9), (network.document_encoder, 1.0)):
        for name, parameter in backbone._collect_params_with_prefix().items():
            parameter.set_data(mx.nd.array(arrays[name] * np.float32(factor)))
    for index in range(count):
        source = values_of(encoder.layers[3 - count + index])
        for name, parameter in network.interaction[index]._collect_params_with_prefix().items():
            parameter.set_data(mx.nd.array(source[name] * np.float32(1.05)))
    network.position_weight.set_data(mx.nd.array(arrays["embeddings.position_weight"]))
    network.type_weight.set_data(mx.nd.array(arrays["embeddings.token_type.weight"]))
    inputs = []
    for text in ("question", "document"):
        inputs.append(mx.nd.array(expected[f"{text}_ids"], dtype="int32"))
        inputs.append(mx.nd.array(expected[f"{text}_valid"]))
    return network, inputs, expected


ENGINES = ["mxnet", pytest.param("onednn", marks=needs_onednn)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("count", [1, 2])
def test_scores_and_gradients_are_those_of_public_code(count, engine):
    """Public code pads questions to one length, where its positions are those of this network."""
    network, inputs, expected = public(count)
    attach(network, engine)
    path = network.path(0)
    with autograd.record():
        scores = path(*inputs).reshape((-1,))
        loss = (scores * mx.nd.array([1, 2, 3, 4])).sum()
    loss.backward()
    np.testing.assert_allclose(scores.asnumpy(), expected[f"scores_{count}"], atol=1e-4)
    gradients = gradients_of(network)
    for ours, theirs in {
        "position_weight": "positions",
        "type_weight": "types",
        "question_encoder.embeddings.word.weight": "question_words",
        "document_encoder.embeddings.word.weight": "document_words",
        "interaction.0.ffn_1.weight": "ffn_1",
    }.items():
        reference = expected[f"{theirs}_{count}"]
        tolerance = 1e-4 * np.abs(reference).max()
        np.testing.assert_allclose(gradients[ours], reference, atol=tolerance, err_msg=ours)


def attach(network, engine):
    for backbone in network.encoders:
        built = None
        if engine == "onednn":
            built = GradientEngine(network.config, "float32", 400, 64)
        backbone.attach(built)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", INTERACTIONS)
def test_a_score_does_not_depend_on_its_company(name, engine):
    network = decoupled(**INTERACTIONS[name])
    attach(network, engine)
    path, batch = network.path(), pairs_of()
    together = path(*batch).asnumpy()
    assert together.std(axis=0).min() > 1e-2
    ids, counts, document_ids, lengths = (array.asnumpy() for array in batch)
    for index in range(4):
        count, length = int(counts[index]), int(lengths[index])
        alone = [
            mx.nd.array(ids[index : index + 1, :count], dtype="int32"),
            mx.nd.array([count]),
            mx.nd.array(document_ids[index : index + 1, :length], dtype="int32"),
            mx.nd.array([length]),
        ]
        np.testing.assert_allclose(path(*alone).asnumpy()[0], together[index], atol=2e-5)
    # Longer padding has no effect, whatever it holds.
    for index, more in ((0, 5), (2, 3)):
        batch[index] = mx.nd.concat(batch[index], mx.nd.full((4, more), 7, dtype="int32"), dim=1)
    np.testing.assert_allclose(path(*batch).asnumpy(), together, atol=2e-5)


@needs_onednn
@pytest.mark.parametrize(
    "family, name",
    [*((family, "two exits") for family in FAMILIES), *(("bert", name) for name in INTERACTIONS)],
)
def test_both_engines_compute_the_same_gradients(family, name):
    network, batch = decoupled(family, **INTERACTIONS[name]), pairs_of(family)
    path, results = network.path(), []
    for engine in ("mxnet", "onednn"):
        attach(network, engine)
        with autograd.record(train_mode=False):
            scores = path(*batch)
            loss = mx.nd.broadcast_mul(scores, mx.nd.array([[1], [-2], [3], [4]])).sum()
        loss.backward()
        results.append({"scores": scores.asnumpy(), **gradients_of(network)})
    for key, expected in results[0].items():
        tolerance = 1e-4 * max(1, np.abs(expected).max())
        np.testing.assert_allclose(results[1][key], expected, atol=tolerance, err_msg=key)
    norms = {key: np.abs(array).max() for key, array in results[1].items()}
    first = [norms[f"{text}_encoder.layers.0.ffn_1.weight"] for text in ("question", "document")]
    assert min(first) > 0 and first[0] != first[1]


def test_work_is_that_of_the_interaction_alone():
    work = BackboneConfig(**SIZE).layer_work
    network = decoupled(layers=3, exits=(1,))
    assert network.stage_work() == [work, 2 * work] and network.full_work() == 3 * work
    assert decoupled(interaction="linear").stage_work() == [0]
    assert decoupled(interaction="lstm").stage_work() == [2 * 2 * 4 * 16 * 48]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"layers": 4}, "layers: 4; expected at most 3"),
        ({"layers": 2, "interaction": "lstm"}, "layers: 2 with interaction lstm"),
        ({"layers": 2, "exits": (3,)}, "exits: layer 3"),
        ({"question_length": 2}, "question_length: 2"),
        ({"question_length": 38}, "question_length: 38; expected at most 37"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        build_network("dcbert", BackboneConfig(**SIZE), **{"question_length": 12, **options})


# Text


@pytest.fixture(scope="module")
def tokenizer(tiny_encoder):
    return load_tokenizer(tiny_encoder)


def test_texts_are_encoded_apart(tokenizer):
    inputs = SplitInputs(tokenizer, max_length=6, question_length=5)
    ids = tokenizer.encode(["who wrote it", "a b c d", "a b c d e"])
    pairs = inputs.encode("who wrote it", ["a b c d", "a b c d e", " "])
    start, end = tokenizer.start_id, tokenizer.separator_id
    for pair in pairs:
        assert pair.question.token_ids.tolist() == [start, *ids[0], end]
    assert [pair.document.token_ids.tolist() for pair in pairs] == [
        [start, *ids[1], end],
        [start, *ids[2][:4], end],
        [start, end],
    ]
    assert [pair.truncated for pair in pairs] == [False, True, False]
    assert [pair.empty for pair in pairs] == [False, False, True]
    question_ids, question_valid, document_ids, document_valid = inputs.pad(pairs)
    assert question_ids.shape == (3, 5) and document_ids.shape == (3, 6)
    assert question_valid.tolist() == [5, 5, 5] and document_valid.tolist() == [6, 6, 2]
    assert document_ids[2].tolist() == [start, end, *[tokenizer.padding_id] * 4]
    assert inputs.longest == 11 and not inputs.joins_pairs
    with pytest.raises(InputError, match="the question is empty"):
        inputs.encode(" ", ["a"])
    # A text by itself is the same input.
    alone = SingleInputs(tokenizer, 6).encode(["a b c d e", ""])
    assert alone[0].token_ids.tolist() == pairs[1].document.token_ids.tolist()
    assert alone[0].truncated and alone[1].empty


# Start


def task_of(start, corpus, config=None, max_length=40, **options):
    own = DCBERTConfig(**{"question_length": 24, **options})
    config = config or TrainingConfig(tokens_per_batch=600)
    setup = Setup(SYSTEMS["dcbert"], start, own, str(corpus), config, max_length)
    return SYSTEMS["dcbert"].task_type().create(setup)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Labelled candidates for questions about a few words, and one that is blank."""
    rng = np.random.default_rng(0)
    words = ["glacier", "cave", "water", "forms", "under", "the", "ice", "of", "river"]
    questions = []
    for number in range(8):
        candidates = []
        for index in range(6):
            text = " ".join(rng.choice(words, int(rng.integers(2, 30))))
            candidates.append(Candidate(text, int(index % 3 == number % 3), f"D{index}"))
        candidates.append(Candidate(" ", 0, "D9"))
        question = " ".join(rng.choice(words, int(rng.integers(2, 12))))
        questions.append(Question(f"q{number}", question, tuple(candidates)))
    path = tmp_path_factory.mktemp("corpus") / "train.jsonl"
    write_questions(path, questions)
    return path


@pytest.mark.parametrize("name", ["two exits", "lstm", "comparing"])
def test_all_parts_start_from_an_encoder(family_encoder, corpus, name):
    start = EncoderStart("it", family_encoder)
    task = task_of(start, corpus, **INTERACTIONS[name])
    network, source = task.network, load_backbone(family_encoder)
    assert task.initialize(start, parse_devices("cpu")) == ""
    arrays = values_of(source)
    for encoder in network.encoders:
        assert_same(encoder, source)
    config = source.config
    if network.own_config.interaction == "transformer":
        count = network.own_config.layers
        for index in range(count):
            layer = source.layers[config.num_layers - count + index]
            assert_same(network.interaction[index], layer)
        positions = arrays["embeddings.position_weight"][config.first_position :]
        kinds = arrays["embeddings.token_type.weight"]
        if config.embedding_size:
            projection = arrays["embeddings.projection.weight"]
            positions, kinds = positions @ projection.T, kinds @ projection.T
        np.testing.assert_allclose(values(network.position_weight), positions, atol=1e-5)
        rows = values(network.type_weight)
        np.testing.assert_allclose(rows[: len(kinds)], kinds, atol=1e-5)
        assert np.abs(rows[1]).max() > 0 and rows.shape == (2, 16)
        assert len(kinds) == config.token_types
    # The parts are copies: a change of one of them leaves the others.
    network.question_encoder.embeddings.word.weight.data()[:] += 1
    words = values(network.document_encoder.embeddings.word.weight)
    np.testing.assert_array_equal(words, arrays["embeddings.word.weight"])


def run_of(folder, encoder, corpus, system="dcbert", max_length=40, init="", **options):
    settings = {"max_updates": 3, "warmup_updates": 1, "learning_rate": 1e-2, "log_every": 1}
    names = [field.name for field in dataclasses.fields(TrainingConfig)]
    given = {name: options.pop(name) for name in list(options) if name in names}
    config = TrainingConfig(**{"tokens_per_batch": 600, **settings, **given})
    if system == "dcbert":
        options = {"question_length": 24, **options}
    encoder = "" if init else str(encoder)
    train(system, str(corpus), str(folder), encoder, str(init), config, max_length, **options)
    return folder


def stored(folder):
    return {name: array.asnumpy() for name, array in mx.nd.load(f"{folder}/model.params").items()}


def test_runs_give_their_encoder_or_all_parts(tmp_path, tiny_encoder, corpus):
    cascade = run_of(tmp_path / "cascade", tiny_encoder, corpus, "cascade", exits=(2, 3))
    start = RunStart("cascade", cascade)
    task = task_of(start, corpus, layers=2)
    line = task.initialize(start, parse_devices("cpu"))
    assert line == "both encoders, and what starts from them, of cascade (cascade)"
    source = stored(cascade)
    for name, array in values_of(task.network).items():
        part, _, rest = name.partition(".")
        if part in ("question_encoder", "document_encoder"):
            np.testing.assert_array_equal(array, source[f"backbone.{rest}"], err_msg=name)
    first = values_of(task.network.interaction[0])["qkv.weight"]
    np.testing.assert_array_equal(first, source["backbone.layers.1.qkv.weight"])

    run = run_of(tmp_path / "run", tiny_encoder, corpus, layers=2, exits=(1,))
    names = ("README.md", "export.json", "model-0000.params", "model-symbol.json", "tokenizer.json")
    assert export_mxnet(run, tmp_path / "out") == list(names)  # no stages of encodings alone
    start = RunStart("run", run)
    task = task_of(start, corpus, layers=2)
    line = task.initialize(start, parse_devices("cpu"))
    assert "kept" in line and "new" not in line
    for name, array in values_of(task.network).items():
        np.testing.assert_array_equal(array, stored(run)[name], err_msg=name)
    for options in ({"layers": 1}, {"interaction": "linear"}, {"question_length": 20}):
        with pytest.raises(OptionError, match="init: a run with"):
            task_of(start, corpus, **options)
    with pytest.raises(RunDirectoryError, match="is missing or of another shape"):
        run_of(tmp_path / "other", "", corpus, "cascade", init=run)


# Training


@pytest.mark.parametrize("name", nightly(INTERACTIONS, {"one layer", "linear", "comparing"}))
def test_every_interaction_trains_and_its_run_scores_the_same(
    tmp_path, tiny_encoder, corpus, monkeypatch, name
):
    options = INTERACTIONS[name]
    trained, fit = [], Trainer.fit

    def fit_and_score(trainer):
        state = fit(trainer)
        trained.append(trainer.network.path()(*pairs_of()).asnumpy())
        return state

    monkeypatch.setattr(Trainer, "fit", fit_and_score)
    # An update takes the whole corpus, so that its losses do not depend on the batch.
    training = {"max_updates": 20, "epochs": 20, "tokens_per_batch": 4000}
    run = run_of(tmp_path / "run", tiny_encoder, corpus, **options, **training)
    losses = logged(run, "loss")
    assert len(losses) == 20 and max(losses[-3:]) < losses[0] - 0.03
    config = json.loads((run / "config.json").read_text())
    assert config["system"] == "dcbert" and config["max_length"] == 40
    assert config["network"]["question_length"] == 24
    backbone = read_backbone_config(tiny_encoder)
    network = build_network("dcbert", backbone, question_length=24, **options)
    load_parameters(network, run / "model.params", parse_devices("cpu"))
    np.testing.assert_allclose(network.path()(*pairs_of()).asnumpy(), *trained, atol=1e-6)
    started = stored(run)["question_encoder.layers.0.ffn_1.weight"]
    assert np.abs(started - stored(run)["document_encoder.layers.0.ffn_1.weight"]).max() > 1e-5


def trainer_of(tmp_path, tiny_encoder, corpus, engine="mxnet", ctx="cpu", **options):
    start = EncoderStart("it", tiny_encoder)
    config = TrainingConfig(engine=engine, ctx=ctx, tokens_per_batch=600)
    task = task_of(start, corpus, config, **options)
    dry = {"dropout": 0.0, "attention_dropout": 0.0}
    backbone = dataclasses.replace(task.network.config, **dry)
    task.network = build_network("dcbert", backbone, question_length=24, **options)
    task = SYSTEMS["dcbert"].task_type()(task.network, task.inputs, task.pairs, config)
    mx.random.seed(3)
    task.initialize(start, parse_devices(ctx))
    return Trainer(task, config, tmp_path)


def summed_gradients(trainer, keys):
    losses = trainer.backward([trainer.task.batch(key) for key in keys])
    gradients = {}
    for name, parameter in trainer._parameters.items():
        gradients[name] = sum(array.asnumpy() for array in parameter.list_grad())
    return losses, gradients


def test_a_batch_encodes_a_text_once(tmp_path, tiny_encoder, corpus):
    """The losses and gradients are those of pairs that are encoded one by one."""
    trainer = trainer_of(tmp_path, tiny_encoder, corpus, layers=2)
    task = trainer.task
    rows = np.arange(6).repeat(2)[::-1]
    batch = task.batch(rows)
    arrays = {name: mx.nd.array(array, dtype=array.dtype) for name, array in batch.items()}
    question_ids, question_valid, document_ids, document_valid, *of_pair = task.network_inputs(
        arrays
    )
    assert len(question_ids) == len({row.tobytes() for row in batch["question_ids"]}) < 12
    assert len(document_ids) == len({row.tobytes() for row in batch["document_ids"]}) == 6
    for texts, valid, rows_of, name in (
        (question_ids, question_valid, of_pair[0], "question"),
        (document_ids, document_valid, of_pair[1], "document"),
    ):
        numbers = rows_of.asnumpy()
        np.testing.assert_array_equal(texts.asnumpy()[numbers], batch[f"{name}_ids"])
        np.testing.assert_array_equal(valid.asnumpy()[numbers], batch[f"{name}_valid"])
    trainer.state.update = 1
    losses, gradients = summed_gradients(trainer, [rows])
    each = mx.nd.arange(len(rows), dtype="int32")
    task.network_inputs = lambda batch: [*(batch[name] for name in task.inputs.names), each, each]
    expected_losses, expected = summed_gradients(trainer, [rows])
    assert losses == pytest.approx(expected_losses, rel=1e-5)
    for name, array in expected.items():
        np.testing.assert_allclose(gradients[name], array, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("together", [2, 3, 100])
def test_pairs_of_a_document_stay_together(tmp_path, tiny_encoder, together):
    texts = [f"{'the tide rises ' * count}." for count in (1, 2, 3, 4, 5)]
    questions = []
    for number in range(9):
        candidates = [Candidate(text, int(index == 0)) for index, text in enumerate(texts)]
        question = f"how {'very ' * (number % 3)}high does tide {number} rise ?"
        questions.append(Question(str(number), question, tuple(candidates)))
    path = tmp_path / "train.jsonl"
    write_questions(path, questions)
    task = task_of(EncoderStart("it", tiny_encoder), path, document_pairs=together)
    documents = task.pairs.candidates
    assert documents.tolist() == list(range(5)) * 9
    plans = [task.plan(200, np.random.default_rng(seed)) for seed in range(3)]
    assert len({len(plan) for plan in plans}) == 1
    assert plans[0][0].tolist() != plans[1][0].tolist()
    widest = sum(bucketed(length) for length in task.pairs.lengths.max(axis=0).tolist())
    size = max(1, min(together, 200 // widest))
    assert size == min(together, 5)
    for plan in plans:
        assert sorted(np.concatenate(plan).tolist()) == list(range(45))
        rests = np.zeros(5, int)
        for key in plan:
            batch = task.batch(key)
            width = batch["question_ids"].shape[1] + batch["document_ids"].shape[1]
            assert width * len(key) <= 200 or len(key) == 1
            rests += np.bincount(documents[key], minlength=5) % size > 0
        # Nine pairs of a document are whole groups, but for those of its last one.
        assert (rests <= (9 % size > 0)).all()
