"""Reads the ``tokenizer.json`` of words that `wqa.text.words.WordTokenizer.save` writes."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Dict

from wqa.config import parse_json
from wqa.config.reading import open_file
from wqa.errors import EncoderError, OptionError, shorten
from wqa.text.words import FORMAT, WordTokenizer

#: How the ``tokenizer.json`` of words starts; that of the `tokenizers` library has another key.
_START = re.compile(rb'\s*\{\s*"words_format"')
#: Bytes of a file that are searched for this start.
_START_BYTES = 100
#: Fields of the file, and the type of each.
_FIELDS = {"words_format": int, "buckets": int, "masks_digits": bool, "words": list}


def is_word_tokenizer(path: pathlib.Path) -> bool:
    """Whether a ``tokenizer.json`` holds words, as `WordTokenizer.save` writes them."""
    with open_file(path) as file:
        return _START.match(file.read(_START_BYTES)) is not None


def read_word_tokenizer(path: pathlib.Path) -> WordTokenizer:
    """Read a tokenizer of words."""
    try:
        fields = parse_json(path.read_bytes())
        _check_fields(fields)
        "".join(fields["words"]).encode("utf-8")  # an escape may be half a surrogate pair
        return WordTokenizer(fields["words"], fields["buckets"], fields["masks_digits"])
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, TypeError) as error:
        reason = str(error)
    except OptionError as error:
        reason = f"{error.where}: {error.found}"
    raise EncoderError(
        path,
        f"cannot be read ({reason})",
        "a tokenizer of words, as a run directory holds it",
        "copy the run directory again",
    ) from None


def _check_fields(fields: Dict[str, Any]) -> None:
    """Check names and types of a ``tokenizer.json``; `WordTokenizer` checks the values."""
    if set(fields) != set(_FIELDS):
        names = ", ".join(map(shorten, sorted(fields)))
        raise ValueError(f"its fields are {names}")
    for name, kind in _FIELDS.items():
        if type(fields[name]) is not kind:
            raise ValueError(f"{name} is {shorten(fields[name])}")
    if fields["words_format"] != FORMAT:
        version = shorten(fields["words_format"])
        raise ValueError(f"words_format is {version}, this version of wqa reads {FORMAT}")
    for number, word in enumerate(fields["words"], 1):
        if type(word) is not str or not word:
            raise ValueError(f"word {number} is {shorten(word)}")
