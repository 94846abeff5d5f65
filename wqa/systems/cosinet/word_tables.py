"""Makes the table of word vectors of a corpus: from a file, from an encoder, or from the corpus.

The vocabulary is that of all texts of the given files. Their labels are not read, so the texts of
the questions that a ranker is evaluated on may be among them, as a published table has their words.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from wqa.config import EngineConfig
from wqa.data.formats import data_digest
from wqa.data.vector_files import FORMATS, read_vector_file, tell_format
from wqa.data.word_vectors import (
    WordVectors,
    read_word_vectors,
    table_keys,
    table_output,
    write_word_vectors,
)
from wqa.errors import DataError, OptionError, check_choice
from wqa.io.arrays import reusable_folder
from wqa.io.files import PathLike, sha256
from wqa.io.locks import lock_output
from wqa.systems.cosinet import vocabulary as cooccurrence
from wqa.systems.cosinet.vocabulary import WordCounts, count_words, read_texts
from wqa.systems.cosinet.word_encoder import WordEncoder, principal_components

#: Default number of elements of vectors that are made, as many as Numberbatch's have.
UNITS = 300
#: Default length of vectors that are made, that of Numberbatch's.
LENGTH = 1.0
#: Greatest length that vectors are scaled to.
MOST_LENGTH = 1e6


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
    ppmi: bool = False,
    format: str = "auto",
    units: Optional[int] = None,
    least_count: int = 1,
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
        Pretrained encoder to distil: each word encoded by itself, reduced by principal components.
    ppmi : bool
        Factorize the positive pointwise mutual information of the texts' words instead.
    format : str
        Format of ``vectors``.
    units : int, optional
        Number of elements of vectors that are made, 300 by default.
    least_count : int
        Least number of occurrences of a word that gets a vector.
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
    OptionError
        If not one of the three sources is given, an option does not belong to it or is out of
        range, or ``out`` is another folder.
    DataError
        If a file cannot be read, or no word has a vector.
    EncoderError
        If the encoder cannot be read.
    StorageError
        If the folder cannot be written.
    """
    start = time.perf_counter()
    source = _source_of(vectors, encoder, ppmi)
    _check_options(data, source, units, least_count, length)
    if source != "vectors" and format != "auto":
        raise OptionError("format", f"{format} with {source}", "with vectors alone")
    check_choice("format", format, ("auto", *FORMATS))
    counts = count_words(data, least_count, progress)
    made_units = units or UNITS
    digests = [data_digest(path) for path in data]
    if vectors is not None:
        maker = _from_file(vectors, format, counts, progress)
    elif encoder is not None:
        config = engine or EngineConfig()
        maker = _from_encoder(encoder, made_units, config, counts, progress)
    else:
        maker = _from_texts(data, made_units, counts, progress)
    if source != "vectors" and length is None:
        length = LENGTH
    settings = {"data_sha256": digests, "least_count": least_count, **maker.settings}
    settings["length"] = length
    with lock_output(out):
        output = table_output(out)
        stored = reusable_folder(output, settings)
    if stored is not None:
        return _report(read_word_vectors(out), counts, 0.0)
    table = maker.make()
    scaled = table.vectors if length is None else _of_length(table.vectors, length)
    write_word_vectors(out, WordVectors(table.words, scaled, {**table.meta, **settings}))
    return _report(read_word_vectors(out), counts, time.perf_counter() - start)


def _source_of(vectors: Optional[PathLike], encoder: Optional[str], ppmi: bool) -> str:
    given = {"vectors": vectors is not None, "encoder": encoder is not None, "ppmi": ppmi}
    names = [name for name, is_given in given.items() if is_given]
    if len(names) != 1:
        chosen = " and ".join(names) or "none of them"
        raise OptionError("vectors and encoder and ppmi", chosen, "one of the three")
    return names[0]


def _check_options(
    data: Sequence[PathLike],
    source: str,
    units: Optional[int],
    least_count: int,
    length: Optional[float],
) -> None:
    if not data:
        raise OptionError("data", "no file", "files of questions")
    if least_count < 1:
        raise OptionError("least_count", least_count, "a whole number from 1")
    if units is not None and source == "vectors":
        raise OptionError("units", f"{units} with vectors", "none: the file has its own")
    if units is not None and units < 1:
        raise OptionError("units", units, "a whole number from 1")
    if length is not None and not 0 < length <= MOST_LENGTH:
        raise OptionError("length", length, f"a number above 0, at most {MOST_LENGTH:g}")


class _Maker(NamedTuple):
    """Makes a table; ``settings`` are what it depends on besides the texts."""

    settings: Dict[str, Any]
    make: Callable[[], WordVectors]


def _from_file(path: PathLike, format: str, counts: WordCounts, progress: bool) -> _Maker:
    """The rows of a published file that the words are looked up as."""
    kind = tell_format(path) if format == "auto" else format
    settings = {"kind": kind, "source_sha256": sha256(path)}
    return _Maker(settings, lambda: read_vector_file(path, counts.words, kind, progress))


def _from_encoder(
    name: str,
    units: int,
    engine: EngineConfig,
    counts: WordCounts,
    progress: bool,
) -> _Maker:
    """Static vectors distilled from an encoder."""
    encoder = WordEncoder(name, engine)
    if units > encoder.units:
        expected = f"at most {encoder.units}, the units of the encoder"
        raise OptionError("units", units, expected)
    settings = {
        "kind": "distilled",
        "source": name,
        "source_sha256": encoder.sha256,
        "precision": engine.precision,
        "components": units,
    }

    def make() -> WordVectors:
        rows, encodings = encoder.encode(counts.words, progress)
        words = [counts.words[row] for row in rows]
        if len(words) < 2:
            raise DataError(
                name,
                f"the encoder has tokens for {len(words)} of the texts' words",
                "at least 2 words",
                "take more texts",
            )
        return WordVectors(words, principal_components(encodings, units).astype(np.float32))

    return _Maker(settings, make)


def _from_texts(data: Sequence[PathLike], units: int, counts: WordCounts, progress: bool) -> _Maker:
    """Positive pointwise mutual information of the texts' words, factorized."""

    def make() -> WordVectors:
        pairs = cooccurrence.count_pairs(read_texts(data, progress), counts.words)
        information = cooccurrence.ppmi(pairs)
        vectors = cooccurrence.factorize(information, units)
        # A word without a context above chance has no vector; it stays unknown.
        rows = np.flatnonzero(information.getnnz(axis=1))
        words = [counts.words[row] for row in rows]
        return WordVectors(words, vectors[rows].astype(np.float32))

    settings = {"kind": "ppmi", "components": units, "window": cooccurrence.WINDOW}
    return _Maker(settings, make)


def _of_length(vectors: np.ndarray, length: float) -> np.ndarray:
    """Scale each vector to a length; one of zeros stays."""
    exact = vectors.astype(np.float64)
    norms = np.sqrt(np.square(exact).sum(axis=1, keepdims=True))
    return (exact * (length / np.maximum(norms, 1e-12))).astype(np.float32)


def _report(table: WordVectors, counts: WordCounts, seconds: float) -> TableReport:
    words = set(table.words)
    rows: List[int] = []  # words that have a vector
    for row, word in enumerate(counts.words):
        if not words.isdisjoint(table_keys([word], table.masks_digits)):
            rows.append(row)
    coverage = int(counts.counts[rows].sum()) / counts.total
    return TableReport(table, len(counts.words), len(rows), coverage, seconds)
