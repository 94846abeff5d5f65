"""Pre-training of the joint model on paragraphs: its predictor, batches, losses and figures."""

import dataclasses
import json

import mxnet as mx
import numpy as np
import pytest
from conftest import needs_onednn, write_family_encoder
from mxnet import autograd

from wqa.cli import main
from wqa.config import BackboneConfig, TrainingConfig
from wqa.data import builtin_path, read_questions
from wqa.data.paragraphs import ParagraphDocument, write_paragraphs
from wqa.errors import DataError, OptionError, RunDirectoryError, TrainingStopped
from wqa.pretrained import read_backbone_config
from wqa.systems import SYSTEMS
from wqa.systems.load import load_ranker
from wqa.systems.mspp.examples import (
    EASY,
    HARD,
    POSITIVE,
    Masking,
    ParagraphExample,
    ParagraphInputs,
)
from wqa.systems.mspp.network import TokenPredictor
from wqa.systems.mspp.pretraining import ParagraphScorer, ParagraphScores, paragraph_figures
from wqa.systems.registry import build_network
from wqa.systems.train import train
from wqa.text import load_tokenizer
from wqa.training import Trainer
from wqa.training.start import open_start
from wqa.training.task import Setup

pytestmark = pytest.mark.onednn  # engine="auto" is oneDNN where it is

SYSTEM = "mspp_pretraining"
#: Sizes of examples that fit the encoders of the tests.
SIZES = {"k": 3, "hard": 1, "easy": 1, "segment_length": 32}
SETTINGS = {"learning_rate": 1e-3, "warmup_updates": 2, "tokens_per_batch": 600, "log_every": 4}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Two files of documents, the sentences of a question as a paragraph."""
    folder = tmp_path_factory.mktemp("documents")
    paragraphs = []
    for question in read_questions(builtin_path("train")):
        paragraphs.append(tuple(question.texts[:5]))
    for number, start in enumerate((0, 16)):
        made = []
        for index in range(start, start + 16, 4):
            made.append(ParagraphDocument(f"D{index}", tuple(paragraphs[index : index + 4])))
        write_paragraphs(folder / f"part{number}.jsonl", made)
    return folder


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, documents, tiny_encoder):
    """A run after a few updates."""
    out = tmp_path_factory.mktemp("runs") / "pretrained"
    config = TrainingConfig(max_updates=4, **SETTINGS)
    train(SYSTEM, str(documents), str(out), str(tiny_encoder), config=config, **SIZES)
    return out


def paragraph_inputs(tiny_encoder, rate=0.15):
    network = build_network(SYSTEM, small_backbone(load_tokenizer(tiny_encoder)), **SIZES)
    joint = network.text_inputs(load_tokenizer(tiny_encoder), 128)
    return ParagraphInputs(joint, Masking(joint.tokenizer, rate)), network


def small_backbone(tokenizer):
    sizes = {"units": 8, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "max_positions": 128}
    return BackboneConfig(vocab_size=tokenizer.vocab_size, **sizes)


EXAMPLES = [
    ParagraphExample(
        "a glacier is slow ice",
        ("it moves down the valley", "the moon is bright", "bread rises in the oven"),
        (POSITIVE, EASY, HARD),
    ),
    ParagraphExample("tides rise", ("\x00", "ice", "they fall again"), (EASY, HARD, POSITIVE)),
]


# The predictor


@pytest.mark.parametrize("hybrid", [False, True])
def test_the_predictor_by_hand(hybrid):
    sizes = {"units": 3, "hidden_size": 4, "num_layers": 1, "num_heads": 1, "max_positions": 8}
    predictor = TokenPredictor(BackboneConfig(vocab_size=5, **sizes))
    predictor.initialize(mx.init.Normal(0.5))
    if hybrid:
        predictor.hybridize()
    rows, table = np.array([[1.0, -2.0, 0.5]]), np.arange(15.0).reshape(5, 3) / 10
    predictor.bias.set_data(mx.nd.array([0, 1, 0, 0, -1]))
    logits = predictor(mx.nd.array(rows), mx.nd.array(table)).asnumpy()
    weight, bias = predictor.dense.weight.data().asnumpy(), predictor.dense.bias.data().asnumpy()
    inner = rows @ weight.T + bias
    inner = inner / 2 * (1 + mx.nd.erf(mx.nd.array(inner / np.sqrt(2))).asnumpy())
    inner = (inner - inner.mean()) / np.sqrt(inner.var() + 1e-12)
    np.testing.assert_allclose(logits, inner @ table.T + [0, 1, 0, 0, -1], atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "electra"])
def test_a_predictor_starts_from_the_encoders(tmp_path, family):
    """Where the files hold one, by the names of the family; otherwise it is new."""
    from safetensors.numpy import load_file, save_file

    from wqa.pretrained.names import predictor_names

    folder = write_family_encoder(tmp_path / family, family)
    config = read_backbone_config(folder)
    names = predictor_names(config)
    assert bool(names) == (family != "electra")
    network = build_network(SYSTEM, config, **{**SIZES, "segment_length": 8})
    tensors = load_file(folder / "model.safetensors")
    rng = np.random.default_rng(0)
    expected = {}
    for ours, [theirs] in names.items():
        parameter = network.predictor._collect_params_with_prefix()[ours]
        expected[ours] = tensors[theirs] = rng.normal(size=parameter.shape).astype(np.float32)
    save_file(tensors, folder / "model.safetensors")
    source = SYSTEMS[SYSTEM].task_type()
    task = source.__new__(source)
    task.network = network
    with open_start(str(folder), "") as start:
        task.initialize(start, [mx.cpu()])
    for ours, values in expected.items():
        stored = network.predictor._collect_params_with_prefix()[ours].data().asnumpy()
        np.testing.assert_array_equal(stored, values)


# Batches


def test_a_batch_masks_text_and_weighs_each_masked_token_alike(tiny_encoder):
    inputs, _ = paragraph_inputs(tiny_encoder, rate=0.5)
    batch = inputs.batch(EXAMPLES, 1)
    plain = dict(zip(inputs.joint.names, inputs.joint.pad(inputs._joints(EXAMPLES))))
    for name in ("token_types", "marks", "valid_length"):
        np.testing.assert_array_equal(batch[name], plain[name])
    counts = (batch["mask_weights"] > 0).sum(axis=1)
    assert counts.min() > 0
    assert batch["mask_weights"].sum() == pytest.approx(2)  # the mean over rows is that over tokens
    assert len(np.unique(batch["mask_weights"])) == 2
    special = set(inputs.joint.tokenizer.special_ids().tolist())
    restored = batch["token_ids"].copy()
    for row, count in enumerate(counts):
        positions = batch["masked"][row, :count].astype(int)
        assert len(set(positions)) == count
        ids = batch["masked_ids"][row, :count].astype(int)
        assert not special & set(ids.tolist())
        restored[row, positions] = ids
    np.testing.assert_array_equal(restored, plain["token_ids"])
    np.testing.assert_array_equal(batch["kinds"], [[0, 2, 1], [2, 1, 0]])


@pytest.mark.parametrize("hybrid", [False, True])
def test_the_network_returns_the_encodings_of_masked_positions(tiny_encoder, hybrid):
    inputs, network = paragraph_inputs(tiny_encoder)
    network.initialize(mx.init.Normal(0.3))
    if hybrid:
        network.hybridize()
    batch = inputs.batch(EXAMPLES, 1)
    batch["masked"] = np.array([[3, 0, 7], [1, 1, 4]], dtype=np.float32)
    arrays = [mx.nd.array(batch[name], dtype=batch[name].dtype) for name in inputs.names]
    scores, rows = network(*arrays)
    ids, types, _, valid, _ = arrays
    hidden = network.backbone(ids, types, valid).asnumpy()
    expected = hidden[[[0] * 3, [1] * 3], batch["masked"].astype(int)]
    np.testing.assert_allclose(rows.asnumpy(), expected, atol=1e-6)
    [stage] = network.encoder_stages()
    np.testing.assert_allclose(scores.asnumpy(), stage(*arrays[:-1])[1].asnumpy(), atol=1e-6)


def test_the_losses_by_hand(documents, tiny_encoder):
    config = TrainingConfig(**SETTINGS)
    own = build_network(SYSTEM, small_backbone(load_tokenizer(tiny_encoder)), **SIZES).own_config
    with open_start(str(tiny_encoder), "") as start:
        task = (
            SYSTEMS[SYSTEM]
            .task_type()
            .create(Setup(SYSTEMS[SYSTEM], start, own, str(documents), config, 128))
        )
        task.initialize(start, [mx.cpu()])
    plan = task.plan(600, np.random.default_rng(0))
    assert len(plan) == len(list(plan)) == -(-32 // (600 // 128))
    batch = task.batch(next(iter(task.plan(600, np.random.default_rng(0)))))
    arrays = {name: mx.nd.array(array, dtype=array.dtype) for name, array in batch.items()}
    gradients = {}
    table = task.network.backbone.embeddings.word.weight
    for name in ("mspp", "mlm", "both"):
        with autograd.record(train_mode=False):
            losses = task.losses(arrays, 1)
            chosen_losses = list(losses.values()) if name == "both" else [losses[name]]
            total = sum(loss.sum() for loss in chosen_losses)
        total.backward()
        gradients[name] = table.grad().asnumpy()
    scores, rows = task.network(*(arrays[name] for name in task.paragraphs.names))
    scores = scores.asnumpy()
    shared = batch["kinds"] == POSITIVE
    expected = np.where(shared, np.logaddexp(0, -scores), np.logaddexp(0, scores)).mean(axis=1)
    np.testing.assert_allclose(losses["mspp"].asnumpy(), expected, rtol=1e-5)
    logits = task.network.predictor(rows.reshape((-3, 0)), table.data()).asnumpy()
    logits = logits.reshape(*batch["masked"].shape, -1)
    log_sums = np.logaddexp.reduce(logits, axis=2)
    ids = batch["masked_ids"].astype(int)
    chosen = np.take_along_axis(logits, ids[..., None], 2)[..., 0]
    is_masked = batch["mask_weights"] > 0
    mean = (log_sums - chosen)[is_masked].mean()
    assert losses["mlm"].asnumpy().mean() == pytest.approx(mean, rel=1e-4)
    _, predicted = task.network.predict_tokens(rows, arrays["masked_ids"])
    np.testing.assert_array_equal(predicted.asnumpy(), logits.argmax(axis=2) == ids)
    # The table of words gets gradients of both of its uses: the encoder reaches the rows of the
    # batch alone, the predictor all.
    present = np.unique(batch["token_ids"])
    absent = np.setdiff1d(np.arange(table.shape[0]), present)
    assert len(absent) > 10 and not gradients["mspp"][absent].any()
    assert gradients["mspp"][present].any() and gradients["mlm"][absent].any(axis=1).all()
    summed = gradients["mspp"] + gradients["mlm"]
    np.testing.assert_allclose(gradients["both"], summed, atol=1e-5)


def test_the_masks_of_an_example_do_not_depend_on_its_batch(tiny_encoder):
    inputs, _ = paragraph_inputs(tiny_encoder, rate=0.5)
    both, second = inputs.batch(EXAMPLES, 7, 3), inputs.batch(EXAMPLES[1:], 7, 4)
    length = int(second["valid_length"][0])
    np.testing.assert_array_equal(both["token_ids"][1, :length], second["token_ids"][0, :length])
    other = inputs.batch(EXAMPLES, 7, 4)
    assert (both["token_ids"] != other["token_ids"]).any()


def test_a_batch_without_a_masked_token_has_no_loss_of_tokens(tiny_encoder):
    inputs, _ = paragraph_inputs(tiny_encoder, rate=1e-9)
    with np.errstate(all="raise"):
        batch = inputs.batch(EXAMPLES, 1)
    assert batch["masked"].shape[0] == 2 and not batch["mask_weights"].any()


@needs_onednn
def test_onednn_has_the_gradients_of_mxnet(documents, tiny_encoder, tmp_path):
    backbone = dataclasses.replace(
        read_backbone_config(tiny_encoder), dropout=0.0, attention_dropout=0.0, head_dropout=0.0
    )
    results = []
    for engine in ("onednn", "mxnet"):
        config = TrainingConfig(engine=engine, max_updates=1, tokens_per_batch=400)
        mx.random.seed(3)
        network = build_network(SYSTEM, backbone, **SIZES)
        network.initialize(mx.init.Normal(0.3))
        with open_start(str(tiny_encoder), "") as start:
            own = network.own_config
            task = (
                SYSTEMS[SYSTEM]
                .task_type()
                .create(Setup(SYSTEMS[SYSTEM], start, own, str(documents), config, 128))
            )
        task.network = network
        run = tmp_path / engine
        run.mkdir()
        trainer = Trainer(task, config, run)
        assert bool(trainer._engines) == (engine == "onednn")
        losses = trainer.backward([task.batch(task.plan(400)[0])])
        gradients = {}
        for name, parameter in trainer._parameters.items():
            gradients[name] = parameter.grad().asnumpy()
        results.append((losses, gradients))
    (fast, computed), (slow, expected) = results
    assert fast == pytest.approx(slow, abs=1e-3) and set(fast) == {"mspp", "mlm", "spread"}
    for name, gradient in expected.items():
        np.testing.assert_allclose(computed[name], gradient, atol=1e-3, err_msg=name)


# Figures


def test_figures_by_kind_by_hand():
    scores = np.array([[2.0, -1.0, 0.5], [-1.0, -1.0, -3.0]])
    kinds = np.array([[POSITIVE, HARD, EASY], [EASY, POSITIVE, HARD]])
    first = ParagraphScores(scores[:1], kinds[:1], 3, 2, 1.5)
    second = ParagraphScores(scores[1:], kinds[1:], 1, 0, 2.5)
    assert paragraph_figures([first, second]) == {
        "examples": 2,
        "p@1": 0.5,  # the tie of the second counts against its positive
        "accuracy": pytest.approx(4 / 6),
        "accuracy_positive": 0.5,
        "accuracy_hard": 1.0,
        "accuracy_easy": 0.5,
        "mlm_accuracy": 0.5,
        "mlm_loss": 1.0,
    }
    with pytest.raises(DataError, match="examples of paragraphs: none"):
        paragraph_figures([])


def test_a_scorer_gives_the_same_figures_again_whatever_the_batch(tiny_encoder):
    inputs, network = paragraph_inputs(tiny_encoder, rate=0.4)
    network.initialize(mx.init.Normal(0.3))
    examples = EXAMPLES * 3
    scorers = [ParagraphScorer(inputs, examples, tokens) for tokens in (1, 1, 1000)]
    one, again, many = (list(scorer.score(network)) for scorer in scorers)
    assert len(one) == 6 and len(many) < 3
    figures = paragraph_figures(one)
    assert figures == paragraph_figures(again)
    assert figures == pytest.approx(paragraph_figures(many), abs=1e-5)


@pytest.mark.once
def test_mspp_alone_learns_64_examples_by_heart(tiny_encoder):
    tokenizer, rng = load_tokenizer(tiny_encoder), np.random.default_rng(0)
    texts = [text for question in read_questions(builtin_path("train")) for text in question.texts]
    examples = []
    for _ in range(64):
        premise, *candidates = (texts[index] for index in rng.choice(len(texts), 4, replace=False))
        kinds = rng.permutation([POSITIVE, HARD, EASY]).tolist()
        examples.append(ParagraphExample(premise, tuple(candidates), tuple(kinds)))
    sizes = {"units": 32, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "max_positions": 64}
    backbone = BackboneConfig(vocab_size=tokenizer.vocab_size, **sizes)
    options = {**SIZES, "segment_length": 16, "marks": "separator"}
    network = build_network(SYSTEM, backbone, mask_rate=0.0, **options)
    mx.random.seed(0)
    network.initialize(mx.init.Normal(0.02))
    network.hybridize()
    inputs = ParagraphInputs(network.text_inputs(tokenizer, 64), Masking(tokenizer, 0.0))
    task = SYSTEMS[SYSTEM].task_type().__new__(SYSTEMS[SYSTEM].task_type())
    task.network, task.paragraphs = network, inputs
    arrays = {}
    for name, array in inputs.batch(examples, 0).items():
        arrays[name] = mx.nd.array(array, dtype=array.dtype)
    trainer = mx.gluon.Trainer(network.collect_params(), "adam", {"learning_rate": 5e-3})
    for update in range(1, 51):
        with autograd.record(train_mode=False):
            losses = task.losses(arrays, update)
        assert set(losses) == {"mspp", "spread"}
        losses["mspp"].backward()
        trainer.step(64, ignore_stale_grad=True)
    [batch] = ParagraphScorer(inputs, examples, tokens=1 << 16).score(network)
    figures = paragraph_figures([batch])
    assert figures["p@1"] > 0.95 and figures["accuracy"] > 0.95
    assert losses["spread"].asnumpy().mean() > 1
    assert "mlm_loss" not in figures  # nothing is masked


def test_a_loss_is_weighted_or_left_out(documents, tiny_encoder, tmp_path):
    config = TrainingConfig(max_updates=1, **{**SETTINGS, "log_every": 1})

    def first(name, **options):
        run = str(tmp_path / name)
        arguments = (SYSTEM, str(documents), run, str(tiny_encoder))
        train(*arguments, config=config, dev=str(documents / "part1.jsonl"), **SIZES, **options)
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        logged, evaluated = map(json.loads, lines)
        return logged.get("losses", {"mspp": logged["loss"]}), evaluated["dev"]

    both, _ = first("both")
    twice, figures = first("twice", mspp_weight=2.0)
    assert twice["mspp"] == pytest.approx(2 * both["mspp"], rel=1e-5)
    assert twice["mlm"] == both["mlm"] and "p@1" in figures
    tokens, figures = first("tokens", mspp_weight=0.0)
    assert tokens == {"mspp": 0, "mlm": both["mlm"]} and "mlm_accuracy" in figures
    alone, figures = first("alone", mask_rate=0.0)
    assert set(alone) == {"mspp"} and "mlm_accuracy" not in figures


# Runs


@pytest.mark.once
def test_a_pretraining_learns_tokens_stops_and_resumes(
    documents, tiny_encoder, tmp_path, monkeypatch
):
    config = TrainingConfig(epochs=6, checkpoint_every=5, **SETTINGS)
    runs = [str(tmp_path / name) for name in ("whole", "stopped")]
    train(SYSTEM, str(documents), runs[0], str(tiny_encoder), config=config, **SIZES)
    step = Trainer.step

    def stop(self, rate):
        step(self, rate)
        if self.state.update == 7:
            raise TrainingStopped(2, "update 7", tmp_path)

    monkeypatch.setattr(Trainer, "step", stop)
    with pytest.raises(TrainingStopped):
        train(SYSTEM, str(documents), runs[1], str(tiny_encoder), config=config, **SIZES)
    monkeypatch.setattr(Trainer, "step", step)
    train(SYSTEM, str(documents), runs[1], str(tiny_encoder), config=config, resume=True, **SIZES)
    whole, resumed = (
        (tmp_path / name / "model.params").read_bytes() for name in ("whole", "stopped")
    )
    assert whole == resumed
    lines = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    logged = [json.loads(line) for line in lines if '"losses"' in line]
    first, last = logged[0]["losses"], logged[-1]["losses"]
    assert last["mlm"] < 0.9 * first["mlm"] and set(first) == {"mspp", "mlm"}


def test_the_command_pretrains_and_fine_tunes(documents, tiny_encoder, tmp_path, capsys):
    settings = ("--k", "3", "--segment-length", "32", "--learning-rate", "1e-3")
    settings += ("--warmup-updates", "1", "--max-updates", "3", "--tokens-per-batch", "600")
    pretrained = tmp_path / "pretrained"
    pretrain = ("train", SYSTEM, "--encoder", tiny_encoder, "--train", documents, "--hard", "1")
    pretrain += ("--easy", "1", "--dev", documents / "part1.jsonl", "--out", pretrained, *settings)
    # An evaluation may have larger mini-batches than the training.
    pretrain += ("--tokens-per-update", "250")
    assert main([str(argument) for argument in pretrain]) == 0, capsys.readouterr().err
    figures = json.loads((pretrained / "metrics.jsonl").read_text().splitlines()[-1])["dev"]
    assert figures["examples"] == 16 and 0 < figures["mlm_loss"] < 20
    assert {"accuracy_hard", "accuracy_easy", "accuracy_positive"} <= set(figures)
    tune = ("train", "mspp", "--init", pretrained, "--train", builtin_path("dev"), *settings)
    tune += ("--out", tmp_path / "tuned")
    assert main([str(argument) for argument in tune]) == 0, capsys.readouterr().err
    start = json.loads((tmp_path / "tuned" / "metrics.jsonl").read_text().splitlines()[0])
    assert "head" in start["start"].partition("new:")[0]
    assert len(load_ranker(tmp_path / "tuned").rank("what is ice ?", ["cold", "hot"]).order) == 2


def test_fine_tuning_starts_from_what_was_pretrained(pretrained, tmp_path):
    stored = mx.nd.load(str(pretrained / "model.params"))
    network = build_network("mspp", read_backbone_config(pretrained), k=3, segment_length=32)
    task = object.__new__(SYSTEMS["mspp"].task_type())
    task.network = network
    with open_start("", str(pretrained)) as start:
        task.initialize(start, [mx.cpu()])
    for name, parameter in network._collect_params_with_prefix().items():
        np.testing.assert_array_equal(parameter.data().asnumpy(), stored[name].asnumpy())


def test_a_pretrained_run_is_not_quantized(pretrained, capsys):
    data = str(builtin_path("dev"))
    assert main(["quantize", str(pretrained), "--data", data]) == 2
    assert "pre-trained; expected a run that ranks or reads" in capsys.readouterr().err


def test_a_pretrained_run_ranks_nothing(pretrained):
    with pytest.raises(
        RunDirectoryError, match="pre-trained.*start the training of a joint model from it"
    ):
        load_ranker(pretrained)


@pytest.mark.parametrize(
    "options, where",
    [
        ({"hard": 2}, "k: 3, and hard=2 with easy=1 is 4; expected one positive"),
        ({"head": "IE_1"}, "head: IE_1; expected IE_k or AE_k"),
        ({"buffer_documents": 1}, "buffer_documents: 1; expected 2 or more"),
        ({"mask_rate": 1.1}, "mask_rate: 1.1; expected a number from 0 to 1"),
        ({"mspp_weight": -1.0}, "mspp_weight: -1.0; expected a number from 0"),
        ({"mspp_weight": 0.0, "mask_rate": 0.0}, "mspp_weight: 0 with mask_rate=0; expected one"),
        ({"least_sentence": -1}, "least_sentence: -1; expected 0 or more"),
        ({"segment_length": 64}, "segment_length and k"),
    ],
)
def test_wrong_options_are_refused(documents, tiny_encoder, tmp_path, options, where):
    with pytest.raises(OptionError, match=where):
        train(
            SYSTEM, str(documents), str(tmp_path / "run"), str(tiny_encoder), **{**SIZES, **options}
        )
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize(
    "setting", [{"train_filter": "clean"}, {"shuffle": "question"}, {"long_questions": "skip"}]
)
def test_settings_of_questions_are_refused(documents, tiny_encoder, tmp_path, setting):
    config = TrainingConfig(**SETTINGS, **setting)
    with pytest.raises(OptionError, match=f"{next(iter(setting))}: .*documents have no questions"):
        run = str(tmp_path / "run")
        train(SYSTEM, str(documents), run, str(tiny_encoder), config=config, **SIZES)


def test_a_folder_without_documents_is_refused(tiny_encoder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no file of documents"):
        train(SYSTEM, str(tmp_path / "empty"), str(tmp_path / "run"), str(tiny_encoder), **SIZES)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"k": 2, "segment_length": 32}, "init: a run with k=3; expected one with k=2"),
        ({"k": 3, "segment_length": 16}, "init: a run with segment_length=32; expected one with"),
        (
            {"k": 3, "segment_length": 32, "type_initialisation": 1.0},
            "type_initialisation: 1.0 with a run of a joint model",
        ),
    ],
)
def test_fine_tuning_of_another_form_is_refused(pretrained, tmp_path, options, message):
    data = str(builtin_path("dev"))
    with pytest.raises(OptionError, match=message):
        train("mspp", data, str(tmp_path / "run"), init=str(pretrained), **options)
