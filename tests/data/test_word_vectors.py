"""Tables of word vectors: written, read, restricted to a vocabulary, and refused when damaged."""

import json

import numpy as np
import pytest
from conftest import limited_file_size
from hypothesis import given, settings
from hypothesis import strategies as st

from wqa.data.word_vectors import (
    LONGEST_WORD,
    WordVectors,
    mask_digits,
    read_word_vectors,
    write_word_vectors,
)
from wqa.errors import DataError, StorageError

META = {"kind": "glove", "source": "glove.txt", "masks_digits": False}
WORDS = ["the", "café", "####", "\u2028"]
VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def folder(tmp_path):
    write_word_vectors(tmp_path / "words", WordVectors(WORDS, VECTORS, META))
    return tmp_path / "words"


def test_a_table_round_trips(folder):
    table = read_word_vectors(folder)
    assert table.words == WORDS and table.meta == META
    assert np.array_equal(table.vectors, VECTORS) and table.vectors.dtype == np.float32
    assert (len(table), table.units, table.masks_digits) == (4, 3, False)
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["words"], meta["units"], meta["format"]) == (4, 3, 1)
    assert sorted(meta["sha256"]) == ["vectors", "word_bytes", "word_ends"]
    assert [path.name for path in folder.parent.iterdir()] == ["words"]


@settings(max_examples=25)
@given(
    st.lists(
        st.text(st.characters(blacklist_categories=["Cs"]), min_size=1), min_size=1, unique=True
    ),
    st.integers(1, 4),
)
def test_any_words_round_trip(tmp_path_factory, words, units):
    path = tmp_path_factory.mktemp("tables") / "words"
    vectors = np.random.default_rng(len(words)).standard_normal((len(words), units))
    write_word_vectors(path, WordVectors(words, vectors.astype(np.float32)))
    table = read_word_vectors(path)
    assert table.words == words and np.array_equal(table.vectors, vectors.astype(np.float32))


def test_writing_again_keeps_the_table_and_refuses_another(folder):
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    write_word_vectors(folder, WordVectors(WORDS, VECTORS, META))
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    with pytest.raises(DataError, match="made with kind 'glove'; expected 'ppmi'"):
        write_word_vectors(folder, WordVectors(WORDS, VECTORS, {**META, "kind": "ppmi"}))


def test_a_full_disk_leaves_no_table(tmp_path):
    big = WordVectors(["a", "b"], np.ones((2, 16384), np.float32))
    with limited_file_size(1 << 14), pytest.raises(StorageError, match="check the space"):
        write_word_vectors(tmp_path / "words", big)
    assert not (tmp_path / "words").exists()
    write_word_vectors(tmp_path / "words", big)
    assert read_word_vectors(tmp_path / "words").words == ["a", "b"]


# The vocabulary


def test_a_table_is_restricted_in_its_own_order(folder):
    table = read_word_vectors(folder, ["moon", "café", "the"])
    assert table.words == ["the", "café"]
    assert np.array_equal(table.vectors, VECTORS[:2]) and table.meta == META


def test_masked_digits_keep_the_masked_word():
    table = WordVectors(WORDS, VECTORS, {"masks_digits": True})
    assert table.restrict(["the", "1995"]).words == ["the", "####"]
    assert table.restrict(["199", "café"]).words == ["café"]
    plain = WordVectors(WORDS, VECTORS, META)
    assert plain.restrict(["the", "1995"]).words == ["the"]


def test_an_empty_overlap_is_an_error(folder):
    with pytest.raises(DataError) as caught:
        read_word_vectors(folder, ["moon", "star"])
    text = str(caught.value)
    assert str(folder) in text
    assert "none of its 4 words is among the 2 of the texts, such as 'moon', 'star'" in text
    assert "all words would be unknown" in text


@pytest.mark.parametrize(
    "word, masked",
    [("42", "##"), ("mp3", "mp3"), ("1990s", "####s"), ("a1b22", "a#b##"), ("٤٢", "٤٢")],
)
def test_masked_digits(word, masked):
    assert mask_digits(word) == masked


# What is refused


@pytest.mark.parametrize(
    "words, vectors, message",
    [
        ([], np.zeros((0, 3), np.float32), "0 words"),
        (["a"], np.zeros((1, 20000), np.float32), "1 to 16,384 elements"),
        (["a", "b"], np.zeros((1, 3), np.float32), "2 words with vectors of shape"),
        (["a"], np.zeros((1, 3)), "float64"),
        (["a", "b", "a"], np.zeros((3, 1), np.float32), "the word 'a' is there twice"),
        (["é" * LONGEST_WORD], np.zeros((1, 1), np.float32), "expected 1 to 4,096 bytes"),
        (["\ud800"], np.zeros((1, 1), np.float32), "half a surrogate pair"),
        (["a", "b"], np.array([[1], [np.nan]], np.float32), "the vector of 'b' is not finite"),
    ],
)
def test_a_wrong_table_is_refused(words, vectors, message):
    with pytest.raises(DataError) as caught:
        WordVectors(words, vectors)
    assert message in str(caught.value)


def edit_meta(folder, **changes):
    path = folder / "meta.json"
    meta = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps(meta))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"words": 3}, "word_ends.bin: 4 elements; expected 3"),
        ({"units": 4}, "vectors.bin: 12 elements; expected 16"),
        ({"units": 10**12}, "vectors.bin: 12 elements"),
        ({"units": "3"}, "is no table of word vectors"),
        ({"format": 2}, "a table of word vectors of format 2"),
        ({"sha256": {}}, "expected None"),
    ],
)
def test_a_contradicting_meta_is_refused(folder, changes, message):
    edit_meta(folder, **changes)
    with pytest.raises(DataError) as caught:
        read_word_vectors(folder)
    assert message in str(caught.value) and "wqa embed-words" in str(caught.value)
