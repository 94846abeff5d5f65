"""Damaged and hostile files of encoders: typed errors, bounded memory, nothing is run."""

import json
import pickle
import shutil
import struct
import tarfile
import zipfile

import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, with_letters
from safetensors.numpy import load_file, save_file

from wqa.errors import EncoderError
from wqa.pretrained import load_backbone
from wqa.pretrained.pickled import LEGACY_MAGIC, PickledTensors
from wqa.systems.checkpoints import load_classifier
from wqa.systems.convert import convert
from wqa.systems.export import export_huggingface

ORDERED = b"ccollections\nOrderedDict\n"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def text(word):
    """Opcode of a string."""
    return b"X" + struct.pack("<I", len(word)) + word.encode()


def number(value):
    """Opcode of a whole number."""
    raw = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def tensor(shape, strides, size, offset=0):
    """Opcodes of a tensor in storage 0."""
    reference = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu")
    axes = [b"(" + b"".join(map(number, sizes)) + b"t" for sizes in (shape, strides)]
    hooks = b"\x89" + ORDERED + b")R"
    storage = reference + number(size) + b"tQ" + number(offset)
    return REBUILD + b"(" + storage + b"".join(axes) + hooks + b"tR"


def archive(path, content, compression=zipfile.ZIP_STORED, **storages):
    """A checkpoint in the zip format."""
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("m/data.pkl", content)
        for key, raw in storages.items():
            file.writestr(f"m/data/{key.strip('_')}", raw)
    return path


def test_hostile_pickles_are_refused(tmp_path):
    for content in (
        b"\x80\x02X\xff\xff\xff\xff.",  # a string of 4 GB
        b"\x80\x02\x8b\xff\xff\xff\x7f.",  # an integer of 2 GB
        b"\x80\x04\x95" + b"\xff" * 8 + b".",  # a frame
        b"\x80\x02ctorch\nload\nX\x01\x00\x00\x00a\x85R.",
    ):
        magic = pickle.dumps(LEGACY_MAGIC, 2) + pickle.dumps(1001, 2) + pickle.dumps({}, 2)
        (tmp_path / "legacy.bin").write_bytes(magic + content)
        for path in (archive(tmp_path / "zip.bin", content), tmp_path / "legacy.bin"):
            with pytest.raises(EncoderError, match="cannot be read"):
                PickledTensors(path)
    packed = archive(tmp_path / "packed.bin", b"\x80\x02}.", zipfile.ZIP_DEFLATED)
    with pytest.raises(EncoderError, match="compressed"):
        PickledTensors(packed)


def test_damaged_numbers_are_found_by_the_checksum(tmp_path):
    path = tmp_path / "x.bin"
    content = b"\x80\x02}" + text("a") + tensor((2, 2), (2, 1), 4) + b"s."
    archive(path, content, _0=b"sixteen numbers.")
    path.write_bytes(path.read_bytes().replace(b"sixteen", b"Sixteen"))
    with pytest.raises(EncoderError, match="CRC-32"):
        PickledTensors(path).read("a")


def test_a_table_of_any_size_from_one_number_is_refused(tmp_path):
    raw = struct.pack("<4f", 1, 2, 3, 4)
    for shape, strides in (((10**12,), (0,)), ((2, 10**9), (0, 0)), ((2, 4), (0, 1))):
        content = b"\x80\x02}" + text("a") + tensor(shape, strides, 4) + b"s."
        with pytest.raises(EncoderError, match="no numbers of its shape"):
            PickledTensors(archive(tmp_path / "x.bin", content, _0=raw))
    for size in (4, 5, -1):
        content = b"\x80\x02}" + text("a") + tensor((5,), (1,), size) + b"s."
        with pytest.raises(EncoderError, match="no numbers of its shape"):
            PickledTensors(archive(tmp_path / "x.bin", content, _0=raw))


def test_a_sound_pickle_of_other_protocols_is_read(tmp_path):
    raw = struct.pack("<4f", 1, 2, 3, 4)
    content = b"\x80\x02}" + text("a") + tensor((2, 2), (2, 1), 4) + b"s."
    names = b"\x8c\x0ctorch._utils\x8c\x12_rebuild_tensor_v2\x93\x94"
    framed = content.replace(REBUILD, names).replace(b"\x80\x02", b"\x80\x04\x95" + bytes(8))
    for form in (content, framed):
        read = PickledTensors(archive(tmp_path / "x.bin", form, _0=raw))
        assert read.read("a").tolist() == [[1, 2], [3, 4]]


@pytest.fixture
def tiny(tmp_path):
    """The tiny BERT with a classifier and a vocabulary."""
    return with_letters("tiny_bert", tmp_path)


SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
)
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
WRONG_SIZES = (0, -1, 1.5, 16.0, True, "16", [16], {}, None, 10**12, 10**400, float("nan"))
WRONG_NUMBERS = (-0.5, 1.5, "0.1", [0.1], True, 10**400, float("nan"), float("inf"))


def test_settings_of_wrong_types_and_sizes(tiny):
    path = tiny / "config.json"
    whole = json.loads(path.read_text())
    changes = [{name: value} for name in SIZES for value in WRONG_SIZES]
    changes += [{name: value} for name in RATES for value in WRONG_NUMBERS]
    changes += [{"layer_norm_eps": value} for value in (*WRONG_NUMBERS, 0, None, 1e-40)]
    changes += [{"hidden_act": value} for value in (["gelu"], {}, 1, None, "")]
    changes += [{"model_type": value} for value in (["bert"], {}, 1, "gpt2")]
    for change in changes:
        path.write_text(json.dumps({**whole, **change}))
        with pytest.raises(EncoderError, match=next(iter(change))):
            load_backbone(tiny)
    for value in ("[" * 100_000, "NaN", '{"a": 1', "\x00", "[]", "3"):
        for content in (value, f'{{"hidden_size": {value}}}', f'{{"model_type": {value}}}'):
            path.write_text(content)
            with pytest.raises(EncoderError, match="config.json"):
                load_backbone(tiny)
    path.unlink()
    path.mkdir()
    with pytest.raises(EncoderError, match="config.json"):
        load_backbone(tiny)


def test_sizes_are_compared_with_the_tensors_before_memory_is_taken(tiny, monkeypatch):
    whole = json.loads((tiny / "config.json").read_text())

    def refused(*_, **__):
        raise AssertionError("parameters are initialized")

    monkeypatch.setattr(mx.gluon.Block, "initialize", refused)
    for change, message in (
        ({"num_hidden_layers": 10**9}, "a whole number"),
        ({"num_hidden_layers": 40}, "missing tensors: encoder.layer.*more"),
        ({"vocab_size": 10**7}, "expected .10000000, 16."),
        ({"intermediate_size": 10**7}, "expected .10000000, 16."),
        ({"hidden_size": 8 * 10**6}, "expected .64, 8000000."),
    ):
        (tiny / "config.json").write_text(json.dumps({**whole, **change}))
        for load in (load_backbone, load_classifier):
            with pytest.raises(EncoderError, match=message):
                load(tiny)
    shutil.copy(DATA / "tiny_albert_v2" / "config.json", tiny)
    shutil.copy(DATA / "tiny_albert_v2" / "model.safetensors", tiny)
    whole = json.loads((tiny / "config.json").read_text())
    (tiny / "config.json").write_text(json.dumps({**whole, "num_hidden_layers": 10**6}))
    with pytest.raises(EncoderError, match="num_hidden_layers 1000000; expected a whole number"):
        load_backbone(tiny)


def raw_safetensors(path, header, raw=b""):
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + raw)


def test_tensors_of_other_ranks_and_types(tiny):
    path = tiny / "model.safetensors"
    tensors = load_file(str(path))
    layer = "bert.encoder.layer.0.attention.self.query"
    for name in (f"{layer}.bias", "classifier.bias", "classifier.weight", "bert.pooler.dense.bias"):
        value = tensors[name]
        for wrong in (
            np.float32(1).reshape(()),
            value[None],
            value.reshape(-1)[:0],
            value.astype(np.int64),
            value.astype(bool),
            value * np.float32("nan"),
            np.full(value.shape, 1e300),
        ):
            save_file({**tensors, name: np.ascontiguousarray(wrong)}, str(path))
            with pytest.raises(EncoderError):
                load_classifier(tiny)


def test_headers_of_safetensors(tiny):
    path = tiny / "model.safetensors"
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header, raw = json.loads(whole[8 : 8 + size]), whole[8 + size :]
    name = "bert.embeddings.word_embeddings.weight"
    for field, value in (
        ("data_offsets", [0, 10**15]),
        ("shape", [10**18, 10**18]),
        ("dtype", "F8_E4M3"),
    ):
        raw_safetensors(path, {**header, name: {**header[name], field: value}}, raw)
        with pytest.raises(EncoderError, match="safetensors"):
            load_classifier(tiny)
    for number_of_bytes in (0, 2**64 - 1, len(raw)):
        path.write_bytes(struct.pack("<Q", number_of_bytes) + whole[8:])
        with pytest.raises(EncoderError, match="safetensors"):
            load_classifier(tiny)
    for head in (b"[" * 100_000, b"[]", b"{}", b"\xff", b'{"a":' * 500, b"null"):
        raw_safetensors(path, head, raw)
        with pytest.raises(EncoderError, match="safetensors"):
            load_classifier(tiny)
    path.unlink()
    path.mkdir()
    with pytest.raises(EncoderError, match="cannot be read"):
        load_classifier(tiny)


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_names_of_shards(tiny, kind):
    (tiny / "model.safetensors").unlink()
    (tiny / f"folder.{kind.split('.')[1]}").mkdir()
    index = tiny / f"{kind}.index.json"
    ending = kind.split(".")[1]
    for name in (
        *("/etc/passwd", "..", ".", "", "../x", f"../x.{ending}", "config.json", f"no.{ending}"),
        *(5, None, True, ["a"], {}, 1.5, f"folder.{ending}", f"a\x00b.{ending}", "\ud800"),
        f"{'a' * 5000}.{ending}",
    ):
        index.write_text(json.dumps({"weight_map": {"a": name, "b": "x"}}))
        with pytest.raises(EncoderError, match="index.json"):
            load_classifier(tiny)
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(EncoderError):
            load_classifier(tiny)
    for content in ("[]", "{}", '{"weight_map": []}', '{"weight_map": null}', "[" * 100_000, ""):
        index.write_text(content)
        with pytest.raises(EncoderError, match="index.json"):
            load_classifier(tiny)


def test_a_tar_that_unpacks_to_more_than_any_encoder(tmp_path, refusal):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(DATA / "tiny_bert" / "config.json", "x/config.json")
        member = tarfile.TarInfo("x/model.safetensors")
        member.size = 9 << 30
        tar.fileobj.write(member.tobuf())
    assert "x.tar" in refusal("convert", path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_to_a_full_disk_is_a_typed_error(tiny, tmp_path, monkeypatch):
    from safetensors import SafetensorError

    import wqa.pretrained.load as parameter_files
    from wqa.errors import StorageError

    def full(*_):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    convert(tiny, tmp_path / "run")
    monkeypatch.setattr(parameter_files, "save_file", full)
    with pytest.raises(StorageError, match="No space left on device"):
        export_huggingface(tmp_path / "run", tmp_path / "out")
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]
