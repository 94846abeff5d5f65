"""Tokenizers from the files that pretrained encoders come with, by the `tokenizers` library."""
from __future__ import annotations

import json
import os
import pathlib
from typing import List, Sequence, Union

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from wqa.config import BackboneConfig
from wqa.data import atomic_writer
from wqa.errors import EncoderError, InputError, shorten

#: Start, separator and padding tokens of the two pair layouts.
SPECIALS = {"bert": ("[CLS]", "[SEP]", "[PAD]"), "roberta": ("<s>", "</s>", "<pad>")}


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
        for layout, names in SPECIALS.items():
            ids = [number for number in map(inner.token_to_id, names) if number is not None]
            if len(ids) == len(names):
                self.layout = layout
                self.start_id: int = ids[0]
                self.separator_id: int = ids[1]
                self.padding_id: int = ids[2]
                return
        raise EncoderError(where, "has neither [CLS] [SEP] [PAD] nor <s> </s> <pad>",
                           "the tokenizer of a BERT or RoBERTa encoder")

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
            If its ids exceed the encoder's vocabulary, or its pair layout is another.
        """
        if self.layout != config.layout:
            raise EncoderError(where, f"a {config.layout} encoder with a {self.layout} tokenizer", "both of one kind")
        if self.vocab_size > config.vocab_size:
            raise EncoderError(where, f"a tokenizer of {self.vocab_size} ids", f"at most {config.vocab_size}, the encoder's")

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
            return [encoding.ids for encoding in self._inner.encode_batch(list(texts), add_special_tokens=False)]
        except (UnicodeEncodeError, TypeError):
            for text in texts:
                try:
                    text.encode("utf-8")
                except (UnicodeEncodeError, AttributeError):
                    raise InputError("text", shorten(text), "a string of whole characters") from None
            raise

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
        Holds ``tokenizer.json``, or ``vocab.txt`` (WordPiece), or ``vocab.json`` and
        ``merges.txt`` (byte-level BPE); the first of these that is there is taken.

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
        if (folder / "tokenizer.json").exists():
            return Tokenizer(tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), str(folder / "tokenizer.json"))
        if (folder / "vocab.txt").exists():
            return Tokenizer(_wordpiece(folder), str(folder / "vocab.txt"))
        if (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
            return Tokenizer(_byte_level(folder), str(folder / "vocab.json"))
    except EncoderError:
        raise
    except Exception as error:  # the library raises bare Exception for a malformed file
        raise EncoderError(folder, f"the tokenizer cannot be read ({error})", mend="fetch the files again") from None
    raise EncoderError(folder, "holds no tokenizer", "tokenizer.json, vocab.txt, or vocab.json with merges.txt")


def _settings(folder: pathlib.Path) -> dict:
    path = folder / "tokenizer_config.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _wordpiece(folder: pathlib.Path) -> tokenizers.Tokenizer:
    settings = _settings(folder)
    lowercase = settings.get("do_lower_case", True)
    inner = tokenizers.Tokenizer(models.WordPiece.from_file(str(folder / "vocab.txt"), unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    _register(inner, ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"))
    return inner


def _byte_level(folder: pathlib.Path) -> tokenizers.Tokenizer:
    settings = _settings(folder)
    inner = tokenizers.Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=settings.get("add_prefix_space", False))
    inner.decoder = decoders.ByteLevel()
    _register(inner, ("<s>", "</s>", "<pad>", "<unk>", "<mask>"))
    return inner


def _register(inner: tokenizers.Tokenizer, names: Sequence[str]) -> None:
    # RoBERTa's mask takes the space before it, as in its released tokenizer.
    inner.add_special_tokens([tokenizers.AddedToken(name, lstrip=name == "<mask>", special=True)
                              for name in names if inner.token_to_id(name) is not None])
