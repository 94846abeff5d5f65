"""The first ids of long texts are those of the whole text, and cost what is kept."""

import json
import random
import subprocess
import sys

import pytest
import tokenizers
from conftest import DATA, PEAK, child_environment
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

import wqa.text.long_text as long_text
from wqa.data import Candidate, Question, write_questions
from wqa.errors import InputError, QuestionTooLong
from wqa.text import PairInputs, PairStore, build_store, load_tokenizer, tokenize_pairs
from wqa.text.long_text import StartTokenizer
from wqa.text.tokenizers import Tokenizer

#: Kinds of tokenizers; those that end in ``+`` have added tokens, which are normalized.
FAMILIES = ("uncased", "cased", "byte_level", "byte_level_spaced", "sentencepiece", "metaspace")
FAMILIES += ("uncased+", "cased+", "byte_level_spaced+", "sentencepiece+", "metaspace+")

ADDED = [
    "aa",
    "aab",
    "Moon",
    "ababab",
    "é",
    "жж",
    "[MA",
    "1",
    "s",
    "X" * 40,
    "ﬁre",
    "月'",
    "月月",
    " who",
]

#: Parts of texts that a step of a tokenizer treats in a way of its own.
PARTS = [
    *("a", "b", "the", " moon", "who", "1", "23", "½", "ﬁ", "é", "İ", "ẞ", "Σ", "ж", "月", "각"),
    *(" ", "  ", "\t", "\n", "\r\n", "\x01", "\x1c", "\x85", "\xa0", "\u3000", "\u200b", "\u2028"),
    *("\u0301", "\u0323", "\u0344", "\u0f73", "E\u0301", "か\u3099", "\u1100\u1161\u11a8", "क्षि"),
    *(
        "'",
        "'s",
        "'re",
        "''",
        "`",
        "``",
        ".",
        ",",
        "，",
        "[",
        "▁",
        "\ufffd",
        "עברית",
        "ا",
        "\u0e33",
    ),
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


def check(inner, text, counts=(1, 2, 5, 17, 100, 10**6)):
    ids = inner.encode(text, add_special_tokens=False).ids
    starts = StartTokenizer(inner)
    assert starts.supported
    for count in counts:
        assert starts.first_ids(text, count) == ids[:count], (count, text)


@pytest.mark.parametrize("piece, characters", [(1, 1), (64, 3)])
def test_first_ids_are_those_of_the_whole_text(inner, piece, characters, monkeypatch):
    monkeypatch.setattr(long_text, "PIECE", piece)
    monkeypatch.setattr(long_text, "CHARACTERS_A_TOKEN", characters)
    starts = StartTokenizer(inner)
    assert starts.supported
    rng = random.Random(5)
    for _ in range(80):
        parts = rng.sample(PARTS, rng.randint(1, len(PARTS)))
        text = "".join(rng.choice(parts) for _ in range(rng.randint(0, 60)))
        ids = inner.encode(text, add_special_tokens=False).ids
        for count in (1, 2, 5, 17, 100, 10**6):
            assert starts.first_ids(text, count) == ids[:count], (count, text)


@settings(max_examples=15)
@given(text=st.text(max_size=60), count=st.integers(1, 40))
def test_first_ids_of_any_characters(text, count):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_text, "PIECE", 4)
        patch.setattr(long_text, "CHARACTERS_A_TOKEN", 1)
        for starts, inner in STARTS.values():
            ids = inner.encode(text, add_special_tokens=False).ids
            assert starts.first_ids(text, count) == ids[:count]


STARTS = {}
for _family in FAMILIES:
    _inner = stored_tokenizer(_family)
    STARTS[_family] = (StartTokenizer(_inner), _inner)


@pytest.mark.parametrize(
    "unit",
    ["a", "ab", "moon ", " ", "\x01", "\u200b", "月", "ж", "moon,sun;", "\u0301", "😀", "\xa0"]
    + ["a" * 99 + " ", "a" * 101 + " ", "x" * 5000 + " the ", " " * 5000 + "the", "[SEP]", "\r\n"],
)
def test_first_ids_of_a_repeated_part(inner, unit):
    check(inner, unit * (12000 // len(unit)), (1, 100))
    # What ends a long run can change how the run is split.
    check(inner, "the " + unit * (5000 // len(unit)) + "<mask>'s 1", (3, 120, 10**6))


def test_a_tokenizer_of_another_kind_reads_the_whole_text():
    kinds = []
    whole_words = stored_tokenizer("uncased")
    whole_words.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    kinds.append(whole_words)
    stripping = stored_tokenizer("byte_level")
    stripping.add_tokens([tokenizers.AddedToken("<x>", rstrip=True)])
    kinds.append(stripping)
    for token in (
        tokenizers.AddedToken("aa", single_word=True),
        tokenizers.AddedToken("aa", lstrip=True),
        tokenizers.AddedToken("aa", normalized=False),
        "  a",
        "\u0301",
    ):
        added = stored_tokenizer("uncased")
        added.add_tokens([token])
        kinds.append(added)
    many = stored_tokenizer("uncased")
    many.add_tokens([f"<{index}>" for index in range(300)])
    kinds.append(many)
    prepended = stored_tokenizer("sentencepiece")
    prepended.normalizer = normalizers.Prepend("▁")
    kinds.append(prepended)
    text = "the moon aa <x>   is it 's <x>" * 20
    for inner in kinds:
        starts = StartTokenizer(inner)
        assert not starts.supported
        assert starts.first_ids(text, 7) == inner.encode(text, add_special_tokens=False).ids[:7]


def test_a_text_that_would_be_read_whole_for_long_is_refused(monkeypatch):
    monkeypatch.setattr(long_text, "MOST_WHOLE", 20_000)
    inner = stored_tokenizer("uncased")
    inner.add_tokens([tokenizers.AddedToken("aa", single_word=True)])
    inputs = PairInputs(Tokenizer(inner), 40)
    text = "moon " * 4000
    assert len(inputs.encode("who ?", [text])[0].token_ids) == 40
    with pytest.raises(
        InputError, match="'moon moon .* of 20,001 characters; expected at most 20,000"
    ):
        inputs.encode("who ?", [text + "."])
    for added in ("aa", "covid"):
        inner = stored_tokenizer("uncased")
        inner.add_tokens([added])
        inputs = PairInputs(Tokenizer(inner), 40)
        assert len(inputs.encode("who ?", [text * 100])[0].token_ids) == 40


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


CHILD = """
import json, sys
from wqa.text import PairInputs, load_tokenizer
inputs = PairInputs(load_tokenizer(sys.argv[1]), 128)
inputs.encode("who ?", ["moon " * 2000])
before = peak()
for unit in ("moon , ", "a ", " ", "[SEP] "):
    inputs.encode("who ?", [unit * (5_000_000 // len(unit))])
print(json.dumps(peak() - before))
"""


@pytest.mark.parametrize("name", ["uncased", "byte_level", "sentencepiece"])
def test_memory_of_a_long_candidate_is_that_of_its_text(name):
    command = [sys.executable, "-c", PEAK + CHILD, str(DATA / "tokenizers" / name)]
    child = subprocess.run(
        command, env=child_environment(), capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(child.stdout) < 20 * 1024  # kB
