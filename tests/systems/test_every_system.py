"""What trainings of all systems have in common: resumption, and the gradients of both engines."""

import dataclasses

import mxnet as mx
import numpy as np
import pytest
from conftest import logged, needs_onednn, nightly
from test_verification import claim_file as claim_file

from wqa.config import TrainingConfig
from wqa.data import builtin_path
from wqa.errors import TrainingStopped
from wqa.pretrained import read_backbone_config
from wqa.systems import SYSTEMS
from wqa.systems.registry import build_network
from wqa.systems.train import train
from wqa.training import Trainer
from wqa.training.start import open_start
from wqa.training.task import Setup

pytestmark = pytest.mark.onednn  # engine="auto" is oneDNN where it is

JOINT = {"k": 3, "segment_length": 32}
#: System, settings of the training, and options of each training that is resumed.
TRAININGS = {
    "cascade": ("cascade", {}, {"exits": (1, 2, 3), "trained_exits": "all", "distillation": 0.5}),
    "cascade in steps": ("cascade", {"tokens_per_update": 1600}, {"exits": (1, 3)}),
    "mhs": ("mhs", {}, {"body": 1, "exits": (1,)}),
    "dcbert": ("dcbert", {"accumulate": 2}, {"question_length": 40, "layers": 2, "exits": (1,)}),
    "similarity": ("similarity", {"accumulate": 2}, {"question_length": 40}),
    "mspp": ("mspp", {}, {**JOINT, "positions": "slots"}),
    "mspp_claims": ("mspp_claims", {}, JOINT),
    "mspp_pretraining": ("mspp_pretraining", {}, JOINT),
    "cosinet": ("cosinet", {}, {"recurrent": "bilstm"}),
    "pointwise cosinet": ("cosinet", {"accumulate": 2}, {"loss": "pointwise"}),
}
LATER = {"cascade in steps", "mspp_claims", "mspp_pretraining", "pointwise cosinet"}


def data_of(system, claim_file):
    return str(claim_file if system == "mspp_claims" else builtin_path("dev"))


@pytest.mark.once
@pytest.mark.parametrize("name", nightly(TRAININGS, LATER))
def test_a_stopped_training_resumes_to_the_same_bits(
    name, tiny_encoder, tiny_words, claim_file, tmp_path, monkeypatch
):
    system, settings, options = TRAININGS[name]
    few = {"max_updates": 8, "learning_rate": 1e-3, "warmup_updates": 2, "tokens_per_batch": 800}
    config = TrainingConfig(checkpoint_every=2, log_every=1, **few, **settings)
    start = {"encoder": str(tiny_encoder), "max_length": 64}
    if system == "cosinet":
        start = {"words": str(tiny_words)}

    def trained(folder, resume=False):
        out = tmp_path / folder
        data = data_of(system, claim_file)
        train(system, data, str(out), config=config, resume=resume, **start, **options)
        return logged(out, "loss"), (out / "model.params").read_bytes()

    step = Trainer.step

    def stopped(trainer, rate):
        step(trainer, rate)
        if trainer.state.update == 5:
            raise TrainingStopped(15, "update 5", tmp_path)

    whole = trained("whole")
    with monkeypatch.context() as patch, pytest.raises(TrainingStopped):
        patch.setattr(Trainer, "step", stopped)
        trained("stopped")
    assert trained("stopped", resume=True) == whole
    assert len(whole[0]) == 8


@pytest.mark.once
@needs_onednn
@pytest.mark.parametrize(
    "system, options",
    [
        ("mspp", JOINT),
        ("mspp", {**JOINT, "head": "AE_k", "positions": "slots"}),
        ("mspp_claims", JOINT),
        ("mspp_claims", {**JOINT, "head": "AE_1"}),
        ("mspp_pretraining", JOINT),
        ("similarity", {}),
        ("similarity", {"interaction": "cosine"}),
    ],
)
def test_onednn_has_the_gradients_of_mxnet(system, options, family_encoder, claim_file, tmp_path):
    rates = dict.fromkeys(("dropout", "attention_dropout", "head_dropout"), 0.0)
    backbone = dataclasses.replace(read_backbone_config(family_encoder), **rates)
    results = []
    for engine in ("onednn", "mxnet"):
        config = TrainingConfig(
            engine=engine, max_updates=1, tokens_per_batch=400, long_questions="truncate"
        )
        network = build_network(system, backbone, **options)
        mx.random.seed(3)
        network.initialize(mx.init.Normal(0.2))
        with open_start(str(family_encoder)) as start:
            data = data_of(system, claim_file)
            setup = Setup(SYSTEMS[system], start, network.own_config, data, config, 64)
            task = SYSTEMS[system].task_type().create(setup)
        task.network = network
        (tmp_path / engine).mkdir()
        trainer = Trainer(task, config, tmp_path / engine)
        assert bool(trainer._engines) == (engine == "onednn")
        losses = trainer.backward([task.batch(task.plan(400)[0])])
        parameters = trainer._parameters.items()
        results.append((losses, {name: part.grad().asnumpy() for name, part in parameters}))
    (fast, computed), (slow, expected) = results
    assert fast == pytest.approx(slow, abs=1e-3)
    for name, gradient in expected.items():
        tolerance = 2e-4 * max(1, np.abs(gradient).max())
        np.testing.assert_allclose(computed[name], gradient, atol=tolerance, err_msg=name)
    assert np.abs(expected["backbone.embeddings.word.weight"]).max() > 1e-4
