"""Tokens that masked language modelling chooses, and what replaces them."""

import json
import shutil

import numpy as np
import pytest
from conftest import DATA

from wqa.errors import EncoderError, OptionError
from wqa.systems.mspp.examples import Masking
from wqa.text import WordTokenizer, load_tokenizer

#: Mask token, and special tokens, of the stored vocabularies.
VOCABULARIES = {
    "uncased": ("[MASK]", {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}),
    "cased": ("[MASK]", {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}),
    "byte_level": ("<mask>", {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}),
    "sentencepiece": ("[MASK]", {"<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"}),
}


def tokenizer_of(name):
    return load_tokenizer(DATA / "tokenizers" / name)


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizer_of("uncased")


class Script:
    """A generator whose draws are known."""

    def __init__(self, numbers, ids=()):
        self._numbers, self._ids = numbers, ids

    def random(self, shape):
        return np.array(self._numbers, float).reshape(shape)

    def choice(self, choices, count):
        assert len(self._ids) == count and set(self._ids) <= set(choices.tolist())
        return np.array(self._ids, int)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_tokenizers_know_their_mask_and_special_tokens(name):
    tokenizer = tokenizer_of(name)
    mask, specials = VOCABULARIES[name]
    assert tokenizer.token(tokenizer.mask_id) == mask
    special_ids, text_ids = tokenizer.special_ids(), tokenizer.text_ids()
    assert set(map(tokenizer.token, special_ids.tolist())) == specials
    assert not set(special_ids.tolist()) & set(text_ids.tolist())
    assert len(special_ids) + len(text_ids) == tokenizer.vocab_size
    assert (np.diff(special_ids) > 0).all() and (np.diff(text_ids) > 0).all()
    assert Masking(tokenizer).mask_id == tokenizer.mask_id


def test_a_tokenizer_without_a_mask_is_refused(tmp_path):
    words = (DATA / "tokenizers" / "uncased" / "vocab.txt").read_text().splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join(words).replace("[MASK]", "[unused]"))
    tokenizer = load_tokenizer(tmp_path)
    with pytest.raises(EncoderError, match="vocab.txt: has no mask token; expected a tokenizer wi"):
        Masking(tokenizer)
    assert tokenizer.token(int(tokenizer.special_ids()[-1])) == "[SEP]"
    with pytest.raises(EncoderError, match="tokenizer: has no mask token"):
        Masking(WordTokenizer(["moon"]))


def test_ids_may_have_gaps(tmp_path):
    shutil.copytree(DATA / "tokenizers" / "byte_level", tmp_path / "x")
    path = tmp_path / "x" / "vocab.json"
    vocab = json.loads(path.read_text())
    last = max(vocab, key=vocab.get)
    vocab[last] += 5
    path.write_text(json.dumps(vocab))
    tokenizer = load_tokenizer(tmp_path / "x")
    ids = tokenizer.text_ids().tolist()
    assert ids[-1] == vocab[last] and ids[-2] == vocab[last] - 6


def test_what_a_number_decides(tokenizer):
    """Below 0.12 the mask, below 0.135 another token, below 0.15 the token itself."""
    [first, second] = tokenizer.text_ids()[:2].tolist()
    mask, start = tokenizer.mask_id, tokenizer.start_id
    ids = np.array([[start, first, first, first], [first, first, first, tokenizer.padding_id]])
    before = ids.copy()
    numbers = [[0.0, 0.119, 0.121, 0.134], [0.136, 0.149, 0.151, 0.0]]
    result = Masking(tokenizer)(ids, Script(numbers, [second, first]))
    assert result.token_ids.tolist() == [
        [start, mask, second, first],
        [first, first, first, tokenizer.padding_id],
    ]
    assert result.chosen.tolist() == [[False, True, True, True], [True, True, False, False]]
    assert (ids == before).all() and result.token_ids.dtype == ids.dtype


def test_shares_of_other_values(tokenizer):
    first = int(tokenizer.text_ids()[0])
    ids = np.full(4, first, np.int32)
    masking = Masking(tokenizer, rate=0.5, masked=0.0, random=0.5)
    result = masking(ids, Script([0.24, 0.26, 0.49, 0.51], [first + 1]))
    assert result.token_ids.tolist() == [first + 1, first, first, first]
    assert result.chosen.tolist() == [True, True, True, False]
    everything = Masking(tokenizer, 1, 1, 0)(ids, np.random.default_rng(0))
    assert (everything.token_ids == masking.mask_id).all() and everything.chosen.all()


def test_shares_over_many_tokens(tokenizer):
    """Each count lies within four standard deviations of its expectation."""
    text_ids = tokenizer.text_ids()
    rng = np.random.default_rng(3)
    ids = rng.choice(text_ids, (500, 400))
    ids[:, 0], ids[:, 200], ids[:, 300:] = 0, tokenizer.separator_id, tokenizer.padding_id
    ids[:, 0] = tokenizer.start_id
    text = ~np.isin(ids, tokenizer.special_ids())
    count = int(text.sum())
    assert count == 500 * 298
    result = Masking(tokenizer)(ids, rng)
    masked = result.token_ids == tokenizer.mask_id
    changed = (result.token_ids != ids) & ~masked
    assert not (result.chosen & ~text).any()
    assert (result.token_ids[~result.chosen] == ids[~result.chosen]).all()
    # A random token is the same one once in as many times as there are.
    same = 1 / len(text_ids)
    shares = {
        0.15: result.chosen,
        0.12: masked,
        0.015 * (1 - same): changed,
        0.015 * (1 + same): result.chosen & (result.token_ids == ids),
    }
    for share, positions in shares.items():
        deviation = (count * share * (1 - share)) ** 0.5
        assert abs(int(positions.sum()) - count * share) < 4 * deviation, share
    assert not np.isin(result.token_ids[changed], tokenizer.special_ids()).any()
    # 2,235 draws from some 1,200 tokens leave out one with probability 0.16.
    drawn = len(np.unique(result.token_ids[changed])) / len(text_ids)
    assert 0.75 < drawn < 0.92


def test_draws_follow_the_generator(tokenizer):
    ids = np.tile(tokenizer.text_ids()[:50], (4, 1))
    masking = Masking(tokenizer)
    first, again, other = (masking(ids, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert (first.token_ids == again.token_ids).all() and (first.chosen == again.chosen).all()
    assert (first.chosen != other.chosen).any()
    empty = masking(np.zeros((0, 5), np.int32), np.random.default_rng(0))
    assert empty.token_ids.shape == empty.chosen.shape == (0, 5)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"rate": -0.1}, "rate: -0.1; expected a number from 0 to 1"),
        ({"rate": 1.1}, "rate: 1.1"),
        ({"rate": float("nan")}, "rate: nan"),
        ({"masked": -0.1}, "masked: -0.1; expected a number from 0 to 1"),
        ({"random": 0.3}, "masked and random: 1.1; expected a sum of 1 or less"),
    ],
)
def test_shares_outside_their_ranges_are_refused(tokenizer, options, message):
    with pytest.raises(OptionError, match=message):
        Masking(tokenizer, **options)
