"""The tokenizer of a folder: of a pretrained encoder, of a run, or of words."""

from __future__ import annotations

import os
import pathlib
from typing import Union

import tokenizers

from wqa.errors import EncoderError
from wqa.io.encoder_directories import encoder_directory
from wqa.text.tokenizers import Tokenizer, is_library_error
from wqa.text.vocabularies import (
    byte_level,
    check_size,
    read_settings,
    sentencepiece,
    wordpiece,
    zoo_tokenizer,
)
from wqa.text.word_files import is_word_tokenizer, read_word_tokenizer

#: Greatest size of ``tokenizer.json`` in bytes. The largest published ones have 30 million.
MOST_BYTES = 1 << 28


def load_tokenizer(directory: Union[str, os.PathLike[str]]) -> Tokenizer:
    """Load the tokenizer of an encoder or run directory.

    Parameters
    ----------
    directory : str or path-like
        A directory with ``tokenizer.json``, or ``vocab.txt`` (WordPiece), or ``vocab.json`` and
        ``merges.txt`` (byte-level BPE), or ``spiece.model`` (SentencePiece), or a ``.vocab`` file
        of GluonNLP's zoo (WordPiece, or byte-level BPE with the zoo's file of merges). The first of
        these that exists is read. ``tokenizer.json`` may hold words, as
        `wqa.text.words.WordTokenizer.save` writes them. Or a tar of such a directory, or the name
        of an installed encoder, such as ``minilm``, of one of the Hugging Face hub, or of one of
        GluonNLP's zoo.

    Returns
    -------
    Tokenizer
        The tokenizer.

    Raises
    ------
    EncoderError
        If there is no such encoder, it has none of these files, or one cannot be read or is larger
        than any vocabulary.
    """
    with encoder_directory(directory) as folder:
        return _load(folder)


def _load(folder: pathlib.Path) -> Tokenizer:
    try:
        # It holds all settings: tokenizer_config.json is not read.
        path = folder / "tokenizer.json"
        if path.exists():
            check_size(path, MOST_BYTES)
            if is_word_tokenizer(path):
                return read_word_tokenizer(path)
            return Tokenizer(tokenizers.Tokenizer.from_buffer(path.read_bytes()), str(path))
        for names, build in (
            (("vocab.txt",), wordpiece),
            (("vocab.json", "merges.txt"), byte_level),
            (("spiece.model",), sentencepiece),
        ):
            if all((folder / name).exists() for name in names):
                for name in names:
                    check_size(folder / name)
                return Tokenizer(build(folder, read_settings(folder)), str(folder / names[0]))
        for path in sorted(folder.glob("*.vocab")):
            check_size(path)
            return Tokenizer(zoo_tokenizer(path), str(path))
    except EncoderError:
        raise
    except BaseException as error:  # the library raises bare Exception for a malformed file
        if not is_library_error(error):
            raise
        raise EncoderError(
            folder, f"the tokenizer cannot be read ({error})", mend="fetch the files again"
        ) from None
    raise EncoderError(
        folder,
        "holds no tokenizer",
        "tokenizer.json, vocab.txt, vocab.json with merges.txt, or spiece.model",
    )
