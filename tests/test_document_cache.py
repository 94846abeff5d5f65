"""The cache of encoded documents: the encoder, the files, and `wqa encode`."""

import contextlib
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import mxnet as mx
import numpy as np
import pytest
from conftest import child_environment, limited_file_size, needs_onednn, needs_precision
from hypothesis import given, settings
from hypothesis import strategies as st

import wqa.data.document_cache_writer as writer_module
from wqa.config import EngineConfig
from wqa.data.document_cache import open_cache, text_digest
from wqa.data.document_cache_writer import DocumentCacheWriter
from wqa.data.encodings import EntryFormat
from wqa.errors import DataError, InputError, OptionError, OutputLocked, StorageError
from wqa.inference.document_encoder import DocumentEncoder
from wqa.onednn.library import as_float32
from wqa.pretrained import load_backbone
from wqa.text import load_tokenizer

# The encoder


@pytest.fixture(scope="module")
def backbone(tiny_encoder):
    return load_backbone(tiny_encoder)


@pytest.fixture(scope="module")
def tokenizer(tiny_encoder):
    return load_tokenizer(tiny_encoder)


def texts_of(lengths, vocab_size, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(5, vocab_size, length).astype(np.int32) for length in lengths]


def expected_encodings(backbone, token_ids):
    """Each text by itself, through the blocks."""
    encodings = []
    for ids in token_ids:
        tokens = mx.nd.array(ids[None], dtype="int32")
        length = mx.nd.array([len(ids)])
        encodings.append(backbone.hidden_states(tokens, length)[-1].asnumpy()[0])
    return encodings


LENGTHS = (7, 30, 3, 12, 7, 64, 1, 12)
ENGINES = (
    pytest.param("onednn", "float32", 2e-5, marks=needs_onednn),
    pytest.param("mxnet", "float32", 2e-5),
    pytest.param("onednn", "bfloat16", 6e-2, marks=needs_precision("bfloat16")),
)


@pytest.mark.parametrize("engine, precision, tolerance", ENGINES)
def test_texts_are_encoded_apart_in_their_order(backbone, tokenizer, engine, precision, tolerance):
    token_ids = texts_of(LENGTHS, backbone.config.vocab_size)
    config = EngineConfig(engine, precision, batch_tokens=80)
    encoder = DocumentEncoder(backbone, tokenizer, 64, config)
    encodings = encoder.encode(token_ids)
    for rows, expected in zip(encodings, expected_encodings(backbone, token_ids)):
        assert rows.shape == expected.shape
        assert rows.dtype == (np.uint16 if encoder.kind == "bfloat16" else np.float32)
        np.testing.assert_allclose(as_float32(rows), expected, atol=tolerance)
    assert encoder.encode([]) == []


def test_what_cannot_be_encoded_is_refused(backbone, tokenizer):
    encoder = DocumentEncoder(backbone, tokenizer, 16, EngineConfig("mxnet"))
    with pytest.raises(InputError, match="text 2: 17 tokens; expected 1 to 16"):
        encoder.encode(texts_of((3, 17), 9))
    with pytest.raises(InputError, match="text 1: 0 tokens"):
        encoder.encode([np.zeros(0, np.int32)])
    with pytest.raises(InputError, match="text 1: token ids from 5 to 10000000"):
        encoder.encode([np.array([5, 10**7], np.int32)])
    with pytest.raises(OptionError, match="max_length: 999; expected 1 to 160"):
        DocumentEncoder(backbone, tokenizer, 999)


# The cache

SETTINGS = {"encoder_sha256": "a", "units": 16, "store": "float16", "tokens": 0}


def encodings_of(lengths, units=16, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((length, units)).astype(np.float32) for length in lengths]


def write_cache(path, documents, **changes):
    """A cache of documents, by their ids; a document's text is its id."""
    with DocumentCacheWriter(path, {**SETTINGS, **changes}) as writer:
        for id, rows in documents.items():
            writer.put(id, text_digest(id), rows)
        writer.commit()
    return path


def read_all(path, ids, **options):
    return open_cache(path).get_many(ids, [text_digest(id) for id in ids], **options)


def content_of(path):
    """Text digest and rows of each document."""
    with DocumentCacheWriter(path) as writer:
        digests = writer.stored_digests(writer.ids())
    rows = open_cache(path).get_many(list(digests), list(digests.values()))
    return {id: (digests[id], row.tobytes()) for id, row in zip(digests, rows)}


@pytest.fixture
def stored(tmp_path):
    """A cache of four documents."""
    documents = dict(zip(("D1", "D2", "D3", "D4"), encodings_of((3, 1, 40, 7))))
    return write_cache(tmp_path / "cache", documents), documents


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("put", "remove", "commit", "reopen", "compact")),
        st.integers(0, 5),
        st.integers(1, 6),
    ),
    max_size=25,
)


@settings(max_examples=30)
@given(CHANGES)
def test_a_cache_holds_what_was_put_and_not_removed(changes):
    """Against a dict; a reader that was opened at the start sees each commit."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module, "LEAST_UNUSED", 0)
        path = pathlib.Path(folder) / "cache"
        with contextlib.ExitStack() as stack:
            writer = stack.enter_context(DocumentCacheWriter(path, SETTINGS))
            reader = open_cache(path, SETTINGS)
            committed, pending = {}, {}
            for step, (action, number, length) in enumerate(changes):
                id = f"D{number}"
                if action == "put":
                    pending[id] = (bytes([step]) * 16, encodings_of([length], seed=step)[0])
                    writer.put(id, *pending[id])
                elif action == "remove" and id not in pending:
                    writer.remove([id])
                    pending[id] = None
                elif action == "commit":
                    writer.commit()
                    committed, pending = {**committed, **pending}, {}
                elif action == "compact" and not pending:
                    writer.compact()
                elif action == "reopen":
                    stack.close()
                    writer, pending = stack.enter_context(DocumentCacheWriter(path, SETTINGS)), {}
                check_content(reader, committed)
        check_content(open_cache(path, SETTINGS), committed)


def check_content(reader, expected):
    held = {id: value for id, value in expected.items() if value is not None}
    ids = [f"D{number}" for number in range(6)]
    digests = [held.get(id, (b"", None))[0] for id in ids]
    assert len(reader) == len(held)
    for id, rows in zip(ids, reader.get_many(ids, digests)):
        if id in held:
            np.testing.assert_array_equal(rows, held[id][1].astype(np.float16))
        else:
            assert rows is None


def test_documents_are_found_by_id_and_text(stored):
    path, documents = stored
    cache = open_cache(path)
    digests = [text_digest("D3"), text_digest("D1"), text_digest("other"), b"", b""]
    rows = cache.get_many(["D3", "D1", "D2", "D9", None], digests)
    np.testing.assert_array_equal(rows[0], documents["D3"].astype(np.float16))
    np.testing.assert_array_equal(rows[1], documents["D1"].astype(np.float16))
    assert rows[2:] == [None, None, None]
    assert (cache.units, cache.store, cache.tokens, len(cache)) == (16, "float16", 0, 4)
    assert cache.dtype == np.float16 and not rows[0].flags.writeable


def test_more_documents_than_one_query_takes(tmp_path):
    documents = {f"D{number}": rows for number, rows in enumerate(encodings_of([1] * 1203))}
    path = write_cache(tmp_path / "cache", documents)
    for rows, expected in zip(read_all(path, list(documents)), documents.values()):
        np.testing.assert_array_equal(rows, expected.astype(np.float16))


def test_truncation_is_stored(tmp_path):
    with DocumentCacheWriter(tmp_path / "cache", SETTINGS) as writer:
        for id, truncated in (("D1", True), ("D2", False)):
            writer.put(id, text_digest(id), encodings_of([2])[0], truncated)
        writer.commit()
    digests = [text_digest("D1"), text_digest("D2"), b""]
    documents = open_cache(tmp_path / "cache").find_many(["D1", "D2", "D3"], digests)
    assert [document and document.truncated for document in documents] == [True, False, None]


# Element types


def test_the_bytes_of_float16_and_bfloat16():
    """1 is 0x3c00 and 0x3f80. Half of the last bit of a bfloat16 rounds to even."""
    values = np.array([[1.0, -2.0, 1 + 2**-8, 1 + 3 * 2**-8]], np.float32)
    assert EntryFormat(4, "float16").pack(values)[:4].hex() == "003c00c0"
    assert EntryFormat(4, "bfloat16").pack(values).hex() == "803f00c0803f823f"
    bits = np.array([[0x3F80, 0xC000]], np.uint16)
    assert EntryFormat(2, "bfloat16").pack(bits) == bits.tobytes()
    assert EntryFormat(2, "float32").pack(bits) == np.float32([1, -2]).tobytes()


def test_a_row_of_int8_has_its_own_scale():
    values = np.array([[254.0, -2.0], [0.5, 0.25], [0.0, 0.0]], np.float32)
    format = EntryFormat(2, "int8")
    packed = format.pack(values)
    assert packed[:4] == np.float32(2).tobytes() and len(packed) == format.size(3) == 18
    assert np.frombuffer(packed[12:], np.int8).tolist() == [127, -1, 127, 64, 0, 0]
    rows = format.read(np.frombuffer(packed, np.uint8), 3, 3)
    np.testing.assert_allclose(rows, [[254, -2], [0.5, 64 / 254], [0, 0]])
    assert rows.dtype == format.dtype == np.float32


@pytest.mark.parametrize(
    "store, error", [("float16", 5e-4), ("bfloat16", 4e-3), ("float32", 0), ("int8", 2e-2)]
)
def test_what_an_element_type_loses(tmp_path, store, error):
    [values] = encodings_of([50])
    path = write_cache(tmp_path / "cache", {"D1": values}, store=store)
    [rows] = read_all(path, ["D1"])
    if store == "bfloat16":
        rows = as_float32(rows)
    assert np.abs(rows - values).max() <= error * np.abs(values).max()
    assert (np.abs(rows - values).max() > 0) == (error > 0)


@pytest.mark.parametrize("store", ["float16", "bfloat16", "float32", "int8"])
def test_the_first_rows_alone(tmp_path, store):
    """A reader takes fewer rows than a cache holds, or a cache holds no more."""
    [values] = encodings_of([9])
    whole = write_cache(tmp_path / "whole", {"D1": values}, store=store)
    part = write_cache(tmp_path / "part", {"D1": values, "D2": values[:2]}, store=store, tokens=3)
    [expected] = read_all(whole, ["D1"])
    for tokens in (1, 3, 20):
        [rows] = read_all(whole, ["D1"], tokens=tokens)
        np.testing.assert_array_equal(rows, expected[:tokens])
    stored, short = read_all(part, ["D1", "D2"])
    np.testing.assert_array_equal(stored, expected[:3])
    assert len(short) == 2 and open_cache(part).tokens == 3


@pytest.mark.parametrize("store", ["float16", "int8"])
def test_other_rows_than_the_first_are_not_touched(tmp_path, store):
    """What has changed in them is not seen by who reads the first row, and only by him."""
    path = write_cache(tmp_path / "cache", {"D1": encodings_of([9])[0]}, store=store)
    entries = path / "encodings-1.bin"
    content = bytearray(entries.read_bytes())
    content[-1] ^= 1
    entries.write_bytes(content)
    assert len(read_all(path, ["D1"], tokens=1)[0]) == 1
    with pytest.raises(DataError, match="document 'D1', at byte 0, has changed"):
        read_all(path, ["D1"], tokens=2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("store", ["float16", "bfloat16", "float32", "int8"])
def test_values_that_are_not_finite_are_refused(tmp_path, store, value):
    rows = np.ones((2, 16), np.float32)
    rows[1, 3] = value
    with pytest.raises(DataError, match=f"no finite numbers in {store}"):
        write_cache(tmp_path / "cache", {"D1": rows}, store=store)


def test_values_beyond_float16_are_refused(tmp_path):
    rows = np.full((1, 16), 7e4, np.float32)
    with pytest.raises(DataError, match="document 'D1': .* take store float32"):
        write_cache(tmp_path / "half", {"D1": rows})
    write_cache(tmp_path / "single", {"D1": rows}, store="float32")


def test_rows_of_another_width_are_refused(tmp_path):
    for rows in (np.ones((2, 8), np.float32), np.ones((0, 16), np.float32)):
        with pytest.raises(DataError, match="expected rows of 16 values"):
            write_cache(tmp_path / "cache", {"D1": rows})


# Damage


def test_a_cache_of_something_else_is_refused(stored):
    path, _ = stored
    assert len(open_cache(path, SETTINGS)) == 4
    with pytest.raises(DataError, match="made with encoder_sha256 'a'; expected 'b'; encode the"):
        open_cache(path, {"encoder_sha256": "b"})
    with pytest.raises(DataError, match="made with store 'float16'; expected 'int8'"):
        write_cache(path, {}, store="int8")


@pytest.mark.parametrize("left", [0, 1, 100])
def test_entries_that_are_cut_off(stored, left):
    """Before and after a reader has mapped the file, which must not end it by a signal."""
    path, _ = stored
    cache = open_cache(path)
    entries = path / "encodings-1.bin"
    size = entries.stat().st_size
    os.truncate(entries, left)
    match = f"encodings-1.bin: {left} bytes: it is cut off; expected at least {size} bytes; delete"
    with pytest.raises(DataError, match=match):
        cache.get_many(["D1"], [text_digest("D1")])
    for opening in (open_cache, lambda path: write_cache(path, {})):
        with pytest.raises(DataError, match=match):
            opening(path)
    entries.unlink()
    with pytest.raises(DataError, match="encodings-1.bin: cannot be read"):
        open_cache(path)


def test_each_changed_byte_of_an_entry_is_seen(tmp_path):
    path = write_cache(tmp_path / "cache", {"D1": encodings_of([2])[0]}, store="int8")
    entries = path / "encodings-1.bin"
    content = entries.read_bytes()
    assert len(content) == 40
    for index in range(len(content)):
        changed = bytearray(content)
        changed[index] ^= 1 << index % 8
        entries.write_bytes(changed)
        with pytest.raises(DataError, match="encodings-1.bin: .*'D1'.*wqa encode --remove"):
            read_all(path, ["D1"])


def test_an_index_that_is_cut_off_or_changed_is_an_error(stored):
    """An error, or the right rows, or none; never another exception or other rows."""
    path, documents = stored
    index = path / "index.sqlite"
    content = index.read_bytes()
    rng = np.random.default_rng(0)
    wrong = [content[: len(content) * part // 8] for part in range(8)]
    used = np.flatnonzero(np.frombuffer(content, np.uint8))
    for number in rng.choice(used, 150, replace=False):
        changed = bytearray(content)
        changed[number] ^= 1 << rng.integers(8)
        wrong.append(bytes(changed))
    errors = 0
    for number, damaged in enumerate(wrong):
        index.write_bytes(damaged)
        try:
            rows = read_all(path, list(documents))
        except DataError as error:
            assert str(path) in str(error)
            errors += 1
            continue
        for row, expected in zip(rows, documents.values()):
            if row is not None:
                np.testing.assert_array_equal(row, expected.astype(np.float16))
    assert errors > 10


def test_what_is_no_cache_is_refused(stored, tmp_path):
    path, _ = stored
    with pytest.raises(DataError, match="no: is no document cache; .*wqa encode"):
        open_cache(tmp_path / "no")
    for statement, match in (
        ("PRAGMA user_version = 9", "a document cache of format 9; expected format 1"),
        ("PRAGMA application_id = 9", "another database"),
        ("UPDATE settings SET value = '\"x\"' WHERE name = 'units'", "units is 'x'"),
        ("UPDATE settings SET value = '7' WHERE name = 'store'", "store is 7"),
        ("UPDATE entries SET size = 'x'", "names no file of entries"),
        ("DELETE FROM entries", "names no file of entries"),
    ):
        changed = tmp_path / "changed"
        shutil.copytree(path, changed)
        connection = sqlite3.connect(changed / "index.sqlite")
        with contextlib.closing(connection), connection:
            connection.execute(statement)
        with pytest.raises(DataError, match=match):
            open_cache(changed)
        shutil.rmtree(changed)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("")
    for name in ("file", "folder"):
        with pytest.raises(OptionError, match=f"out: .*{name}, a f"):
            write_cache(tmp_path / name, {})


# Processes


def test_the_second_writer_is_refused(stored):
    path, documents = stored
    with DocumentCacheWriter(path, SETTINGS), pytest.raises(OutputLocked, match="one writer at"):
        write_cache(path, {})
    assert len(open_cache(path)) == 4


READER = """
import sys, numpy as np
from wqa.data.document_cache import open_cache, text_digest
cache, seen = open_cache(sys.argv[1]), 0
ids = [f"D{number}" for number in range(150)]
digests = [text_digest(id) for id in ids]
print("ready", flush=True)
while seen < 150:
    rows = cache.get_many(ids, digests)
    held = [row is not None for row in rows]
    # Documents are added in order, ten at a time.
    assert sum(held) % 10 == 0 and sum(held) >= seen and all(held[: sum(held)]), held
    for number, row in enumerate(rows[: sum(held)]):
        assert (row == number).all() and row.shape == (number % 7 + 1, 16), (number, row)
    seen = sum(held)
print("done", seen)
"""


def test_two_readers_beside_a_writer(tmp_path, popen, monkeypatch):
    """Also while it copies the entries to a new file."""
    monkeypatch.setattr(writer_module, "LEAST_UNUSED", 0)
    path = write_cache(tmp_path / "cache", {})
    command = [sys.executable, "-c", READER, str(path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": child_environment()}
    readers = [popen(command, **pipes) for _ in range(2)]
    assert [reader.stdout.readline() for reader in readers] == ["ready\n"] * 2
    copies = 0
    for start in range(0, 150, 10):
        with DocumentCacheWriter(path, SETTINGS) as writer:
            for number in range(start, start + 10):
                rows = np.full((number % 7 + 1, 16), number, np.float32)
                writer.put(f"D{number}", text_digest(f"D{number}"), rows)
            writer.put("unused", b"", np.zeros((200, 16), np.float32))
            writer.commit()
            writer.remove(["unused"])
            writer.commit()
            copies += writer.compact() > 0
    assert copies > 3
    for reader in readers:
        out, error = reader.communicate(timeout=60)
        assert out == "done 150\n", error


def test_a_forked_process_reads(stored):
    path, documents = stored
    cache = open_cache(path)
    digests = [text_digest(id) for id in documents]
    cache.get_many(list(documents), digests)
    child = os.fork()
    if not child:
        rows = cache.get_many(list(documents), digests)
        whole = all(
            (row == value.astype(np.float16)).all() for row, value in zip(rows, documents.values())
        )
        os._exit(0 if whole else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.get_many(["D1"], digests[:1])[0] is not None


def test_threads_read_at_once(stored):
    path, documents = stored
    cache = open_cache(path)
    digests = [text_digest(id) for id in documents]
    with ThreadPoolExecutor(4) as pool:
        for rows in pool.map(lambda _: cache.get_many(list(documents), digests), range(40)):
            for row, expected in zip(rows, documents.values()):
                np.testing.assert_array_equal(row, expected.astype(np.float16))


def test_a_cache_in_a_folder_without_permission_to_write(stored):
    path, documents = stored
    if not os.geteuid():
        pytest.skip("the superuser may write everywhere")
    path.chmod(0o555)
    try:
        assert read_all(path, ["D1"])[0] is not None
    finally:
        path.chmod(0o755)


# A full disk


@pytest.mark.parametrize("rows, name", [(100, "encodings-1.bin"), (1, "index.sqlite")])
def test_a_full_disk_leaves_what_was_committed(tmp_path, rows, name):
    """The index grows with the documents, the entries with their rows."""
    path = write_cache(tmp_path / "cache", {"D1": encodings_of([3])[0]})
    values = encodings_of([rows])[0]
    writer = DocumentCacheWriter(path, SETTINGS)
    with limited_file_size(60000), pytest.raises(StorageError, match=f"{name}: could not be") as e:
        with writer:
            for number in range(100, 1100):
                id = f"D{number} " + "long " * 20
                writer.put(id, text_digest(id), values)
                if number % 10 == 9:
                    writer.commit()
    assert "free space" in str(e.value)
    with DocumentCacheWriter(path, SETTINGS) as writer:
        ids = writer.ids()
        assert len(ids) % 10 == 1 and 11 <= len(ids) < 1000
        writer.put("D2", text_digest("D2"), encodings_of([3])[0])
        writer.commit()
    assert all(rows is not None for rows in read_all(path, [*ids, "D2"]))


def test_a_full_disk_keeps_a_cache_that_is_copied(stored, monkeypatch):
    path, documents = stored
    monkeypatch.setattr(writer_module, "LEAST_UNUSED", 0)
    with DocumentCacheWriter(path, SETTINGS) as writer:
        writer.remove(["D3"])
        writer.commit()
        with limited_file_size(200), pytest.raises(StorageError, match="encodings-2.bin"):
            writer.compact()
    assert [row is None for row in read_all(path, list(documents))] == [False, False, True, False]
    with DocumentCacheWriter(path, SETTINGS) as writer:
        assert writer.compact() > 0
    assert sorted(file.name for file in path.iterdir()) == ["encodings-2.bin", "index.sqlite"]
    assert [row is None for row in read_all(path, list(documents))] == [False, False, True, False]
