"""Reader of published word vectors: Numberbatch, GloVe, and others in word2vec's text form.

A file is read once from start to end, in memory that depends on the vocabulary alone. The numbers
of a row are parsed where its word is in the vocabulary; of all other rows the columns are counted.
"""

from __future__ import annotations

import itertools
import pathlib
import re
from typing import IO, Collection, Dict, Iterator, Tuple

import numpy as np

from wqa.data.word_vectors import MOST_UNITS, WordVectors, no_overlap, table_keys
from wqa.errors import DataError, shorten
from wqa.io.files import PathLike, sha256
from wqa.io.lines import bounded_lines, damage_errors, decoded, open_bytes
from wqa.io.progress import with_bar

#: Greatest length of a line in bytes.
_LONGEST_LINE = 1 << 20
#: Bytes of a file from which its format is told.
_SAMPLE = 1 << 16
#: Keys of Numberbatch: those of English words, and of all languages.
_ENGLISH, _CONCEPT = "/c/en/", "/c/"

_HEADER = re.compile(rb"\s*([0-9]{1,12})[ \t]+([0-9]{1,12})\s*")
_HINT = "fetch the file again"


def read_vector_file(
    path: PathLike, vocabulary: Collection[str], progress: bool = False
) -> WordVectors:
    """Read the vectors of a vocabulary from a published file.

    A word of the file that is not lower-cased stands for its lower-cased form where the file has no
    vector of that. Of several rows of one word the first counts.

    Parameters
    ----------
    path : str or path-like
        The file; it is unpacked if its name ends in ``.gz``.
    vocabulary : collection of str
        Words of some texts, lower-cased.
    progress : bool
        Show a bar on standard error.

    Returns
    -------
    WordVectors
        The words in the order of the file. ``meta`` holds ``kind``, the format, ``source``, the
        name of the file, ``source_sha256``, ``rows``, the number of its words, and
        ``masks_digits``.

    Raises
    ------
    DataError
        If the file cannot be read or is cut off; a row has another number of columns, or a word
        that is not UTF-8; a number of the vocabulary's rows is malformed or not finite; or none of
        the words is in the vocabulary. The message names the line.
    """
    kind = tell_format(path)
    masks_digits = kind != "glove"
    keys = table_keys(vocabulary, masks_digits)
    # Number, vector and word of the row that is chosen for a key: that of the word itself, or else
    # of a cased form of it.
    chosen: Dict[str, Tuple[int, np.ndarray, str]] = {}
    count = 0
    with open_bytes(path) as file:
        rows = _rows(file, path)
        for where, raw, numbers in with_bar(rows, None, "reading vectors", progress, "row"):
            count += 1
            word = decoded(raw, where)
            if word.startswith(_ENGLISH):
                word = word[len(_ENGLISH) :]
            elif word.startswith(_CONCEPT):
                continue
            key = word if word in keys else word.lower()
            if key not in keys:
                continue
            if key not in chosen or (word == key and chosen[key][2] != key):
                chosen[key] = (count, _vector(numbers, where), word)
    if not chosen:
        raise no_overlap(path, count, vocabulary)
    words = sorted(chosen, key=lambda key: chosen[key][0])
    vectors = np.array([chosen[key][1] for key in words], np.float32)
    meta = {
        "kind": kind,
        "source": pathlib.Path(path).name,
        "source_sha256": sha256(path),
        "rows": count,
        "masks_digits": masks_digits,
    }
    return WordVectors(words, vectors, meta)


def _number(text: bytes) -> float:
    """A number as files write it; Python's own literals may hold an underscore, as 1_0."""
    if b"_" in text:
        raise ValueError(f"could not convert string to float: {text!r}")
    return float(text)


def _vector(numbers: bytes, where: str) -> np.ndarray:
    """Elements of a row."""
    try:
        elements = [_number(number) for number in numbers.split(b" ")]
    except ValueError as error:
        raise DataError(where, f"not a number ({error})", "numbers", _HINT) from None
    with np.errstate(over="ignore"):  # it is refused below
        vector = np.array(elements).astype(np.float32)
    if not np.isfinite(vector).all():
        number = int(np.isfinite(vector).argmin()) + 1
        raise DataError(where, f"number {number} is not finite", "finite numbers", _HINT)
    return vector


def tell_format(path: PathLike) -> str:
    """Tell the format of a file from its first bytes, and Numberbatch's by its name too.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    str
        "numberbatch", "word2vec", whose first line is the number of words and of their vectors'
        elements, or "glove", which has no such line.

    Raises
    ------
    DataError
        If the file cannot be read.
    """
    with open_bytes(path) as file, damage_errors(path, "fetch it again"):
        sample = file.read(_SAMPLE)
    first, _, rest = sample.partition(b"\n")
    header = _HEADER.fullmatch(first)
    start = rest if header else first
    if "numberbatch" in pathlib.Path(path).name.lower() or start.startswith(_CONCEPT.encode()):
        return "numberbatch"
    return "word2vec" if header else "glove"


def _rows(file: IO[bytes], path: PathLike) -> Iterator[Tuple[str, bytes, bytes]]:
    """Place, word and numbers of each row; the header, or else the first row, tells how many."""
    lines = bounded_lines(file, path, _LONGEST_LINE)
    number, first = next(lines, (0, b""))
    if not number:
        raise DataError(path, "the file is empty", "word vectors", _HINT)
    header = _HEADER.fullmatch(first)
    if header is None:
        lines = itertools.chain([(number, first)], lines)
    units = int(header[2]) if header else first.rstrip(b" \r\n").count(b" ")
    if not 1 <= units <= MOST_UNITS:
        expected = f"vectors of 1 to {MOST_UNITS:,} elements"
        raise DataError(f"{path}, line {number}", f"vectors of {units:,} elements", expected, _HINT)
    rows = 0
    for number, raw in lines:
        where = f"{path}, line {number}"
        line = raw.rstrip(b" \r\n")  # word2vec ends each line with a space
        spaces = line.count(b" ")
        word = line.rsplit(b" ", units)[0]
        numbers = line[len(word) + 1 :]
        if spaces < units or (spaces > units and not _has_spaces(word)):
            problem = f"{spaces + 1} columns, {shorten(line)}"
            expected = f"{units + 1}: a word and {units} numbers, separated by single spaces"
            raise DataError(where, problem, expected, _HINT)
        rows += 1
        yield where, word, numbers
    if header and rows != int(header[1]):
        wanted = f"{int(header[1]):,}, as its header says"
        raise DataError(path, f"{rows:,} rows of words", wanted, "fetch it again")


def _has_spaces(word: bytes) -> bool:
    """Whether a word holds spaces, as ". . ." in GloVe's files, rather than an extra number."""
    try:
        _number(word.rpartition(b" ")[2])
    except ValueError:
        return True
    return False
