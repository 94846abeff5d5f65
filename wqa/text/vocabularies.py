"""Tokenizers from the classic vocabulary files, built with the `tokenizers` library.

Each builder takes a directory and the settings of its ``tokenizer_config.json``, and gives the
function that the encoder was pretrained with.
"""

from __future__ import annotations

import json
import pathlib
import re
import struct
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from wqa.errors import EncoderError

Settings = Dict[str, Any]


def read_settings(folder: pathlib.Path) -> Settings:
    """Read ``tokenizer_config.json``.

    Parameters
    ----------
    folder : pathlib.Path

    Returns
    -------
    dict
        Empty where the file is absent.
    """
    path = folder / "tokenizer_config.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def wordpiece(folder: pathlib.Path, settings: Settings) -> tokenizers.Tokenizer:
    """BERT's and ELECTRA's tokenizer, from ``vocab.txt``.

    A vocabulary without lower-cased settings beside it counts as cased where its words are: the
    encoders' oldest directories say nothing else about it.

    Parameters
    ----------
    folder : pathlib.Path
    settings : dict

    Returns
    -------
    tokenizers.Tokenizer
    """
    vocab = models.WordPiece.read_file(str(folder / "vocab.txt"))
    return _wordpiece(vocab, settings.get("do_lower_case", not _is_cased(vocab)), settings)


def zoo_wordpiece(path: pathlib.Path) -> tokenizers.Tokenizer:
    """BERT's tokenizer from a ``.vocab`` file of GluonNLP's zoo.

    Parameters
    ----------
    path : pathlib.Path

    Returns
    -------
    tokenizers.Tokenizer

    Raises
    ------
    EncoderError
        If it is not a WordPiece vocabulary.
    """
    words = json.loads(path.read_text(encoding="utf-8")).get("idx_to_token") or []
    if "[CLS]" not in words:
        raise EncoderError(
            path,
            "no WordPiece vocabulary",
            "a BERT's .vocab",
            "for RoBERTa put vocab.json and merges.txt beside the weights",
        )
    vocab = {word: number for number, word in enumerate(words)}
    return _wordpiece(vocab, not _is_cased(vocab), {})


def byte_level(folder: pathlib.Path, settings: Settings) -> tokenizers.Tokenizer:
    """RoBERTa's tokenizer, byte-level BPE, from ``vocab.json`` and ``merges.txt``.

    Parameters
    ----------
    folder : pathlib.Path
    settings : dict

    Returns
    -------
    tokenizers.Tokenizer
    """
    inner = tokenizers.Tokenizer(
        models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    )
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


def sentencepiece(folder: pathlib.Path, settings: Settings) -> tokenizers.Tokenizer:
    """ALBERT's tokenizer, a SentencePiece unigram model, from ``spiece.model``.

    Parameters
    ----------
    folder : pathlib.Path
    settings : dict

    Returns
    -------
    tokenizers.Tokenizer

    Raises
    ------
    EncoderError
        If the file is cut off or holds another kind of model.
    """
    path = folder / "spiece.model"
    pieces, kind, unknown, charsmap = read_sentencepiece(path)
    if kind != 1 or not pieces:
        raise EncoderError(path, "not a unigram model", "ALBERT's spiece.model")
    # The original splits a piece that ends in a digit and a comma; a penalty keeps such pieces from
    # being chosen.
    scores = [
        (text, score - 100 if re.search(r"\d,$", text) else score) for text, score, _ in pieces
    ]
    inner = tokenizers.Tokenizer(models.Unigram(scores, unknown, False))
    steps: List[normalizers.Normalizer] = [
        normalizers.Replace("``", '"'),
        normalizers.Replace("''", '"'),
    ]
    if not settings.get("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.get("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    if charsmap:
        steps.append(normalizers.Precompiled(charsmap))
    inner.normalizer = normalizers.Sequence(steps)
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always"),
        ]
    )
    inner.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    _register(inner, [text for text, _, kind in pieces if kind in (UNKNOWN, CONTROL, USER_DEFINED)])
    _bert_pairs(inner)
    return inner


#: Kinds of SentencePiece's pieces that text is not split into.
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4


def read_sentencepiece(path: pathlib.Path) -> Tuple[List[Tuple[str, float, int]], int, int, bytes]:
    """Read a SentencePiece model, a protocol buffer.

    Parameters
    ----------
    path : pathlib.Path

    Returns
    -------
    pieces : list of (str, float, int)
        Text, score and kind of each; 1 is a normal piece.
    kind : int
        Of the model; 1 is unigram.
    unknown : int
        The unknown piece's number.
    charsmap : bytes
        Compiled normalization rules.

    Raises
    ------
    EncoderError
        If the file is cut off.
    """
    pieces, kind, unknown, charsmap = [], 1, 0, b""
    try:
        for field, value in _fields(path.read_bytes()):
            if field == 1:  # a piece
                parts = dict(_fields(value))
                pieces.append((parts[1].decode("utf-8"), parts.get(2, 0.0), parts.get(3, 1)))
            elif field == 2:  # how it was trained
                parts = dict(_fields(value))
                kind, unknown = parts.get(3, 1), parts.get(40, 0)
            elif field == 3:  # how text is normalized
                charsmap = dict(_fields(value)).get(2, b"")
    except (IndexError, KeyError, ValueError, AttributeError) as error:
        raise EncoderError(
            path, f"cannot be read ({error})", "a SentencePiece model", "fetch the file again"
        ) from None
    return pieces, kind, unknown, charsmap


def _fields(message: bytes) -> Iterator[Tuple[int, Any]]:
    """Numbers and values of a protocol buffer's fields: whole numbers, floats, or bytes."""
    place = 0
    value: Any
    while place < len(message):
        key, place = _varint(message, place)
        if key & 7 == 0:
            value, place = _varint(message, place)
        elif key & 7 == 5:
            value, place = struct.unpack_from("<f", message, place)[0], place + 4
        elif key & 7 in (1, 2):
            size, place = (8, place) if key & 7 == 1 else _varint(message, place)
            value, place = message[place : place + size], place + size
        else:
            raise ValueError(f"field of unknown type {key & 7}")
        if place > len(message):
            raise ValueError("the file ends within a field")
        yield key >> 3, value


def _varint(message: bytes, place: int) -> Tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place


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
    _bert_pairs(inner)
    return inner


def _is_cased(vocab: Dict[str, int]) -> bool:
    return any(re.match(r"[A-Z]", word) for word in vocab)


def _bert_pairs(inner: tokenizers.Tokenizer) -> None:
    start, separator = inner.token_to_id("[CLS]"), inner.token_to_id("[SEP]")
    if start is not None and separator is not None:
        inner.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", start), ("[SEP]", separator)],
        )


def _register(inner: tokenizers.Tokenizer, names: Sequence[Optional[str]]) -> None:
    # RoBERTa's and ALBERT's mask takes the space before it, as in their released tokenizers.
    strips = ("<mask>", "[MASK]") if inner.token_to_id("[PAD]") is None else ()
    inner.add_special_tokens(
        [
            tokenizers.AddedToken(name, lstrip=name in strips, special=True, normalized=False)
            for name in names
            if name and inner.token_to_id(name) is not None
        ]
    )
