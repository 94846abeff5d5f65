"""Search for the added tokens of a tokenizer in a text that is read in pieces."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Pattern, Sequence, Set

#: Unicode's White_Space, which an added token with ``lstrip`` removes before it.
_SPACES = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_RUN_OF_SPACES = re.compile(f"[{_SPACES}]*")

#: Most added tokens, and most characters of one. They bound the time of a search.
MOST_TOKENS = 256
MOST_CHARACTERS = 256

Settings = Dict[str, Any]


def run_end(pattern: Pattern[str], text: str, position: int) -> int:
    """End of a run of characters, which can be empty."""
    match = pattern.match(text, position)
    return position if match is None else match.end()


class Piece(NamedTuple):
    """A part of a text up to an added token, or up to where it is read."""

    end: int
    token_id: Optional[int]
    next_start: int


class AddedTokens:
    """Added tokens that are matched in the text before it is normalized."""

    def __init__(self, tokens: Sequence[Settings]) -> None:
        self._ids = {token["content"]: token["id"] for token in tokens}
        self._strips = {token["content"] for token in tokens if token["lstrip"]}
        contents = list(self._ids)
        spaced = any(re.search(r"\s", content) for content in contents)
        self.supported = _simple(tokens, contents) and not spaced and _disjoint(contents)
        self._longest = max(map(len, contents), default=0)
        self._pattern = _alternatives(contents)

    def limit(self, text: str, start: int, end: int, spaces_count: bool) -> Piece:
        """End a piece of a text at its first added token, if it has one."""
        stop = min(end + self._longest - 1, len(text))
        match = self._pattern.search(text, start, stop)
        if match is None and spaces_count and self._strips:
            # The spaces at the end belong to a token that follows them.
            match = self._pattern.match(text, run_end(_RUN_OF_SPACES, text, end))
            if match is not None and match.group() not in self._strips:
                match = None
        if match is None:
            return Piece(end, None, end)
        content = match.group()
        end = match.start()
        if content in self._strips:
            while end > start and _RUN_OF_SPACES.fullmatch(text, end - 1, end):
                end -= 1
        return Piece(end, self._ids[content], match.end())


class NormalizedTokens:
    """Added tokens that are matched in the normalized text: the leftmost, then the longest."""

    def __init__(self, tokens: Sequence[Settings], normalize: Callable[[str], str]) -> None:
        contents = [normalize(token["content"]) for token in tokens]
        strips = any(token["lstrip"] for token in tokens)
        # Of a run of spaces between words the last alone is read.
        spaced = any(content[:2].isspace() for content in contents)
        self.supported = _simple(tokens, contents) and not strips and not spaced
        if not self.supported:
            return
        self._ids = {content: token["id"] for content, token in zip(contents, tokens)}
        self._longest = max(map(len, contents), default=0)
        self._pattern = _alternatives(contents)
        # Starts of tokens, with which the text that is read so far may end.
        self._starts: Set[str] = set()
        for content in contents:
            for end in range(1, len(content)):
                self._starts.add(content[:end])

    def limit(self, text: str, is_last: bool) -> Piece:
        """End a text at its first added token, or where a token may start that goes on behind
        it.
        """
        end = len(text)
        if not is_last:
            first = max(0, end - self._longest + 1)
            for start in range(first, end):
                if text[start:] in self._starts:
                    end = start
                    break
        match = self._pattern.search(text)
        # A match from ``end`` on could become another one when the text continues.
        if match is None or match.start() >= end:
            return Piece(end, None, end)
        token_id = self._ids[match.group()]
        return Piece(match.start(), token_id, match.end())


def _alternatives(contents: Sequence[str]) -> Pattern[str]:
    """Matches any of the strings, the longest where several start; nothing if there are none."""
    longest_first = sorted(contents, key=len, reverse=True)
    rule = "|".join(map(re.escape, longest_first))
    return re.compile(rule or "(?!)")


def _simple(tokens: Sequence[Settings], contents: Sequence[str]) -> bool:
    """Whether tokens are few, short and different, and match wherever they stand."""
    if len(contents) > MOST_TOKENS:
        return False
    for flag in ("rstrip", "single_word"):
        if any(token[flag] for token in tokens):
            return False
    if len(set(contents)) < len(contents):
        return False
    return all(0 < len(content) <= MOST_CHARACTERS for content in contents)


def _disjoint(contents: List[str]) -> bool:
    """Whether no two occurrences of strings can overlap."""
    for content in contents:
        for other in contents:
            if content != other and content in other:
                return False
            for index in range(1, len(content)):
                if other.startswith(content[index:]):
                    return False
    return True
