"""Damaged and hostile files of encoders: typed errors, bounded memory, nothing is run."""

import copy
import json
import os
import pickle
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import zipfile

import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, PEAK, child_environment
from safetensors.numpy import load_file, save_file

from wqa.cli import main
from wqa.errors import EncoderError, WqaError
from wqa.io.encoder_directories import encoder_directory
from wqa.pretrained import load_backbone, read_backbone_config
from wqa.pretrained import pickled as pickled_module
from wqa.pretrained.names import BERT_LAYER
from wqa.pretrained.pickled import PickledTensors
from wqa.systems.checkpoints import load_classifier
from wqa.systems.convert import convert
from wqa.systems.export import export_huggingface, export_mxnet
from wqa.text import load_tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz0123456789"]
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


DEPTH = 20_000
HOSTILE = {
    "a deep tuple as a key": b"\x80\x02})" + b"\x85" * 250_000 + b"Ns.",
    "a deep tuple as a value": b"\x80\x02}" + text("a") + b")" + b"\x85" * DEPTH + b"s.",
    "a deep tuple as a persistent id": b"\x80\x02)" + b"\x85" * DEPTH + b"Q.",
    "a deep tuple as a shape": b"\x80\x02ctorch\nSize\n)" + b"\x85" * DEPTH + b"R.",
    "a key of doubled tuples": b"\x80\x02})" + b"2\x86" * 64 + b"Ns.",
    "a key of doubled tuples by the memo": b"\x80\x02})" + b"q\x00h\x00\x86" * 64 + b"Ns.",
    "a memo of 2**29 entries": b"\x80\x02}r" + struct.pack("<I", 1 << 29) + b".",
    "a string of 4 GB": b"\x80\x02X\xff\xff\xff\xff.",
    "an integer of 2 GB": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "dictionaries": b"\x80\x02(" + b"}" * 600_000 + b"t.",
    "frames": b"\x80\x04\x95" + b"\xff" * 8 + b".",
}


def child(code, *arguments):
    """Run code in a process of its own; return it with the memory that it took, in MB."""
    head = f"{PEAK}\nimport sys\n"
    tail = "\nprint('MB', peak() // 1024)\n"
    done = subprocess.run(
        [sys.executable, "-c", head + code + tail, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=child_environment(),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


READ_ALL = """
import os
from wqa.errors import EncoderError
from wqa.pretrained.names import BERT_LAYER
from wqa.pretrained.pickled import PickledTensors
print("start", peak() // 1024)
for name in sorted(os.listdir(sys.argv[1])):
    try:
        PickledTensors(__import__("pathlib").Path(sys.argv[1], name))
        print("read", name)
    except EncoderError as error:
        print("refused", name)
"""


def test_hostile_pickles_neither_crash_nor_take_memory(tmp_path):
    magic = pickle.dumps(pickled_module.LEGACY_MAGIC, 2) + pickle.dumps(1001, 2)
    for name, content in HOSTILE.items():
        archive(tmp_path / f"{name}.bin", content)
    first, content = next(iter(HOSTILE.items()))
    archive(tmp_path / f"{first}, packed.bin", content, zipfile.ZIP_DEFLATED)
    (tmp_path / f"{first}, legacy.bin").write_bytes(magic + pickle.dumps({}, 2) + content)
    lines = child(READ_ALL, tmp_path).splitlines()
    harmless = {"a deep tuple as a value"}  # values that are no tensors are dropped
    read = [line for line in lines if line.startswith("read ")]
    assert read == [f"read {name}.bin" for name in sorted(harmless)]
    assert "".join(lines).count("refused ") == len(HOSTILE) + 2 - len(harmless)
    start, end = (int(line.split()[1]) for line in (lines[0], lines[-1]))
    assert end - start < 100


def test_a_refused_pickle_leaves_the_process_as_it_was(tmp_path):
    for target in (b"ctorch._utils\n_rebuild_tensor\n", b"ctorch\nSize\n", REBUILD):
        content = b"\x80\x02" + target + b"}" + text("evil") + b"K\x01sb."
        for name in (*vars(pickled_module), "tuple"):
            assert not hasattr(getattr(pickled_module, name, tuple), "evil")
        with pytest.raises(EncoderError, match="cannot be read"):
            PickledTensors(archive(tmp_path / "x.bin", content))
        for name in (*vars(pickled_module), "tuple"):
            assert not hasattr(getattr(pickled_module, name, tuple), "evil")


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
    for size, wrong in ((4, "no numbers"), (5, "ends before"), (-1, "size is -1")):
        content = b"\x80\x02}" + text("a") + tensor((5,), (1,), size) + b"s."
        with pytest.raises(EncoderError, match=wrong):
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
    folder = tmp_path / "tiny"
    shutil.copytree(DATA / "tiny_bert", folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return folder


def refuse(capsys, folder, out, message=""):
    """Hold a conversion to one line of error, exit code 2 and no output."""
    code = main(["convert", str(folder), str(out)])
    err = capsys.readouterr().err
    assert code == 2, (code, err)
    assert err.startswith("error: ") and len(err.splitlines()) == 1 and message in err, err
    assert not out.exists()


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


def test_settings_of_wrong_types_and_sizes(tiny, tmp_path, capsys):
    whole = json.loads((tiny / "config.json").read_text())
    changes = [{name: value} for name in SIZES for value in WRONG_SIZES]
    changes += [{name: value} for name in RATES for value in WRONG_NUMBERS]
    changes += [{"layer_norm_eps": value} for value in (*WRONG_NUMBERS, 0, None)]
    changes += [{"hidden_act": value} for value in (["gelu"], {}, 1, None, "")]
    changes += [{"model_type": value} for value in (["bert"], {}, 1, "gpt2")]
    deep = "[" * 900 + "]" * 900
    for change in changes:
        if change.get("classifier_dropout", 0) is None:
            continue
        (tiny / "config.json").write_text(json.dumps({**whole, **change}))
        refuse(capsys, tiny, tmp_path / "out", next(iter(change)))
    (tiny / "config.json").write_text(json.dumps({**whole, "layer_norm_eps": 1e-40}))
    refuse(capsys, tiny, tmp_path / "out", "config.json: layer_norm_eps 1e-40")
    for value in (1, 1.0):  # the greatest
        (tiny / "config.json").write_text(json.dumps({**whole, "layer_norm_eps": value}))
        assert read_backbone_config(tiny).layer_norm_eps == 1
    for value in (deep, "[" * 100_000, "NaN", '{"a": 1', "\x00", "[]", "3"):
        for content in (value, f'{{"hidden_size": {value}}}', f'{{"model_type": {value}}}'):
            (tiny / "config.json").write_text(content)
            refuse(capsys, tiny, tmp_path / "out", "config.json")
    (tiny / "config.json").unlink()
    (tiny / "config.json").mkdir()
    refuse(capsys, tiny, tmp_path / "out", "config.json")


def test_odd_architectures_leave_the_family_to_the_tensors(tiny):
    whole = json.loads((tiny / "config.json").read_text())
    expected = read_backbone_config(tiny)
    del whole["model_type"]
    for value in (5, {}, {"a": 1}, [], [[]], [None], "Bert", None):
        (tiny / "config.json").write_text(json.dumps({**whole, "architectures": value}))
        assert read_backbone_config(tiny) == expected


def test_sizes_are_compared_with_the_tensors_before_anything_is_built(tiny, monkeypatch):
    whole = json.loads((tiny / "config.json").read_text())

    def refused(*_, **__):
        raise AssertionError("parameters are initialized")

    monkeypatch.setattr(mx.gluon.Block, "initialize", refused)
    for change, message in (
        ({"num_hidden_layers": 10**9}, "a whole number"),
        ({"num_hidden_layers": 900}, "900 layers; expected at most"),
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


def test_runs_of_impossible_sizes_are_no_encoders(tiny, tmp_path):
    convert(tiny, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    whole = json.loads(path.read_text())
    del whole["sha256"]["config.json"]  # the values themselves count
    for change, message in (
        ({"backbone": {**whole["backbone"], "num_layers": 10**9}}, "num_layers"),
        ({"backbone": {**whole["backbone"], "num_layers": 900}}, "900 layers"),
        ({"network": {}}, "exits None"),
        ({"network": {"exits": []}}, "exits"),
        ({"network": {"exits": [10**9]}}, "exits"),
        ({"network": {"exits": ["1"]}}, "exits"),
        ({"network": {"exits": 3}}, "exits"),
    ):
        path.write_text(json.dumps({**whole, **change}))
        with pytest.raises(WqaError, match=message):
            load_backbone(tmp_path / "run")


def test_layers_that_share_their_numbers_are_refused(tiny):
    """Many tensors that are views of one small storage."""
    (tiny / "model.safetensors").unlink()
    config = json.loads((tiny / "config.json").read_text())
    sizes = dict.fromkeys(SIZES, 64)
    config.update(sizes, num_hidden_layers=20, num_attention_heads=2)
    (tiny / "config.json").write_text(json.dumps(config))
    shapes = {
        f"bert.embeddings.{kind}_embeddings.weight": (64, 64)
        for kind in ("word", "position", "token_type")
    }
    names = ["bert.embeddings.LayerNorm"]
    for layer in range(20):
        for parts in BERT_LAYER.values():
            names += [f"bert.encoder.layer.{layer}.{part}" for part in parts]
    for name in names:
        shapes[f"{name}.weight"] = (64,) if "LayerNorm" in name else (64, 64)
        shapes[f"{name}.bias"] = (64,)
    content = b"\x80\x02}"
    for name, shape in shapes.items():
        content += text(name) + tensor(shape, [64, 1][-len(shape) :], 4096) + b"s"
    archive(tiny / "pytorch_model.bin", content + b".", _0=bytes(4 * 4096))
    with pytest.raises(EncoderError, match="tensors have numbers of their own"):
        load_backbone(tiny)


def raw_safetensors(path, header, raw=b""):
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + raw)


def test_tensors_of_other_ranks_and_types(tiny, tmp_path, capsys):
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
            if name == "classifier.weight" and wrong.ndim == 0 or wrong.size == 0:
                with pytest.raises(EncoderError):
                    load_classifier(tiny)
                continue
            refuse(capsys, tiny, tmp_path / "out", name)


def test_headers_of_safetensors(tiny, tmp_path, capsys):
    path = tiny / "model.safetensors"
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header, raw = json.loads(whole[8 : 8 + size]), whole[8 + size :]
    name = "bert.embeddings.word_embeddings.weight"
    for field, value in (
        ("data_offsets", [0, 4096]),
        ("data_offsets", [0, 10**15]),
        ("data_offsets", [-1, 4]),
        ("data_offsets", "0"),
        ("shape", [10**18, 10**18]),
        ("shape", [1.5]),
        ("shape", [-64, 16]),
        ("dtype", "F8_E4M3"),
        ("dtype", "F4"),
        ("dtype", "C64"),
        ("dtype", "F128"),
        ("dtype", 5),
    ):
        raw_safetensors(path, {**header, name: {**header[name], field: value}}, raw)
        refuse(capsys, tiny, tmp_path / "out", "safetensors")
    for number_of_bytes in (0, 1, 2**63, 2**64 - 1, 10**9, len(raw)):
        path.write_bytes(struct.pack("<Q", number_of_bytes) + whole[8:])
        refuse(capsys, tiny, tmp_path / "out", "safetensors")
    for head in (b"[" * 100_000, b"[]", b"{}", b"\xff", b'{"a":' * 500, b"null"):
        raw_safetensors(path, head, raw)
        refuse(capsys, tiny, tmp_path / "out", "safetensors")
    path.unlink()
    path.mkdir()
    refuse(capsys, tiny, tmp_path / "out", "is no file")


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_names_of_shards(tiny, tmp_path, capsys, kind):
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
        refuse(capsys, tiny, tmp_path / "out", "index.json")
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        refuse(capsys, tiny, tmp_path / "out")
    for content in ("[]", "{}", '{"weight_map": []}', '{"weight_map": null}', "[" * 100_000, ""):
        index.write_text(content)
        refuse(capsys, tiny, tmp_path / "out", "index.json")


def test_vocabularies_without_the_words_that_they_need(tiny, tmp_path, capsys):
    for missing in ("[UNK]", "[CLS]", "[SEP]", "[PAD]"):
        words = [word for word in WORDS if word != missing]
        (tiny / "vocab.txt").write_text("\n".join(words) + "\n")
        refuse(capsys, tiny, tmp_path / "out", "vocab.txt")
    for content in (b"", b"\xff\xfe", b"\n" * 100, b"\x00" * 1000):
        (tiny / "vocab.txt").write_bytes(content)
        refuse(capsys, tiny, tmp_path / "out", "tiny")
    (tiny / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    for settings in ([], 3, {"do_lower_case": "yes"}, {"strip_accents": 1}):
        (tiny / "tokenizer_config.json").write_text(json.dumps(settings))
        refuse(capsys, tiny, tmp_path / "out", "tokenizer_config.json")
    (tiny / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": None}))
    convert(tiny, tmp_path / "null")


def test_a_word_on_two_lines_has_the_number_of_the_last(tiny, tmp_path, capfd):
    words = [*WORDS, "[unused1]", "b", "a ", "[unused1]", "", "[MASK]", "\u2028"]
    content = "\r\n".join(words).encode()
    for ending in (b"", b"\r\n", b"\n\n"):
        (tiny / "vocab.txt").write_bytes(content + ending)
        expected = {}
        with open(tiny / "vocab.txt", encoding="utf-8") as file:
            for index, line in enumerate(file.readlines()):  # as Hugging Face's library does
                expected[line.rstrip("\n")] = index
        tokenizer = load_tokenizer(tiny)
        assert tokenizer._inner.get_vocab() == expected
        assert tokenizer.encode(["a b c"]) == [[5, len(WORDS) + 1, 7]]
    capfd.readouterr()
    convert(tiny, tmp_path / "out")
    assert load_tokenizer(tmp_path / "out").encode(["a b c"]) == tokenizer.encode(["a b c"])
    assert capfd.readouterr().out == ""


def test_settings_that_a_tokenizer_does_not_read_may_be_damaged(tiny):
    expected = load_tokenizer(tiny)
    expected.save(tiny / "tokenizer.json")
    for content in (b"[" * 100_000, b"\xff", b"3", b'{"do_lower_case": "yes"}'):
        (tiny / "tokenizer_config.json").write_bytes(content)
        assert load_tokenizer(tiny).fingerprint == expected.fingerprint


@pytest.mark.parametrize("name", ["vocab.txt", "vocab.json", "merges.txt"])
def test_vocabularies_larger_than_any_are_not_read(name, tmp_path):
    if name in ("vocab.json", "merges.txt"):
        for file in ("vocab.json", "merges.txt"):
            shutil.copy(DATA / "tokenizers" / "byte_level" / file, tmp_path)
        (tmp_path / name).unlink()
    for path in (tmp_path / name, tmp_path / "tokenizer_config.json"):
        with open(path, "wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(EncoderError, match="1,099,511,627,776 bytes; expected a tokenizer of"):
            load_tokenizer(tmp_path)
        path.unlink()
        path.write_text("")


def test_complete_tokenizers_with_wrong_ids(tiny, tmp_path, capsys):
    load_tokenizer(tiny).save(tiny / "tokenizer.json")
    whole = json.loads((tiny / "tokenizer.json").read_text())

    def write(change):
        copy = json.loads(json.dumps(whole))
        change(copy["model"])
        (tiny / "tokenizer.json").write_text(json.dumps(copy))

    def renumber(word, number_of_word):
        return lambda model: model["vocab"].update({word: number_of_word})

    # As many rows as the words' ids need; a gap between ids is no fault.
    write(renumber("z", 63))
    convert(tiny, tmp_path / "gap")
    for number_of_word in (64, 10**9, -1, 1.5, "a", None, 10**30):
        write(renumber("z", number_of_word))
        refuse(capsys, tiny, tmp_path / "out")
    write(renumber("z", 7))
    refuse(capsys, tiny, tmp_path / "out", "two tokens have one id")
    for change in (
        lambda model: model.update(unk_token="absent"),
        lambda model: model.update(vocab=[]),
        lambda model: model.update(vocab={}),
        lambda model: model.update(type="Unknown"),
        lambda model: model.clear(),
    ):
        write(change)
        refuse(capsys, tiny, tmp_path / "out")
    for content in ("[" * 100_000, "{}", "", "null", "[]"):
        (tiny / "tokenizer.json").write_text(content)
        refuse(capsys, tiny, tmp_path / "out", "tokenizer")


def test_other_vocabularies(tmp_path):
    source = DATA / "tokenizers" / "byte_level"
    vocab = json.loads((source / "vocab.json").read_text(encoding="utf-8"))
    shutil.copy(source / "merges.txt", tmp_path)
    for change in ({"<s>": "0"}, {"<s>": 5}, {"<s>": -1}, {"<s>": None}):
        (tmp_path / "vocab.json").write_text(json.dumps({**vocab, **change}))
        with pytest.raises(EncoderError):
            load_tokenizer(tmp_path)
    vocab.pop("!")
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(EncoderError, match="lacks 1 of the 256 bytes"):
        load_tokenizer(tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
    zoo = tmp_path / "x.vocab"
    for words in (5, [], [5, "[CLS]"], {"a": 1}, [*WORDS, "a"], WORDS[2:], [["[CLS]"]]):
        zoo.write_text(json.dumps({"idx_to_token": words}))
        with pytest.raises(EncoderError, match=r"x\.vocab"):
            load_tokenizer(tmp_path)
    zoo.unlink()
    (tmp_path / "spiece.model").write_bytes(b"")
    with pytest.raises(EncoderError, match="save_pretrained"):
        load_tokenizer(tmp_path)


def test_a_tar_that_unpacks_to_more_than_any_encoder(tmp_path, capsys):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(DATA / "tiny_bert" / "config.json", "x/config.json")
        member = tarfile.TarInfo("x/model.safetensors")
        member.size = 9 << 30
        tar.fileobj.write(member.tobuf())
    refuse(capsys, path, tmp_path / "out", "x.tar")


def test_a_tar_with_a_path_outside_is_refused(tmp_path):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(DATA / "tiny_bert" / "config.json", "x/config.json")
        tar.add(DATA / "tiny_bert" / "config.json", "../out.json")
    with pytest.raises(EncoderError), encoder_directory(path):
        pass


def test_a_tar_is_unpacked_only_as_far_as_it_is_needed(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for file in (DATA / "tiny_bert").iterdir():
            tar.add(file, f"x/{file.name}")
        tar.add(DATA / "tiny_bert" / "config.json", "x/optimizer.pt")
    with encoder_directory(tmp_path / "x.tar") as folder:
        assert sorted(path.name for path in folder.iterdir()) == [
            "config.json",
            "model.safetensors",
        ]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_outputs_have_the_permissions_that_the_umask_gives(tiny, tmp_path, mask):
    before = os.umask(mask)
    try:
        convert(tiny, tmp_path / "run")
        export_huggingface(tmp_path / "run", tmp_path / "huggingface")
        export_mxnet(tmp_path / "run", tmp_path / "mxnet")
    finally:
        os.umask(before)
    files = [
        path for name in ("run", "huggingface", "mxnet") for path in (tmp_path / name).iterdir()
    ]
    assert len(files) >= 10
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask, path


def test_names_that_no_file_can_have(tiny, tmp_path, capsys, monkeypatch):
    long = "a" * 5000
    for arguments in ((long, str(tmp_path / "out")), (str(tiny), str(tmp_path / long))):
        assert main(["convert", *arguments]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert main(["convert", str(tiny), "."]) == 0
    assert (tmp_path / "empty" / "model.params").exists()


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


#: Files of a tiny encoder in every format, and where each comes from.
FORMATS = {
    "model.safetensors": "tiny_bert/model.safetensors",
    "pytorch_model.bin": "pickled/zip.bin",
    "legacy": "pickled/legacy.bin",
    "zoo": "",
    "config.json": "tiny_bert/config.json",
    "vocab.txt": "",
    "tokenizer.json": "",
    "vocab.json": "tokenizers/byte_level/vocab.json",
}


def write_format(folder, name):
    """Write an encoder of a format; return the file that is damaged, and what reads it."""
    if name == "vocab.json":
        path = DATA / FORMATS[name]
        shutil.copytree(path.parent, folder, ignore=shutil.ignore_patterns("*.npz"))
        return folder / name, load_tokenizer
    shutil.copytree(DATA / "tiny_bert", folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    if name == "tokenizer.json":
        load_tokenizer(folder).save(folder / name)
    if name in ("vocab.txt", "tokenizer.json"):
        return folder / name, load_tokenizer
    if name in ("pytorch_model.bin", "legacy"):
        (folder / "model.safetensors").unlink()
        shutil.copy(DATA / FORMATS[name], folder / "pytorch_model.bin")
        name = "pytorch_model.bin"
    if name == "zoo":
        convert(folder, folder / "run")
        return folder / "run" / "model.params", load_backbone
    return folder / name, load_backbone


def damage(whole, draw):
    """Change some bytes, cut, repeat or remove a part, or put a great number in."""
    damaged = bytearray(whole)
    start, stop = sorted(draw.integers(0, len(whole) + 1, 2))
    kind = draw.integers(0, 6)
    if kind == 0:
        return bytes(damaged[:start])
    if kind == 1:
        return bytes(damaged[:start] + damaged[min(stop, start + 40) :])
    if kind == 2:
        return bytes(damaged[:stop] + damaged[start:stop][:4000] + damaged[stop:])
    if kind == 3:
        width = int(draw.choice([1, 2, 4, 8]))
        damaged[start : start + width] = draw.choice([b"\xff", b"\x00", b"\x7f", b"\x80"]) * width
        return bytes(damaged)
    # Half of the changes go to the start, where the headers are.
    end = len(whole) if kind == 4 else min(len(whole), 4000)
    for _ in range(draw.integers(1, 4)):
        damaged[draw.integers(0, end)] = draw.integers(0, 256)
    return bytes(damaged)


VALUES = (0, -1, 1.5, 10**12, 10**400, "", "a", [], {}, [[]], None, True, float("nan"))


def mutate(value, draw):
    """Change one value of a JSON document."""
    if isinstance(value, (dict, list)) and value and draw.random() < 0.9:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = keys[draw.integers(0, len(keys))]
        if draw.random() < 0.1:
            del value[key]
        else:
            value[key] = mutate(value[key], draw)
        return value
    return copy.deepcopy(VALUES[draw.integers(0, len(VALUES))])


def fuzz(folder, name, tries, seed):
    """Read damaged files of a format; return the number of those that are refused."""
    path, read = write_format(folder, name)
    whole, draw, refused = path.read_bytes(), np.random.default_rng(seed), 0
    for _ in range(tries):
        content = damage(whole, draw)
        if path.suffix == ".json" and draw.random() < 0.5:
            content = json.dumps(mutate(json.loads(whole), draw)).encode()
        path.write_bytes(content)
        try:
            read(path.parent)
        except WqaError as error:
            assert str(error) and "\n" not in str(error)
            refused += 1
    return refused


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_raise_nothing_but_typed_errors(tmp_path, name):
    tries = 60
    assert 0 < fuzz(tmp_path / "x", name, tries, seed=12) <= tries
