"""Encodings of documents: the encoder of single texts, the cache, and `wqa encode`."""

import mxnet as mx
import numpy as np
import pytest
from conftest import needs_onednn, needs_precision, wqa
from hypothesis import given, settings
from hypothesis import strategies as st

from wqa.config import EngineConfig
from wqa.data import Candidate
from wqa.data.documents import read_documents, write_documents
from wqa.engines.inputs import as_float32
from wqa.errors import DataError, InputError, OptionError
from wqa.inference.document_cache import DocumentCache, document_key, pack_documents, write_cache
from wqa.inference.document_encoder import DocumentEncoder, encodings_identity
from wqa.pretrained import load_backbone
from wqa.systems.run_directory import load_run
from wqa.text import SingleInputs, load_tokenizer

# The encoder of single texts


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


ENGINES = (
    pytest.param("onednn", "float32", 2e-5, marks=needs_onednn),
    pytest.param("mxnet", "float32", 2e-5),
    pytest.param("onednn", "bfloat16", 6e-2, marks=needs_precision("bfloat16")),
)


@pytest.mark.parametrize("engine, precision, tolerance", ENGINES)
def test_texts_are_encoded_apart_in_their_order(backbone, tokenizer, engine, precision, tolerance):
    token_ids = texts_of((7, 30, 3, 12, 7, 64, 1, 12), backbone.config.vocab_size)
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
    with pytest.raises(OptionError, match="max_length: 999; expected .* 1 to 160"):
        DocumentEncoder(backbone, tokenizer, 999)


# The cache

UNITS = 16
SETTINGS = {"encoder_sha256": "a", "units": UNITS, "store": "float32", "tokens": 0}
LENGTHS = (3, 1, 7, 2)


def rows_of(lengths=LENGTHS, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((length, UNITS)).astype(np.float32) for length in lengths]


def part_of(ids, encodings, **options):
    """Arrays of documents; the text of a document is its id."""
    arrays = pack_documents(ids, encodings, **options)
    arrays["keys"] = np.frombuffer(b"".join(document_key(id, id) for id in ids), "<u8")
    arrays["truncated"] = np.array([id == "D2" for id in ids], np.uint8)
    return arrays


def cache_of(path, encodings, store="float32", tokens=0):
    ids = [f"D{index}" for index in range(len(encodings))]
    parts = []
    for start in range(0, len(ids), 3):
        part = slice(start, start + 3)
        parts.append(part_of(ids[part], encodings[part], store=store, tokens=tokens))
    write_cache(path, {**SETTINGS, "store": store, "tokens": tokens}, iter(parts))
    return DocumentCache(path)


def candidates_of(*ids):
    return [Candidate(id, None, id) for id in ids]


def test_documents_are_looked_up_by_id_and_text(tmp_path):
    encodings = rows_of()
    cache = cache_of(tmp_path / "cache", encodings)
    wanted = candidates_of("D2", "D0", "D9", "D1", "D3")
    wanted += [Candidate("D0"), Candidate("another text", None, "D0")]
    documents = cache.get(wanted)
    missing = [place for place, document in enumerate(documents) if document is None]
    assert missing == [2, 5, 6]
    for index, place in ((2, 0), (0, 1), (1, 3), (3, 4)):
        assert documents[place].rows.tolist() == encodings[index].tolist()
        assert documents[place].truncated == (index == 2)
    assert (len(cache), cache.documents, cache.missing) == (4, 7, 3)
    assert [len(document.rows) for document in cache.get(candidates_of("D2", "D1"), 2)] == [2, 1]


@settings(max_examples=10)
@given(st.lists(st.integers(0, 4), max_size=9), st.sampled_from(["float16", "float32", "int8"]))
def test_any_lengths_are_read_as_they_were_written(tmp_path_factory, lengths, store):
    encodings = rows_of(lengths) if lengths else []
    cache = cache_of(tmp_path_factory.mktemp("any") / "cache", encodings, store)
    documents = cache.get(candidates_of(*(f"D{index}" for index in range(len(lengths)))))
    for rows, document in zip(encodings, documents):
        if not len(rows):  # a blank document is left out
            assert document is None
            continue
        error = {"float32": 0, "float16": 2e-3, "int8": np.abs(rows).max() / 127}[store]
        np.testing.assert_allclose(document.rows, rows, atol=error)
    assert cache.meta["blank"] == lengths.count(0)
    assert cache.meta["documents"] == len(lengths) - lengths.count(0)


def test_a_row_of_int8_has_its_own_scale(tmp_path):
    rows = np.zeros((3, UNITS), np.float32)
    rows[0, 0], rows[1, :2] = 127.0, (0.5, -0.25)
    [document] = cache_of(tmp_path / "cache", [rows], "int8").get(candidates_of("D0"))
    expected = [0.5, -np.rint(127 / 2) * 0.5 / 127]
    np.testing.assert_allclose(document.rows[1, :2], expected, rtol=1e-6)
    assert document.rows[0, 0] == 127.0 and not document.rows[2].any()


def test_bfloat16_is_widened():
    """Also beside a document without a token, which has rows of another type."""
    bits = np.array([[0x3F80] * UNITS], np.uint16)
    blank = np.zeros((0, UNITS), np.float32)
    for encodings in ([bits], [blank, bits], [bits, blank]):
        rows = pack_documents(["D"] * len(encodings), encodings, "float32")["rows"]
        assert rows.tolist() == [[1.0] * UNITS]


@pytest.mark.parametrize("store", ["float16", "float32", "int8"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(store, value):
    encodings = rows_of()
    encodings[2][3, 1] = value
    with pytest.raises(DataError, match="document 'D2': encodings that are no finite numbers"):
        pack_documents(["D0", "D1", "D2", "D3"], encodings, store)


def test_a_cache_of_something_else_is_refused(tmp_path):
    cache = cache_of(tmp_path / "cache", rows_of())
    cache.check_made_with({"encoder_sha256": "a"})
    with pytest.raises(DataError, match="made with encoder_sha256 'a'.*encode the documents by"):
        cache.check_made_with({"encoder_sha256": "b"})


@pytest.mark.parametrize(
    "name, change",
    [
        ("rows", lambda content: content[:-4]),
        ("ends", lambda content: b"\xff" * 8 + content[8:]),
        ("truncated", None),
    ],
)
def test_a_damaged_cache_is_refused(tmp_path, name, change):
    cache_of(tmp_path / "cache", rows_of())
    path = tmp_path / "cache" / f"{name}.bin"
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=f"{name}.bin"):
        DocumentCache(tmp_path / "cache")


# The command


@pytest.fixture(scope="module")
def collection(tmp_path_factory, encoded_documents):
    """A file of 21 documents, the first longer than the run reads."""
    path = tmp_path_factory.mktemp("collection") / "documents.jsonl"
    write_documents(path, encoded_documents)
    return path


def test_the_cache_has_the_networks_encodings(dcbert_run, collection, tmp_path, capsys):
    out = tmp_path / "cache"
    command = ("encode", dcbert_run, "--documents", collection, "--out", out)
    assert wqa(*command, "--store", "float32") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{out}: 21 documents, 1 shortened, 0 without a token left out; ")
    assert lines[1].endswith(" ms a document")
    loaded = load_run(dcbert_run)
    inputs = SingleInputs(loaded.inputs.tokenizer, 40)
    candidates = [Candidate(item.full_text, None, item.id) for item in read_documents(collection)]
    texts = inputs.encode([candidate.text for candidate in candidates])
    backbone = loaded.network.document_encoder
    cache = DocumentCache(out)
    stored = cache.get(candidates)
    for document, expected in zip(
        stored, expected_encodings(backbone, [t.token_ids for t in texts])
    ):
        np.testing.assert_allclose(document.rows, expected, atol=2e-5)
    assert [document.truncated for document in stored] == [True] + [False] * 20
    cache.check_made_with(encodings_identity(backbone, loaded.inputs.tokenizer, 40))
