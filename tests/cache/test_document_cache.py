"""The cache of encoded documents: the encoder, the files, and `wqa encode`."""

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
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
from test_resume import KILLER

import wqa.cache.document_cache_writer as chunk_module
import wqa.cache.document_cache_writer as writer_module
import wqa.systems.encode as encoding_module
from wqa.cache.cache_index import EntryFormat
from wqa.cache.document_cache import DocumentCache, open_cache, text_digest
from wqa.cache.document_cache_writer import DocumentCacheWriter
from wqa.cli import main
from wqa.config import EngineConfig
from wqa.data.documents import Document, read_documents, write_documents
from wqa.engines.onednn.library import as_float32
from wqa.errors import DataError, InputError, OptionError, StorageError
from wqa.inference.document_encoder import DocumentEncoder, encodings_identity
from wqa.io.locks import lock_output
from wqa.pretrained import load_backbone
from wqa.systems.encode import encode_documents
from wqa.systems.run_directory import load_run
from wqa.text import SingleInputs, load_tokenizer

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
    with pytest.raises(InputError, match="text 1: token id 10000000"):
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


def test_a_document_that_loses_rows_is_stored_as_truncated(tmp_path):
    documents = dict(zip(("D1", "D2"), encodings_of([3, 2])))
    with DocumentCacheWriter(tmp_path / "cache", {**SETTINGS, "tokens": 2}) as writer:
        for id, rows in documents.items():
            writer.put(id, text_digest(id), rows)
        writer.commit()
    digests = [text_digest(id) for id in documents]
    found = open_cache(tmp_path / "cache").find_many(list(documents), digests)
    assert [document.truncated for document in found] == [True, False]


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
    cache = open_cache(path)  # that the first row is right tells nothing of the others
    cache.get_many(["D1"], [text_digest("D1")], 1)
    with pytest.raises(DataError, match="document 'D1', at byte 0, has changed"):
        cache.get_many(["D1"], [text_digest("D1")])


#: NaN whose bits rounding would turn into those of zero.
ALL_BITS = np.uint32(0xFFFFFFFF).view(np.float32)


@pytest.mark.parametrize("value", [np.nan, -np.inf, ALL_BITS])
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
    for damaged in wrong:
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


SECOND_WRITER = """
import json, sys
from wqa.cache.document_cache_writer import DocumentCacheWriter
from wqa.errors import OutputLocked
try:
    with DocumentCacheWriter(sys.argv[1], json.loads(sys.argv[2])):
        print("writes")
except OutputLocked as error:
    print(error)
"""


@pytest.mark.parametrize("held", [True, False])
def test_the_writer_of_a_second_process_is_refused(stored, held):
    path, _ = stored
    command = [sys.executable, "-c", SECOND_WRITER, str(path), json.dumps(SETTINGS)]
    with DocumentCacheWriter(path, SETTINGS) if held else contextlib.nullcontext():
        done = subprocess.run(command, capture_output=True, text=True, env=child_environment())
    assert done.returncode == 0, done.stderr
    assert ("one writer at a time" in done.stdout) == held
    assert (done.stdout == "writes\n") != held
    assert len(open_cache(path)) == 4


READER = """
import sys, numpy as np
from wqa.cache.document_cache import DocumentCache, open_cache, text_digest
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


def test_a_reader_whose_entries_are_copied_meanwhile(stored, monkeypatch):
    """Between its query of the index and its reading."""
    path, documents = stored
    monkeypatch.setattr(writer_module, "LEAST_UNUSED", 0)
    cache = open_cache(path)
    look_up, calls = cache._look_up, []

    def overtaken(ids):
        result = look_up(ids)
        calls.append(1)
        if len(calls) == 1:
            with DocumentCacheWriter(path, SETTINGS) as writer:
                writer.remove(["D3"])
                writer.commit()
                assert writer.compact() > 0
        return result

    monkeypatch.setattr(cache, "_look_up", overtaken)
    rows = cache.get_many(list(documents), [text_digest(id) for id in documents])
    assert [row is None for row in rows] == [False, False, True, False]
    np.testing.assert_array_equal(rows[3], documents["D4"].astype(np.float16))


def test_an_entry_that_was_copied_is_checked_again(tmp_path, monkeypatch):
    """It lies where an entry of the old file was, which was right."""
    monkeypatch.setattr(writer_module, "LEAST_UNUSED", 0)
    first, second = encodings_of([9, 3])
    path = write_cache(tmp_path / "cache", {"D1": first, "D2": second})
    cache, digest = open_cache(path), text_digest("D2")
    assert len(cache.get_many(["D1"], [text_digest("D1")])[0]) == 9
    with DocumentCacheWriter(path, SETTINGS) as writer:
        writer.remove(["D1"])
        writer.commit()
        assert writer.compact() > 0
    entries = path / "encodings-2.bin"
    content = bytearray(entries.read_bytes())
    content[5] ^= 1
    entries.write_bytes(content)
    with pytest.raises(DataError, match="document 'D2', at byte 0, has changed"):
        cache.get_many(["D2"], [digest])


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


def test_a_thread_reads_the_file_that_it_has_mapped(stored):
    path, _ = stored

    class Raced(DocumentCache):
        """At each mapping of a state another thread maps the state before it."""

        def __setattr__(self, name, value):
            earlier = self.__dict__.get(name)
            super().__setattr__(name, value)
            if name == "_mapped" and earlier is not None:
                super().__setattr__(name, earlier)

    cache = Raced(path)
    values = encodings_of([3])[0]
    with DocumentCacheWriter(path, SETTINGS) as writer:
        writer.put("new", text_digest("new"), values)
        writer.commit()
    [rows] = cache.get_many(["new"], [text_digest("new")])
    np.testing.assert_array_equal(rows, values.astype(np.float16))


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

    def fill():
        with DocumentCacheWriter(path, SETTINGS) as writer:
            for number in range(100, 1100):
                id = f"D{number} " + "long " * 20
                writer.put(id, text_digest(id), values)
                if number % 10 == 9:
                    writer.commit()

    with limited_file_size(60000), pytest.raises(StorageError, match=f"{name}: could not") as full:
        fill()
    assert "free space" in str(full.value)
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


# The command


@pytest.fixture(scope="module")
def run(dcbert_run):
    return dcbert_run


@pytest.fixture(scope="module")
def collection(tmp_path_factory, encoded_documents):
    """A file of 21 documents, the first longer than the run reads."""
    path = tmp_path_factory.mktemp("collection") / "documents.jsonl"
    write_documents(path, encoded_documents)
    return path


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunk_module, "CHUNK_DOCUMENTS", 4)


@pytest.fixture(scope="module")
def whole(run, collection, tmp_path_factory):
    """Content of the cache of a command that was not stopped, in small chunks."""
    out = tmp_path_factory.mktemp("whole") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_module, "CHUNK_DOCUMENTS", 4)
        assert encode_documents(run, collection, out).new == 21
    return content_of(out)


def encode(run, documents, out, *options):
    command = ["encode", str(run), "--documents", str(documents), "--out", str(out), *options]
    return main(command)


def test_the_cache_has_the_networks_encodings(run, collection, tmp_path, capsys):
    out = tmp_path / "cache"
    assert encode(run, collection, out, "--store", "float32") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{out}: 21 documents; 21 new, 1 shortened"
    size = sum(file.stat().st_size for file in out.iterdir()) / 21
    words = lines[1].split()
    assert abs(float(words[0].replace(",", "")) - size) < 64 and words[1:3] == ["bytes", "a"]
    assert f"{size / 1e3:.1f}"[:3] in lines[1] and "GB for a million documents" in lines[1]
    assert lines[2].endswith(" ms a document") and len(lines) == 3
    loaded = load_run(run)
    inputs = SingleInputs(loaded.inputs.tokenizer, 40)
    documents = list(read_documents(collection))
    token_ids = [encoded.token_ids for encoded in inputs.encode([d.full_text for d in documents])]
    digests = [text_digest(document.full_text) for document in documents]
    found = open_cache(out).find_many([document.id for document in documents], digests)
    backbone = loaded.network.document_encoder
    for document, expected in zip(found, expected_encodings(backbone, token_ids)):
        np.testing.assert_allclose(document.rows, expected, atol=2e-5)
    assert [document.truncated for document in found] == [True] + [False] * 20
    identity = encodings_identity(backbone, loaded.inputs.tokenizer, 40)
    assert len(open_cache(out, identity)) == 21


@needs_precision("bfloat16")
def test_encodings_in_bfloat16_are_stored_as_they_are(run, collection, tmp_path):
    engine = EngineConfig(precision="bfloat16")
    encode_documents(run, collection, tmp_path / "cache", "bfloat16", engine=engine)
    loaded, documents = load_run(run), list(read_documents(collection))
    texts = [document.full_text for document in documents]
    token_inputs = SingleInputs(loaded.inputs.tokenizer, 40).encode(texts)
    backbone, tokenizer = loaded.network.document_encoder, loaded.inputs.tokenizer
    encoder = DocumentEncoder(backbone, tokenizer, 40, engine)
    expected = encoder.encode([encoded.token_ids for encoded in token_inputs])
    ids, digests = [document.id for document in documents], list(map(text_digest, texts))
    for rows, bits in zip(open_cache(tmp_path / "cache").get_many(ids, digests), expected):
        assert rows.dtype == np.uint16 and rows.tobytes() == bits.tobytes()
    with pytest.raises(DataError, match="made with precision 'bfloat16'; expected 'float32'"):
        encode_documents(run, collection, tmp_path / "cache", "bfloat16")


def test_documents_are_added_changed_pruned_and_removed(run, collection, tmp_path, capsys):
    out, documents = tmp_path / "cache", list(read_documents(collection))
    path = tmp_path / "documents.jsonl"
    write_documents(path, documents[:9])
    assert encode(run, path, out) == 0
    before = content_of(out)
    changed = documents[3]._replace(text="another text")
    write_documents(path, [*documents[:3], changed, *documents[5:12]])
    assert encode(run, path, out) == 0
    assert "12 documents; 3 new, 1 changed, 7 unchanged" in capsys.readouterr().out
    after = content_of(out)
    assert [id for id in before if before[id] != after[id]] == ["D3"]
    assert after["D3"][0] == text_digest("another text")
    # The same as where it was encoded at first, and nothing is encoded again.
    assert encode(run, path, tmp_path / "new") == 0
    for id, (digest, rows) in content_of(tmp_path / "new").items():
        assert after[id][0] == digest
        numbers = [np.frombuffer(row, np.float16).astype(float) for row in (rows, after[id][1])]
        np.testing.assert_allclose(*numbers, atol=4e-3)
    assert "D4" in after
    assert encode(run, path, out, "--prune") == 0
    assert "11 documents; 11 unchanged, 1 removed" in capsys.readouterr().out
    assert content_of(out) == {id: value for id, value in after.items() if id != "D4"}
    (tmp_path / "ids.txt").write_text("D1\nD5\n\nD99\n")
    command = ["encode", "--remove", str(tmp_path / "ids.txt"), "--out", str(out)]
    assert main(command) == 0
    assert f"{out}: 9 documents; 2 removed, 1 not in the cache" in capsys.readouterr().out
    assert not {"D1", "D4", "D5"} & set(content_of(out))


def test_a_document_without_a_token_is_left_out(run, tmp_path, capsys):
    path, out = tmp_path / "documents.jsonl", tmp_path / "cache"
    write_documents(path, [Document("D1", "the moon"), Document("D2", "\u200b\u200b")])
    assert encode(run, path, out) == 0
    assert "1 documents; 1 new, 1 without a token left out" in capsys.readouterr().out
    write_documents(path, [Document("D1", "\u200b")])
    assert encode(run, path, out) == 0  # what it held has another text
    assert "0 documents; 1 without a token left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line, problem",
    [
        ('{"id": "D1", "text": "again"}', "line 3: document id 'D1' is on line 1 too"),
        ('{"id": "D3", "text": " "}', "line 3: text is blank"),
        ('{"id": "D3", "text": ""}', "line 3: text is blank"),
    ],
)
def test_duplicate_ids_and_empty_documents_are_refused(run, jsonl, tmp_path, capsys, line, problem):
    """Before anything is encoded or written."""
    path = jsonl('{"id": "D1", "text": "one"}', '{"id": "D2", "text": "two"}', line)
    assert encode(run, path, tmp_path / "cache") == 2
    error = capsys.readouterr().err
    assert f"{path}, {problem}" in error and error.count("\n") == 1
    assert not (tmp_path / "cache").exists()


def test_a_cache_of_other_weights_is_refused(run, collection, tmp_path, capsys):
    out, other = tmp_path / "cache", tmp_path / "other"
    assert encode(run, collection, out) == 0
    before = content_of(out)
    shutil.copytree(run, other)
    parameters = mx.nd.load(str(other / "model.params"))
    name = next(name for name in parameters if name.startswith("document_encoder.layers"))
    parameters[name] = parameters[name] + 1e-3
    mx.nd.save(str(other / "model.params"), parameters)
    config = json.loads((other / "config.json").read_text())
    del config["sha256"]
    (other / "config.json").write_text(json.dumps(config))
    capsys.readouterr()
    assert encode(other, collection, out) == 2
    assert "made with encoder_sha256" in capsys.readouterr().err
    loaded = load_run(other)
    identity = encodings_identity(loaded.network.document_encoder, loaded.inputs.tokenizer, 40)
    with pytest.raises(DataError, match="made with encoder_sha256 '.*encode the documents by this"):
        open_cache(out, identity)
    assert encode(run, collection, out, "--first-tokens", "3") == 2
    assert "made with tokens 0; expected 3" in capsys.readouterr().err
    assert content_of(out) == before


def test_options_that_do_not_fit_are_refused(run, tiny_run, collection, tmp_path, capsys):
    out = tmp_path / "cache"
    cases = [
        (["encode", str(tiny_run), "--documents", str(collection)], "reads question and candidate"),
        (["encode", "no", "--documents", str(collection)], "no: there is no such directory"),
        (["encode", "--documents", str(collection)], "RUN: none"),
        (["encode", str(run)], "one of the arguments --documents --remove is required"),
        (["encode", "--remove", str(collection), "--prune"], "--prune: with --remove"),
        (["encode", "--remove", str(collection)], "cache: is no document cache"),
        (["encode", "--remove", "no.txt"], "no.txt: cannot be read"),
        (
            ["encode", str(run), "--documents", str(collection), "--first-tokens", "-1"],
            "--first-tokens: -1",
        ),
    ]
    for command, message in cases:
        assert main([*command, "--out", str(out)]) == 2
        assert message in capsys.readouterr().err
    assert not out.exists()


def test_one_writer_at_a_time(run, collection, tmp_path, capsys):
    with lock_output(tmp_path / "cache"):
        assert encode(run, collection, tmp_path / "cache") == 2
    assert "one writer at a time" in capsys.readouterr().err


class Killed(Exception):
    pass


@pytest.mark.parametrize(
    "function, when", [("put", "after"), ("commit", "before"), ("_change_index", "after")]
)
def test_a_stopped_command_is_continued(
    run, collection, whole, tmp_path, small_chunks, monkeypatch, function, when
):
    """To the same bytes, and without encoding again what was committed."""
    real, calls = getattr(DocumentCacheWriter, function), []

    def deadly(*arguments):
        calls.append(1)
        if when == "before" and len(calls) == 3:
            raise Killed
        returned = real(*arguments)
        if when == "after" and len(calls) == 3:
            raise Killed
        return returned

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(DocumentCacheWriter, function, deadly)
        encode_documents(run, collection, tmp_path / "cache")
    chunks = 0 if function == "put" else 2 + (when == "after")
    check_continued(run, collection, whole, tmp_path / "cache", 4 * chunks)


def test_a_killed_command_is_continued(run, collection, whole, tmp_path, small_chunks):
    """Between the flush of new entries and the change of the index."""
    small = "import wqa.cache.document_cache_writer as module; module.CHUNK_DOCUMENTS = 4"
    command = ["encode", str(run), "--documents", str(collection), "--out"]
    killer = ("wqa.cache.document_cache_writer", "DocumentCacheWriter._change_index", "3", "before")
    killed = subprocess.run(
        [sys.executable, "-c", small + KILLER, *killer, *command, str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        timeout=120,
        env=child_environment(),
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    check_continued(run, collection, whole, tmp_path / "cache", 8)


def check_continued(run, collection, whole, cache, committed):
    kept = content_of(cache)
    assert len(kept) == committed and kept.items() <= whole.items()
    report = encode_documents(run, collection, cache)
    assert (report.new, report.unchanged) == (21 - committed, committed)
    assert content_of(cache) == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_a_chunk(
    run, collection, whole, tmp_path, small_chunks, monkeypatch, capsys, number
):
    encode_chunk, chunks = encoding_module._Encoding._encode_chunk, []

    def with_signal(work, chunk):
        chunks.append(chunk)
        if len(chunks) == 2:
            os.kill(os.getpid(), number)
        encode_chunk(work, chunk)

    out = tmp_path / "cache"
    monkeypatch.setattr(encoding_module._Encoding, "_encode_chunk", with_signal)
    assert encode(run, collection, out) == 128 + number
    message, command = capsys.readouterr().err.splitlines()[-2:]
    assert message == f"{out}, 8 of 21 documents: stopped by signal {number}; resume with:"
    assert len(content_of(out)) == 8
    assert shlex.split(command)[0] == "wqa" and main(shlex.split(command)[1:]) == 0
    assert "21 documents; 13 new, 8 unchanged" in capsys.readouterr().out
    assert content_of(out) == whole


def test_a_full_disk_ends_the_command_with_one_line(run, tmp_path, small_chunks, capsys):
    out, path = tmp_path / "cache", tmp_path / "documents.jsonl"
    write_documents(path, [Document(f"D{number}", "the moon " * 20) for number in range(60)])
    with limited_file_size(60000):
        assert encode(run, path, out, "--store", "float32") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"error: {out / 'encodings-1.bin'}: could not be written" in error
    kept = content_of(out)
    assert 0 < len(kept) < 60
    assert encode(run, path, out, "--store", "float32") == 0
    assert kept.items() <= content_of(out).items() and len(content_of(out)) == 60


def test_chunks_are_bounded_by_documents_and_characters(
    run, collection, tmp_path, small_chunks, monkeypatch
):
    sizes = []
    encode_chunk = encoding_module._Encoding._encode_chunk

    def counted(work, chunk):
        sizes.append(len(chunk))
        encode_chunk(work, chunk)

    monkeypatch.setattr(encoding_module._Encoding, "_encode_chunk", counted)
    monkeypatch.setattr(chunk_module, "CHUNK_CHARACTERS", 500)
    encode_documents(run, collection, tmp_path / "cache")
    assert sizes == [1, 4, 4, 4, 4, 4]  # the first document has 540 characters
