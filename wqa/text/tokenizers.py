"""Tokenizers from the files that pretrained encoders come with, by the `tokenizers` library."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Dict, List, NamedTuple, Optional, Sequence, Union

import numpy as np
import tokenizers

from wqa.config import FAMILIES, PAIR_FORMS, BackboneConfig
from wqa.errors import EncoderError, InputError, shorten
from wqa.io.files import atomic_writer

#: A text of more characters for each id that is needed is not tokenized whole.
LONG_TEXT = 32
#: Characters of the first start of a text that is tokenized, for each id that is needed.
CHARACTERS_A_TOKEN = 8
#: Characters before the end of a start whose tokens may depend on what follows.
MARGIN = 512
#: Most characters of a text that are read.
MOST_READ = 1 << 20
#: Texts of rare characters, one of which no vocabulary of words has, and an ordinary one.
PROBES = ("\u2603", "\u3402 \ua66e", "\U00010000", "How were caf\u00e9s, 1,234 of them, called?")

#: Least share of the rows of a word table that a tokenizer's ids must cover. Some encoders have
#: thousands of rows that no token uses; the tokenizer of another encoder often has far fewer ids.
LEAST_USED = 0.5


class Located(NamedTuple):
    """Tokens of a text with the characters that they cover.

    Attributes
    ----------
    token_ids : numpy.ndarray
        (n,) int32, without special tokens.
    starts, ends : numpy.ndarray
        (n,) first character of each token, and the one behind its last. White space around a token
        does not belong to it; the two are equal for a token of white space alone.
    """

    token_ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Tokenizer:
    """A tokenizer without special tokens, and the ids of those that a pair input needs.

    Parameters
    ----------
    inner : tokenizers.Tokenizer
        The tokenizer of the `tokenizers` library. Its truncation and padding are switched off.
    where : str
        The file that it was read from, for messages.

    Attributes
    ----------
    pair_form : {"bert", "roberta"}
        The form of a pair input: ``[CLS] q [SEP] c [SEP]`` or ``<s> q </s></s> c </s>``.
    start_id, separator_id, padding_id : int
        Token ids of the special tokens.
    vocab_size : int
        The greatest token id plus one, added tokens included. Not all lower ids need exist.

    Raises
    ------
    EncoderError
        If it has no such special tokens, two tokens have one id, or it cannot tokenize every text.
    """

    #: Name of its file, for messages.
    _where = "tokenizer"
    _mask_id: Optional[int] = None

    def __init__(self, inner: tokenizers.Tokenizer, where: str = "tokenizer") -> None:
        inner.no_truncation()
        inner.no_padding()
        self._inner, self._where = inner, where
        self.vocab_size = _count_ids(inner, where)
        _check_unknown(inner, where)
        # Families share tokens; each set of tokens is tried and named once. MPNet's vocabulary has
        # BERT's special tokens as words, so that those that the file calls special come first.
        families = {family.special_tokens: family for family in FAMILIES.values()}
        special = _special_tokens(inner)
        by_use = sorted(families.items(), key=lambda item: not special.keys() >= set(item[0]))
        for names, family in by_use:
            ids = [token_id for token_id in map(inner.token_to_id, names) if token_id is not None]
            if len(ids) == len(names):
                self.pair_form = family.pair_form
                self.start_id: int = ids[0]
                self.separator_id: int = ids[1]
                self.padding_id: int = ids[2]
                self._mask_id = inner.token_to_id(family.mask_token)
                return
        expected = "a tokenizer of one of the families " + ", ".join(FAMILIES)
        problem = "has none of " + ", ".join(map(" ".join, families))
        raise EncoderError(where, problem, expected)

    @property
    def mask_id(self) -> int:
        """Token id of the mask, which replaces the tokens that a model is to predict.

        Raises
        ------
        EncoderError
            If the tokenizer has no mask token.
        """
        if self._mask_id is None:
            masks = sorted({family.mask_token for family in FAMILIES.values()})
            expected = "a tokenizer with " + " or ".join(masks)
            hint = "take an encoder that was pretrained to predict masked tokens"
            raise EncoderError(self._where, "has no mask token", expected, hint)
        return self._mask_id

    def special_ids(self) -> np.ndarray:
        """Ids of the tokens that stand for no text.

        Returns
        -------
        numpy.ndarray
            (n,) int32, ascending: the start, separator, padding and mask tokens, and all that the
            tokenizer's file calls special, such as the unknown token.
        """
        ids = set(_special_tokens(self._inner).values())
        ids |= {self.start_id, self.separator_id, self.padding_id}
        if self._mask_id is not None:
            ids.add(self._mask_id)
        return np.array(sorted(ids), np.int32)

    def text_ids(self) -> np.ndarray:
        """Ids of all tokens that are not special.

        Returns
        -------
        numpy.ndarray
            (n,) int32, ascending.
        """
        ids = self._inner.get_vocab(with_added_tokens=True).values()
        return np.setdiff1d(np.array(list(ids), np.int32), self.special_ids())

    def check_fits(self, config: BackboneConfig, where: object) -> None:
        """Check that the tokenizer belongs to an encoder.

        Parameters
        ----------
        config : BackboneConfig
            The encoder's configuration.
        where : object
            The encoder's directory, for messages.

        Raises
        ------
        EncoderError
            If its ids exceed the encoder's word table or cover less than half of its rows, its
            pairs have another form, or the encoder has too few token types for them.
        """
        if self.pair_form != config.pair_form:
            problem = f"a {config.family.name} encoder and a tokenizer of {self.pair_form}'s pairs"
            raise EncoderError(where, problem, f"a tokenizer for {config.pair_form}'s pairs")
        is_typed = PAIR_FORMS[self.pair_form].typed and config.family.has_token_types
        if is_typed and config.token_types < 2:
            expected = "two: the question's and the candidate's"
            raise EncoderError(where, "an encoder with one token type", expected)
        if config.family.positions_after_padding and config.first_position != self.padding_id + 1:
            problem = f"pad_token_id {config.first_position - 1}"
            expected = f"{self.padding_id}, the tokenizer's, behind which positions begin"
            raise EncoderError(where, problem, expected, "correct it in config.json")
        problem = f"a tokenizer of {self.vocab_size} ids"
        if self.vocab_size > config.vocab_size:
            raise EncoderError(where, problem, f"at most {config.vocab_size}, the encoder's")
        if self.vocab_size < LEAST_USED * config.vocab_size:
            problem += f" for {config.vocab_size} rows of word embeddings"
            raise EncoderError(where, problem, "the encoder's own tokenizer")

    def encode(self, texts: Sequence[str], needed: Optional[int] = None) -> List[List[int]]:
        """Tokenize texts, without special tokens.

        Parameters
        ----------
        texts : sequence of str
            The texts.
        needed : int, optional
            Number of ids of a text that the caller needs, from the first on. The ids of a long
            text may end behind them, so that the rest of it is not tokenized. Without it all ids
            are returned.

        Returns
        -------
        list of list of int
            Token ids of each text.

        Raises
        ------
        InputError
            If a text holds half a surrogate pair, which no encoding can represent.
        """
        try:
            limit = LONG_TEXT * (needed or 0)
            if needed is None or max(map(len, texts), default=0) <= limit:
                return self._all_ids(texts)
            short_ids = iter(self._all_ids([text for text in texts if len(text) <= limit]))
            ids = []
            for text in texts:
                is_short = len(text) <= limit
                ids.append(next(short_ids) if is_short else self._first_ids(text, needed))
            return ids
        except (UnicodeEncodeError, TypeError, AttributeError):
            for text in texts:
                check_text(text)
            raise

    def locate(self, texts: Sequence[str]) -> List[Located]:
        """Tokenize whole texts, and say which characters each token covers.

        Parameters
        ----------
        texts : sequence of str
            The texts.

        Returns
        -------
        list of Located
            Tokens of each text. Their ids are those of `encode`.

        Raises
        ------
        InputError
            If a text has more than 1,048,576 characters, or holds half a surrogate pair, which no
            encoding can represent.
        """
        for text in texts:
            check_text(text)
            if len(text) > MOST_READ:
                problem = f"{shorten(text[:100])} of {len(text):,} characters"
                expected = f"at most {MOST_READ:,} where all of them are read"
                raise InputError("text", problem, expected, "divide the text")
        encodings = self._inner.encode_batch(list(texts), add_special_tokens=False)
        located = []
        for text, encoding in zip(texts, encodings):
            located.append(_located(text, encoding))
        return located

    def _all_ids(self, texts: Sequence[str]) -> List[List[int]]:
        encodings = self._inner.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _first_ids(self, text: str, count: int) -> List[int]:
        return first_ids(self._inner, text, count)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines its ids, in hexadecimal."""
        return hashlib.sha256(self._to_json().encode("utf-8")).hexdigest()

    def token(self, number: int) -> str:
        """Text of a token id.

        Parameters
        ----------
        number : int
            The token id.

        Returns
        -------
        str
            The text; empty if there is no such id.
        """
        return self._inner.id_to_token(number) or ""

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write ``tokenizer.json``.

        Parameters
        ----------
        path : str or path-like
            The file to write.
        """
        with atomic_writer(path) as file:
            file.write(self._to_json(pretty=True))

    def _to_json(self, pretty: bool = False) -> str:
        return self._inner.to_str(pretty)


def _located(text: str, encoding: tokenizers.Encoding) -> Located:
    """Tokens of a text, whose spans lose the white space around them."""
    starts, ends = [], []
    for start, end in encoding.offsets:
        part = text[start:end]
        start += len(part) - len(part.lstrip())
        starts.append(start)
        ends.append(start + len(part.strip()))
    return Located(
        np.array(encoding.ids, dtype=np.int32),
        np.array(starts, dtype=np.int64),
        np.array(ends, dtype=np.int64),
    )


def _special_tokens(inner: tokenizers.Tokenizer) -> Dict[str, int]:
    """Tokens that a tokenizer's file calls special, and their ids."""
    added = json.loads(inner.to_str())["added_tokens"]
    return {token["content"]: token["id"] for token in added if token["special"]}


def _count_ids(inner: tokenizers.Tokenizer, where: str) -> int:
    """The greatest token id plus one."""
    ids = inner.get_vocab(with_added_tokens=True).values()
    if len(set(ids)) < len(ids):
        hint = "fetch the files again"
        raise EncoderError(where, "two tokens have one id", "an id for each token", hint)
    return max(ids, default=-1) + 1


def _check_unknown(inner: tokenizers.Tokenizer, where: str) -> None:
    """Refuse a tokenizer that fails on what its vocabulary lacks, or leaves it out."""
    reason = "it leaves some characters out"
    try:
        encodings = inner.encode_batch(list(PROBES), add_special_tokens=False)
        if all(encoding.ids for encoding in encodings):
            return
    except BaseException as error:
        if not is_library_error(error):
            raise
        reason = str(error)
    problem = f"cannot tokenize every text ({shorten(reason)})"
    expected = "a tokenizer with its unknown token"
    raise EncoderError(where, problem, expected, "fetch the files again")


def is_library_error(error: BaseException) -> bool:
    """Whether an exception is an error of the `tokenizers` library."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def first_ids(inner: tokenizers.Tokenizer, text: str, count: int) -> List[int]:
    """Tokenize the start of a text.

    Longer and longer starts are tokenized, until enough tokens end `MARGIN` characters before the
    end of one. They are those of the whole text, unless a word of more characters is divided by
    what follows it. Of a text whose first `MOST_READ` characters have fewer tokens, these are
    returned.
    """
    check_text(text)  # the whole text, as for a short one
    size = MARGIN + CHARACTERS_A_TOKEN * count
    while True:
        encoding = inner.encode(text[:size], add_special_tokens=False)
        certain = sum(end <= size - MARGIN for _, end in encoding.offsets)
        if certain >= count or size >= min(len(text), MOST_READ):
            return encoding.ids[:count]
        size = min(4 * size, MOST_READ)


def check_text(text: object) -> None:
    """Check that a text is a string that UTF-8 can represent."""
    if isinstance(text, str):
        try:
            text.encode("utf-8")
            return
        except UnicodeEncodeError:
            pass
    raise InputError("text", shorten(text), "a string of whole characters") from None
