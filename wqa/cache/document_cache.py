"""A cache of the encodings of documents, in a folder: written by one process, read by many.

The folder holds an index, ``index.sqlite``, and a file of entries, ``encodings-N.bin``. The index
is a database of SQLite, whose transactions make a change whole or undo it. It holds the digest of
each document's text, where its entry is, and checksums of the entry. The file of entries is only
ever appended to, so that a reader may map it into memory while a process writes. Removed entries
stay in the file until more than half of it is unused; then the writer copies the rest into a file
of the next number N. `wqa.cache.document_cache_writer` writes it.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import sqlite3
import threading
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

import numpy as np

from wqa.cache.cache_index import (
    INDEX,
    MAKE,
    MEND,
    Entry,
    EntryFormat,
    State,
    check_size,
    connect,
    count_documents,
    entries_path,
    index_errors,
    is_count,
    look_up,
    read_settings,
    read_state,
)
from wqa.data.records import Candidate
from wqa.errors import DataError, OptionError, shorten
from wqa.io.files import PathLike


def text_digest(text: str) -> bytes:
    """Digest of a document's text, by which a changed document is recognised.

    Parameters
    ----------
    text : str
        The text that models read, `wqa.data.documents.Document.full_text`.

    Returns
    -------
    bytes
        BLAKE2b digest, 16 bytes.
    """
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class CachedDocument(NamedTuple):
    """A document of a cache.

    Attributes
    ----------
    rows : numpy.ndarray
        (rows, C) encodings.
    truncated : bool
        Whether the document lost tokens when it was stored: to the length limit, or to the limit
        ``tokens`` of the cache.
    """

    rows: np.ndarray
    truncated: bool


def open_cache(path: PathLike, made_with: Optional[Mapping[str, Any]] = None) -> DocumentCache:
    """Open a document cache for reading.

    Parameters
    ----------
    path : str or path-like
        Folder of the cache.
    made_with : dict, optional
        What its encodings must have been computed with, by the names of `DocumentCache.settings`.
        By default it is not compared.

    Returns
    -------
    DocumentCache

    Raises
    ------
    DataError
        If there is no whole cache, it is damaged or of another version, or its encodings were
        computed with something else.
    """
    cache = DocumentCache(path)
    for name, expected in (made_with or {}).items():
        stored = cache.settings.get(name)
        if stored != expected:
            raise DataError(
                cache.path,
                f"made with {name} {shorten(stored)}",
                shorten(expected),
                "encode the documents by this run: `wqa encode` into another folder",
            )
    return cache


class DocumentCache:
    """A document cache, open for reading, also while another process writes to it.

    It may be used by several threads, and after a fork. Entries are mapped into memory; their pages
    are read from the disk when they are used. An entry's checksum is compared when it is first
    read.

    Parameters
    ----------
    path : str or path-like
        Folder of the cache.

    Attributes
    ----------
    path : pathlib.Path
        The folder.
    settings : dict
        What the encodings were computed with, and ``units``, ``store`` and ``tokens``.
    units : int
        C, the width of an encoding.
    store : {"float16", "bfloat16", "float32", "int8"}
        Element type of the entries.
    dtype : numpy.dtype
        Type of the arrays that `get_many` returns: float16, uint16 that holds the bits of bfloat16,
        or float32 (of int8 too).
    tokens : int
        Greatest number of rows of an entry, the first of the document; 0 for all rows.

    Raises
    ------
    DataError
        If there is no whole cache, or it is damaged or of another version.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = pathlib.Path(path)
        self._index = self.path / INDEX
        if not self._index.is_file():
            raise DataError(self.path, "is no document cache", "a folder that holds one", MAKE)
        self._local = threading.local()
        with index_errors(self._index):
            connection = self._connection()
            self.settings = read_settings(connection, self._index)
            state = read_state(connection, self._index)
        self.units: int = self.settings["units"]
        self.tokens: int = self.settings["tokens"]
        try:
            self._format = EntryFormat(self.units, self.settings.get("store"))  # type: ignore[arg-type]
        except OptionError as error:
            raise DataError(self._index, f"store is {error.found}", error.expected, MEND) from None
        self.store: str = self._format.store
        self.dtype = self._format.dtype
        self._mapped = _Entries(self.path, state, set())

    def __len__(self) -> int:
        """Number of documents."""
        with index_errors(self._index):
            return count_documents(self._connection())

    def stored_digests(self, ids: Sequence[str]) -> Dict[str, bytes]:
        """Look documents up. No entry is read.

        Parameters
        ----------
        ids : sequence of str
            Ids of the documents.

        Returns
        -------
        dict of str to bytes
            Digest of the text of each document that is in the cache.

        Raises
        ------
        DataError
            If the index is damaged.
        """
        with index_errors(self._index):
            _, entries = self._look_up(set(ids))
        return {id: entry.text for id, entry in entries.items()}

    def get_many(
        self,
        ids: Sequence[Optional[str]],
        digests: Sequence[bytes],
        tokens: Optional[int] = None,
    ) -> List[Optional[np.ndarray]]:
        """Encodings of documents.

        Parameters
        ----------
        ids : sequence of str or None
            Id of each document; None for one without an id, which has no entry.
        digests : sequence of bytes
            `text_digest` of each document's text.
        tokens : int, optional
            Number of rows to read of each entry, from the first on; by default all. With 1, no
            other row is read from the disk.

        Returns
        -------
        list of numpy.ndarray or None
            (rows, C) encodings of each document, of type `dtype` and read-only; None for a document
            that is not in the cache, or with another text.

        Raises
        ------
        DataError
            If the index or an entry is damaged, or the file of entries is cut off.
        """
        documents = self.find_many(ids, digests, tokens)
        return [None if document is None else document.rows for document in documents]

    def find_many(
        self,
        ids: Sequence[Optional[str]],
        digests: Sequence[bytes],
        tokens: Optional[int] = None,
    ) -> List[Optional[CachedDocument]]:
        """Encodings of documents, and whether their texts were cut.

        Parameters
        ----------
        ids, digests, tokens
            As `get_many` takes them.

        Returns
        -------
        list of CachedDocument or None
            None for a document that is not in the cache, or with another text.

        Raises
        ------
        DataError
            If the index or an entry is damaged, or the file of entries is cut off.
        """
        mapped, entries = self._find(set(filter(None, ids)))
        documents: List[Optional[CachedDocument]] = []
        for id, digest in zip(ids, digests):
            entry = entries.get(id)  # type: ignore[arg-type]
            if entry is None or entry.text != digest:
                documents.append(None)
                continue
            rows = mapped.read(self._format, entry, self._index, tokens)
            documents.append(CachedDocument(rows, bool(entry.truncated)))
        return documents

    def _find(self, ids: Set[str]) -> Tuple[_Entries, Dict[str, Entry]]:
        """The file of entries, and the entries of documents by id, of one moment."""
        while True:
            with index_errors(self._index):
                state, entries = self._look_up(ids)
            try:
                return self._map(state), entries
            except DataError:
                with index_errors(self._index):
                    if self._look_up(set())[0].number == state.number:
                        raise
                # A writer has copied the entries to another file meanwhile.

    def _look_up(self, ids: Set[str]) -> Tuple[State, Dict[str, Entry]]:
        """State of the cache, and the entries of documents by id, in one transaction."""
        connection = self._connection()
        connection.execute("BEGIN")
        try:
            return read_state(connection, self._index), look_up(connection, sorted(ids))
        finally:
            connection.execute("ROLLBACK")

    def _map(self, state: State) -> _Entries:
        """The mapped entries of a state; the writer may have begun another file."""
        mapped = self._mapped
        is_same = mapped.state.number == state.number
        if is_same and len(mapped.content) >= state.end:
            check_size(mapped.path, state.end)
        else:
            # Returned as it is made here: another thread may map another state meanwhile.
            mapped = _Entries(self.path, state, set(mapped.checked) if is_same else set())
            self._mapped = mapped
        return mapped

    def _connection(self) -> sqlite3.Connection:
        """Connection of this thread. SQLite's must not be used after a fork."""
        known = getattr(self._local, "connections", {})
        if os.getpid() not in known:
            # Connections of the parent stay referenced: to close one would be to use it.
            known[os.getpid()] = _connect_reader(self._index)
            self._local.connections = known
        return known[os.getpid()]


def _connect_reader(path: pathlib.Path) -> sqlite3.Connection:
    """Connection that only reads, but can undo what a killed writer left half done."""
    try:
        connection = connect(path, "rw")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        return connection
    except sqlite3.OperationalError:  # the folder may be read-only
        return connect(path, "ro")


class _Entries:
    """A file of entries, mapped into memory as far as it is committed."""

    def __init__(self, folder: pathlib.Path, state: State, checked: Set[int]) -> None:
        self.state = state
        self.path = entries_path(folder, state.number)
        check_size(self.path, state.end)
        self.content = np.zeros(0, np.uint8)
        if state.end:  # an empty file cannot be mapped
            try:
                mapped = np.memmap(self.path, np.uint8, "r", shape=state.end)
            except FileNotFoundError:  # a writer has deleted it since its size was checked
                check_size(self.path, state.end)
                raise
            # A plain array: slices of a memmap are slow to make.
            self.content = mapped.view(np.ndarray)
        #: Starts of entries whose checksums were compared.
        self.checked = checked

    def read(
        self, format: EntryFormat, entry: Entry, index: pathlib.Path, tokens: Optional[int]
    ) -> np.ndarray:
        """The first rows of an entry, which is checked when it is first read."""
        if not (is_count(entry.start) and is_count(entry.rows) and entry.rows):
            raise DataError(index, f"the entry of {shorten(entry.id)} is damaged", mend=MEND)
        end = entry.start + format.size(entry.rows)
        if end > self.state.end:
            problem = f"the entry of {shorten(entry.id)} ends at byte {end}"
            raise DataError(index, problem, f"at most {self.state.end}", MEND)
        content = self.content[entry.start : end]
        rows = entry.rows if tokens is None else min(tokens, entry.rows)
        if entry.start not in self.checked:
            self._check(format, entry, content, rows)
        return format.read(content, entry.rows, rows)

    def _check(self, format: EntryFormat, entry: Entry, content: np.ndarray, rows: int) -> None:
        """Compare a checksum: of the first row where no more is read, else of all rows."""
        expected = entry.first_checksum if rows == 1 else entry.checksum
        rows = 1 if rows == 1 else entry.rows
        if format.checksum(content, entry.rows, rows) != expected:
            raise DataError(
                self.path,
                f"the entry of document {shorten(entry.id)}, at byte {entry.start}, has changed",
                f"checksum {expected}",
                "remove the document with `wqa encode --remove`, then encode it again",
            )
        if rows == entry.rows:
            self.checked.add(entry.start)


class CachedDocuments:
    """A document cache that counts what is looked up in it. Several threads may use it."""

    def __init__(self, path: PathLike) -> None:
        self.path = path
        self._cache: Optional[DocumentCache] = None
        self._counting = threading.Lock()
        self.documents = self.missing = 0

    @classmethod
    def of(cls, cache: Union[PathLike, CachedDocuments]) -> CachedDocuments:
        """The same object, or a new one for a path."""
        return cache if isinstance(cache, cls) else cls(cache)  # type: ignore[arg-type]

    def open(self, made_with: Mapping[str, Any]) -> None:
        """Open the cache, and check what its encodings were computed with."""
        self._cache = open_cache(self.path, made_with)

    @property
    def tokens(self) -> int:
        """Greatest number of rows of an entry; 0 for all rows of a document."""
        assert self._cache is not None
        return self._cache.tokens

    def get(
        self, candidates: Sequence[Candidate], tokens: Optional[int] = None
    ) -> List[Optional[CachedDocument]]:
        """Encodings of candidates."""
        assert self._cache is not None
        ids = [candidate.id for candidate in candidates]
        digests = [text_digest(candidate.text) for candidate in candidates]
        documents = self._cache.find_many(ids, digests, tokens)
        self.count(len(documents), documents.count(None))
        return documents

    def count(self, documents: int, missing: int) -> None:
        """Count documents that were looked up."""
        with self._counting:
            self.documents += documents
            self.missing += missing
