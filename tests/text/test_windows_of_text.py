"""Windows of texts: every token is in one, none is too long, and words stay whole."""

import numpy as np
import pytest

from wqa.text import Located, load_tokenizer
from wqa.text.windows import character_windows, exceeding, token_windows


def located(text):
    """Letters are tokens, and white space divides them into words."""
    places = [place for place, letter in enumerate(text) if not letter.isspace()]
    starts = np.array(places)
    return Located(np.arange(len(places), dtype=np.int32), starts, starts + 1)


class Letters:
    """A tokenizer of which each letter is a token."""

    def encode(self, texts, count):
        return [[0] * min(len(located(text).starts), count) for text in texts]

    def locate(self, texts):
        return [located(text) for text in texts]


def windows_of(text, room):
    [windows] = character_windows(Letters(), [text], [0], room)
    return [text[start:end] for start, end in windows]


def test_by_hand():
    assert token_windows(7, 4) == [(0, 4), (2, 6), (4, 8 - 1)]
    assert token_windows(7, 4, 4) == [(0, 4), (4, 7)]
    assert token_windows(7, 4, 9) == [(0, 4), (4, 7)]
    assert token_windows(0, 4) == []
    assert windows_of("a b c d e f g", 4) == ["a b c d", "c d e f", "e f g"]
    # Words stay whole where a window has room for one behind its middle.
    assert windows_of("ab cde fgh i", 6) == ["ab cde", "cde fgh i"[:-2], "fgh i"]
    # A word longer than a window is divided.
    assert windows_of("abcdefg", 4) == ["abcd", "cdef", "efg"]
    assert windows_of("abc", 1) == ["a", "b", "c"]
    assert exceeding(Letters(), ["abc", "abcd", ""], 3) == [1]


def test_every_token_is_in_a_window_and_none_is_too_long():
    rng = np.random.default_rng(3)
    for _ in range(300):
        text = "".join(rng.choice(list("ab  \n"), size=rng.integers(1, 60)))
        tokens = located(text)
        if not len(tokens.starts):
            continue
        room = int(rng.integers(1, 12))
        [windows] = character_windows(Letters(), [text], [0], room)
        covered = set()
        for start, end in windows:
            inside = np.flatnonzero((tokens.starts >= start) & (tokens.ends <= end))
            assert 0 < len(inside) <= room
            covered.update(inside.tolist())
        assert covered == set(range(len(tokens.starts)))
        starts = [start for start, _ in windows]
        assert starts == sorted(set(starts))


@pytest.mark.parametrize("room", [5, 16, 40])
def test_windows_of_encoders_have_the_tokens_of_the_text(family_encoder, room):
    """Windows begin at words, so that a tokenizer finds in them what it finds in the text."""
    tokenizer = load_tokenizer(family_encoder)
    text = " ".join(f"the glacier {number} melts in the valley ." for number in range(30))
    [whole] = tokenizer.encode([text], 10_000)
    [windows] = character_windows(tokenizer, [text], [0], room)
    pieces = [text[start:end] for start, end in windows]
    all_ids = tokenizer.encode(pieces, 10_000)
    # The first word of a text may have a token of its own with RoBERTa.
    assert max(map(len, all_ids)) <= room + 1
    assert sum(map(len, all_ids)) >= len(whole)
