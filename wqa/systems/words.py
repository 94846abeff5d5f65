"""Tables of word vectors: from a published file, or from an encoder.

The vocabulary is that of all texts of the given files. Their labels are not read, so the texts of
the questions that a ranker is evaluated on may be among them, as a published table has their words.

From an encoder (Tulkens and van Dongen 2024, "Model2Vec"): it reads each word by itself, the
encodings of its tokens are averaged, and the vectors of all words are reduced by principal
components.
"""

from __future__ import annotations

import collections
import functools
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.data import read_questions
from wqa.data.formats import data_digest
from wqa.data.ir_names import is_ir_name
from wqa.data.vector_files import read_vector_file, tell_format
from wqa.data.word_vectors import (
    WordVectors,
    read_word_vectors,
    table_keys,
    table_output,
    write_word_vectors,
)
from wqa.engines.inputs import as_float32
from wqa.errors import DataError, OptionError, check_range
from wqa.io.arrays import reusable_folder
from wqa.io.files import PathLike, lock_output, sha256
from wqa.io.progress import progress_bar, with_bar
from wqa.systems.text_encoder import TextEncoder, load_text_encoder
from wqa.text.words import split_words

#: Default number of elements, and default length, of vectors that are made: those of Numberbatch.
UNITS, LENGTH = 300, 1.0
#: Greatest length of a word of a vocabulary in characters; longer ones stay unknown.
_MOST_CHARACTERS = 256
#: Words that are encoded at once.
_ENCODED = 2048
#: Greatest number of tokens of a word, special tokens included; further ones are cut off.
_MOST_TOKENS = 32


class WordCounts(NamedTuple):
    """A vocabulary, the most frequent words first, and the occurrences of each and of all words."""

    words: List[str]
    counts: np.ndarray
    total: int  # of those that are left out too


class TableReport(NamedTuple):
    """A table that was made.

    Attributes
    ----------
    table : WordVectors
        The table, as it was read from its folder.
    vocabulary : int
        Number of words of the texts.
    known : int
        Number of them that have a vector.
    coverage : float
        Share of the words' occurrences that have a vector.
    seconds : float
        Time that it took; 0 where the folder held the table already.
    """

    table: WordVectors
    vocabulary: int
    known: int
    coverage: float
    seconds: float


def embed_words(
    data: Sequence[PathLike],
    out: PathLike,
    vectors: Optional[PathLike] = None,
    encoder: Optional[str] = None,
    units: Optional[int] = None,
    engine: Optional[EngineConfig] = None,
    progress: bool = False,
    length: Optional[float] = None,
) -> TableReport:
    """Make the table of word vectors of some texts, in a folder.

    Parameters
    ----------
    data : sequence of str or path-like
        Files of questions, canonical JSONL, whose words get vectors. No label is used.
    out : str or path-like
        Folder to make. A whole table that was made with the same arguments is kept as it is.
    vectors : str or path-like, optional
        File of published vectors to take, as `wqa.data.vector_files.read_vector_file` reads it.
    encoder : str, optional
        Pretrained encoder to distil.
    units : int, optional
        Number of elements of vectors that are made, 300 by default.
    engine : EngineConfig, optional
        Engine that computes the encoder.
    progress : bool
        Show bars on standard error.
    length : float, optional
        Euclidean length to scale each vector to, 1 by default for vectors that are made; without
        it those of a file stay as they are.

    Returns
    -------
    TableReport
        The table, and how many words have a vector.

    Raises
    ------
    OptionError, DataError, EncoderError, StorageError
        If not one of the two sources is given, an option does not belong to it or is out of
        range, a file or the encoder cannot be read, or the folder cannot be written.
    """
    start = time.perf_counter()
    if (vectors is None) == (encoder is None):
        chosen = "neither" if vectors is None else "both"
        raise OptionError("vectors and encoder", chosen, "one of the two")
    if units is not None and vectors is not None:
        raise OptionError("units", units, "none, with vectors of a file")
    check_range("units", UNITS if units is None else units, 1)
    check_range("length", LENGTH if length is None else length, 1e-6, 1e6)
    counts = count_words(data, progress)
    if vectors is not None:
        kind = tell_format(vectors)
        settings: Dict[str, Any] = {"kind": kind, "source_sha256": sha256(vectors)}
        make: Any = functools.partial(read_vector_file, vectors, counts.words, progress)
    else:
        config = engine or EngineConfig()
        settings, make = _from_encoder(str(encoder), units or UNITS, config, counts.words, progress)
    if vectors is None and length is None:
        length = LENGTH
    digests = [data_digest(path) for path in data]
    # A table of version 0.2 may have been made with another count.
    settings = {"data_sha256": digests, **settings, "length": length, "least_count": 1}
    with lock_output(out):
        stored = reusable_folder(table_output(out), settings)
    if stored is None:
        table = make()
        scaled = table.vectors if length is None else _of_length(table.vectors, length)
        write_word_vectors(out, WordVectors(table.words, scaled, {**table.meta, **settings}))
    seconds = 0.0 if stored else time.perf_counter() - start
    made = read_word_vectors(out)
    words, count = set(made.words), len(counts.words)
    keys = [table_keys([word], made.masks_digits) for word in counts.words]
    has_vector = [not words.isdisjoint(of_word) for of_word in keys]
    coverage = int(counts.counts[has_vector].sum()) / counts.total
    return TableReport(made, count, sum(has_vector), coverage, seconds)


def _of_length(vectors: np.ndarray, length: float) -> np.ndarray:
    """Scale each vector to a length; one of zeros stays."""
    exact = vectors.astype(np.float64)
    norms = np.sqrt(np.square(exact).sum(axis=1, keepdims=True))
    return (exact * (length / np.maximum(norms, 1e-12))).astype(np.float32)


def read_texts(paths: Sequence[PathLike], progress: bool = False) -> Iterator[str]:
    """Texts of files of questions: each question, and after it its candidates."""
    for path in paths:
        questions = read_questions(path, with_candidates=is_ir_name(path))
        for question in with_bar(questions, None, "reading texts", progress):
            yield question.question
            yield from question.texts


def count_words(paths: Sequence[PathLike], progress: bool = False) -> WordCounts:
    """Count the words of all texts of corpora."""
    counts: collections.Counter[str] = collections.Counter()
    for text in read_texts(paths, progress):
        counts.update(split_words(text))
    kept = sorted(word for word in counts if len(word) <= _MOST_CHARACTERS)
    if not kept:
        raise DataError(", ".join(map(str, paths)), "no word", "texts with words")
    kept.sort(key=counts.__getitem__, reverse=True)
    ordered = np.array([counts[word] for word in kept], np.int64)
    return WordCounts(kept, ordered, sum(counts.values()))


def encode_words(
    encoder: TextEncoder, words: Sequence[str], progress: bool = False
) -> Tuple[List[int], np.ndarray]:
    """Encode words by themselves.

    Returns the indices of the words that the encoder has a token for, and their vectors, (rows, C)
    float32, the mean over the tokens of each, special tokens left out.
    """
    rows: List[int] = []
    vectors = [np.zeros((0, encoder.identity["units"]), np.float32)]
    with progress_bar(len(words), "encoding words", "word", progress) as bar:
        for start in range(0, len(words), _ENCODED):
            # A byte-level tokenizer has other tokens for a word that no space precedes.
            texts = [f" {word}" for word in words[start : start + _ENCODED]]
            for row, encoding in enumerate(encoder.encode(texts)[0], start):
                if len(encoding):
                    of_tokens = as_float32(encoding)[1:-1]  # without the special tokens
                    rows.append(row)
                    vectors.append(of_tokens.mean(axis=0, keepdims=True))
            bar.update(len(texts))
    return rows, np.concatenate(vectors)


def _from_encoder(
    name: str, units: int, engine: EngineConfig, words: List[str], progress: bool
) -> Tuple[Dict[str, Any], Callable[[], WordVectors]]:
    """Settings of static vectors of an encoder, and the function that makes them."""
    encoder = load_text_encoder(f"cosine:{name}", engine, _MOST_TOKENS)
    check_range("units", units, 1, encoder.identity["units"])

    def make() -> WordVectors:
        rows, encodings = encode_words(encoder, words, progress)
        if len(rows) < 2:
            problem = f"the encoder has tokens for {len(rows)} of the texts' words"
            raise DataError(name, problem, "at least 2 words", "take more texts")
        vectors = principal_components(encodings, units).astype(np.float32)
        return WordVectors([words[row] for row in rows], vectors)

    settings = {
        "kind": "distilled",
        "source": name,
        "source_sha256": encoder.identity["encoder_sha256"],
        "precision": engine.precision,
        "components": units,
    }
    return settings, make


def principal_components(vectors: np.ndarray, units: int) -> np.ndarray:
    """Project vectors on their first principal components, (V, units), the greatest variance first.

    The greatest element of a component's direction is positive. Shapes: `vectors` (V, C).
    """
    centred = vectors.astype(np.float64)
    centred -= centred.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)  # (C, C), variances ascending
    chosen = directions[:, ::-1][:, :units]
    greatest = np.abs(chosen).argmax(axis=0)
    return centred @ (chosen * np.sign(chosen[greatest, np.arange(units)]))
