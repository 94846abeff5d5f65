"""Writes a document cache: adds, replaces and removes documents, in steps that are whole or not.

A commit first flushes the new entries to the disk, then changes the index in one transaction. A
writer that is killed leaves what was committed. Bytes that it has appended after that are
overwritten by the next writer.

Chunks of documents, which are encoded together, and partitions of whole chunks.

The chunks of a partition are those of the whole file, so that its documents have the same
encodings, to the bit, as in one process that encodes all.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sqlite3
from typing import IO, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from wqa.cache.cache_index import (
    APPLICATION,
    FORMAT,
    INDEX,
    MEND,
    Entry,
    EntryFormat,
    PackedDocument,
    State,
    check_size,
    connect,
    count_documents,
    entries_path,
    index_errors,
    look_up,
    pack_document,
    read_settings,
    read_state,
    refuse_other_files,
)
from wqa.data.documents import Document
from wqa.data.partitions import CHARACTERS, Partition, bounded_groups
from wqa.errors import DataError, StorageError, shorten
from wqa.io.files import PathLike, remove_abandoned, storage_errors, sync_directory, temporary_path
from wqa.io.locks import lock_output

#: Entries start at multiples of this, a line of the processor's cache.
_ALIGNMENT = 64
#: Unused bytes below which the entries are not copied.
LEAST_UNUSED = 1 << 24

_TABLES = f"""
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entries (number INTEGER NOT NULL, size INTEGER NOT NULL);
INSERT INTO entries VALUES (1, 0);
CREATE TABLE documents (
    id TEXT PRIMARY KEY, text BLOB NOT NULL, start INTEGER NOT NULL, rows INTEGER NOT NULL,
    truncated INTEGER NOT NULL, first_checksum INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};
"""


class DocumentCacheWriter:
    """Adds documents to a cache and removes them; makes the cache if there is none.

    It is a context manager, which holds the lock of the folder. Leaving it drops what was not
    committed.
    """

    def __init__(self, path: PathLike, settings: Optional[Mapping[str, Any]] = None) -> None:
        self.path = pathlib.Path(path)
        self.settings: Dict[str, Any] = dict(settings or {})
        self._index = self.path / INDEX
        self._added: Dict[str, Entry] = {}
        self._removed: List[str] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> DocumentCacheWriter:
        with contextlib.ExitStack() as stack:
            refuse_other_files(self.path, bool(self.settings))
            stack.enter_context(lock_output(self.path))
            with storage_errors(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            if not self._index.exists():
                self._make_index()
            with self._writing_index():
                self._connection = connect(self._index, "rw")
                stack.callback(self._connection.close)
                self._connection.execute("PRAGMA synchronous = FULL")
            self._open_index()
            self._format = EntryFormat(self.settings["units"], self.settings["store"])
            self._end = self._state.end
            self._open_entries()
            stack.callback(self._close_entries)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _open_index(self) -> None:
        """Read the index, and check its settings."""
        with index_errors(self._index):
            stored = read_settings(self._connection, self._index)
            self._state = read_state(self._connection, self._index)
        for name, expected in self.settings.items():
            if stored.get(name) != expected:
                raise DataError(
                    self.path,
                    f"made with {name} {shorten(stored.get(name))}",
                    shorten(expected),
                    "choose another folder, or delete this one",
                )
        self.settings = stored

    def _make_index(self) -> None:
        """Make the index of an empty cache; it has its name when it is whole."""
        remove_abandoned(self._index)
        temporary = temporary_path(self._index)
        settings = [(name, json.dumps(value)) for name, value in self.settings.items()]
        try:
            with self._writing_index(), contextlib.closing(connect(temporary, "rwc")) as connection:
                connection.execute("PRAGMA journal_mode = MEMORY")  # no file beside it
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                for statement in filter(str.strip, _TABLES.split(";")):
                    connection.execute(statement)
                connection.executemany("INSERT INTO settings VALUES (?, ?)", settings)
                connection.execute("COMMIT")
            with storage_errors(self._index):
                os.replace(temporary, self._index)
                sync_directory(self.path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _open_entries(self) -> None:
        """Open the file of entries, without what was appended but not committed."""
        path = entries_path(self.path, self._state.number)
        if self._state.end:
            check_size(path, self._state.end)
        with storage_errors(path):
            # A writer that was killed while it copied the entries leaves one of two files.
            for number in (self._state.number - 1, self._state.number + 1):
                entries_path(self.path, number).unlink(missing_ok=True)
            self._file: IO[bytes] = open(path, "ab")  # noqa: SIM115 (`_close_entries`)
            self._file.truncate(self._state.end)
        self._entries = path

    def _close_entries(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    @contextlib.contextmanager
    def _writing_index(self) -> Iterator[None]:
        """Convert SQLite's errors while writing into a `StorageError` that names the index."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if not isinstance(error, sqlite3.OperationalError):
                raise DataError(
                    self._index, f"cannot be read ({error})", "a document cache", MEND
                ) from None
            raise StorageError(
                self._index,
                f"could not be written ({error})",
                mend="free space or check the folder, then run again; what was committed stays",
            ) from None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit the changes at the end of the block, or undo them after an error."""
        with self._writing_index():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                # Not the connection's own context: before Python 3.9.8 a commit that fails stays.
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    # Documents

    def stored_digests(self, ids: Sequence[str]) -> Dict[str, bytes]:
        """Look up documents that are committed."""
        with index_errors(self._index):
            return {id: entry.text for id, entry in look_up(self._connection, ids).items()}

    def ids(self) -> List[str]:
        """Ids of all documents that are committed, ascending."""
        with index_errors(self._index):
            query = "SELECT id FROM documents ORDER BY id"
            return [id for (id,) in self._connection.execute(query)]

    def put(self, id: str, digest: bytes, encodings: np.ndarray, truncated: bool = False) -> bool:
        """Add a document, or replace the one with its id, at the next commit.

        Shapes: `encodings` (rows, C).
        """
        tokens = self.settings["tokens"]
        packed = pack_document(self._format, tokens, id, digest, encodings, truncated)
        self.put_packed(packed)
        return packed.truncated

    def put_packed(self, document: PackedDocument) -> None:
        """Add a document as `put` does, whose entry is in the layout of this cache."""
        content, rows = document.content, document.rows
        start = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        checksums = [self._format.checksum(content, rows, count) for count in (1, rows)]
        with storage_errors(self._entries):
            self._file.write(bytes(start - self._end))
            self._file.write(content.data)
        self._end = start + len(content)
        is_cut = int(document.truncated)
        self._added[document.id] = Entry(
            document.id, document.digest, start, rows, is_cut, *checksums
        )

    def remove(self, ids: Sequence[str]) -> None:
        """Remove documents at the next commit, before those that `put` adds."""
        self._removed += ids

    def commit(self) -> None:
        """Make all changes since the last commit durable, at once."""
        with storage_errors(self._entries):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._change_index(State(self._state.number, self._end), self._added.values())
        self._added, self._removed = {}, []

    def _change_index(self, state: State, entries: Any) -> None:
        with self._transaction() as connection:
            removed = [(id,) for id in self._removed]
            connection.executemany("DELETE FROM documents WHERE id = ?", removed)
            query = "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)"
            connection.executemany(query, entries)
            connection.execute("UPDATE entries SET number = ?, size = ?", state)
        self._state = state

    # Size

    def __len__(self) -> int:
        """Number of documents that are committed."""
        with index_errors(self._index):
            return count_documents(self._connection)

    def used_bytes(self) -> int:
        """Bytes of the index, and of the entries of all documents that are committed."""
        with storage_errors(self._index):
            return self._index.stat().st_size + self._entry_bytes()

    def _entry_bytes(self) -> int:
        per_row = self._format.size(1)
        with index_errors(self._index):
            (rows,) = self._connection.execute("SELECT sum(rows) FROM documents").fetchone()
        return (rows or 0) * per_row

    def compact(self) -> int:
        """Copy the entries to a new file if most of the old one is unused, and much."""
        before = self._state.end
        if before <= 2 * self._entry_bytes() + LEAST_UNUSED:
            return 0
        state = State(self._state.number + 1, 0)
        path = entries_path(self.path, state.number)
        with index_errors(self._index):
            query = "SELECT * FROM documents ORDER BY start"
            old = [Entry(*values) for values in self._connection.execute(query)]
        copied: List[Entry] = []
        with storage_errors(path), open(path, "wb") as target, open(self._entries, "rb") as source:
            for entry in old:
                copied.append(self._copy(entry, source, target))
            target.flush()
            os.fsync(target.fileno())
            state = State(state.number, target.tell())
        self._change_index(state, copied)
        self._close_entries()
        self._end = state.end
        self._open_entries()
        return before - state.end

    def _copy(self, entry: Entry, source: IO[bytes], target: IO[bytes]) -> Entry:
        """Copy an entry; returns where it is now."""
        target.write(bytes(-target.tell() % _ALIGNMENT))
        start = target.tell()
        source.seek(entry.start)
        target.write(source.read(self._format.size(entry.rows)))
        return entry._replace(start=start)


#: Most documents of a chunk, and characters after which it ends.
CHUNK_DOCUMENTS, CHUNK_CHARACTERS = 64, 1 << 18
#: Special tokens of a document.
SPECIAL = 2
#: Estimated tokens of a partition. Its file has two bytes for each unit of each token in float16:
#: 100 MB at BERT-base's width.
PARTITION_TOKENS = 1 << 16


def document_chunks(placed: Iterable[Tuple[Document, int]]) -> Iterator[Tuple[List[Document], int]]:
    """Divide documents into chunks.

    The chunks after one of them do not depend on the documents before it.
    """
    chunk: List[Document] = []
    characters = end = 0
    for document, end in placed:
        chunk.append(document)
        characters += len(document.text)
        if len(chunk) == CHUNK_DOCUMENTS or characters >= CHUNK_CHARACTERS:
            yield chunk, end
            chunk, characters = [], 0
    if chunk:
        yield chunk, end


def chunk_settings() -> Dict[str, int]:
    """Sizes of chunks, on which the last bits of encodings depend."""
    return {"chunk_documents": CHUNK_DOCUMENTS, "chunk_characters": CHUNK_CHARACTERS}


def document_partitions(
    placed: Iterable[Tuple[Document, int]], limit: int = PARTITION_TOKENS
) -> Iterator[Partition]:
    """Divide documents into partitions of whole chunks."""
    start, line = 0, 1
    for sizes, tokens, end in bounded_groups(_counted(document_chunks(placed)), limit):
        count = sum(sizes)
        yield Partition(start, end, line, count, count, count, tokens)
        start, line = end, line + count


def _counted(chunks: Iterable[Tuple[List[Document], int]]) -> Iterator[Tuple[int, int, int]]:
    """Number of documents of each chunk, their estimated tokens, and the position after them."""
    for chunk, end in chunks:
        characters = sum(len(document.full_text) for document in chunk)
        yield len(chunk), SPECIAL * len(chunk) + characters // CHARACTERS, end
