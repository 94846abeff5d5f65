"""The index of a document cache: a database of SQLite, opened, checked and queried.

Its tables are ``settings``, what the encodings were computed with; ``entries``, one row that names
the file of entries and its size; and ``documents``, the entry of each document.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sqlite3
from typing import Any, Dict, Iterator, NamedTuple, Sequence

from wqa.errors import DataError, OptionError, shorten

#: Changes whenever older caches can no longer be read.
FORMAT = 1
#: Number in the header of the index by which SQLite's files of this kind are told from others.
APPLICATION = 0x57514143

INDEX = "index.sqlite"

#: Documents that one query of the index looks up; SQLite takes at most 999 values.
_AT_ONCE = 500
#: Seconds that a reader waits for a writer that commits, and a writer for readers.
_PATIENCE = 60.0

MAKE = "make it with `wqa encode`"
MEND = f"delete the folder, then {MAKE}"


def entries_path(folder: pathlib.Path, number: int) -> pathlib.Path:
    """File of the entries of a cache."""
    return folder / f"encodings-{number}.bin"


def refuse_other_files(path: pathlib.Path, may_create: bool = True) -> None:
    """Refuse a path at which no cache is, and none can be made."""
    if path.is_file():
        raise OptionError("out", f"{path}, a file", "the path of a folder to make")
    if (path / INDEX).exists():
        return
    if not may_create:
        raise DataError(path, "is no document cache", mend=MAKE)
    if path.is_dir() and any(path.iterdir()):
        found = f"{path}, a folder with other files"
        raise OptionError("out", found, "the path of a folder to make")


@contextlib.contextmanager
def index_errors(path: pathlib.Path) -> Iterator[None]:
    """Convert SQLite's errors while reading into a `DataError` that names the index."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as error:
        raise DataError(
            path, f"cannot be read ({error})", "the index of a document cache", MEND
        ) from None


class Entry(NamedTuple):
    """What the index holds about a document."""

    id: str
    text: bytes  # digest of the text
    start: int  # first byte of the entry
    rows: int
    truncated: int  # 1 if the document lost tokens to a limit, else 0
    first_checksum: int  # of the first row
    checksum: int  # of all rows


def look_up(connection: sqlite3.Connection, ids: Sequence[str]) -> Dict[str, Entry]:
    """Look up the entries of documents by id."""
    entries: Dict[str, Entry] = {}
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        marks = ",".join("?" * len(some))
        query = f"SELECT {', '.join(Entry._fields)} FROM documents WHERE id IN ({marks})"
        for values in connection.execute(query, some):
            entries[values[0]] = Entry(*values)
    return entries


def count_documents(connection: sqlite3.Connection) -> int:
    """Count the documents of a cache."""
    return connection.execute("SELECT count(*) FROM documents").fetchone()[0]


class State(NamedTuple):
    """The file of entries that an index describes."""

    number: int  # N of its name
    end: int  # bytes that are committed


def connect(path: pathlib.Path, mode: str) -> sqlite3.Connection:
    """Open an index."""
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, _PATIENCE, isolation_level=None, uri=True)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def read_state(connection: sqlite3.Connection, path: pathlib.Path) -> State:
    """Read which file of entries an index describes."""
    rows = connection.execute("SELECT number, size FROM entries").fetchall()
    if len(rows) != 1 or not all(is_count(value) for value in rows[0]):
        raise DataError(path, "names no file of entries", "the index of a document cache", MEND)
    return State(*rows[0])


def read_settings(connection: sqlite3.Connection, path: pathlib.Path) -> Dict[str, Any]:
    """Read the settings of a cache, and check that its index is one."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        problem = "another database, or an index that was not begun"
        raise DataError(path, problem, "the index of a document cache", MAKE)
    if version != FORMAT:
        raise DataError(path, f"a document cache of format {version}", f"format {FORMAT}", MEND)
    settings = {}
    for name, text in connection.execute("SELECT name, value FROM settings"):
        try:
            settings[name] = json.loads(text)
        except (TypeError, ValueError):
            raise DataError(path, f"setting {name} is {shorten(text)}", "JSON", MEND) from None
    for name in ("units", "tokens"):
        if not is_count(settings.get(name)):
            raise DataError(path, f"{name} is {shorten(settings.get(name))}", "a count", MEND)
    return settings


def is_count(value: object) -> bool:
    """Whether a value of an index is a number of bytes or rows."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def check_size(path: pathlib.Path, size: int) -> None:
    """Check that a file of entries holds what the index says is committed."""
    try:
        actual = path.stat().st_size
    except OSError as error:
        raise DataError(
            path, f"cannot be read ({error.strerror})", "the entries of a document cache", MEND
        ) from None
    if actual < size:
        raise DataError(path, f"{actual} bytes: it is cut off", f"at least {size} bytes", MEND)
