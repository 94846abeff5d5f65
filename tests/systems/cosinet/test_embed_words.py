"""Tables of word vectors that are made of a corpus: from files, from an encoder, from its texts."""

import gzip
import hashlib

import mxnet as mx
import numpy as np
import pytest
import word_vectors as script
from conftest import needs_onednn, needs_precision, write_family_encoder
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from wqa.cli import main
from wqa.config import EngineConfig
from wqa.data import Candidate, Question, builtin_path, write_questions
from wqa.data.word_vectors import read_word_vectors
from wqa.errors import DataError
from wqa.pretrained import load_backbone
from wqa.systems.text_encoder import load_text_encoder
from wqa.systems.words import count_words, encode_words, principal_components, read_texts
from wqa.text import WordTokenizer, embedding_matrix, load_tokenizer


def questions(path, *texts, labels=None):
    """A file of one question for each pair of texts: a question and a candidate."""
    records = []
    for index in range(0, len(texts), 2):
        candidate = Candidate(texts[index + 1], labels)
        records.append(Question(f"Q{index}", texts[index], (candidate,)))
    write_questions(path, records)
    return path


@pytest.fixture
def corpus(tmp_path):
    return questions(tmp_path / "train.jsonl", "A cat ?", "a cat , a dog", "The dog ?", "42 dogs")


# The vocabulary


def test_words_are_counted_in_all_texts(corpus, tmp_path):
    more = questions(tmp_path / "dev.jsonl.gz", "cat", "x" * 300)
    counts = count_words([corpus, more])
    assert counts.words == ["a", "cat", "?", "dog", ",", "42", "dogs", "the"]
    assert counts.counts.tolist() == [3, 3, 2, 2, 1, 1, 1, 1]
    assert counts.total == 15  # with the one word that is too long
    assert list(read_texts([corpus])) == ["A cat ?", "a cat , a dog", "The dog ?", "42 dogs"]
    with pytest.raises(DataError, match="no word"):
        count_words([questions(tmp_path / "blank.jsonl", "x" * 300, "x" * 300)])


# Principal components


@settings(max_examples=30)
@given(arrays.arrays(np.float32, (7, 4), elements=st.floats(-10, 10, width=32)), st.integers(1, 4))
def test_principal_components_keep_the_variance(vectors, units):
    components = principal_components(vectors, units)
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)
    values = np.linalg.svd(centred, compute_uv=False)
    assert components.shape == (7, units)
    assert np.allclose(components.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(np.linalg.norm(components, axis=0), values[:units], atol=1e-4)
    if units == 4:
        assert np.allclose(components @ components.T, centred @ centred.T, atol=1e-3)


# The encoder

ENGINES = [
    ("mxnet", "float32", 2e-5),
    pytest.param("onednn", "float32", 2e-5, marks=needs_onednn),
    pytest.param("onednn", "bfloat16", 6e-2, marks=needs_precision("bfloat16")),
]


def word_encoder(folder, engine=None):
    return load_text_encoder(f"cosine:{folder}", engine or EngineConfig("mxnet"))


@pytest.mark.parametrize("engine, precision, tolerance", ENGINES)
def test_a_word_is_the_mean_of_its_tokens(tiny_encoder, engine, precision, tolerance):
    words = ["glacier", "caves", "?", "unbelievably", "42"]
    rows, vectors = encode_words(word_encoder(tiny_encoder, EngineConfig(engine, precision)), words)
    assert rows == list(range(5)) and vectors.dtype == np.float32
    for word, vector in zip(words, vectors):
        assert np.abs(vector - mean_of_tokens(tiny_encoder, word)).max() < tolerance


def mean_of_tokens(folder, word):
    """By the backbone, of the tokens that the word has in a text."""
    backbone, tokenizer = load_backbone(folder), load_tokenizer(folder)
    [ids] = tokenizer.encode([f" {word}"])
    token_ids = [tokenizer.start_id, *ids, tokenizer.separator_id]
    hidden = backbone(
        mx.nd.array([token_ids], dtype="int32"),
        mx.nd.zeros((1, len(token_ids)), dtype="int32"),
        mx.nd.array([len(token_ids)]),
    ).asnumpy()[0]
    return hidden[1:-1].mean(axis=0)


def test_a_word_has_the_tokens_that_it_has_in_a_text(tmp_path):
    """A byte-level tokenizer has others for a word that no space precedes."""
    folder = write_family_encoder(tmp_path / "roberta", "roberta")
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode(["glacier"]) != tokenizer.encode([" glacier"])
    _, [vector] = encode_words(word_encoder(folder), ["glacier"])
    assert np.abs(vector - mean_of_tokens(folder, "glacier")).max() < 2e-5


# The command


def run(*arguments):
    return main(["embed-words", *map(str, arguments)])


def test_a_file_becomes_the_table_of_a_corpus(corpus, tmp_path, capsys):
    vectors = tmp_path / "numberbatch.txt"
    vectors.write_text(
        "6 2\n/c/en/cat 1 0\n/c/de/dog 5 5\n/c/en/## 0 1\n/c/en/cat 7 7\n/c/en/moon 2 2\n"
        "/c/en/Dog 3 3\n"
    )
    out = tmp_path / "words"
    assert run("--data", corpus, "--out", out, "--vectors", vectors) == 0
    printed = capsys.readouterr()
    assert "3 words of 2 elements, numberbatch; 3 of the 8 words of the texts and" in printed.out
    assert "38.46 % of their occurrences" in printed.out  # cat and dog twice, 42 once, of 13
    table = read_word_vectors(out)
    assert table.words == ["cat", "##", "dog"]
    assert table.vectors.tolist() == [[1, 0], [0, 1], [3, 3]]
    assert table.meta["kind"] == "numberbatch" and table.masks_digits
    assert len(table.meta["data_sha256"]) == 1
    # Numbers above 9 share the vector of the masked number.
    assert WordTokenizer.of_table(table).encode(["cat 42 77"]) == [[1, 2, 2]]
    before = (out / "meta.json").stat().st_mtime_ns
    assert run("--data", corpus, "--out", out, "--vectors", vectors) == 0
    assert "it was there already" in capsys.readouterr().out
    assert (out / "meta.json").stat().st_mtime_ns == before


def test_a_table_of_other_options_is_kept(corpus, tmp_path, capsys):
    vectors = tmp_path / "glove.txt"
    vectors.write_text("cat 1 0\ndog 0 1\n")
    assert run("--data", corpus, "--out", tmp_path / "words", "--vectors", vectors) == 0
    arguments = ["--data", corpus, "--out", tmp_path / "words", "--vectors", vectors]
    assert run(*arguments, "--precision", "bfloat16") == 2
    assert run(*arguments, "--data", corpus, corpus) == 2
    assert "made with data_sha256" in capsys.readouterr().err
    vectors.write_text("cat 1 0\ndog 0 2\n")
    assert run("--data", corpus, "--out", tmp_path / "words", "--vectors", vectors) == 2
    assert "made with source_sha256" in capsys.readouterr().err
    assert read_word_vectors(tmp_path / "words").vectors.tolist() == [[1, 0], [0, 1]]


def test_distilled_vectors(tiny_encoder, tmp_path, capsys):
    data, out = builtin_path("dev"), tmp_path / "words"
    arguments = ["--data", data, "--out", out, "--encoder", tiny_encoder, "--units", 6]
    assert run(*arguments) == 0
    table, counts = read_word_vectors(out), count_words([data])
    assert table.words == counts.words and table.units == 6
    meta = table.meta
    assert (meta["kind"], meta["length"], meta["components"]) == ("distilled", 1, 6)
    assert meta["precision"] == "float32" and len(meta["source_sha256"]) == 64
    assert not table.masks_digits
    encoder = word_encoder(tiny_encoder, EngineConfig())
    _, encodings = encode_words(encoder, counts.words)
    components = principal_components(encodings, 6)
    components /= np.linalg.norm(components, axis=1, keepdims=True)
    assert np.allclose(table.vectors, components, atol=1e-5)
    assert embedding_matrix(table, 3).shape == (1 + len(table) + 3, 6)
    capsys.readouterr()
    assert run(*arguments) == 0
    assert "it was there already" in capsys.readouterr().out
    assert run(*arguments[:-1], 5) == 2
    assert "made with components 6" in capsys.readouterr().err


def test_length_of_the_vectors(tiny_encoder, corpus, tmp_path, capsys):
    """Made vectors have length 1, those of a file their own, and all the one that is asked for."""

    def vectors(name, *arguments):
        assert run("--data", corpus, "--out", tmp_path / name, *arguments) == 0
        return read_word_vectors(tmp_path / name).vectors

    encoder = ("--encoder", tiny_encoder, "--units", 3)
    assert np.allclose(vectors("ten", *encoder, "--length", 10), 10 * vectors("one", *encoder))
    (tmp_path / "file.txt").write_text("cat 3 4\ndog 0 0\n")
    file = ("--vectors", tmp_path / "file.txt")
    assert vectors("as_they_are", *file).tolist() == [[3, 4], [0, 0]]
    assert read_word_vectors(tmp_path / "as_they_are").meta["length"] is None
    assert vectors("scaled", *file, "--length", 10).tolist() == [[6, 8], [0, 0]]
    capsys.readouterr()
    for other, expected in ((("--length", 2), "2.0"), ((), "None")):
        assert run("--data", corpus, "--out", tmp_path / "scaled", *file, *other) == 2
        assert f"made with length 10.0; expected {expected}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--encoder", "ENCODER", "--units", "0"), "--units: 0; expected a whole number from 1"),
        (("--vectors", "absent.txt"), "absent.txt: cannot be read (No such file"),
        (("--vectors", "absent.txt", "--units", "9"), "--units: 9; expected none"),
        (("--encoder", "ENCODER", "--length", "0"), "--length: 0.0; expected a number from 1e-06"),
        (("--encoder", "absent"), "absent: there is no such directory"),
        (("--encoder", "ENCODER", "--units", "9999"), "--units: 9999; expected a whole"),
    ],
)
def test_wrong_options(arguments, message, corpus, tiny_encoder, tmp_path, capsys):
    words = [str(tiny_encoder) if word == "ENCODER" else word for word in arguments]
    assert run("--data", corpus, "--out", tmp_path / "words", *words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "words").exists()


def test_wikiqa_has_the_words_of_its_texts(wikiqa_files):
    counts = count_words([wikiqa_files / f"{split}.jsonl" for split in ("train", "dev", "test")])
    assert (len(counts.words), counts.total) == (36871, 786420)
    assert counts.words[:3] == ["the", ",", "."]


# The script of published vectors


def test_a_local_copy_is_taken_and_read(tmp_path, corpus, capsys):
    out, words = tmp_path / "out", tmp_path / "words"
    out.mkdir()
    table = out / "numberbatch-en-19.08.txt.gz"
    table.write_bytes(gzip.compress(b"2 2\nthe 1 2\ncat 3 4\n"))
    assert script.main(["numberbatch", "--out", str(out)]) == 0
    assert hashlib.sha256(table.read_bytes()).hexdigest() in capsys.readouterr().out
    assert run("--data", corpus, "--out", words, "--vectors", table) == 0
    assert read_word_vectors(words).words == ["the", "cat"]
