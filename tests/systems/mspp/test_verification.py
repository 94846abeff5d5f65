"""Fact verification by the joint model: its inputs, its training, verdicts, and the commands."""

import importlib
import json

import mxnet as mx
import numpy as np
import pytest
from conftest import logged, needs_onednn

from wqa.config import EngineConfig, TrainingConfig
from wqa.data import Claim, builtin_path, read_claims, read_questions, write_claims
from wqa.data.documents import LABELS, NO_EVIDENCE
from wqa.errors import DataError, InputError, OptionError, QuestionTooLong, ScoreError
from wqa.evaluation import claim_evaluator, label_accuracy
from wqa.pretrained import read_backbone_config
from wqa.systems import SYSTEMS
from wqa.systems.mspp.claims import Verifier
from wqa.systems.mspp.config import ClaimConfig
from wqa.systems.registry import build_network, run_kind
from wqa.systems.run_directory import load_verifier
from wqa.systems.train import train
from wqa.text import load_tokenizer
from wqa.training.start import open_start
from wqa.training.task import Setup

pytestmark = pytest.mark.onednn  # engine="auto" is oneDNN where it is

fever = importlib.import_module("fever")

SYSTEM = "mspp_claims"
#: Sizes of inputs that fit the encoders of the tests.
SIZES = {"k": 3, "segment_length": 24}
SETTINGS = {
    "learning_rate": 1e-2,
    "warmup_updates": 2,
    "tokens_per_batch": 800,
    "tokens_per_update": 0,
}
ENGINES = ["mxnet", pytest.param("onednn", marks=needs_onednn)]
HEADS = [{}, {"head": "AE_1"}, {"head": "AE_1", "aggregation": "sum"}]


def make_claims(count=24):
    """Claims of the built-in questions, with evidence of 0 to 5 pieces."""
    claims = []
    for number, question in enumerate(read_questions(builtin_path("train"))):
        evidence = tuple(question.texts[: number % 6]) or (NO_EVIDENCE,)
        label = LABELS[number % 3]
        text = " ".join(question.question.split()[:12])
        claims.append(Claim(f"C{number}", text, evidence, label))
    return claims[:count]


def make_network(folder, system=SYSTEM, **options):
    mx.random.seed(5)
    network = build_network(system, read_backbone_config(folder), **{**SIZES, **options})
    network.initialize(mx.init.Normal(0.3))
    return network


def make_verifier(folder, engine="mxnet", long_questions="error", **options):
    network = make_network(folder, **options)
    inputs = network.text_inputs(load_tokenizer(folder), 128, long_questions)
    return Verifier(network, inputs, engine=EngineConfig(engine=engine))


@pytest.fixture(scope="module")
def claim_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("claims") / "claims.jsonl"
    write_claims(path, make_claims())
    return path


@pytest.fixture(scope="module")
def claim_run(tmp_path_factory, tiny_encoder, claim_file):
    """A run after a few updates."""
    out = tmp_path_factory.mktemp("runs") / "claims"
    config = TrainingConfig(max_updates=6, **SETTINGS)
    train(SYSTEM, str(claim_file), str(out), str(tiny_encoder), config=config, **SIZES)
    return out


# Inputs


def test_a_claim_is_read_with_its_first_k_pieces(tiny_encoder):
    verifier = make_verifier(tiny_encoder)
    verdict = verifier.label("what is ice ?", ["cave", " ", "ice " * 30, "river", "glacier"])
    assert verdict.truncated == (False, False, True, False, False)
    assert verdict.unread == 1 and not verdict.claim_truncated
    read = verifier.label("what is ice ?", ["cave", "ice " * 30, "river"])
    assert verdict.probabilities == read.probabilities


@pytest.mark.parametrize("evidence", [(), [""], [" ", "\n"], [NO_EVIDENCE]])
def test_a_claim_without_evidence_is_read_as_in_the_corpus(tiny_encoder, evidence):
    verifier = make_verifier(tiny_encoder)
    verdict = verifier.label("what is ice ?", evidence)
    expected = verifier.label("what is ice ?", ["no doc. "])
    assert verdict == expected._replace(truncated=(False,) * len(evidence))
    assert sum(verdict.probabilities.values()) == pytest.approx(1)
    assert verifier.label("what is ice ?") == expected._replace(truncated=())


@pytest.mark.parametrize(
    "claim, evidence",
    [("", ["x"]), ("\x00", ["x"]), ("what ?", "cave"), ("what ?", ["cave", None])],
)
def test_what_is_no_claim_is_refused(tiny_encoder, claim, evidence):
    verifier = make_verifier(tiny_encoder)
    with pytest.raises(InputError):
        verifier.label(claim, evidence)


def test_over_long_claims_follow_the_rule_for_questions(tiny_encoder):
    claims = [Claim("C1", "ice " * 23, ("cave",)), Claim("C2", "ice " * 22, ("cave",))]
    with pytest.raises(QuestionTooLong, match="'C1': 23 .* 22"):
        make_verifier(tiny_encoder).prepare(claims)
    prepared = make_verifier(tiny_encoder, long_questions="skip").prepare(claims)
    assert [claim.id for claim in prepared.questions] == ["C2"] and prepared[1:] == (0, 1)
    truncating = make_verifier(tiny_encoder, long_questions="truncate")
    assert truncating.prepare(claims) == (claims, 1, 0)
    first, second = truncating.label_all(claims)
    assert first.claim_truncated and not second.claim_truncated
    assert first.probabilities == second.probabilities


# Training


def make_task(folder, path, config=None, system=SYSTEM, **options):
    with open_start(str(folder)) as start:
        own = ClaimConfig(**{**SIZES, **options})
        setup = Setup(SYSTEMS[system], start, own, str(path), config or TrainingConfig(), 128)
        return SYSTEMS[system].task_type().create(setup)


def dense(layer, row):
    """A dense layer outside MXNet."""
    return layer.weight.data().asnumpy() @ row + layer.bias.data().asnumpy()


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("options", HEADS)
def test_the_loss_by_hand(tiny_encoder, claim_file, options, hybrid):
    task = make_task(tiny_encoder, claim_file, **options)
    mx.random.seed(2)
    task.network.initialize(mx.init.Normal(0.3))
    task.hybridize(hybrid)
    # Claims with 3 of 4 pieces of evidence, with none, and with 1.
    batch = task.batch(np.concatenate(task.plan(1))[[4, 0, 7]])
    arrays = {name: mx.nd.array(array, dtype=array.dtype) for name, array in batch.items()}
    labels = batch["labels"][:, 0]
    assert labels.tolist() == [1, 0, 1]
    assert (batch["marks"] >= 0).sum(axis=1).tolist() == [4, 2, 2]
    assert task.pairs_of(batch) == 5
    losses = task.losses(arrays, 1)["loss"].asnumpy()
    hidden = task.network.backbone(
        arrays["token_ids"], arrays["token_types"], arrays["valid_length"]
    ).asnumpy()
    head = task.network.head
    for row, marks in enumerate(batch["marks"].astype(int)):
        segments = hidden[row, marks[marks >= 0]]
        read = segments[0]
        if task.network.own_config.head == "AE_1":
            read = segments.sum(axis=0)
            if options.get("aggregation") != "sum":
                read = read / len(segments)
        inner = np.tanh(dense(head.dense, read))
        logits = dense(head.out, inner)
        expected = np.logaddexp.reduce(logits) - logits[int(labels[row])]
        assert losses[row] == pytest.approx(expected, abs=1e-4)


def test_an_epoch_has_every_claim_once_in_batches_of_one_size(tiny_encoder, claim_file):
    task = make_task(tiny_encoder, claim_file)
    assert task.max_length == 96
    plans = [task.plan(5 * 96 + 1, rng) for rng in (None, *map(np.random.default_rng, (0, 1, 0)))]
    for plan in plans:
        assert sorted(map(len, plan)) == [4, 5, 5, 5, 5]
    orders = [np.concatenate(plan)[:, 0].tolist() for plan in plans]  # first piece of each claim
    assert orders[1] == orders[3] != orders[2]
    assert sorted(orders[1]) == orders[0] and len(set(orders[0])) == 24
    assert len(task.plan(1)) == 24


def test_a_store_of_pairs_is_refused(tiny_encoder, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    (store / "meta.json").write_text("{}")
    with pytest.raises(DataError, match="a store, which has no claims"):
        make_task(tiny_encoder, store)


def test_a_converted_run_labels_as_the_run_of_claims(claim_run, tmp_path):
    content = json.loads((claim_run / "config.json").read_text())
    for path in claim_run.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    # A converted joint model with such a head is a run of mspp.
    converted = {**content, "system": "mspp", "sha256": {}}
    (tmp_path / "config.json").write_text(json.dumps(converted))
    verdicts = [
        load_verifier(run).label("what is ice ?", ["cave"]) for run in (claim_run, tmp_path)
    ]
    assert verdicts[0] == verdicts[1] and run_kind(tmp_path) == "labels"
    # A run of 0.2 records the names of its labels.
    content["network"]["label_names"], content["sha256"] = list(LABELS), {}
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert load_verifier(tmp_path).label("what is ice ?", ["cave"]) == verdicts[0]


# Verdicts


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", HEADS)
def test_a_verdict_is_the_softmax_of_the_network(tiny_encoder, engine, options):
    verifier = make_verifier(tiny_encoder, engine, **options)
    claims = make_claims(9)
    verdicts = list(verifier.label_all(iter(claims)))
    assert len({verdict.label for verdict in verdicts}) > 1
    for claim, verdict in zip(claims, verdicts):
        [joint, *_] = verifier.inputs.encode(claim.claim, claim.evidence)
        inputs = [mx.nd.array(array, dtype=array.dtype) for array in verifier.inputs.pad([joint])]
        [logits] = verifier.network(*inputs).asnumpy()
        shares = np.exp(logits) / np.exp(logits).sum()
        assert list(verdict.probabilities) == list(LABELS)
        np.testing.assert_allclose(list(verdict.probabilities.values()), shares, atol=1e-4)
        assert verdict.label == LABELS[int(shares.argmax())]
        assert verdict.unread == max(0, len(claim.evidence) - 3)
        alone = verifier.label(claim.claim, claim.evidence)
        assert alone.label == verdict.label and alone[2:] == verdict[2:]
        for label, value in alone.probabilities.items():
            assert value == pytest.approx(verdict.probabilities[label], abs=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_logit_that_is_not_finite_names_its_claim(tiny_encoder, engine):
    verifier = make_verifier(tiny_encoder, engine)
    verifier.network.head.out.bias.set_data(mx.nd.array([0, np.nan, 0]))
    with pytest.raises(ScoreError, match="claim 'C0', logits: nan for the label NOT ENOUGH INFO"):
        list(verifier.label_all(make_claims(2)))


def test_networks_without_the_labels_of_claims_are_refused(tiny_encoder):
    inputs = make_verifier(tiny_encoder).inputs
    # A converted joint model with a head of labels has no names of labels.
    converted = make_network(tiny_encoder, "mspp", head="AE_1")
    assert Verifier(converted, inputs).label("what is ice ?", ["cave"]).label in LABELS
    with pytest.raises(OptionError, match="2 labels.*expected 3: SUPPORTS"):
        Verifier(make_network(tiny_encoder, "mspp", head="IE_1", labels=2), inputs)


# Development


def test_an_evaluator_gives_label_accuracy_and_reads_current_parameters(tiny_encoder):
    claims = make_claims(8)
    verifiers = []

    def build(network):
        inputs = network.text_inputs(load_tokenizer(tiny_encoder), 128)
        verifiers.append(Verifier(network, inputs))
        return verifiers[-1]

    network = make_network(tiny_encoder)
    evaluator = claim_evaluator(claims, build, live=True)
    network.head.out.weight.set_data(mx.nd.zeros((3, 16)))
    for index, expected in enumerate((3 / 8, 3 / 8, 2 / 8)):  # labels in turn
        bias = np.zeros(3)
        bias[index] = 5
        network.head.out.bias.set_data(mx.nd.array(bias))
        assert evaluator(network) == {"claims": 8, "accuracy": expected}
    assert len(verifiers) == 1
    again = claim_evaluator(claims, build)
    assert again(network) == again(network) and len(verifiers) == 3
    with pytest.raises(DataError, match="claim 'C1': no label"):
        claim_evaluator([claims[0], claims[1]._replace(label=None)], build)
    with pytest.raises(DataError, match="claims: none"):
        claim_evaluator([], build)


# Runs and commands


def write_release(folder):
    """KernelGAT's files, in which the evidence tells the label."""
    folder.mkdir()
    words = {"SUPPORTS": "glacier", "REFUTES": "river", "NOT ENOUGH INFO": "water"}
    for split, count in (("train", 30), ("dev", 12), ("test", 6)):
        lines = []
        for number in range(count):
            label = LABELS[number % 3]
            sentence = " ".join([words[label]] * 4)
            evidence = [["Ice", 0, sentence, 0.5], ["Cave", 1, "what ?", 0.1]]
            if number == 4:
                evidence = []
            key = f"{number + 100 * len(split)}"
            fields = {"id": key, "claim": "ice is in a cave .", "label": label}
            lines.append(json.dumps({**fields, "evidence": evidence}))
        (folder / f"bert_{split}.json").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.once
def test_from_the_release_to_label_accuracy(tmp_path, tiny_encoder, run_main):
    data, run = tmp_path / "fever", tmp_path / "run"
    assert fever.main(["--archive", str(write_release(tmp_path / "in")), "--out", str(data)]) == 0
    status, out, error = run_main(
        *("train", SYSTEM, "--encoder", tiny_encoder, "--train", data / "train.jsonl"),
        *("--dev", data / "dev.jsonl", "--out", run, "--k", 2, "--segment-length", 24),
        *("--epochs", 25, "--warmup-share", 0.1, "--learning-rate", 3e-3, "--eval-every", 15),
        *("--head", "AE_1", "--aggregation", "sum", "--tokens-per-update", 720),
    )
    assert status == 0, error
    assert "best dev ACCURACY" in out and "dev accuracy" in error
    figures = logged(run, "dev")
    assert all(set(entry) == {"claims", "accuracy"} for entry in figures)
    best = max(entry["accuracy"] for entry in figures)
    assert best > 0.5  # it learns from the evidence, as the claims are alike

    evaluate = ("evaluate", run, "--data", data / "dev.jsonl")
    _, out, _ = run_main(*evaluate, "--json", tmp_path / "figures.json")
    assert out.startswith(f"12 claims, label accuracy {100 * best:.2f}\nlabel / predicted")
    result = json.loads((tmp_path / "figures.json").read_text())
    assert result["accuracy"] == best and result["labels"] == list(LABELS)
    assert np.array(result["confusion"]).sum(axis=1).tolist() == [4, 4, 4]
    assert np.trace(result["confusion"]) == round(12 * best)
    assert result["unread_evidence"] == result["truncated_evidence"] == 0

    # The same labels from Python, by either engine.
    claims = list(read_claims(data / "dev.jsonl"))
    for engine in ("mxnet", "auto"):
        verdicts = load_verifier(run, engine=engine).label_all(claims)
        predictions = {claim.id: verdict.label for claim, verdict in zip(claims, verdicts)}
        scores = label_accuracy(predictions, claims)
        assert [list(row) for row in scores.confusion] == result["confusion"]

    # One claim.
    evidence = tmp_path / "evidence.txt"
    evidence.write_text("Ice. river river river river\nCave. what ?\nmore\n" + "cave " * 40 + "\n")
    verify = ("verify", run, "--claim", "ice is in a cave .", "--evidence", evidence)
    verdict = json.loads(run_main(*verify, "--json", "-")[1])
    expected = load_verifier(run).label("ice is in a cave .", evidence.read_text().splitlines())
    assert verdict["label"] == expected.label and verdict["unread"] == 2
    assert verdict["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)
    lines = run_main(*verify)[1].splitlines()
    assert lines[1].endswith(f"  {expected.label}")
    assert lines[-1] == "2 of 4 pieces of evidence are not read"
    assert len(run_main(*verify[:4])[1].splitlines()) == 4
