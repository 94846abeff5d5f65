"""A cache of the encodings of documents: a folder of arrays in which documents have keys.

The key is a digest of the document's id and text, so that a changed text is not taken for the one
that was encoded. The rows of a document lie one after another in ``rows``, from the end of the
document before it. In ``int8`` each row has a scale, and a value is its integer times the scale.
The arrays are memory-mapped: the pages of a document are read from the disk when it is ranked.
"""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np

from wqa.data.parts import Arrays
from wqa.data.records import Candidate
from wqa.data.scores import delimited
from wqa.engines.inputs import as_float32
from wqa.errors import DataError, shorten
from wqa.io.arrays import ArrayFolder, Output, check_made_with, write_arrays
from wqa.io.files import PathLike

#: Element types of a cache.
STORES: Dict[str, np.dtype] = {
    "float16": np.dtype("<f2"),
    "float32": np.dtype("<f4"),
    "int8": np.dtype("i1"),
}

#: Changes whenever older caches can no longer be read.
FORMAT = 2
KIND = "document cache"

_MAKE = "make it with `wqa encode`"
#: Counts in ``meta.json``.
COUNTS = ("documents", "truncated", "blank")


class StoredDocument(NamedTuple):
    """A document whose encodings are known, in place of its token ids in a `SplitPair`.

    Attributes
    ----------
    rows : numpy.ndarray
        (rows, C) encodings, float16 or float32.
    truncated : bool
        Whether the document lost tokens when it was stored: to the length limit, or to the limit
        ``tokens`` of the cache.
    empty : bool
        False, as a document without a token is not stored.
    """

    rows: np.ndarray
    truncated: bool
    empty: bool = False

    @property
    def length(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def token_ids(self) -> np.ndarray:
        """No token ids: nothing is encoded."""
        return np.zeros(0, np.int32)


def document_key(id: str, text: str) -> bytes:
    """Key of a document: the BLAKE2b digest, 8 bytes, of its id and its text.

    Parameters
    ----------
    id : str
        Its id.
    text : str
        The text that models read, `wqa.data.documents.Document.full_text`.

    Returns
    -------
    bytes
    """
    return hashlib.blake2b(delimited(id) + delimited(text), digest_size=8).digest()


def pack_documents(
    names: Sequence[str], encodings: Sequence[np.ndarray], store: str, tokens: int = 0
) -> Arrays:
    """Convert encodings of documents to the arrays of a cache.

    Parameters
    ----------
    names : sequence of str
        Ids of the documents, for messages.
    encodings : sequence of numpy.ndarray
        (rows, C) encodings of each document, float32, or uint16 that holds the bits of bfloat16.
    store : {"float16", "float32", "int8"}
        Element type of the cache.
    tokens : int
        Number of rows of each document to keep, from the first on; 0 for all.

    Returns
    -------
    dict of str to numpy.ndarray
        ``lengths`` (documents,), ``rows`` (all rows, C) and, in int8, ``scales`` (all rows,).

    Raises
    ------
    DataError
        If a value is no finite number in the element type.
    """
    kept = [as_float32(rows[: tokens or None]) for rows in encodings]
    lengths = np.array([len(rows) for rows in kept], np.int64)
    values = np.concatenate(kept)
    arrays: Arrays = {"lengths": lengths}
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        if store == "int8":
            scales = np.abs(values).max(axis=1) / np.float32(127)
            divisors = np.where(scales == 0, np.float32(1), scales)  # a row of zeros stays zero
            is_finite = np.isfinite(scales)
            arrays["scales"] = scales
            arrays["rows"] = np.rint(values / divisors[:, None]).astype(STORES[store])
        else:
            arrays["rows"] = values.astype(STORES[store])
            is_finite = np.isfinite(arrays["rows"]).all(axis=1)
    if not is_finite.all():
        index = int(np.searchsorted(np.cumsum(lengths), np.argmin(is_finite), side="right"))
        problem = f"encodings that are no finite numbers in {store}"
        hint = "choose store float32; if it fails too, the weights are damaged"
        raise DataError(f"document {shorten(names[index])}", problem, "finite numbers", hint)
    return arrays


def _types(store: str, units: int) -> Dict[str, np.dtype]:
    types: Dict[str, np.dtype] = {
        "keys": np.dtype("<u8"),
        "ends": np.dtype("<i8"),  # of the rows of each document
        "truncated": np.dtype("u1"),
        "rows": np.dtype((STORES[store], (units,))),
    }
    if store == "int8":
        types["scales"] = np.dtype("<f4")
    return types


def cache_output(path: PathLike) -> Output:
    """The folder of a cache that a command writes."""
    return Output(path, FORMAT, KIND, list(_types("int8", 1)))


def write_cache(path: PathLike, settings: Mapping[str, Any], parts: Iterator[Arrays]) -> None:
    """Write a cache.

    Parameters
    ----------
    path : str or path-like
        Folder to make.
    settings : mapping
        What the encodings were computed with; ``units``, ``store`` and ``tokens`` among them.
    parts : iterator of dict
        Arrays of `pack_documents`, with ``keys`` and ``truncated`` of each document. A document of
        no rows, which is blank, is left out.

    Raises
    ------
    StorageError
        If it cannot be written.
    """
    counts = dict.fromkeys(COUNTS, 0)
    types = _types(settings["store"], settings["units"])
    with write_arrays(cache_output(path), types, settings) as writer:
        for arrays in parts:
            is_stored = arrays["lengths"] > 0
            counts["documents"] += int(np.count_nonzero(is_stored))
            counts["blank"] += int(np.count_nonzero(~is_stored))
            counts["truncated"] += int(np.count_nonzero(arrays["truncated"]))
            values = {**arrays, "ends": writer.count("rows") + np.cumsum(arrays["lengths"])}
            for name in types:
                kept = ... if name in ("rows", "scales") else is_stored
                writer.append(name, values[name][kept])
        writer.finish(counts)


class DocumentCache:
    """A document cache, open for reading. Several threads may use it, and forked processes.

    Parameters
    ----------
    path : str or path-like
        Folder that `wqa encode` wrote.

    Attributes
    ----------
    path : pathlib.Path
        The folder.
    meta : dict
        What the encodings were computed with, and ``units``, ``store`` and ``tokens``.
    tokens : int
        Greatest number of rows of a document, its first ones; 0 for all rows.
    documents, missing : int
        Numbers of documents that were looked up, and of those that the cache does not hold.

    Raises
    ------
    DataError
        If there is no whole cache, or it is of another version.
    """

    def __init__(self, path: PathLike) -> None:
        folder = ArrayFolder(path, FORMAT, KIND, _MAKE, ("units", "tokens", *COUNTS))
        self.path = folder.path
        self.meta = folder.meta
        self.tokens: int = self.meta["tokens"]
        store = self.meta.get("store")
        if store not in STORES:
            problem, expected = f"store is {shorten(store)}", "one of " + ", ".join(STORES)
            raise DataError(self.path, problem, expected, _MAKE)
        arrays = folder.arrays(_types(store, self.meta["units"]))
        self._check(folder, arrays)
        self._ends, self._truncated = arrays["ends"], arrays["truncated"]
        self._rows, self._scales = arrays["rows"], arrays.get("scales")
        self._order = np.argsort(arrays["keys"], kind="stable")
        self._keys = arrays["keys"][self._order]
        self._counting = threading.Lock()
        self.documents = self.missing = 0

    def _check(self, folder: ArrayFolder, arrays: Mapping[str, np.ndarray]) -> None:
        """Check that the arrays have values for the same documents and rows."""
        rows = len(arrays["rows"])
        lengths = dict.fromkeys(arrays, self.meta["documents"])
        lengths.update({name: rows for name in ("rows", "scales") if name in arrays})
        folder.check_lengths(arrays, lengths)
        ends = arrays["ends"]
        if len(ends) and (ends[0] < 1 or ends[-1] != rows or np.diff(ends).min(initial=1) < 1):
            raise DataError(folder.path / "ends.bin", "has changed", f"ends of {rows} rows", _MAKE)

    def __len__(self) -> int:
        """Number of documents."""
        return len(self._keys)

    def check_made_with(self, settings: Mapping[str, Any]) -> None:
        """Check what the encodings were computed with.

        Parameters
        ----------
        settings : mapping
            Names and values, such as the digest of the encoder.

        Raises
        ------
        DataError
            If one has another value.
        """
        hint = "encode the documents by this run: `wqa encode` into another folder"
        check_made_with(self.path, self.meta, settings, hint)

    def get(
        self, candidates: Sequence[Candidate], tokens: Optional[int] = None
    ) -> List[Optional[StoredDocument]]:
        """Look candidates up, and count them.

        Parameters
        ----------
        candidates : sequence of Candidate
            Candidates, by the ids of their documents.
        tokens : int, optional
            Number of rows to read of each document, from the first on; by default all.

        Returns
        -------
        list of StoredDocument or None
            None for a candidate without an id, and for one that is not in the cache with this text.
        """
        documents = [self._find(candidate, tokens) for candidate in candidates]
        with self._counting:
            self.documents += len(documents)
            self.missing += documents.count(None)
        return documents

    def _find(self, candidate: Candidate, tokens: Optional[int]) -> Optional[StoredDocument]:
        if candidate.id is None:
            return None
        key = np.frombuffer(document_key(candidate.id, candidate.text), "<u8")[0]
        position = int(np.searchsorted(self._keys, key))
        if position == len(self._keys) or self._keys[position] != key:
            return None
        index = self._order[position]
        start = int(self._ends[index - 1]) if index else 0
        end = int(self._ends[index])
        if tokens is not None:
            end = min(end, start + tokens)
        rows = self._rows[start:end]
        if self._scales is not None:
            rows = np.multiply(rows, self._scales[start:end, None], dtype=np.float32)
        return StoredDocument(rows, bool(self._truncated[index]))


def open_cache(cache: Union[PathLike, DocumentCache]) -> DocumentCache:
    """Open a cache by its path; one that is open is returned as it is."""
    return cache if isinstance(cache, DocumentCache) else DocumentCache(cache)


def cache_digest(cache: Union[PathLike, DocumentCache]) -> str:
    """Digest of a cache: of the digests of its arrays."""
    digests = json.dumps(open_cache(cache).meta["sha256"], sort_keys=True)
    return hashlib.sha256(digests.encode("ascii")).hexdigest()
