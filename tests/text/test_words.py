"""Ids of words, their buckets, the tokenizer's file, and the matrix of all vectors."""

import json
import re

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wqa.config import BACKBONES
from wqa.data.word_vectors import WordVectors
from wqa.errors import EncoderError, InputError, OptionError
from wqa.text import PairInputs, WordTokenizer, embedding_matrix, load_tokenizer, split_words
from wqa.text.tokenizers import LONG_TEXT
from wqa.text.words import MOST_BUCKETS

WORDS = ["the", "glacier", "####", ",", "1995"]


def bucket(word, buckets=8):
    return len(WORDS) + 1 + mmh3.hash(word, 0, False) % buckets


def test_ids_of_words_and_buckets():
    tokenizer = WordTokenizer(WORDS, buckets=8)
    assert tokenizer.encode(["The glacier, 1995", "", " \n"]) == [[1, 2, 4, 5], [], []]
    assert tokenizer.encode(["moon The MOON 1996"]) == [
        [bucket("moon"), 1, bucket("moon"), bucket("1996")]
    ]
    assert tokenizer.vocab_size == 1 + 5 + 8
    assert tokenizer.padding_id == 0
    assert [tokenizer.token(number) for number in (-1, 0, 1, 5, 6, 99)] == [
        *("", "", "the", "1995", "", "")
    ]


def test_masked_digits_are_looked_up_after_the_word_itself():
    tokenizer = WordTokenizer(WORDS, buckets=8, masks_digits=True)
    assert tokenizer.encode(["1995 1996 7 199"]) == [[5, 3, bucket("7"), bucket("199")]]
    plain = WordTokenizer(WORDS, buckets=8)
    assert plain.encode(["1996"]) == [[bucket("1996")]]


def test_without_buckets_all_unknown_words_have_one_id():
    for buckets in (0, 1):
        tokenizer = WordTokenizer(WORDS, buckets)
        assert tokenizer.encode(["moon star glacier"]) == [[6, 6, 2]]
        assert tokenizer.vocab_size == 7


@given(st.lists(st.text(max_size=40), max_size=5), st.booleans())
def test_ids_are_those_of_the_split_words(texts, masks):
    tokenizer = WordTokenizer(WORDS, 8, masks)
    for text, ids, located in zip(texts, tokenizer.encode(texts), tokenizer.locate(texts)):
        expected = []
        for word in split_words(text):
            looked_up = word
            if masks and word not in WORDS and re.search("[0-9][0-9]", word):
                looked_up = re.sub("[0-9]", "#", word)
            known = looked_up in WORDS
            expected.append(WORDS.index(looked_up) + 1 if known else bucket(word))
        assert ids == expected == located.token_ids.tolist()
        for start, end in zip(located.starts, located.ends):
            assert 0 <= start < end <= len(text)
            assert text[start:end].strip()


def test_located_words_of_a_text_whose_lower_case_is_longer():
    [located] = WordTokenizer(["stanbul", "i"], 8).locate(["İstanbul!"])
    assert located.starts.tolist() == [0, 0, 1, 8]  # "i", its dot, "stanbul", "!"
    assert located.ends.tolist() == [1, 1, 8, 9]
    assert located.token_ids[0] == 2 and located.token_ids[2] == 1


@given(st.text(max_size=200), st.integers(1, 3))
def test_a_long_text_gives_its_first_ids(text, needed):
    tokenizer = WordTokenizer(WORDS, 8)
    text = text + " glacier" * LONG_TEXT
    [ids], [whole] = tokenizer.encode([text], needed), tokenizer.encode([text])
    assert ids == whole[: len(ids)]
    assert len(ids) >= needed
    assert tokenizer.encode(["the the"], needed) == [[1, 1]]


@pytest.mark.parametrize("text", ["a \ud800", b"bytes", None, 7])
@pytest.mark.parametrize("needed", [None, 3])
def test_what_is_no_text_is_refused(text, needed):
    tokenizer = WordTokenizer(WORDS)
    with pytest.raises(InputError, match="expected a string of whole characters"):
        tokenizer.encode(["fine", text], needed if isinstance(text, str) else None)
    with pytest.raises(InputError, match="expected a string of whole characters"):
        tokenizer.locate([text])


def test_half_a_surrogate_pair_behind_the_first_words():
    with pytest.raises(InputError, match="whole characters"):
        WordTokenizer(WORDS).encode(["the " * 200 + "\udfff"], 2)


# The file


def test_save_and_load(tmp_path):
    words = [*WORDS, "café", "\u2028", '"', "\\"]
    tokenizer = WordTokenizer(words, 16, True)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path)
    text = 'the Café moon 1234 \u2028 " \\'
    assert type(loaded) is WordTokenizer
    assert (loaded.words, loaded.buckets, loaded.masks_digits) == (words, 16, True)
    assert loaded.encode([text]) == tokenizer.encode([text])
    assert loaded.fingerprint == tokenizer.fingerprint
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()


GOOD = {"words_format": 1, "buckets": 4, "masks_digits": False, "words": ["a", "b"]}


@pytest.mark.parametrize(
    "content, message",
    [
        ({**GOOD, "words_format": 2}, "words_format is 2, this version of wqa reads 1"),
        ({**GOOD, "buckets": "4"}, "cannot be read"),
        ({**GOOD, "buckets": 10**30}, "buckets: 1000"),
        ({**GOOD, "words": []}, "words: 0 words"),
        ({**GOOD, "words": ["a", "a"]}, "2 words, 1 of them different"),
        ({**GOOD, "words": ["a", "\ud800"]}, "surrogates not allowed"),
        ({"words_format": 1}, "cannot be read ('words')"),
        (json.dumps(GOOD)[:-5], "cannot be read"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, content, message):
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    with pytest.raises(EncoderError) as caught:
        load_tokenizer(tmp_path)
    assert message in str(caught.value)
    assert "tokenizer.json" in str(caught.value) and "a tokenizer of words" in str(caught.value)


@pytest.mark.parametrize("buckets", [-1, MOST_BUCKETS + 1])
def test_buckets_out_of_range(buckets):
    with pytest.raises(OptionError, match="buckets: .* from 0 to 1,048,576"):
        WordTokenizer(WORDS, buckets)


def test_no_pairs_and_no_encoder_of_words():
    tokenizer = WordTokenizer(WORDS)
    with pytest.raises(EncoderError, match="one of words, without special tokens"):
        PairInputs(tokenizer)
    with pytest.raises(EncoderError, match="bert encoder with a tokenizer of words"):
        tokenizer.check_fits(BACKBONES["bert_12_768_12"], "encoders/bert")


# The matrix


def table(vectors, masks=False):
    vectors = np.array(vectors, np.float32)
    return WordVectors(WORDS[: len(vectors)], vectors, {"masks_digits": masks})


def test_the_matrix_has_padding_words_and_buckets():
    words = table([[3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    matrix = embedding_matrix(words, 5)
    assert matrix.shape == (1 + 2 + 5, 4) and matrix.dtype == np.float32
    assert not matrix[0].any()
    assert np.array_equal(matrix[1:3], words.vectors)
    # The mean of the norms 5 and 1.
    assert np.allclose(np.linalg.norm(matrix[3:], axis=1), 3)
    assert np.array_equal(matrix, embedding_matrix(words, 5))
    assert WordTokenizer.of_table(words, 5).vocab_size == len(matrix)
    # The buckets of another table of vectors as long have the same vectors.
    other = embedding_matrix(table([[0.0, 3.0, 0.0, 0.0]]), 5)
    assert np.allclose(other[2:], matrix[3:])


def test_the_tokenizer_of_a_table_masks_digits_as_the_table_does():
    assert WordTokenizer.of_table(table([[1.0]], masks=True)).masks_digits
    assert not WordTokenizer.of_table(table([[1.0]])).masks_digits
