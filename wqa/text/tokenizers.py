"""Tokenizers from the files that pretrained encoders come with, by the `tokenizers` library."""

from __future__ import annotations

import hashlib
import os
import pathlib
from typing import List, Sequence, Union

import tokenizers

from wqa.config import FAMILIES, PAIR_FORMS, BackboneConfig
from wqa.data import atomic_writer
from wqa.errors import EncoderError, InputError, shorten
from wqa.text.vocabularies import byte_level, read_settings, sentencepiece, wordpiece, zoo_wordpiece


class Tokenizer:
    """A tokenizer without special tokens, and the ids of those that a pair input needs.

    Parameters
    ----------
    inner : tokenizers.Tokenizer
        Its own truncation and padding are switched off.
    where : str
        The file it came from, for messages.
    """

    def __init__(self, inner: tokenizers.Tokenizer, where: str = "tokenizer") -> None:
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        # Families share tokens; each set of tokens is tried and named once.
        forms = {family.special_tokens: family.pair_form for family in FAMILIES.values()}
        for names, form in forms.items():
            ids = [number for number in map(inner.token_to_id, names) if number is not None]
            if len(ids) == len(names):
                self.pair_form = form
                self.start_id: int = ids[0]
                self.separator_id: int = ids[1]
                self.padding_id: int = ids[2]
                return
        raise EncoderError(
            where,
            "has none of " + ", ".join(map(" ".join, forms)),
            "a tokenizer of one of the families " + ", ".join(FAMILIES),
        )

    @property
    def vocab_size(self) -> int:
        """Number of token ids, added tokens included."""
        return self._inner.get_vocab_size(with_added_tokens=True)

    def check_fits(self, config: BackboneConfig, where: object) -> None:
        """Refuse a tokenizer of another encoder, whose ids would silently stand for other words.

        Parameters
        ----------
        config : BackboneConfig
        where : object
            The directory, for messages.

        Raises
        ------
        EncoderError
            If its ids exceed the encoder's vocabulary, or its pairs have another form.
        """
        if self.pair_form != config.pair_form:
            raise EncoderError(
                where,
                f"a {config.family.name} encoder with a tokenizer for {self.pair_form}'s pairs",
                f"a tokenizer for {config.pair_form}'s pairs",
            )
        if PAIR_FORMS[self.pair_form].typed and config.token_types < 2:
            raise EncoderError(
                where, "an encoder with one token type", "two: the question's and the candidate's"
            )
        if self.vocab_size > config.vocab_size:
            raise EncoderError(
                where,
                f"a tokenizer of {self.vocab_size} ids",
                f"at most {config.vocab_size}, the encoder's",
            )

    def encode(self, texts: Sequence[str]) -> List[List[int]]:
        """Token ids of each text, without special tokens and without a length limit.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        list of list of int

        Raises
        ------
        InputError
            If a text holds half a surrogate pair, which no encoding can represent.
        """
        try:
            return [
                encoding.ids
                for encoding in self._inner.encode_batch(list(texts), add_special_tokens=False)
            ]
        except (UnicodeEncodeError, TypeError):
            for text in texts:
                try:
                    text.encode("utf-8")
                except (UnicodeEncodeError, AttributeError):
                    raise InputError(
                        "text", shorten(text), "a string of whole characters"
                    ) from None
            raise

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that settles its ids, in hexadecimal."""
        return hashlib.sha256(self._inner.to_str().encode("utf-8")).hexdigest()

    def token(self, number: int) -> str:
        """Text of a token id.

        Parameters
        ----------
        number : int

        Returns
        -------
        str
        """
        return self._inner.id_to_token(number) or ""

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write ``tokenizer.json``.

        Parameters
        ----------
        path : str or path-like
        """
        with atomic_writer(path) as file:
            file.write(self._inner.to_str(pretty=True))


def load_tokenizer(directory: Union[str, os.PathLike[str]]) -> Tokenizer:
    """Load the tokenizer of an encoder or run directory.

    Parameters
    ----------
    directory : str or path-like
        Holds ``tokenizer.json``, or ``vocab.txt`` (WordPiece), or ``vocab.json`` and ``merges.txt``
        (byte-level BPE), or ``spiece.model`` (SentencePiece), or one ``.vocab`` file of GluonNLP's
        for a BERT of its zoo (WordPiece); the first of these that is there is taken.

    Returns
    -------
    Tokenizer

    Raises
    ------
    EncoderError
        If none of them is there, or one cannot be read.
    """
    folder = pathlib.Path(directory)
    try:
        for names, build in (
            (("tokenizer.json",), _complete),
            (("vocab.txt",), wordpiece),
            (("vocab.json", "merges.txt"), byte_level),
            (("spiece.model",), sentencepiece),
        ):
            if all((folder / name).exists() for name in names):
                return Tokenizer(build(folder, read_settings(folder)), str(folder / names[0]))
        for path in sorted(folder.glob("*.vocab")):
            return Tokenizer(zoo_wordpiece(path), str(path))
    except EncoderError:
        raise
    except Exception as error:  # the library raises bare Exception for a malformed file
        raise EncoderError(
            folder, f"the tokenizer cannot be read ({error})", mend="fetch the files again"
        ) from None
    raise EncoderError(
        folder,
        "holds no tokenizer",
        "tokenizer.json, vocab.txt, vocab.json with merges.txt, or spiece.model",
    )


def _complete(folder: pathlib.Path, settings: dict) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
