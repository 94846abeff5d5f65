"""The first token ids of a long text, without tokenizing all of it.

A text is read in pieces. Words that the rest of the text cannot change are tokenized, until there
are enough ids. The ids are exactly those of the whole text, because each step of the tokenizers
below sees only a bounded part of a text:

- Added tokens: those with ``normalized`` are matched behind the normalization, the others before.
- Normalization: a piece ends between two characters that are normalized independently.
- Splitting into words: the last word of a piece waits for the next piece.
- WordPiece (BERT, ELECTRA): a word of too many characters is the unknown token, however it
  continues, so that only its start is kept.
- Byte-level BPE (RoBERTa) and SentencePiece's unigram model (ALBERT) tokenize words of any length.
  The tokens of a word have a boundary in each span as long as the longest token, and the tokens
  before a boundary are those of the word up to there. Ids that all cuts of a word within such a
  span begin with are therefore the first ids of the word.

For any other tokenizer the whole text is tokenized; one that would take long is refused.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Pattern, Sequence, Tuple

import tokenizers
from tokenizers import pre_tokenizers

from wqa.config import parse_json
from wqa.errors import InputError, shorten

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
    """Added tokens of a text: the leftmost, then the longest.

    They are matched in the text before it is normalized, or behind it if ``normalize`` is given.
    """

    def __init__(
        self, tokens: Sequence[Settings], normalize: Optional[Callable[[str], str]] = None
    ) -> None:
        contents = [(normalize or str)(token["content"]) for token in tokens]
        self._ids = {content: token["id"] for content, token in zip(contents, tokens)}
        self._strips = {token["content"] for token in tokens if token["lstrip"]}
        self._longest = max(map(len, contents), default=0)
        self.supported = _simple(tokens, contents)
        if normalize is None:
            spaced = any(re.search(r"\s", content) for content in contents)
            self.supported = self.supported and not spaced and _disjoint(contents)
        else:
            # Of a run of spaces between words the last alone is read.
            spaced = any(content[:2].isspace() for content in contents)
            self.supported = self.supported and not spaced and not self._strips
        if self.supported:
            longest_first = sorted(contents, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

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

    def limit_normalized(self, text: str, is_last: bool) -> Piece:
        """End a text at its first added token, or where one may start that goes on behind it."""
        end = len(text)
        if not is_last and self._longest:
            end = max(0, end - self._longest + 1)
        match = self._pattern.search(text)
        # A match from ``end`` on could become another one when the text continues.
        if match is None or match.start() >= end:
            return Piece(end, None, end)
        return Piece(match.start(), self._ids[match.group()], match.end())


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


#: Characters of the first piece of a text, for each id that is needed.
CHARACTERS_A_TOKEN = 8

#: Most characters of a text that is tokenized whole.
MOST_WHOLE = 1 << 20

#: Most characters of a later piece, unless a word is longer.
PIECE = 1 << 16

# Letters and emoticons: starters that no composition ends with, and that extend no grapheme.
_LETTERS = (
    "\xc0-\xd6\xd8-\xf6\xf8-\u024f\u0391-\u03a1\u03a3-\u03c9\u0400-\u0481\u05d0-\u05ea\u0621-\u063a\u0641-\u064a\u3041-\u3094\u30a1-\u30fa"
    "\u4e00-\u9fa5\uac00-\ud7a3\U0001f600-\U0001f64f"
)
# Blanks and control characters of the same kind. A carriage return joins a line feed.
_BLANKS = "\x00-\x0c\x0e-\x20\xa0\u2000-\u200b\u3000"
#: Between two of these characters no normalization form, and no map of graphemes, looks across.
_SEPARABLE = f"!-~{_BLANKS}{_LETTERS}"
#: Those that no rule for two quotation marks applies to.
_UNQUOTED = f"!-&(-_a-~{_BLANKS}{_LETTERS}"
#: Those that no rule for runs of spaces applies to either.
_VISIBLE = f"!-&(-_a-~{_LETTERS}"

_PLAIN_SPACES = re.compile("[ \t\n]*")

#: Characters that a contraction such as "'re" looks at behind the start of a byte-level word.
_REACH = 3
#: Most bytes of a character.
_CHARACTER_BYTES = 4

#: Normalizers that act on characters, and on graphemes.
_NORMALIZERS = ("BertNormalizer", "Lowercase", "StripAccents", "Nmt", "NFC", "NFD", "NFKC", "NFKD")
_QUOTES = ({"String": "``"}, {"String": "''"})
#: Options of BPE under which the ids of a word depend on more than its bytes.
_BPE_OPTIONS = (
    *("dropout", "continuing_subword_prefix", "end_of_word_suffix"),
    *("fuse_unk", "byte_fallback", "ignore_merges"),
)
_SPACES_RULE = {"Regex": " {2,}"}


@dataclasses.dataclass
class _Part:
    """Normalized text between two added tokens, as far as it is read and not tokenized."""

    pending: str = ""
    held: str = ""
    is_new: bool = True


class StartTokenizer:
    """Computes the first token ids of long texts."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        self._inner = inner
        self._model = inner.model
        self._normalizer = inner.normalizer
        self._pre_tokenizer = inner.pre_tokenizer
        settings = parse_json(inner.to_str())
        normalizers = _steps(settings["normalizer"], "normalizers")
        splitters = _steps(settings["pre_tokenizer"], "pretokenizers")
        self._kind = settings["model"]["type"]
        early: List[Settings] = []
        late: List[Settings] = []
        for token in settings["added_tokens"]:
            is_late = normalizers and token["normalized"]
            (late if is_late else early).append(token)
        self._added = AddedTokens(early)
        self._normalized_tokens = AddedTokens(late, self._normalize)
        self.supported = (
            _separable(normalizers)
            and _known(settings["model"], splitters, inner)
            and self._added.supported
            and self._normalized_tokens.supported
        )
        if not self.supported:
            return
        self._cuts = _cuts(normalizers)
        self._drops_spaces = splitters[0]["type"] in ("BertPreTokenizer", "WhitespaceSplit")
        self._prefix = ""
        if self._kind == "BPE":
            # Only the start of a text gets the prefix, not that of a word.
            self._prefix = " " if splitters[0].get("add_prefix_space", True) else ""
            self._pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        # Characters after which a word is the unknown token.
        self._most: int = settings["model"].get("max_input_chars_per_word", 0)
        self._longest = max(map(len, inner.get_vocab(with_added_tokens=False)), default=1)

    def first_ids(self, text: str, count: int) -> List[int]:
        """Tokenize the start of a text."""
        if not self.supported:
            if len(text) > MOST_WHOLE:
                raise InputError(
                    "text",
                    f"{shorten(text[:100])} of {len(text):,} characters",
                    f"at most {MOST_WHOLE:,} with this tokenizer, which has to read all of them",
                    "shorten the text",
                )
            return self._inner.encode(text, add_special_tokens=False).ids[:count]
        ids: List[int] = []
        start = 0
        while start < len(text) and len(ids) < count:
            start = self._read(text, start, ids, count)
        return ids[:count]

    def _read(self, text: str, start: int, ids: List[int], count: int) -> int:
        """Append the ids up to the next added token, and its own; return the end of what is read.

        The end of the text is returned if there are enough ids.
        """
        size = CHARACTERS_A_TOKEN * count
        part = _Part()
        piece = Piece(start, None, start)
        while piece.end < len(text) and piece.token_id is None:
            position = piece.end
            if self._drops_spaces and not part.pending and not part.held:
                # The last space of a run is kept: a combining mark may follow it.
                position = max(position, run_end(_PLAIN_SPACES, text, position) - 1)
            end = self._cut(text, position + size)
            piece = self._added.limit(text, position, end, not self._drops_spaces)
            part.held += self._normalize(text[position : piece.end])
            is_last = piece.end == len(text) or piece.token_id is not None
            self._take(part, is_last, ids, count)
            if len(ids) >= count:
                return len(text)
            size = max(min(4 * size, PIECE), 3 * len(part.pending))
        if piece.token_id is not None:
            ids.append(piece.token_id)
        return piece.next_start

    def _take(self, part: _Part, is_last: bool, ids: List[int], count: int) -> None:
        """Append the ids of complete words, and of added tokens between them."""
        while len(ids) < count:
            piece = self._normalized_tokens.limit_normalized(part.held, is_last)
            words, part.held = part.held[: piece.end], part.held[piece.next_start :]
            if words and part.is_new:
                part.is_new = False
                part.pending = "" if words.startswith(" ") else self._prefix
            ends = is_last or piece.token_id is not None
            part.pending = self._tokenize(part.pending + words, ends, ids, count)
            if piece.token_id is None:
                return
            if len(ids) < count:
                ids.append(piece.token_id)
            part.pending, part.is_new = "", True

    def _cut(self, text: str, position: int) -> int:
        """The first position, from one on, at which a piece of a text can end."""
        if position >= len(text):
            return len(text)
        if self._normalizer is None:
            return position
        match = self._cuts.search(text, position)
        return len(text) if match is None else match.start()

    def _normalize(self, piece: str) -> str:
        return piece if self._normalizer is None else self._normalizer.normalize_str(piece)

    def _tokenize(self, pending: str, is_last: bool, ids: List[int], count: int) -> str:
        """Append the ids of the words that are complete; return the text of the others."""
        words = self._pre_tokenizer.pre_tokenize_str(pending)
        complete = len(words) if is_last else self._complete(words, len(pending))
        for word, _ in words[:complete]:
            ids.extend(self._ids(word))
            if len(ids) >= count:
                return ""
        if complete == len(words):
            return ""
        word, (word_start, _) = words[complete]
        pending = pending[word_start:]
        if self._kind == "WordPiece":
            return pending[: self._most + 1]
        ids.extend(self._final_ids(word, count - len(ids)))
        return pending

    def _complete(self, words: Sequence[Tuple[str, Tuple[int, int]]], end: int) -> int:
        """Number of words, from the first on, that do not change when the text continues."""
        if self._kind != "BPE":
            open_word = bool(words) and words[-1][1][1] == end
            return len(words) - open_word
        complete = max(len(words) - 1, 0)
        while complete and words[complete - 1][1][1] > end - _REACH:
            complete -= 1
        return complete

    def _ids(self, word: str) -> List[int]:
        return [token.id for token in self._model.tokenize(word)]

    def _final_ids(self, word: str, count: int) -> List[int]:
        """The first ids of a word that may continue; none if fewer than ``count`` are certain."""
        # The last character of a run of spaces joins the word that follows. Words whose first ids
        # depend on their ends are not tried for ever.
        most = min(len(word) - _CHARACTER_BYTES, 2 * self._longest * (count + 1))
        length = self._longest + CHARACTERS_A_TOKEN * count
        while length <= most:
            ids = self._ids(word[:length])
            if len(ids) > count:
                cuts = [self._ids(word[:end]) for end in range(length - self._longest + 1, length)]
                ids = list(os.path.commonprefix([ids, *cuts]))
                if len(ids) >= count:
                    return ids
            length *= 2
        return []


def _steps(setting: Optional[Settings], name: str) -> List[Settings]:
    """The steps of a normalizer or a pre-tokenizer, in order."""
    if setting is None:
        return []
    if setting["type"] != "Sequence":
        return [setting]
    steps = []
    for part in setting[name]:
        steps.extend(_steps(part, name))
    return steps


def _cuts(steps: Sequence[Settings]) -> Pattern[str]:
    """Matches where a piece of a text can end: what is before it is normalized alone."""
    rules = [step["pattern"] for step in steps if step["type"] == "Replace"]
    quotes = sum(rule in _QUOTES for rule in rules)
    before = _SEPARABLE
    if rules:
        # Behind other steps, or for spaces, a rule may apply across characters that are left out.
        first = all(step["type"] == "Replace" for step in steps[:quotes])
        before = _UNQUOTED if first and len(rules) == quotes else _VISIBLE
    return re.compile(f"(?<=[{before}])(?=[{_SEPARABLE}])")


def _separable(steps: Sequence[Settings]) -> bool:
    """Whether pieces of a text can be normalized alone."""
    for step in steps:
        if step["type"] == "Replace":
            if step["pattern"] not in (*_QUOTES, _SPACES_RULE):
                return False
        elif step["type"] not in (*_NORMALIZERS, "Precompiled"):
            return False
    return True


def _known(model: Settings, splitters: Sequence[Settings], inner: tokenizers.Tokenizer) -> bool:
    """Whether the words of a text, and their ids, depend on a bounded part of it."""
    names = [step["type"] for step in splitters]
    if model["type"] == "WordPiece":
        return names == ["BertPreTokenizer"]
    if model["type"] == "BPE":
        plain = not any(map(model.get, _BPE_OPTIONS))
        whole = all(inner.token_to_id(byte) for byte in pre_tokenizers.ByteLevel.alphabet())
        return plain and whole and names == ["ByteLevel"] and splitters[0].get("use_regex", True)
    if model["type"] == "Unigram":
        known = names in (["Metaspace"], ["WhitespaceSplit", "Metaspace"])
        return known and not model.get("byte_fallback") and _splits_evenly(splitters[-1])
    return False


def _splits_evenly(metaspace: Settings) -> bool:
    """Whether a Metaspace treats every word alike, and splits at every space."""
    scheme = metaspace.get("prepend_scheme", "always")
    return metaspace.get("split", True) and scheme in ("always", "never")
