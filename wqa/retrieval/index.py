"""An index on disk: documents, and a sparse matrix of the weights of their terms.

The index is a folder of arrays (`wqa.io.arrays`), memory-mapped: a search reads the documents and
weights of the question's terms, and no other page. The documents of a term lie in a row
(``posting_documents`` and ``posting_weights``, up to ``term_ends``), so that the folder holds a
compressed sparse matrix of terms by documents, without rows for the terms that do not occur.
"""

from __future__ import annotations

import json
from typing import Dict, List, NamedTuple, Tuple

import numpy as np

from wqa.data import Document
from wqa.errors import DataError, OptionError, check_range
from wqa.io.arrays import ArrayFolder
from wqa.io.files import PathLike
from wqa.io.progress import with_bar
from wqa.retrieval.methods import Method, count_terms, method_of

#: Changes whenever older indexes can no longer be read, or their terms are no longer those of
#: `wqa.retrieval.methods`.
FORMAT = 3

KIND = "document index"

#: Arrays of indexes with sentences.
SENTENCES = ("sentence_starts", "sentence_ends", "document_sentences")

#: Element types of the arrays of an index, by name.
TYPES: Dict[str, np.dtype] = {
    "terms": np.dtype("<u4"),  # buckets, ascending
    "term_ends": np.dtype("<i8"),  # end of each term's postings
    "posting_documents": np.dtype("<i4"),
    "posting_weights": np.dtype("<f4"),
    "document_bytes": np.dtype("u1"),  # JSON of each document: id, text, title and ``meta``
    "document_ends": np.dtype("<i8"),
    "sentence_starts": np.dtype("<i4"),  # characters of the document's text
    "sentence_ends": np.dtype("<i4"),
    "document_sentences": np.dtype("<i8"),  # end of each document's sentences
}

_HINT = "make it with `wqa index`"


def array_types(with_sentences: bool) -> Dict[str, np.dtype]:
    """Element types of the arrays of an index with or without sentences."""
    return {name: TYPES[name] for name in TYPES if with_sentences or name not in SENTENCES}


class Hit(NamedTuple):
    """A document that a question retrieves.

    Attributes
    ----------
    document : Document
        The document.
    score : float
        Its score, above 0.
    number : int
        Its number in the collection, counted from 0.
    """

    document: Document
    score: float
    number: int


class Index:
    """An index, open for reading. Its arrays are memory-mapped.

    Threads and forked processes may search in one at the same time.

    Parameters
    ----------
    path : str or path-like
        The folder that `build_index` wrote.

    Attributes
    ----------
    path : pathlib.Path
        The folder.
    meta : dict
        The content of its ``meta.json``.
    method : Method
        Weights of its terms.

    Raises
    ------
    DataError
        If the folder is absent, incomplete, of another version, or no index, by the sizes of its
        files; `check_digests` reads them.
    """

    def __init__(self, path: PathLike) -> None:
        folder = ArrayFolder(path, FORMAT, KIND, _HINT, ("documents", "terms"))
        self.path = folder.path
        self.meta = folder.meta
        try:
            self.method: Method = method_of(self.meta["method"], **self.meta["settings"])
        except (KeyError, TypeError, OptionError) as error:
            where = self.path / "meta.json"
            raise DataError(where, f"no method of this version ({error})", hint=_HINT) from None
        self._folder = folder
        self._arrays = folder.arrays(array_types(SENTENCES[0] in folder))

    def check_digests(self, progress: bool = False) -> None:
        """Read all of the index, and compare it with the digests that were written with it.

        Parameters
        ----------
        progress : bool
            Show a bar on standard error.

        Raises
        ------
        DataError
            If a file is damaged.
        """
        names = list(self._arrays)
        for name in with_bar(names, len(names), "checking the index", progress, "array"):
            self._folder.check(name)

    def __len__(self) -> int:
        return self.meta["documents"]

    def document(self, index: int) -> Document:
        """Read a document.

        Parameters
        ----------
        index : int
            Its index in the collection, counted from 0.

        Returns
        -------
        Document
            Its id, text, title and ``meta``.
        """
        span = _span(self._arrays["document_ends"], index)
        content = self._arrays["document_bytes"][span].tobytes()
        try:
            return Document(*json.loads(content))
        except (ValueError, TypeError) as error:
            raise DataError(self.path, f"damaged, document {index} ({error})", "JSON") from None

    def check_sentences(self) -> None:
        """Raise a `DataError` if the index does not hold the sentences of its documents."""
        if SENTENCES[0] not in self._arrays:
            hint = "make it with `wqa index --sentences` and another --out"
            raise DataError(self.path, "an index without sentences", "one with sentences", hint)

    def sentences(self, index: int) -> List[Tuple[int, int]]:
        """Read where the sentences of a document begin and end.

        Parameters
        ----------
        index : int
            Its index in the collection, counted from 0.

        Returns
        -------
        list of tuple of int
            Start and end of each sentence, in characters of the document's ``text``.

        Raises
        ------
        DataError
            If the index was made without sentences.
        """
        self.check_sentences()
        starts, ends, counts = (self._arrays[name] for name in SENTENCES)
        span = _span(counts, index)
        return list(zip(starts[span].tolist(), ends[span].tolist()))

    def scores(self, question: str) -> np.ndarray:
        """Score all documents for a question.

        Parameters
        ----------
        question : str
            Text of the question.

        Returns
        -------
        numpy.ndarray
            (N,) float64 scores from 0 on, by document.
        """
        terms, counts = count_terms(question, self.method.longest)
        indexed = self._arrays["terms"]
        after = np.searchsorted(indexed, terms)
        rows = np.minimum(after, len(indexed) - 1)
        known = indexed[rows] == terms
        spans = [_span(self._arrays["term_ends"], row) for row in rows[known]]
        frequencies = np.array([span.stop - span.start for span in spans])
        idf = self.method.idf(frequencies, len(self))
        weights = self.method.in_question(counts[known], idf)
        scores = np.zeros(len(self))
        for span, weight in zip(spans, weights):
            # A document occurs once among those of a term.
            documents = self._arrays["posting_documents"][span]
            weights_in = self._arrays["posting_weights"][span].astype(float)
            try:
                scores[documents] += weight * weights_in
            except (IndexError, ValueError) as error:
                raise DataError(self.path, f"damaged, postings ({error})", "an index") from None
        return scores

    def search(self, question: str, top: int = 80) -> List[Hit]:
        """Retrieve documents for a question.

        Parameters
        ----------
        question : str
            Text of the question.
        top : int
            Greatest number of documents, from 1.

        Returns
        -------
        list of Hit
            The documents with the greatest scores, best first; those that tie in the order of the
            collection. Documents with a score of 0 are not retrieved, so that the list may be
            shorter, or empty.

        Raises
        ------
        OptionError
            If ``top`` is below 1.
        """
        check_range("top", top, 1)
        scores = self.scores(question)
        hits = []
        for index in best(scores, top).tolist():
            document = self.document(index)
            hits.append(Hit(document, float(scores[index]), index))
        return hits


def best(scores: np.ndarray, top: int) -> np.ndarray:
    """Indices of the greatest scores above 0, greatest first; ties by index.

    Shapes: `scores` (N,).
    """
    indices = np.flatnonzero(scores > 0)
    if len(indices) > top:
        values = scores[indices]
        place = len(values) - top
        last = np.partition(values, place)[place]
        above = indices[values > last]
        level = indices[values == last][: top - len(above)]
        indices = np.concatenate([above, level])
    return indices[np.lexsort((indices, -scores[indices]))]


def _span(ends: np.ndarray, index: int) -> slice:
    """Span of an entry, whose end is at `index` in `ends`."""
    start = int(ends[index - 1]) if index > 0 else 0
    return slice(start, int(ends[index]))
