"""Windows of texts that are longer than what is read at once."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import numpy as np

from wqa.text.tokenizers import Located


def token_windows(tokens: int, room: int, step: int = 0) -> List[Tuple[int, int]]:
    """Divide the tokens of a text into overlapping windows.

    Parameters
    ----------
    tokens : int
        Number of tokens of the text.
    room : int
        Most tokens of a window.
    step : int
        Tokens from the start of a window to that of the next, at most ``room``; by default half of
        ``room``.

    Returns
    -------
    list of (int, int)
        First token of each window, and the one after its last.
    """
    step = min(step or max(room // 2, 1), room)
    bounds = []
    start = end = 0
    while end < tokens:
        end = min(start + room, tokens)
        bounds.append((start, end))
        start += step
    return bounds


def exceeding(tokenizer: Any, texts: Sequence[str], room: int) -> List[int]:
    """Indices of the texts that have more tokens than ``room``."""
    all_ids = tokenizer.encode(list(texts), room + 1)
    return [index for index, ids in enumerate(all_ids) if len(ids) > room]


def character_windows(
    tokenizer: Any, texts: Sequence[str], indices: Sequence[int], room: int
) -> List[List[Tuple[int, int]]]:
    """Divide some of the texts into windows of characters, at most ``room`` tokens each.

    A window begins and ends between words where it can, so that its tokens are those of the text.
    """
    located = tokenizer.locate([texts[index] for index in indices])
    return [_characters(tokens, room) for tokens in located]


def _characters(tokens: Located, room: int) -> List[Tuple[int, int]]:
    """Windows of one text, as characters of it."""
    starts, ends = np.asarray(tokens.starts), np.asarray(tokens.ends)
    count = len(starts)
    begins_word = np.append(True, starts[1:] > ends[:-1])
    half = max(room // 2, 1)
    windows = []
    start = 0
    while True:
        end = min(start + room, count)
        if end < count:
            end = _word_start(begins_word, start + half, end)
        windows.append((int(starts[start]), int(ends[end - 1])))
        if end == count:
            return windows
        start = _word_start(begins_word, start, start + half)


def _word_start(begins_word: np.ndarray, after: int, last: int) -> int:
    """The last token behind one and up to another that begins a word; the latter without one."""
    places = np.flatnonzero(begins_word[after + 1 : last + 1])
    return after + 1 + int(places[-1]) if len(places) else last
