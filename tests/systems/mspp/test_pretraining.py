"""Pre-training of the joint model: its predictor, masks, losses and runs."""

import json
import shutil

import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, logged, read_metrics, write_family_encoder
from mxnet import autograd

from wqa.cli import main
from wqa.config import BackboneConfig, TrainingConfig
from wqa.data import builtin_path, read_questions
from wqa.errors import OptionError
from wqa.pretrained import read_backbone_config
from wqa.systems import SYSTEMS
from wqa.systems.load import load_ranker
from wqa.systems.mspp.network import TokenPredictor
from wqa.systems.mspp.pretraining import mask_tokens
from wqa.systems.registry import build_network
from wqa.systems.train import train
from wqa.text import load_tokenizer
from wqa.training.start import open_start
from wqa.training.task import Setup

pytestmark = pytest.mark.onednn  # engine="auto" is oneDNN where it is

SYSTEM = "mspp_pretraining"
#: Sizes of examples that fit the encoders of the tests.
SIZES = {"k": 3, "segment_length": 32}
SETTINGS = {"learning_rate": 1e-3, "warmup_updates": 2, "tokens_per_batch": 600, "log_every": 4}
DEV = str(builtin_path("dev"))


def tokenizer_of(name):
    return load_tokenizer(DATA / "tokenizers" / name)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, tiny_encoder):
    """A run after a few updates."""
    out = tmp_path_factory.mktemp("runs") / "pretrained"
    config = TrainingConfig(max_updates=4, **SETTINGS)
    train(SYSTEM, DEV, str(out), str(tiny_encoder), config=config, **SIZES)
    return out


def make_task(folder, config=None, **options):
    own = build_network(SYSTEM, read_backbone_config(folder), **{**SIZES, **options}).own_config
    system = SYSTEMS[SYSTEM]
    with open_start(str(folder), "") as start:
        setup = Setup(system, start, own, DEV, config or TrainingConfig(**SETTINGS), 128)
        task = system.task_type().create(setup)
        task.initialize(start, [mx.cpu()])
    return task


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


# Masks


def test_shares_over_many_tokens():
    """Each count lies within four standard deviations of its expectation."""
    tokenizer = tokenizer_of("uncased")
    text_ids, rng = tokenizer.text_ids(), np.random.default_rng(3)
    ids = rng.choice(text_ids, (500, 300))
    ids[:, 0], ids[:, 200:] = tokenizer.start_id, tokenizer.padding_id
    batch = mask_tokens(ids, 0.15, tokenizer, rng)
    is_masked = batch["mask_weights"] > 0
    changed = batch["token_ids"] != ids
    masked = batch["token_ids"] == tokenizer.mask_id
    assert not changed[:, 0].any() and not changed[:, 200:].any()
    # A random token is the same one once in as many times as there are.
    shares = {0.15: is_masked, 0.12: masked, 0.015 * (1 - 1 / len(text_ids)): changed & ~masked}
    count = 500 * 199
    for share, positions in shares.items():
        deviation = (count * share * (1 - share)) ** 0.5
        assert abs(int(positions.sum()) - count * share) < 4 * deviation, share
    assert not np.isin(batch["token_ids"][changed & ~masked], tokenizer.special_ids()).any()
    restored = batch["token_ids"].copy()
    np.put_along_axis(restored, batch["masked"].astype(int), batch["masked_ids"].astype(int), 1)
    np.testing.assert_array_equal(restored, ids)


# Losses


def test_the_losses_by_hand(tiny_encoder):
    task = make_task(tiny_encoder)
    batch = task.batch(task.plan(600, np.random.default_rng(0))[0])
    arrays = {name: mx.nd.array(array, dtype=array.dtype) for name, array in batch.items()}
    gradients = {}
    table = task.network.backbone.embeddings.word.weight
    for name in ("mspp", "mlm", "both"):
        with autograd.record(train_mode=False):
            losses = task.losses(arrays, 1)
            chosen_losses = [losses["mspp"], losses["mlm"]] if name == "both" else [losses[name]]
            total = sum(loss.sum() for loss in chosen_losses)
        total.backward()
        gradients[name] = table.grad().asnumpy()
    inputs = [arrays[name] for name in task.inputs.names]
    scores = task.network(*inputs).asnumpy()
    labels = batch["labels"]
    expected = np.where(labels == 1, np.logaddexp(0, -scores), np.logaddexp(0, scores))
    expected = np.where(labels < 0, 0, expected).sum(axis=1) / 3
    np.testing.assert_allclose(losses["mspp"].asnumpy(), expected, rtol=1e-4)
    ids, types, _, valid = inputs
    hidden = task.network.backbone(ids, types, valid).asnumpy()
    rows = np.take_along_axis(hidden, batch["masked"].astype(int)[..., None], axis=1)
    logits = task.network.predictor(mx.nd.array(rows).reshape((-3, 0)), table.data()).asnumpy()
    logits = logits.reshape(*batch["masked"].shape, -1)
    chosen = np.take_along_axis(logits, batch["masked_ids"].astype(int)[..., None], 2)[..., 0]
    mean = (np.logaddexp.reduce(logits, axis=2) - chosen)[batch["mask_weights"] > 0].mean()
    assert losses["mlm"].asnumpy().mean() == pytest.approx(mean, rel=1e-4)
    # The table of words gets gradients of both of its uses: the encoder reaches the rows of the
    # batch alone, the predictor all.
    present = np.unique(batch["token_ids"])
    absent = np.setdiff1d(np.arange(table.shape[0]), present)
    assert len(absent) > 10 and not gradients["mspp"][absent].any()
    assert gradients["mspp"][present].any() and gradients["mlm"][absent].any(axis=1).all()
    summed = gradients["mspp"] + gradients["mlm"]
    np.testing.assert_allclose(gradients["both"], summed, atol=1e-5)


def test_a_loss_is_weighted_or_left_out(tiny_encoder, tmp_path):
    config = TrainingConfig(max_updates=1, **{**SETTINGS, "log_every": 1})

    def first(name, **options):
        run = str(tmp_path / name)
        train(SYSTEM, DEV, run, str(tiny_encoder), config=config, **SIZES, **options)
        line = read_metrics(tmp_path / name)[0]
        return line.get("losses", {"mspp": line["loss"]})

    both, twice = first("both"), first("twice", mspp_weight=2.0)
    assert twice == {"mspp": pytest.approx(2 * both["mspp"], rel=1e-5), "mlm": both["mlm"]}
    assert first("tokens", mspp_weight=0.0) == {"mspp": 0, "mlm": both["mlm"]}
    assert set(first("alone", mask_rate=0.0)) == {"mspp"}


# Runs


def test_the_command_pretrains_and_fine_tunes(tiny_encoder, tmp_path, capsys):
    settings = ("--k", "3", "--segment-length", "32", "--learning-rate", "1e-3")
    settings += ("--warmup-updates", "1", "--max-updates", "3", "--tokens-per-batch", "600")
    run = tmp_path / "pretrained"
    pretrain = ("train", SYSTEM, "--encoder", tiny_encoder, "--train", DEV, "--dev", DEV)
    assert main([str(argument) for argument in (*pretrain, "--out", run, *settings)]) == 0
    assert 0 <= logged(run, "dev")[-1]["p@1"] <= 1
    tune = ("train", "mspp", "--init", run, "--train", DEV, *settings)
    tune += ("--out", tmp_path / "tuned")
    assert main([str(argument) for argument in tune]) == 0, capsys.readouterr().err
    assert "head" in logged(tmp_path / "tuned", "start")[0].partition("new:")[0]
    assert len(load_ranker(tmp_path / "tuned").rank("what is ice ?", ["cold", "hot"]).order) == 2


def test_a_run_of_version_0_2_ranks_as_the_joint_model(pretrained, tmp_path):
    """Its config.json has the settings by which its examples were drawn."""
    shutil.copytree(pretrained, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    config["sha256"] = {}
    config["network"].update(hard=1, easy=1, buffer_documents=10_000, least_sentence=20)
    path.write_text(json.dumps(config))
    question = next(iter(read_questions(DEV)))
    first, second = (
        load_ranker(run).rank(question.question, question.texts)
        for run in (pretrained, tmp_path / "run")
    )
    np.testing.assert_array_equal(first.scores, second.scores)


@pytest.mark.parametrize(
    "options, where",
    [
        ({"head": "IE_1"}, "head"),
        ({"mask_rate": 1.1}, "mask_rate"),
        ({"mspp_weight": -1.0}, "mspp_weight"),
        ({"mspp_weight": 0.0, "mask_rate": 0.0}, "mspp_weight"),
        ({"segment_length": 64}, "segment_length and k"),
    ],
)
def test_wrong_options_are_refused(tiny_encoder, tmp_path, options, where):
    with pytest.raises(OptionError, match=where):
        train(SYSTEM, DEV, str(tmp_path / "run"), str(tiny_encoder), **{**SIZES, **options})
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())
