"""Writes the index of a collection of documents, from which questions retrieve documents."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, Dict, Iterable, List, Tuple

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from wqa.data import Document, read_documents
from wqa.data.ir_names import is_ir_name
from wqa.errors import DataError
from wqa.io.arrays import ArrayWriter, reusable_folder
from wqa.io.files import PathLike, sha256
from wqa.io.locks import lock_output
from wqa.io.progress import with_bar
from wqa.retrieval.index import FORMAT, KIND, TEXTS, TYPES, Index
from wqa.retrieval.methods import Method, count_terms, method_of

#: Documents whose texts are written at once.
_BLOCK_DOCUMENTS = 1000
#: Postings whose weights are computed, and written, at once.
_BLOCK_POSTINGS = 1 << 20


def build_index(
    documents: PathLike,
    out: PathLike,
    method: str = "tfidf",
    progress: bool = False,
    **settings: float,
) -> Dict[str, Any]:
    """Index a collection of documents.

    The counts of all terms are in memory, about 50 bytes for each pair of a term and a document
    that holds it; the texts are not.

    Parameters
    ----------
    documents : str or path-like
        File of documents, as `wqa.data.read_documents` reads it.
    out : str or path-like
        Folder to make. A whole index of the same documents and method is kept as it is; any other
        content is refused.
    method : {"tfidf", "bm25"}
        Weights of terms.
    progress : bool
        Show a bar on standard error.
    **settings : float
        Settings of the method: ``k1`` and ``b`` of BM25.

    Returns
    -------
    dict
        ``meta.json`` of the index: ``documents``, ``terms``, ``postings``, ``files`` with the sizes
        of its arrays in bytes, and more.

    Raises
    ------
    DataError
        If the documents cannot be read, none of them has a term, or ``out`` is another index.
    OptionError
        If the method or a setting is wrong, or ``out`` is no folder of an index.
    StorageError
        If it cannot be written, or another process writes it.
    """
    weights = method_of(method, **settings)
    with lock_output(out):
        made_with = {
            "documents_sha256": _digest(documents),
            "method": method,
            "settings": dataclasses.asdict(weights),
        }
        if reusable_folder(out, FORMAT, KIND, made_with) is None:
            with ArrayWriter(out, FORMAT, TYPES, made_with) as writer:
                if any(map(writer.count, TYPES)):
                    writer.restart()
                facts = _write(writer, documents, weights, progress)
                writer.finish(facts)
        return Index(out).meta


def _digest(path: PathLike) -> str:
    if is_ir_name(path):
        digest = hashlib.sha256()
        for document in read_documents(path):
            digest.update(json.dumps([document.id, document.text]).encode("ascii"))
        return digest.hexdigest()
    try:
        return sha256(path)
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror})", mend="check the path") from None


def _write(writer: ArrayWriter, path: PathLike, method: Method, progress: bool) -> Dict[str, int]:
    """Write all arrays; returns the facts of the index."""
    waiting: List[Document] = []
    terms: List[np.ndarray] = []
    counts: List[np.ndarray] = []
    documents = read_documents(path)
    for document in with_bar(documents, None, "indexing", progress, "document"):
        document_terms, document_counts = count_terms(document.full_text, method.longest)
        terms.append(document_terms.astype(np.uint32))
        counts.append(document_counts.astype(np.uint32))
        waiting.append(document)
        if len(waiting) == _BLOCK_DOCUMENTS:
            _write_texts(writer, waiting)
            waiting = []
    _write_texts(writer, waiting)
    if not any(map(len, terms)):
        raise DataError(
            path,
            "its documents hold only stop words and punctuation marks",
            "words that questions could find",
        )
    names, postings = _postings(terms, counts)
    _write_postings(writer, names, postings, method)
    return {"documents": len(terms), "terms": len(names), "postings": int(postings.nnz)}


def _write_texts(writer: ArrayWriter, documents: List[Document]) -> None:
    """Append the ids, titles, texts and ``meta`` of documents."""
    for name in TEXTS:
        writer.append_texts(name, [_content(document, name) for document in documents])


def _content(document: Document, name: str) -> bytes:
    """A field of a document as bytes; ``meta`` as JSON."""
    value = getattr(document, name)
    if name == "meta":
        value = "" if value is None else json.dumps(value, ensure_ascii=False)
    return value.encode("utf-8")


def _postings(
    terms: Iterable[np.ndarray], counts: Iterable[np.ndarray]
) -> Tuple[np.ndarray, csc_matrix]:
    """Terms of the collection, and the counts as a matrix of documents by terms.

    Its columns are in the order of the terms, and the documents of a column in their own order.
    """
    lengths = np.array([len(document) for document in terms])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    names, columns = np.unique(np.concatenate(list(terms)), return_inverse=True)
    values = np.concatenate(list(counts))
    shape = (len(lengths), len(names))
    return names, csr_matrix((values, columns, starts), shape=shape).tocsc()


def _write_postings(
    writer: ArrayWriter, names: np.ndarray, postings: csc_matrix, method: Method
) -> None:
    """Write the terms, and the documents and weights of each term."""
    ends = postings.indptr[1:].astype(np.int64)
    frequencies = np.diff(postings.indptr)
    idf = method.idf(frequencies, postings.shape[0])
    lengths = np.asarray(postings.sum(axis=1), np.float64).ravel()
    lengths /= lengths.mean()
    writer.append("terms", names)
    writer.append("term_ends", ends)
    for start in range(0, postings.nnz, _BLOCK_POSTINGS):
        end = min(start + _BLOCK_POSTINGS, postings.nnz)
        columns = np.searchsorted(ends, np.arange(start, end), side="right")
        documents = postings.indices[start:end]
        weights = method.in_documents(postings.data[start:end].astype(float), lengths[documents])
        writer.append("posting_documents", documents)
        writer.append("posting_weights", weights * idf[columns])
