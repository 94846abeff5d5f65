"""The files of a document cache: its index, and encodings as the bytes of an entry.

The index is a database of SQLite, which is opened, checked and queried here. Its tables are
``settings``, what the encodings were computed with; ``entries``, one row that names the file of
entries and its size; and ``documents``, the entry of each document.

An entry is the rows of a document, one after another, little-endian, in one of four element types.
In ``int8`` a scale for each row, float32, comes before them: a value is its integer times the scale
of its row.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sqlite3
from typing import Any, Dict, Iterator, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.errors import DataError, OptionError, check_choice, shorten
from wqa.io.outputs import other_entries
from wqa.io.parameter_files import widen

#: Element types of entries, and the NumPy types that carry them (bfloat16 as its 16 bits).
STORES: Dict[str, np.dtype] = {
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "float32": np.dtype("<f4"),
    "int8": np.dtype("i1"),
}

_SCALE = np.dtype("<f4")
_WORD = np.dtype("<i8")
#: Greatest integer of ``int8``.
_MOST = np.float32(127)
#: Bits of a bfloat16 that is no number.
_NAN = 0x7FC0


class EntryFormat:
    """Layout of the entries of a cache."""

    def __init__(self, units: int, store: str) -> None:
        check_choice("store", store, STORES)
        self.units = units
        self.store = store
        self._element = STORES[store]
        self._row_bytes = units * self._element.itemsize
        self._scale_bytes = 0
        self.dtype = self._element
        if store == "int8":
            self._scale_bytes = _SCALE.itemsize
            self.dtype = _SCALE

    def size(self, rows: int) -> int:
        """Bytes of an entry."""
        return rows * (self._scale_bytes + self._row_bytes)

    def pack(self, encodings: np.ndarray) -> bytes:
        """Convert encodings to the bytes of an entry.

        Shapes: `encodings` (rows, C).
        """
        if self.store == "bfloat16":
            return _as_bfloat16(encodings).tobytes()
        with np.errstate(over="ignore", invalid="ignore"):  # `is_finite` tells
            return self._pack(as_float32(encodings))

    def _pack(self, values: np.ndarray) -> bytes:
        if self.store != "int8":
            return values.astype(self._element).tobytes()
        greatest = np.abs(values).max(axis=1, keepdims=True)
        scales = (greatest / _MOST).astype(_SCALE)
        divisors = scales.copy()
        divisors[scales == 0] = 1  # a row of zeros stays zero
        integers = np.rint(values / divisors)
        integers = integers.astype(self._element)
        return scales.tobytes() + integers.tobytes()

    def is_finite(self, packed: bytes, rows: int) -> bool:
        """Whether all values of an entry are finite numbers."""
        entry = np.frombuffer(packed, np.uint8)
        with np.errstate(invalid="ignore"):
            values = self.read(entry, rows, rows)
        if self.store == "bfloat16":
            values = as_float32(values)
        return bool(np.isfinite(values).all())

    def read(self, entry: np.ndarray, rows: int, count: int) -> np.ndarray:
        """Take the first rows of an entry. Other rows are not read.

        Shapes: the result (count, C).
        """
        start, end = self._bounds(rows, count)
        values = entry[start:end].view(self._element)
        values = values.reshape(count, self.units)
        if self.store != "int8":
            return values
        scales = entry[: count * self._scale_bytes].view(_SCALE)
        return np.multiply(values, scales[:, None], dtype=np.float32)

    def checksum(self, entry: np.ndarray, rows: int, count: int) -> int:
        """Sum of the first rows of an entry, and of their scales. Other rows are not read.

        It is the sum of their 64-bit words, modulo 2**64. A changed word, or a page that was not
        written, changes it. It takes a fifth of the time of CRC-32.
        """
        start, end = self._bounds(rows, count)
        total = _sum(entry[start:end])
        if self._scale_bytes:
            scales = count * self._scale_bytes
            total += _sum(entry[:scales])
        half = 1 << 63
        return (total + half) % (2 * half) - half  # modulo 2**64, with a sign

    def _bounds(self, rows: int, count: int) -> Tuple[int, int]:
        """Start and end of the first rows, which lie behind the scales of all."""
        start = rows * self._scale_bytes
        return start, start + count * self._row_bytes


class PackedDocument(NamedTuple):
    """A document as a cache stores it."""

    id: str
    digest: bytes
    content: np.ndarray
    rows: int
    truncated: bool


def pack_document(
    format: EntryFormat,
    tokens: int,
    id: str,
    digest: bytes,
    encodings: np.ndarray,
    truncated: bool = False,
) -> PackedDocument:
    """Convert the encodings of a document to its entry.

    Shapes: `encodings` (rows, C).
    """
    rows = encodings[: tokens or None]
    if not len(rows) or rows.shape[1:] != (format.units,):
        expected = f"rows of {format.units} values"
        raise DataError(f"document {shorten(id)}", f"encodings of {rows.shape}", expected)
    packed = format.pack(rows)
    if not format.is_finite(packed, len(rows)):
        raise DataError(
            f"document {shorten(id)}",
            f"encodings that are no finite numbers in {format.store}",
            "finite numbers",
            "take store float32; if it fails too, the weights are damaged",
        )
    is_cut = truncated or len(rows) < len(encodings)
    return PackedDocument(id, digest, np.frombuffer(packed, np.uint8), len(rows), is_cut)


def _sum(content: np.ndarray) -> int:
    """Sum of the words of some bytes; those behind the last whole word are a word too."""
    left = len(content) % _WORD.itemsize
    whole = len(content) - left
    words = content[:whole].view(_WORD)
    total = np.add.reduce(words)
    rest = content[whole:].tobytes()
    return int(total) + int.from_bytes(rest, "little")


def as_float32(encodings: np.ndarray) -> np.ndarray:
    """Encodings in float32; those in bfloat16 come as their 16 bits."""
    if encodings.dtype == np.uint16:
        return widen(encodings)
    return np.asarray(encodings, np.float32)


def _as_bfloat16(encodings: np.ndarray) -> np.ndarray:
    """The upper halves of float32 numbers, rounded to the nearest, ties to even."""
    if encodings.dtype == np.uint16:
        return encodings
    values = np.ascontiguousarray(encodings, np.float32)
    bits = values.view(np.uint32)
    is_odd = (bits >> 16) & 1
    rounded = bits + is_odd + np.uint32(0x7FFF)
    rounded >>= 16
    upper = rounded.astype(np.uint16)
    upper[np.isnan(values)] = _NAN  # whose bits may have become those of a number
    return upper


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
    if path.is_dir() and other_entries(path, ()):
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
        expected = "the index of a document cache"
        raise DataError(
            path, "another database", expected, "move it away, or choose another folder"
        )
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
