"""Damaged and hostile run directories: each is refused with one typed error, or loads."""

import json
import shutil
import struct
import time

import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, needs_precision
from safetensors.numpy import load_file, save_file

import wqa.systems.train as training
from wqa.config import BackboneConfig, TrainingConfig
from wqa.config.runs import config_digest
from wqa.data import builtin_path, read_questions
from wqa.data.digests import RUN_FILES, file_digests, forget_digests, record_digests
from wqa.engines.onednn.operations import PRODUCTS, Quantized
from wqa.engines.onednn.quantize import read_quantized, write_quantized
from wqa.errors import RunDirectoryError
from wqa.io.parameter_files import read_array, read_layout
from wqa.systems.load import load_ranker
from wqa.systems.quantize import quantize
from wqa.systems.run_directory import load_verifier

PLAIN = 0xF993FAC9


def stored(values):
    """Bytes of one float32 array."""
    header = struct.pack(f"<Iii{values.ndim}q", PLAIN, 0, values.ndim, *values.shape)
    return header + struct.pack("<iii", 1, 0, 0) + values.astype("<f4").tobytes()


def stored_file(arrays, names, count=None):
    """Bytes of a file of arrays and names."""
    number = len(arrays) if count is None else count
    encoded = [struct.pack("<Q", len(name)) + name for name in names]
    start = struct.pack("<QQQ", 0x112, 0, number)
    return start + b"".join(arrays) + struct.pack("<Q", len(names)) + b"".join(encoded)


@pytest.fixture
def run(tmp_path, tiny_run):
    return shutil.copytree(tiny_run, tmp_path / "run")


def read_config(run):
    return json.loads((run / "config.json").read_text(encoding="utf-8"))


def recorded(run):
    """Digests of the files beside the configuration, which records its own."""
    digests = read_config(run)["sha256"]
    own = digests.pop("config.json")
    assert own == config_digest(read_config(run))
    return digests


def write_config(run, values):
    """Write the configuration without its own digest, so that the values themselves count."""
    kept = dict(values.get("sha256", {}))
    kept.pop("config.json", None)
    if kept:
        values = {**values, "sha256": kept}
    (run / "config.json").write_text(json.dumps(values), encoding="utf-8")


def with_value(values, path, value):
    """A copy of JSON values with another value at a path of keys and indices."""
    if not path:
        return value
    copy = list(values) if isinstance(values, list) else dict(values)
    copy[path[0]] = with_value(copy[path[0]], path[1:], value)
    return copy


def change_parameter(run, name, index, value):
    """Write a number into a parameter of a run."""
    arrays = mx.nd.load(str(run / "model.params"))
    values = arrays[name].asnumpy()
    values.flat[index] = value
    arrays[name] = mx.nd.array(values)
    mx.nd.save(str(run / "model.params"), arrays)
    forget_digests(run)


def test_arrays_are_read_as_mxnet_reads_them(tmp_path):
    path = tmp_path / "a.params"
    rng = np.random.default_rng(0)
    types = ["float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool"]
    arrays = {}
    for index, dtype in enumerate(types):
        values = rng.normal(0, 9, (4, 3, 2)[: 1 + index % 3])
        arrays[f"layer.{dtype}"] = mx.nd.array(values, dtype=dtype)
    mx.nd.save(str(path), arrays)
    layout = read_layout(path)
    assert list(layout) == list(arrays)
    for name, theirs in mx.nd.load(str(path)).items():
        ours = read_array(path, layout[name])
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs.asnumpy())


ROW = np.arange(4, dtype="f")


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "cut off"),
        (b"PK\3\4" + bytes(40), "no file of MXNet's parameters"),
        (stored_file([stored(ROW)], []), "1 arrays have 0 names"),
        (stored_file([stored(ROW)], [b"a", b"b"]), "1 arrays have 2 names"),
        (stored_file([stored(ROW), stored(ROW)], [b"a", b"a"]), "'a' names two arrays"),
        (stored_file([stored(ROW)], [b"\xff"]), "utf-8"),
        (stored_file([stored(ROW)], [b"a"]) + b"more", "bytes follow"),
        (stored_file([stored(ROW)], [b"a"], count=2**63), "no dense array"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, content, reason):
    path = tmp_path / "a.params"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        read_layout(path)


def test_a_file_is_refused_wherever_it_is_cut(tmp_path):
    path = tmp_path / "a.params"
    whole = stored_file([stored(ROW), stored(ROW)], [b"first", b"second"])
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError):
            read_layout(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name", ["head_3.out.bias", "backbone.layers.1.ffn_1.weight", "backbone.embeddings.word.weight"]
)
def test_a_parameter_that_is_not_finite_is_named(run, name, value):
    change_parameter(run, name, -1, value)
    with pytest.raises(RunDirectoryError, match=f"model.params: parameter {name} holds NaN"):
        load_ranker(run)


WRONG_VALUES = [
    (("backbone", "layer_norm_eps"), float("nan"), "layer_norm_eps: nan"),
    (("backbone", "dropout"), 1.5, "dropout: 1.5"),
    (("backbone", "num_layers"), 10**9, "num_layers: 1000000000"),
    (("backbone", "num_layers"), 40, "parameter .backbone.layers.*: none; expected float32"),
    (("backbone", "units"), 2**30, "parameter .* of shape"),
    (("backbone", "vocab_size"), 2**31 - 1, "a tokenizer of|parameter .* of shape"),
    (("backbone", "num_heads"), 3, "multiple of the 3"),
    (("backbone",), None, "backbone: none"),
    (("network", "exits"), list(range(1, 10**6)), "exits: .*expected at most 1000 values"),
    (("network", "exits"), [1, "3"], "exits: '3'"),
    (("network",), [], "field network"),
    (("max_length",), 10**9, "at most 160, the positions"),
    (("max_length",), 3, "max_length: 3"),
    (("system",), "none", "field system: 'none'"),
    (("versions",), 3, "versions: 3"),
    (("sha256",), {"model.params": None}, "sha256, 'model.params': None"),
    (("training", "learning_rate"), float("nan"), "learning_rate: nan"),
    (("training", "seed"), -1, "training: seed: -1"),
]


@pytest.mark.parametrize("path, value, message", WRONG_VALUES)
def test_a_wrong_value_of_config_json_is_named(run, path, value, message):
    values = read_config(run)
    write_config(run, with_value(values, path, value))
    start = time.monotonic()
    with pytest.raises(RunDirectoryError, match=message) as error:
        load_ranker(run)
    assert time.monotonic() - start < 5 and len(str(error.value)) < 1000


@pytest.mark.parametrize("name", RUN_FILES)
def test_a_changed_file_is_refused(run, name):
    assert recorded(run) == file_digests(run)
    content = bytearray((run / name).read_bytes())
    content[len(content) // 2] ^= 1
    (run / name).write_bytes(content)
    with pytest.raises(RunDirectoryError, match=f"{name}: has changed.*delete its line of sha256"):
        load_ranker(run)


def test_a_run_without_digests_loads(run):
    forget_digests(run, [*RUN_FILES, "config.json"])
    assert read_config(run)["sha256"] == {}
    load_ranker(run)


def test_a_fine_tuned_classifier_is_no_verifier():
    with pytest.raises(RunDirectoryError, match="a fine-tuned classifier, which is a ranker"):
        load_verifier(DATA / "tiny_bert")


def test_a_training_killed_before_its_digests_loads_and_resumes(
    tiny_encoder, tmp_path, monkeypatch
):
    out = tmp_path / "run"
    config = TrainingConfig(max_updates=1, warmup_updates=1, tokens_per_batch=500)
    arguments = ("pairwise", str(builtin_path("dev")), str(out), str(tiny_encoder))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training, "record_digests", killed)
        with pytest.raises(KeyboardInterrupt):
            training.train(*arguments, config=config, max_length=64)
    assert read_config(out)["sha256"] == {}
    load_ranker(out)
    assert training.train(*arguments, config=config, max_length=64, resume=True).finished
    assert recorded(out) == file_digests(out)


def dev_questions():
    return read_questions(builtin_path("dev"))


@needs_precision("int8")
def test_changed_8_bit_weights_are_refused_for_int8_alone(run):
    quantize(run, dev_questions(), most=1)
    content = bytearray((run / "int8.safetensors").read_bytes())
    content[-1] ^= 1
    (run / "int8.safetensors").write_bytes(content)
    load_ranker(run)
    with pytest.raises(RunDirectoryError, match="int8.safetensors: has changed.*wqa quantize"):
        load_ranker(run, precision="int8")


SIZES = BackboneConfig(vocab_size=9, units=4, hidden_size=8, num_layers=2, num_heads=2)


def write_products(path, **changes):
    """8-bit products of two layers, of which the first's are changed."""
    layers = []
    for _ in range(2):
        layer = {}
        for name in PRODUCTS:
            inputs, outputs = {"inner": (4, 8), "outer": (8, 4)}.get(name, (4, 4))
            weight = np.ones((inputs, outputs), np.int8)
            layer[name] = Quantized(weight, np.ones(outputs, "f"), np.ones(inputs, "f"))
        layers.append(layer)
    path.write_bytes(write_quantized(layers, {}))
    tensors = load_file(path)
    for key, value in changes.items():
        name = f"layers.0.{key.replace('__', '.')}"
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value
    save_file(tensors, path)


@pytest.mark.parametrize(
    "part, value",
    [
        ("scale", np.ones(5, "f")),
        ("scale", np.array([1] * 7 + [0], "f")),
        ("scale", np.array([1] * 7 + [np.nan], "f")),
        ("factor", np.array([1, 1, 1, np.inf], "f")),
        ("weight", np.ones((4, 8), "f")),
        ("weight", None),
    ],
)
def test_8_bit_weights_that_do_not_fit_are_refused(tmp_path, part, value):
    path = tmp_path / "int8.safetensors"
    write_products(path, **{f"inner__{part}": value})
    with pytest.raises(RunDirectoryError, match=f"layers.0.inner.{part}"):
        read_quantized(path, SIZES, 2, "")


def test_a_tokenizer_with_an_id_outside_the_word_table_is_refused(run):
    forget_digests(run)
    path = run / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    words = values["model"]["vocab"]
    words[next(word for word in words if len(word) == 3)] = 10**6
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(RunDirectoryError, match="a tokenizer of 1000001 ids"):
        load_ranker(run)


def write_sequence(path, *rankers, **drops):
    path.write_text(json.dumps({"rankers": list(map(str, rankers)), **drops}), encoding="utf-8")
    return path


def test_a_sequence_inside_itself_is_refused(tmp_path, tiny_run):
    path = write_sequence(tmp_path / "a.json", tiny_run, "a.json")
    with pytest.raises(RunDirectoryError, match="inside itself"):
        load_ranker(path)
    write_sequence(tmp_path / "a.json", "b.json")
    write_sequence(tmp_path / "b.json", tiny_run, f"../{tmp_path.name}/a.json")
    with pytest.raises(RunDirectoryError, match="inside itself"):
        load_ranker(path)


@pytest.mark.parametrize("name", ["drop_ratio", "keep"])
@pytest.mark.parametrize("value", ["x", True, {}, [[1]], ["a", "b"], -1, [], float("nan")])
def test_wrong_drops_of_a_sequence_name_its_file(tmp_path, tiny_run, name, value):
    path = tmp_path / "a.json"
    inside = {"rankers": [{"run": str(tiny_run), name: value}, str(tiny_run)]}
    outside = {"rankers": [str(tiny_run)] * 3, name: value}
    for values in (inside, outside):
        path.write_text(json.dumps(values), encoding="utf-8")
        with pytest.raises(RunDirectoryError, match=rf"a\.json: .*{name}"):
            load_ranker(path)


@pytest.mark.parametrize("value", [None, "x", [], {}, [None], True, [[0]], float("nan"), 10**400])
def test_wrong_tuned_ratios_are_refused(run, value):
    (run / "tuned.json").write_text(json.dumps({"drop_ratio": value}), encoding="utf-8")
    with pytest.raises(RunDirectoryError, match="tuned.json: cannot be read"):
        load_ranker(run, drop_ratio="tuned")


def test_a_changed_config_json_is_refused(run):
    path = run / "config.json"
    record_digests(run)
    load_ranker(run)
    values = json.loads(path.read_text())
    values["backbone"]["num_heads"] = 1
    path.write_text(json.dumps(values))
    with pytest.raises(RunDirectoryError, match="config.json: has changed"):
        load_ranker(run)
    del values["sha256"]["config.json"]
    path.write_text(json.dumps(values))
    load_ranker(run)
