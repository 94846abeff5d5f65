"""The checkpoint of the Multiple-Heads Student's authors becomes a run."""

import json
import shutil

import numpy as np
import pytest
from conftest import DATA, needs_onednn
from safetensors.numpy import save_file

from wqa.cli import main
from wqa.errors import EncoderError, OptionError
from wqa.pretrained.pickled import PickledTensors
from wqa.systems.convert import convert
from wqa.systems.load import load_ranker

STUDENT = DATA / "tiny_mhs"
#: Parts of names that the tests change.
QUERY = "attention.self.query.weight"


@pytest.fixture
def tensors():
    file = PickledTensors(STUDENT / "cerberus_model.pt")
    return {name: file.read(name).copy() for name in file.shapes}


@pytest.fixture
def convert_tensors(tmp_path):
    """Convert a checkpoint of these tensors."""

    def run(tensors, encoder=STUDENT, **options):
        path = tmp_path / "cerberus_model.safetensors"
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, str(path))
        return convert(path, tmp_path / "run", encoder=encoder, **options)

    return run


@pytest.mark.parametrize("engine", ["mxnet", pytest.param("onednn", marks=needs_onednn)])
def test_a_converted_student_gives_the_references_scores(tmp_path, engine):
    command = ["convert", str(STUDENT / "cerberus_model.pt"), str(tmp_path / "run")]
    assert main([*command, "--encoder", str(STUDENT)]) == 0
    expected = np.load(STUDENT / "expected.npz")
    ranker = load_ranker(tmp_path / "run", engine=engine)
    own = ranker.network.own_config
    assert (own.body, own.heads, own.head_layers) == (2, 3, 1)
    candidates = [str(candidate) for candidate in expected["candidates"]]
    for question, heads in zip(expected["questions"], expected["probabilities"]):
        probability = heads.mean(axis=1)
        scores = ranker.rank(str(question), candidates).scores
        np.testing.assert_allclose(scores, np.log(probability / (1 - probability)), atol=1e-4)
        # The mean of the logits is another score.
        logits = np.log(heads / (1 - heads)).mean(axis=1)
        assert abs(scores - logits).max() > 0.1


def test_the_report_counts_tensors_and_parameters(tensors, tmp_path):
    report = convert(STUDENT / "cerberus_model.pt", tmp_path / "run", encoder=STUDENT)
    text = str(report)
    assert report.system == "mhs" and report.read == report.mapped + len(report.unused)
    assert all(name.startswith("core_base_model.") for name in report.unused)
    assert f"{len(tensors)} read, 97 mapped\n" in text
    assert "7,520 in the encoder, 7,590 beside it" in text
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert record["system"] == "mhs" and record["max_length"] == 128
    assert record["network"]["body"] == 2 and record["network"]["head_layers"] == 1


def without(tensors, start):
    return {name: value for name, value in tensors.items() if not name.startswith(start)}


@pytest.mark.parametrize(
    "start, message",
    [
        ("cerberus_heads.1.layer.0.", "layers of the heads: 1, 0, 1"),
        (f"cerberus_heads.2.layer.0.{QUERY}", f"cerberus_heads.2.layer.0.{QUERY};"),
        ("cerberus_shared_encoder.layer.0.", "cerberus_shared_encoder.layer.0"),
        ("embeddings.LayerNorm.weight", "embeddings.LayerNorm.weight;"),
        ("cerberus_heads.", "without a configuration"),
    ],
)
def test_missing_tensors_are_named(tensors, convert_tensors, start, message):
    with pytest.raises(EncoderError, match=message):
        convert_tensors(without(tensors, start))


def test_heads_of_different_depth_are_refused(tensors, convert_tensors):
    deeper = {}
    for name, value in tensors.items():
        if name.startswith("cerberus_heads.2.layer.0."):
            deeper[name.replace("layer.0.", "layer.1.", 1)] = value
    with pytest.raises(EncoderError, match="layers of the heads: 1, 1, 2"):
        convert_tensors({**tensors, **deeper})


def test_tensors_of_other_shapes_and_no_numbers_are_refused(tensors, convert_tensors):
    name = f"cerberus_heads.1.layer.0.{QUERY}"
    for value in (np.zeros((16, 8)), np.zeros(256), np.float32(1)):
        with pytest.raises(EncoderError, match=f"tensor {name}: shape .* expected \\(16, 16\\)"):
            convert_tensors({**tensors, name: np.asarray(value)})
    nan = tensors[name].copy()
    nan[3, 4] = np.inf
    with pytest.raises(EncoderError, match=f"tensor {name} holds NaN or infinity"):
        convert_tensors({**tensors, name: nan})
    three = {
        f"cerberus_heads.{head}.classifier.out_proj.weight": np.zeros((3, 16)) for head in "012"
    }
    with pytest.raises(EncoderError, match="out_proj.weight: shape .3, 16.; expected .2, 16."):
        convert_tensors({**tensors, **three})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"hidden_size": 32, "embedding_size": 32}, ".60, 16.; expected .60, 32."),
        ({"intermediate_size": 48}, "intermediate.dense.weight: shape .32, 16."),
        ({"num_hidden_layers": 2}, "body and head_layers"),
        ({"vocab_size": 59}, "word_embeddings.weight: shape .60, 16."),
        ({"model_type": "bert"}, "bert; expected electra"),
    ],
)
def test_an_encoder_of_other_sizes_is_refused(tmp_path, change, message):
    encoder = tmp_path / "encoder"
    shutil.copytree(STUDENT, encoder)
    config = {**json.loads((encoder / "config.json").read_text()), **change}
    (encoder / "config.json").write_text(json.dumps(config))
    with pytest.raises(EncoderError, match=message):
        convert(STUDENT / "cerberus_model.pt", tmp_path / "run", encoder=encoder)
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_needs_its_encoder_and_nothing_else_does(tmp_path, capsys):
    path = str(STUDENT / "cerberus_model.pt")
    assert main(["convert", path, str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.startswith(f"error: --encoder: none for {path}")
    with pytest.raises(OptionError, match="expected that of a checkpoint"):
        convert(DATA / "tiny_electra", tmp_path / "run", encoder=STUDENT)
    with pytest.raises(EncoderError, match="there is no such directory or archive"):
        convert(path, tmp_path / "run", encoder=tmp_path / "absent")
    with pytest.raises(EncoderError, match="config.json: the file is missing"):
        convert(path, tmp_path / "run", encoder=tmp_path)
    assert not (tmp_path / "run").exists()
