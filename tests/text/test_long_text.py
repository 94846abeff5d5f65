"""The first ids of long texts are those of the whole text, of which a start is tokenized."""

import random

import pytest
import tokenizers
from conftest import DATA
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

import wqa.text.tokenizers as long_text
from wqa.data import Candidate, Question, write_questions
from wqa.errors import InputError, QuestionTooLong
from wqa.text import PairInputs, PairStore, build_store, load_tokenizer, tokenize_pairs
from wqa.text.tokenizers import first_ids

#: Kinds of tokenizers; those that end in ``+`` have added tokens, which are normalized.
FAMILIES = ("uncased", "cased", "byte_level", "byte_level_spaced", "sentencepiece", "metaspace")
FAMILIES += ("uncased+", "cased+", "byte_level_spaced+", "sentencepiece+", "metaspace+")

ADDED = ["aa", "aab", "Moon", "ababab", "é", "жж", "[MA", "1", "s", "X" * 40, "ﬁre", "月'"]
ADDED += ["月月", " who"]

#: Parts of texts that a step of a tokenizer treats in a way of its own.
PARTS = [
    *("a", "b", "the", " moon", "who", "1", "23", "½", "ﬁ", "é", "İ", "ẞ", "Σ", "ж", "月", "각"),
    *(" ", "  ", "\t", "\n", "\r\n", "\x01", "\x1c", "\x85", "\xa0", "\u3000", "\u200b", "\u2028"),
    *("\u0301", "\u0323", "\u0344", "\u0f73", "E\u0301", "か\u3099", "\u1100\u1161\u11a8", "क्षि"),
    *("'", "'s", "'re", "''", "`", "``", ".", ",", "，", "[", "▁", "\ufffd", "עברית"),
    *("ا", "\u0e33"),
    *("😀", "👨\u200d👩", "🇩🇪", "[SEP]", "<mask>", "[MASK]", "</s>", "<s>"),
    *("a" * 150, "x" * 300, "ab" * 100, "ж" * 30, "月" * 40, " " * 40, "\x01" * 50, "\u0301" * 30),
]


def stored_tokenizer(family):
    """A tokenizer of each kind; some as other versions of libraries write them."""
    if family.endswith("+"):
        inner = stored_tokenizer(family[:-1])
        if inner.normalizer is None:
            inner.normalizer = normalizers.NFKC()
        assert inner.add_tokens(ADDED)
        return inner
    name = {"byte_level_spaced": "byte_level", "metaspace": "sentencepiece"}.get(family, family)
    inner = load_tokenizer(DATA / "tokenizers" / name)._inner
    if family == "byte_level_spaced":
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    if family == "metaspace":
        rule = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
        inner.normalizer = normalizers.Sequence([inner.normalizer, rule])
        inner.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    return inner


@pytest.fixture(scope="module", params=FAMILIES)
def inner(request):
    return stored_tokenizer(request.param)


@pytest.mark.parametrize("margin", [400, 512])
def test_first_ids_are_those_of_the_whole_text(inner, margin, monkeypatch):
    """Of texts whose words are not longer than the margin."""
    monkeypatch.setattr(long_text, "MARGIN", margin)
    monkeypatch.setattr(long_text, "CHARACTERS_A_TOKEN", 1)
    rng = random.Random(5)
    for _ in range(30):
        parts = rng.sample(PARTS, rng.randint(1, len(PARTS)))
        text = " ".join(rng.choice(parts) for _ in range(rng.randint(0, 120)))
        ids = inner.encode(text, add_special_tokens=False).ids
        for count in (1, 2, 5, 17, 100, 10**6):
            assert first_ids(inner, text, count) == ids[:count], (count, text)


@settings(max_examples=6)
@given(text=st.text(max_size=60), count=st.integers(1, 40))
def test_first_ids_of_any_characters(text, count):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_text, "CHARACTERS_A_TOKEN", 1)
        for inner in TOKENIZERS:
            long = text + " moon" * 250
            ids = inner.encode(long, add_special_tokens=False).ids
            assert first_ids(inner, long, count) == ids[:count]


TOKENIZERS = [stored_tokenizer(family) for family in FAMILIES]


@pytest.mark.parametrize("unit", ["moon ", "moon,sun;", "a" * 99 + " ", "[SEP]", "\r\n", "x" * 300])
def test_a_start_alone_is_tokenized(inner, unit, monkeypatch):
    """However long the text is."""
    text = (unit + " ") * (400_000 // len(unit))
    expected = inner.encode(text[:20_000], add_special_tokens=False).ids[:20]
    read = []

    class Watched:
        def encode(self, start, **options):
            read.append(len(start))
            return inner.encode(start, **options)

    assert first_ids(Watched(), text, 20) == expected or not expected
    assert read[0] == long_text.MARGIN + 160 and sum(read) < 2 * long_text.MOST_READ


def test_a_text_without_tokens_is_read_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(long_text, "MOST_READ", 4000)
    inner = stored_tokenizer("uncased")
    moon = inner.encode("moon", add_special_tokens=False).ids
    assert first_ids(inner, " " * 3000 + "moon", 5) == moon
    assert first_ids(inner, " " * 5000 + "moon", 5) == []


@pytest.mark.parametrize("name", ["uncased", "byte_level", "sentencepiece"])
def test_pairs_of_long_candidates(name, tmp_path):
    tokenizer = load_tokenizer(DATA / "tokenizers" / name)
    inputs = PairInputs(tokenizer, 40)
    texts = ["moon , " * 3000, " " * 30000, "\x01" * 30000, "a" * 30000, " " * 30000 + "moon", ""]
    texts += ["moon " * 30, "moon"]
    question_ids, *candidate_ids = tokenizer.encode(["who ?", *texts])
    room = 40 - inputs.form.specials - len(question_ids)
    for pair, ids in zip(inputs.encode("who ?", texts), candidate_ids):
        expected = inputs.assemble(question_ids, ids[:room], len(ids) > room)
        assert pair.token_ids.tolist() == expected.token_ids.tolist()
        assert pair[1:] == expected[1:]
    question = Question("q", "who ?", tuple(Candidate(text, 1) for text in texts))
    write_questions(tmp_path / "long.jsonl", [question])
    build_store(tmp_path / "long.jsonl", tmp_path / "long.store", inputs)
    store = PairStore(tmp_path / "long.store")
    for pairs in (store, tokenize_pairs([question], inputs)):
        assert pairs.blank == sum(not ids for ids in candidate_ids)
        assert pairs.truncated == sum(len(ids) > room for ids in candidate_ids)
        kept = [ids[:room] for ids in candidate_ids if ids]
        assert [pairs.candidate(index).tolist() for index in range(len(pairs))] == kept


def test_a_long_question_and_half_a_character_are_refused():
    inputs = PairInputs(load_tokenizer(DATA / "tokenizers" / "uncased"), 40)
    with pytest.raises(QuestionTooLong, match="its 41 or more tokens leave 0 of 40 for candidates"):
        inputs.encode("moon " * 100000, ["moon"])
    with pytest.raises(InputError, match="expected a string of whole characters"):
        inputs.encode("who ?", ["moon " * 10000 + "\ud800"])
    with pytest.raises(InputError, match="the question is empty"):
        inputs.encode(" " * 100000, ["moon"])
