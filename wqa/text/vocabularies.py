"""Tokenizers from the classic vocabulary files, built with the `tokenizers` library.

Each builder takes a directory and the settings of its ``tokenizer_config.json``, and returns the
tokenizer that the encoder was pretrained with. `load_tokenizer` chooses among them.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any, Dict, List, Sequence, Tuple, Union

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from wqa.config import read_json
from wqa.errors import EncoderError, shorten
from wqa.io.encoder_directories import encoder_directory
from wqa.text.tokenizers import Tokenizer, is_library_error
from wqa.text.words import is_word_tokenizer, read_word_tokenizer

Settings = Dict[str, Any]

#: Settings of ``tokenizer_config.json`` that are read.
FLAGS = (
    "add_prefix_space",
    "do_lower_case",
    "strip_accents",
    "tokenize_chinese_chars",
)

#: Greatest size of a vocabulary file in bytes. The largest published ones have 15 million.
MOST_BYTES = 1 << 26
#: Greatest number of words of a byte-level vocabulary.
MOST_WORDS = 1 << 24

#: Start of the name of the zoo's file of merges.
ZOO_MERGES = "openai_webtext_bpe_ranks"


def check_size(path: pathlib.Path, most: int = MOST_BYTES) -> None:
    """Refuse what is no plain file, or is too large, before it is read."""
    if not path.is_file():
        raise EncoderError(path, "is no file", "a file of a tokenizer")
    size = path.stat().st_size
    if size > most:
        raise EncoderError(path, f"{size:,} bytes", f"a tokenizer of at most {most:,}")


def read_settings(folder: pathlib.Path) -> Settings:
    """Read ``tokenizer_config.json``."""
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return {}
    check_size(path)
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise EncoderError(path, f"a {type(settings).__name__}", "a JSON object")
    for name in FLAGS:
        if not isinstance(settings.get(name, False), (bool, type(None))):
            raise EncoderError(path, f"{name} {shorten(settings[name])}", "true or false")
    # Some tokenizers divide texts into words in a way of their own.
    kind = settings.get("tokenizer_class")
    words = settings.get("word_tokenizer_type")
    if kind == "BertJapaneseTokenizer" or words not in (None, "basic"):
        problem = f"a {shorten(kind or 'tokenizer')} with word_tokenizer_type {shorten(words)}"
        expected = "a tokenizer that the encoder's vocabulary defines alone"
        hint = "save it as tokenizer.json by the tokenizers library, if it can be"
        raise EncoderError(path, problem, expected, hint)
    # null stands for the default.
    return {name: value for name, value in settings.items() if value is not None}


def wordpiece(folder: pathlib.Path, settings: Settings) -> tokenizers.Tokenizer:
    """BERT's and ELECTRA's tokenizer, from ``vocab.txt``.

    The id of a word is the number of its line, from 0 on; that of the last such line if there are
    several, as in Hugging Face's library.

    If the settings do not say whether texts are lower-cased, the vocabulary decides: it is cased if
    it has a word with a capital letter. The oldest directories of encoders lack the settings.
    """
    words = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    if not words[-1]:
        words.pop()  # behind the last line's end
    vocab = {word: index for index, word in enumerate(words)}
    return _wordpiece(vocab, settings.get("do_lower_case", not _is_cased(vocab)), settings)


def zoo_tokenizer(path: pathlib.Path) -> tokenizers.Tokenizer:
    """BERT's or RoBERTa's tokenizer from a ``.vocab`` file of GluonNLP's zoo.

    RoBERTa's is byte-level BPE, whose merges are in a file of the zoo beside it.
    """
    values = read_json(path)
    words: Any = values.get("idx_to_token") if isinstance(values, dict) else None
    strings = isinstance(words, list) and all(isinstance(word, str) for word in words)
    if not strings or not {"[CLS]", "<s>"} & set(words):
        raise EncoderError(path, "no vocabulary of words", "a BERT's or a RoBERTa's .vocab")
    _check_words(path, words)
    vocab = {word: index for index, word in enumerate(words)}
    if "[CLS]" in vocab:
        return _wordpiece(vocab, not _is_cased(vocab), {})
    files = sorted(path.parent.glob(f"{ZOO_MERGES}*.json"))
    if not files:
        problem = f"a RoBERTa's vocabulary without its tokenizer's merges, {ZOO_MERGES}-....json"
        hint = "copy it from the folder where nlp.data.GPT2BPETokenizer() has put it, or put "
        hint += "vocab.json and merges.txt there"
        raise EncoderError(path, problem, "both beside the weights", hint)
    return _byte_level(path, models.BPE(vocab, read_merges(files[0])), {})


def read_merges(path: pathlib.Path) -> List[Tuple[str, str]]:
    """Read the merges of GluonNLP's byte-level BPE: a line each, below a line of the version."""
    check_size(path)
    merges = []
    lines = path.read_text(encoding="utf-8").split("\n")[1:-1]
    for number, line in enumerate(lines, start=2):
        parts = line.split(" ")
        if len(parts) != 2 or not all(parts):
            where, expected = f"{path}, line {number}", "two parts of a word"
            raise EncoderError(where, shorten(line), expected, "fetch it again")
        merges.append((parts[0], parts[1]))
    return merges


def byte_level(folder: pathlib.Path, settings: Settings) -> tokenizers.Tokenizer:
    """RoBERTa's tokenizer, byte-level BPE, from ``vocab.json`` and ``merges.txt``."""
    words = folder / "vocab.json"
    model = models.BPE.from_file(str(words), str(folder / "merges.txt"))
    return _byte_level(words, model, settings)


def _byte_level(path: pathlib.Path, model: models.BPE, settings: Settings) -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(model)
    greatest = max(inner.get_vocab(with_added_tokens=False).values(), default=0)
    if greatest >= MOST_WORDS:  # the library takes memory for all ids below it
        raise EncoderError(path, f"a word of id {greatest}", f"ids below {MOST_WORDS}")
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    missing = [byte for byte in alphabet if inner.token_to_id(byte) is None]
    if missing:
        problem, hint = f"lacks {len(missing)} of the 256 bytes", "fetch the file again"
        raise EncoderError(path, problem, "a byte-level vocabulary", hint)
    spaced = settings.get("add_prefix_space", False)
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    inner.decoder = decoders.ByteLevel()
    _register(inner, ("<s>", "</s>", "<pad>", "<unk>", "<mask>"))
    start, end = inner.token_to_id("<s>"), inner.token_to_id("</s>")
    if start is not None and end is not None:
        inner.post_processor = processors.RobertaProcessing(
            ("</s>", end), ("<s>", start), add_prefix_space=spaced
        )
    return inner


def _wordpiece(vocab: Dict[str, int], lowercase: bool, settings: Settings) -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase,
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    _register(inner, ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"))
    start, separator = inner.token_to_id("[CLS]"), inner.token_to_id("[SEP]")
    if start is not None and separator is not None:
        inner.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", start), ("[SEP]", separator)],
        )
    return inner


def _check_words(path: pathlib.Path, words: Sequence[str]) -> None:
    """Refuse a vocabulary with a word twice, where it is unclear which id the encoder means."""
    first: Dict[str, int] = {}
    for index, word in enumerate(words):
        if word and first.setdefault(word, index) != index:
            problem = f"word {shorten(word)} has the ids {first[word]} and {index}"
            raise EncoderError(path, problem, "each word once", "fetch the file again")


def _is_cased(vocab: Dict[str, int]) -> bool:
    return any(re.match(r"[A-Z]", word) for word in vocab)


def _register(inner: tokenizers.Tokenizer, names: Sequence[str]) -> None:
    for name in names:
        if inner.token_to_id(name) is not None:
            # RoBERTa's mask takes the space before it, as in its released tokenizer.
            strips = name == "<mask>"
            token = tokenizers.AddedToken(name, lstrip=strips, special=True, normalized=False)
            inner.add_special_tokens([token])


#: Greatest size of ``tokenizer.json`` in bytes. The largest published ones have 30 million.
MOST_JSON_BYTES = 1 << 28


def load_tokenizer(directory: Union[str, os.PathLike[str]]) -> Tokenizer:
    """Load the tokenizer of an encoder or run directory.

    Parameters
    ----------
    directory : str or path-like
        A directory with ``tokenizer.json``, or ``vocab.txt`` (WordPiece), or ``vocab.json`` and
        ``merges.txt`` (byte-level BPE), or a ``.vocab`` file of GluonNLP's zoo (WordPiece, or
        byte-level BPE with the zoo's file of merges). The first of these that exists is read.
        ``tokenizer.json`` may hold words, as `wqa.text.words.WordTokenizer.save` writes them. Or a
        tar of such a directory, or the name of an installed encoder, such as ``minilm``, of one of
        the Hugging Face hub, or of one of GluonNLP's zoo.

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
            check_size(path, MOST_JSON_BYTES)
            if is_word_tokenizer(path):
                return read_word_tokenizer(path)
            return Tokenizer(tokenizers.Tokenizer.from_buffer(path.read_bytes()), str(path))
        for names, build in (
            (("vocab.txt",), wordpiece),
            (("vocab.json", "merges.txt"), byte_level),
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
        problem = f"the tokenizer cannot be read ({error})"
        raise EncoderError(folder, problem, hint="fetch the files again") from None
    expected = "tokenizer.json, vocab.txt, or vocab.json with merges.txt"
    hint = "for spiece.model: transformers' AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
    raise EncoderError(folder, "holds no tokenizer", expected, hint)
