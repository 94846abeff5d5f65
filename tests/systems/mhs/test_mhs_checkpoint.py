"""The checkpoint of the Multiple-Heads Student's authors: into a run, and back."""

import json
import shutil
import zipfile

import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, needs_onednn, write_family_encoder
from safetensors.numpy import load_file, save_file

from wqa.cli import main
from wqa.config import RunConfig, to_json
from wqa.errors import EncoderError, OptionError, RunDirectoryError
from wqa.pretrained import read_backbone_config
from wqa.pretrained.pickled import PickledTensors
from wqa.pretrained.weights import Weights
from wqa.systems.convert import convert
from wqa.systems.export import export_checkpoint
from wqa.systems.load import load_ranker
from wqa.systems.registry import build_network
from wqa.text import load_tokenizer

STUDENT = DATA / "tiny_mhs"
#: Parts of names that the tests change.
QUERY = "attention.self.query.weight"


def read_tensors(path):
    """All tensors of a checkpoint."""
    if path.suffix == ".safetensors":
        return load_file(str(path))
    file = PickledTensors(path)
    return {name: file.read(name).copy() for name in file.shapes}


def bits(tensors):
    return {name: (value.shape, value.tobytes()) for name, value in tensors.items()}


@pytest.fixture
def tensors():
    return read_tensors(STUDENT / "cerberus_model.pt")


@pytest.fixture
def convert_tensors(tmp_path):
    """Convert a checkpoint of these tensors."""

    def run(tensors, encoder=STUDENT, **options):
        path = tmp_path / "cerberus_model.safetensors"
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, str(path))
        return convert(path, tmp_path / "run", encoder=encoder, **options)

    return run


def write_student(folder, family="electra", exits=(), **options):
    """A run of a student with random weights."""
    encoder = write_family_encoder(folder.parent / f"{folder.name}_{family}", family)
    network = build_network("mhs", read_backbone_config(encoder), exits=exits, **options)
    mx.random.seed(5)
    network.initialize(mx.init.Normal(0.3))
    folder.mkdir()
    network.save_parameters(str(folder / "model.params"))
    load_tokenizer(encoder).save(folder / "tokenizer.json")
    record = RunConfig("mhs", network.config, {"exits": list(exits), **options})
    (folder / "config.json").write_text(to_json(record))
    return folder


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


def test_the_report_counts_what_repeats(tensors, capsys, tmp_path):
    report = convert(STUDENT / "cerberus_model.pt", tmp_path / "run", encoder=STUDENT)
    text = str(report)
    assert report.system == "mhs" and not report.unused and not report.missing
    assert f"{len(tensors)} read, 97 mapped, 0 missing, 53 repeated and equal" in text
    assert "7,520 in the encoder, 7,590 in the heads" in text
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert record["system"] == "mhs" and record["max_length"] == 128
    assert record["network"]["body"] == 2 and record["network"]["head_layers"] == 1


def test_a_student_goes_back_bit_by_bit(tensors, tmp_path, capsys):
    convert(STUDENT / "cerberus_model.pt", tmp_path / "run", encoder=STUDENT)
    command = ["export", str(tmp_path / "run"), str(tmp_path / "back"), "--format", "pytorch"]
    assert main(command) == 0
    names = ["cerberus_model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"]
    printed = [str(tmp_path / "back" / name) for name in ("README.md", *names)]
    assert capsys.readouterr().out.split() == printed
    assert bits(read_tensors(tmp_path / "back" / "cerberus_model.safetensors")) == bits(tensors)
    # The folder is the encoder of its checkpoint, and the same run gives the same bytes.
    convert(
        tmp_path / "back" / "cerberus_model.safetensors",
        tmp_path / "again",
        encoder=tmp_path / "back",
    )
    export_checkpoint(tmp_path / "again", tmp_path / "back_again")
    for name in names:
        written = (tmp_path / "back_again" / name).read_bytes()
        assert written == (tmp_path / "back" / name).read_bytes()


@pytest.mark.parametrize("family", ["electra", "electra_small"])
def test_deeper_heads_and_narrow_embeddings_go_back_bit_by_bit(tmp_path, family):
    run = write_student(tmp_path / "run", family, body=1, heads=2, head_layers=2)
    export_checkpoint(run, tmp_path / "out")
    first = read_tensors(tmp_path / "out" / "cerberus_model.safetensors")
    assert f"cerberus_heads.1.layer.1.{QUERY}" in first
    np.testing.assert_array_equal(
        first[f"core_base_model.encoder.layer.2.{QUERY}"],
        first[f"cerberus_heads.0.layer.1.{QUERY}"],
    )
    # A run gives the encoder's configuration and tokenizer as well as a directory does.
    convert(tmp_path / "out" / "cerberus_model.safetensors", tmp_path / "again", encoder=run)
    ours, theirs = (Weights(folder / "model.params") for folder in (run, tmp_path / "again"))
    assert ours.shapes == theirs.shapes
    assert (run / "model.params").read_bytes() == (tmp_path / "again" / "model.params").read_bytes()


def test_safetensors_of_the_same_names_give_the_same_run(tensors, tmp_path):
    convert(STUDENT / "cerberus_model.pt", tmp_path / "run", encoder=STUDENT)
    # They hold no tensor twice.
    single = {name: value for name, value in tensors.items() if not name.startswith("core_")}
    save_file(single, str(tmp_path / "student.safetensors"))
    report = convert(tmp_path / "student.safetensors", tmp_path / "other", encoder=STUDENT)
    assert report.repeated == 0 and report.read == report.mapped
    first, second = ((tmp_path / name / "model.params").read_bytes() for name in ("run", "other"))
    assert first == second


def test_names_inside_the_classifier_of_the_encoder(tensors, convert_tensors):
    renamed = {}
    for name, value in tensors.items():
        renamed[name.replace("core_base_model.", "core_base_model.electra.")] = value
    for part in ("dense.weight", "out_proj.bias"):
        value = tensors[f"cerberus_heads.0.classifier.{part}"]
        renamed[f"core_base_model.classifier.{part}"] = value
    unused = ["core_base_model.electra.pooler.dense.bias", "embeddings.position_ids"]
    for name in unused:
        renamed[name] = np.zeros((1, 8))
    report = convert_tensors(renamed)
    assert report.repeated == 55 and report.unused == unused


@pytest.mark.parametrize(
    "name",
    [
        "core_base_model.embeddings.word_embeddings.weight",
        f"core_base_model.encoder.layer.1.{QUERY}",
        "core_base_model.encoder.layer.2.output.LayerNorm.bias",
        "core_base_model.classifier.dense.bias",
    ],
)
def test_repeated_tensors_that_disagree_are_refused(tensors, convert_tensors, tmp_path, name):
    repeated = tensors.get(name, np.zeros(16, np.float32)).copy()
    repeated[-1] += 1e-6
    with pytest.raises(EncoderError, match=f"tensor {name}: has other numbers.* it repeats"):
        convert_tensors({**tensors, name: repeated})
    with pytest.raises(EncoderError, match=f"tensor {name}: is of shape .* it repeats"):
        convert_tensors({**tensors, name: repeated[1:]})
    repeated[0] = np.nan
    with pytest.raises(EncoderError, match=f"tensor {name} holds NaN"):
        convert_tensors({**tensors, name: repeated})
    assert not (tmp_path / "run").exists()


def without(tensors, start):
    return {name: value for name, value in tensors.items() if not name.startswith(start)}


@pytest.mark.parametrize(
    "start, message",
    [
        ("cerberus_heads.1.layer.0.", "cerberus_heads.1.layer.0;"),
        ("cerberus_heads.1.", "cerberus_heads.1;"),
        (f"cerberus_heads.2.layer.0.{QUERY}", f"cerberus_heads.2.layer.0.{QUERY};"),
        ("cerberus_heads.0.classifier.out_proj.bias", "classifier.out_proj.bias"),
        ("cerberus_shared_encoder.layer.0.", "cerberus_shared_encoder.layer.0;"),
        ("cerberus_shared_encoder.", "cerberus_shared_encoder.layer.0;"),
        ("embeddings.LayerNorm.weight", "embeddings.LayerNorm.weight;"),
        ("cerberus_heads.", "without a configuration"),
    ],
)
def test_missing_tensors_are_named(tensors, convert_tensors, start, message):
    with pytest.raises(EncoderError, match=message):
        convert_tensors(without(tensors, start))


def test_tensors_of_no_part_are_refused(tensors, convert_tensors):
    for name in ("embeddings_project.weight", "cerberus_heads.0.extra", "model\x1b.bias"):
        with pytest.raises(EncoderError, match="tensors beside the network's: .*alone") as error:
            convert_tensors({**tensors, name: np.zeros((16, 16), np.float32)})
        assert repr(name) in str(error.value)


def test_heads_of_different_depth_are_refused(tensors, convert_tensors):
    deeper = {}
    for name, value in tensors.items():
        if name.startswith("cerberus_heads.2.layer.0."):
            deeper[name.replace("layer.0.", "layer.1.", 1)] = value
    with pytest.raises(EncoderError, match="cerberus_heads.2: 2, of cerberus_heads.0: 1"):
        convert_tensors({**tensors, **deeper})


def test_numbers_of_layers_beyond_any_network_are_refused(tensors, convert_tensors):
    many = dict(tensors)
    for number in range(2, 3000):
        many[f"cerberus_shared_encoder.layer.{number}.x"] = np.zeros(1, np.float32)
    with pytest.raises(EncoderError, match="body: 3000; expected a whole number from 0"):
        convert_tensors(many)


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
        ({"embedding_size": 8}, "embeddings_project.weight"),
        ({"vocab_size": 61}, "word_embeddings.weight: shape .60, 16."),
        ({"vocab_size": 59}, "a tokenizer of 60 ids"),
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


def test_files_that_are_no_checkpoints(tmp_path):
    whole = (STUDENT / "cerberus_model.pt").read_bytes()
    contents = {
        "text": b"not a checkpoint",
        "empty": b"",
        "half": whole[: len(whole) // 2],
        "cut": whole[:-1],
        "damaged": whole.replace(b"data/3", b"data/X"),
    }
    for name, content in contents.items():
        path = tmp_path / f"{name}.pt"
        path.write_bytes(content)
        with pytest.raises(EncoderError, match=str(path)):
            convert(path, tmp_path / "run", encoder=STUDENT)
    flipped = bytearray(whole)
    with zipfile.ZipFile(STUDENT / "cerberus_model.pt") as archive:
        member = next(info for info in archive.infolist() if info.filename.endswith("data/9"))
    flipped[member.header_offset + 200] ^= 1
    (tmp_path / "flipped.pt").write_bytes(flipped)
    with pytest.raises(EncoderError, match="CRC-32"):
        convert(tmp_path / "flipped.pt", tmp_path / "run", encoder=STUDENT)
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_needs_its_encoder_and_nothing_else_does(tmp_path, capsys):
    path = str(STUDENT / "cerberus_model.pt")
    assert main(["convert", path, str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.startswith(f"error: --encoder: none for {path}")
    with pytest.raises(OptionError, match="which is no file of tensors; expected no encoder"):
        convert(DATA / "tiny_electra", tmp_path / "run", encoder=STUDENT)
    with pytest.raises(EncoderError, match="there is no such directory or archive"):
        convert(path, tmp_path / "run", encoder=tmp_path / "absent")
    with pytest.raises(EncoderError, match="config.json: the file is missing"):
        convert(path, tmp_path / "run", encoder=tmp_path)
    assert not (tmp_path / "run").exists()


def test_an_export_that_the_authors_code_cannot_read_is_refused(tmp_path, tiny_run):
    student = write_student(tmp_path / "bert", "bert", body=2)
    with pytest.raises(OptionError, match="of the family bert; expected electra.*names of that"):
        export_checkpoint(student, tmp_path / "out")
    early = write_student(tmp_path / "early", body=2, exits=(1,))
    with pytest.raises(OptionError, match="a run with head_1.* take the format mxnet"):
        export_checkpoint(early, tmp_path / "out")
    with pytest.raises(OptionError, match="of the system cascade; expected one of the system mhs"):
        export_checkpoint(tiny_run, tmp_path / "out")
    with pytest.raises((RunDirectoryError, EncoderError)):
        export_checkpoint(STUDENT, tmp_path / "out")
    assert not (tmp_path / "out").exists()
