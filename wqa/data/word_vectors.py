"""Tables of word vectors: a vector for each of many words, in a folder of arrays.

The folder holds ``word_bytes``, the words in UTF-8 one behind the other, ``word_ends``, the byte
behind each, and ``vectors``, a row for each word. ``meta.json`` says what the vectors are and what
they were made from.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import Any, Collection, Dict, List, Optional

import numpy as np

from wqa.errors import DataError, shorten
from wqa.io.arrays import MARK, ArrayFolder, Output, reusable_folder, write_arrays
from wqa.io.files import PathLike, lock_output
from wqa.io.lines import checked_utf8

#: Changes whenever older tables can no longer be read.
FORMAT = 1
#: Word for such a folder in errors.
KIND = "table of word vectors"
#: Greatest length of a word in bytes, and of a vector.
LONGEST_WORD, MOST_UNITS = 1 << 12, 1 << 14

_TYPES: Dict[str, np.dtype] = {"word_bytes": np.dtype("u1"), "word_ends": np.dtype("<i8")}
#: Fields of ``meta.json`` that the folder itself needs, and that `WordVectors.meta` leaves out.
_FACTS = ("words", "units")
_STORED = (*_FACTS, MARK, "format", "files", "sha256")
#: Words that are written at once.
_BLOCK = 1 << 14
_HINT = "make it with `wqa embed-words`"

_TWO_DIGITS = re.compile("[0-9][0-9]")
_DIGIT = re.compile("[0-9]")


def mask_digits(word: str) -> str:
    """Replace the digits of a word by ``#`` if two of them stand side by side.

    Numberbatch (Speer et al. 2017) and the vectors of word2vec (Mikolov et al. 2013) have no other
    numbers above 9: "1995" is "####" in their files.

    Parameters
    ----------
    word : str
        A word.

    Returns
    -------
    str
        The word as such files write it.
    """
    if _TWO_DIGITS.search(word):
        return _DIGIT.sub("#", word)
    return word


@dataclasses.dataclass(frozen=True, eq=False)
class WordVectors:
    """A vector for each of many words.

    Parameters
    ----------
    words : list of str
        The V words, each once, lower-cased as `wqa.text.words.split_words` gives them.
    vectors : numpy.ndarray
        (V, D) float32, the vector of each word.
    meta : dict
        What the table is, in JSON values: ``kind``, such as ``"numberbatch"``, its source, and
        ``masks_digits``, true where numbers above 9 are looked up as `mask_digits` writes them.

    Raises
    ------
    DataError
        If there is no word, a word is empty, too long or there twice, the vectors are not V rows,
        or one of their elements is not finite.
    """

    words: List[str]
    vectors: np.ndarray
    meta: Dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_table(self, "word vectors")

    def __len__(self) -> int:
        return len(self.words)

    @property
    def units(self) -> int:
        """D, the number of elements of a vector."""
        return self.vectors.shape[1]

    @property
    def masks_digits(self) -> bool:
        """Whether numbers above 9 are looked up as `mask_digits` writes them."""
        return bool(self.meta.get("masks_digits", False))

    def restrict(self, vocabulary: Collection[str]) -> WordVectors:
        """Keep the vectors that words of a vocabulary are looked up as.

        Parameters
        ----------
        vocabulary : collection of str
            The words of some texts.

        Returns
        -------
        WordVectors
            The rows of these words, in the order of this table.

        Raises
        ------
        DataError
            If the table has none of them.
        """
        wanted = table_keys(vocabulary, self.masks_digits)
        rows = [row for row, word in enumerate(self.words) if word in wanted]
        if not rows:
            raise no_overlap("word vectors", len(self), vocabulary)
        words = [self.words[row] for row in rows]
        return WordVectors(words, self.vectors[rows], self.meta)


def table_keys(vocabulary: Collection[str], masks_digits: bool) -> Collection[str]:
    """Words of a table that the words of a vocabulary may be looked up as."""
    keys = set(vocabulary)
    if masks_digits:
        keys.update(map(mask_digits, vocabulary))
    return keys


def no_overlap(where: object, rows: int, vocabulary: Collection[str]) -> DataError:
    """Error of a table that has no word of a vocabulary."""
    some = sorted(vocabulary)[:3]
    examples = ", ".join(map(shorten, some))
    words = f"{len(vocabulary):,} of the texts, such as {examples}"
    problem = f"none of its {rows:,} words is among the {words}"
    hint = "check the files; all words would be unknown"
    return DataError(where, problem, "vectors of the language of the texts", hint)


def _check_table(table: WordVectors, where: object) -> None:
    words = table.words
    vectors = table.vectors
    sizes = f"{len(words)} words with vectors of shape {vectors.shape}, {vectors.dtype}"
    if vectors.ndim != 2 or len(vectors) != len(words) or vectors.dtype != np.float32:
        raise DataError(where, sizes, "one row of float32 for each word")
    if not words or not 1 <= vectors.shape[1] <= MOST_UNITS:
        raise DataError(where, sizes, f"at least 1 word, and 1 to {MOST_UNITS:,} elements")
    for word in words:
        checked_utf8(word, f"{where}, {shorten(word)}")
        if not 1 <= len(word.encode()) <= LONGEST_WORD:
            expected = f"1 to {LONGEST_WORD:,} bytes of UTF-8"
            raise DataError(where, f"the word {shorten(word)}", expected)
    if len(set(words)) < len(words):
        [(word, _)] = collections.Counter(words).most_common(1)
        raise DataError(where, f"the word {shorten(word)} is there twice", "each word once")
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        problem = f"the vector of {shorten(words[row])} is not finite"
        raise DataError(where, problem, "finite numbers")


def write_word_vectors(path: PathLike, table: WordVectors) -> None:
    """Write a table to a folder, which appears when it is whole.

    Parameters
    ----------
    path : str or path-like
        Folder to make. A whole table with the same ``meta`` is kept as it is; any other content is
        refused.
    table : WordVectors
        The table.

    Raises
    ------
    DataError
        If the folder is a table with other ``meta``.
    OptionError
        If the path is a file, or a folder with other files.
    StorageError
        If it cannot be written, or another process writes it.
    """
    types: Dict[str, np.dtype] = {**_TYPES, "vectors": np.dtype(("<f4", (table.units,)))}
    with lock_output(path):
        output = table_output(path)
        if reusable_folder(output, table.meta) is not None:
            return
        with write_arrays(output, types, table.meta) as writer:
            for start in range(0, len(table), _BLOCK):
                block = slice(start, start + _BLOCK)
                writer.append_texts("word", [word.encode("utf-8") for word in table.words[block]])
                writer.append("vectors", table.vectors[block])
            writer.finish({"words": len(table), "units": table.units})


def table_output(path: PathLike) -> Output:
    """The folder of a table that a command writes."""
    return Output(path, FORMAT, KIND, [*_TYPES, "vectors"])


def read_word_vectors(path: PathLike, vocabulary: Optional[Collection[str]] = None) -> WordVectors:
    """Read a table from its folder.

    Parameters
    ----------
    path : str or path-like
        The folder, as `write_word_vectors` makes it.
    vocabulary : collection of str, optional
        Words of some texts, to which the table is restricted. By default all its words are read.

    Returns
    -------
    WordVectors
        The table, in memory.

    Raises
    ------
    DataError
        If the folder is absent, incomplete, damaged, or no table of word vectors, or the table has
        none of the words.
    """
    folder = ArrayFolder(path, FORMAT, KIND, _HINT, _FACTS)
    count, units = folder.meta["words"], folder.meta["units"]
    arrays = folder.arrays({**_TYPES, "vectors": np.dtype("<f4")})
    ends = arrays["word_ends"].tolist()
    size = ends[-1] if ends else 0
    lengths = {"word_bytes": size, "word_ends": count, "vectors": count * units}
    folder.check_lengths(arrays, lengths)
    for name in arrays:
        folder.check(name)
    content = arrays["word_bytes"].tobytes()
    words = []
    for start, end in zip([0, *ends], ends):
        words.append(content[start:end].decode("utf-8", "replace"))
    meta = {name: value for name, value in folder.meta.items() if name not in _STORED}
    try:
        table = WordVectors(words, arrays["vectors"].reshape(count, units), meta)
        return table if vocabulary is None else table.restrict(vocabulary)
    except DataError as error:
        raise DataError(folder.path, error.found, error.expected, error.hint or _HINT) from None
