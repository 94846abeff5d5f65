"""Damaged and hostile run directories: each is refused with one typed error, or loads."""

import json
import shutil
import struct
import subprocess
import sys

import mxnet as mx
import numpy as np
import pytest
from conftest import child_environment

from wqa.data.parameter_files import MOST_ARRAYS, is_finite, read_array, read_layout
from wqa.errors import EncoderError, RunDirectoryError
from wqa.inference import load_ranker
from wqa.pretrained import load_backbone

PLAIN, NUMPY = 0xF993FAC9, 0xF993FACA


def stored(values, magic=PLAIN, storage=0, axes=None, code=0):
    """Bytes of one float32 array, whose header may be wrong."""
    shape = values.shape
    ndim = len(shape) if axes is None else axes
    header = struct.pack(f"<Iii{len(shape)}q", magic, storage, ndim, *shape)
    return header + struct.pack("<iii", 1, 0, code) + values.astype("<f4").tobytes()


def stored_file(arrays, names, count=None):
    """Bytes of a file of arrays and names."""
    number = len(arrays) if count is None else count
    encoded = [struct.pack("<Q", len(name)) + name for name in names]
    start = struct.pack("<QQQ", 0x112, 0, number)
    return start + b"".join(arrays) + struct.pack("<Q", len(names)) + b"".join(encoded)


@pytest.fixture
def run(tmp_path, tiny_run):
    return shutil.copytree(tiny_run, tmp_path / "run")


def forget_digests(run):
    """Take the digests out of config.json, so that a file's content is read."""
    values = json.loads((run / "config.json").read_text(encoding="utf-8"))
    values.pop("sha256", None)
    (run / "config.json").write_text(json.dumps(values), encoding="utf-8")


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
        assert np.array_equal(read_array(path, layout[name], 1, 3), theirs.asnumpy()[1:3])


def test_a_scalar_of_numpys_semantics_is_read(tmp_path):
    path = tmp_path / "a.params"
    path.write_bytes(stored_file([stored(np.float32(2.5), NUMPY)], [b"a"]))
    stored_array = read_layout(path)["a"]
    assert stored_array.shape == () and read_array(path, stored_array) == 2.5


ROW = np.arange(4, dtype="f")
WRONG_HEADERS = {
    "no axis": stored(np.float32(1)),
    "negative axes": stored(ROW, axes=-1),
    "many axes": stored(ROW, axes=2**31 - 1),
    "sparse": stored(ROW, storage=1),
    "wrong magic": stored(ROW, magic=7),
    "NumPy's magic, negative axes": stored(ROW, NUMPY, axes=-1),
    "type -1": stored(ROW, code=-1),
    "bfloat16": stored(ROW, code=12),
    "negative size": struct.pack("<IiiqqIII", PLAIN, 0, 2, -2, -2, 1, 0, 0) + bytes(16),
    "size 0": struct.pack("<IiiqIII", PLAIN, 0, 1, 0, 1, 0, 0),
    "huge size": struct.pack("<IiiqqIII", PLAIN, 0, 2, 2**62, 2**62, 1, 0, 0),
}


@pytest.mark.parametrize("case", WRONG_HEADERS)
def test_a_wrong_header_of_an_array_is_refused(tmp_path, case):
    path = tmp_path / "a.params"
    path.write_bytes(stored_file([WRONG_HEADERS[case]], [b"a"]))
    with pytest.raises(ValueError):
        read_layout(path)


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "cut off"),
        (b"PK\3\4" + bytes(40), "no file of MXNet's parameters"),
        (stored_file([stored(ROW)], []), "no names"),
        (stored_file([stored(ROW)], [b"a", b"b"]), "1 arrays have 2 names"),
        (stored_file([stored(ROW), stored(ROW)], [b"a", b"a"]), "'a' names two arrays"),
        (stored_file([stored(ROW)], [b"\xff"]), "not UTF-8"),
        (stored_file([stored(ROW)], [b"a"]) + b"more", "4 bytes follow"),
        (stored_file([stored(ROW)], [b"a"], count=2**63), "more than"),
        (stored_file([stored(ROW)], [b"a"], count=MOST_ARRAYS), "no array begins"),
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


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_the_check_of_finite_numbers_is_exact(dtype):
    largest = np.finfo(dtype).max
    assert is_finite(np.full(100, largest, dtype)) and is_finite(np.full(100, -largest, dtype))
    for value in (np.nan, np.inf, -np.inf):
        values = np.zeros((7, 9), dtype)
        values[6, 8] = value
        assert not is_finite(values)
    assert not is_finite(np.array([np.inf, -np.inf], dtype))


#: Loads each run that is named on its command line; prints the errors and the growth of memory.
LOAD_ALL = """
import json, resource, sys
from wqa.errors import WqaError
from wqa.inference import load_ranker
load_ranker(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
reasons = []
for run in sys.argv[2:]:
    try:
        load_ranker(run)
        reasons.append("loads")
    except WqaError as error:
        reasons.append(type(error).__name__)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"reasons": reasons, "grown": grown}))
"""


def test_wrong_headers_neither_crash_the_process_nor_take_memory(tmp_path, run):
    whole = (run / "model.params").read_bytes()
    first = next(iter(read_layout(run / "model.params").values()))
    forget_digests(run)
    # The header of the first array: magic at 24, storage, ndim at 32, sizes, device, type.
    code = first.offset - 4
    damages = [(32, struct.pack("<i", number)) for number in (-1, 0, 1, 31, 2**31 - 1)]
    damages += [(code, struct.pack("<i", number)) for number in (-1, 1, 3, 5, 7, 8, 12, 99)]
    damages += [(36, struct.pack("<q", number)) for number in (-1, 0, 2**31, 2**40, 2**62)]
    runs = []
    for number, (offset, damage) in enumerate(damages):
        target = shutil.copytree(run, tmp_path / f"damaged_{number}")
        content = whole[:offset] + damage + whole[offset + len(damage) :]
        (target / "model.params").write_bytes(content)
        runs.append(str(target))
    for length in (0, 10, 40, first.offset + 5, len(whole) // 2, len(whole) - 1):
        target = shutil.copytree(run, tmp_path / f"cut_{length}")
        (target / "model.params").write_bytes(whole[:length])
        runs.append(str(target))
    done = subprocess.run(
        [sys.executable, "-c", LOAD_ALL, str(run), *runs],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-500:]
    result = json.loads(done.stdout)
    assert result["reasons"] == ["RunDirectoryError"] * len(runs)
    assert result["grown"] < 100_000  # KB


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name",
    ["head_3.out.bias", "backbone.layers.1.ffn_1.weight", "backbone.embeddings.word.weight"],
)
def test_a_parameter_that_is_not_finite_is_named(run, name, value):
    change_parameter(run, name, -1, value)
    with pytest.raises(RunDirectoryError, match=f"model.params: parameter {name} holds NaN"):
        load_ranker(run)


def test_an_encoder_that_is_not_finite_is_refused(run):
    change_parameter(run, "backbone.layers.1.ffn_1.weight", 5, np.nan)
    with pytest.raises(EncoderError, match="layers.1.ffn_1.weight holds NaN"):
        load_backbone(run)
