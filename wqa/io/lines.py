"""Lines of files, in bounded memory, whatever a file holds.

Only ``\n`` ends a line. The other line ends of Unicode, such as U+0085 and U+2028, are text. A
byte order mark at the start of a file, which some editors write, is not.

What files of JSON lines share: strict reading of a line, and writing of whole files.

An error names the file and the line, or the part of the line that it is in.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import gzip
import json
import pathlib
from typing import IO, Any, Callable, Dict, Iterable, Iterator, Mapping, Optional, Set, Tuple

from wqa.config import parse_json
from wqa.errors import DataError, shorten
from wqa.io.files import DAMAGE, PathLike, atomic_writer

#: Greatest length of a line, in bytes.
LONGEST_LINE = 1 << 26

#: Takes the value of a field by its name and its place in a file, which errors say.
Check = Callable[[Any, str, str], Any]


def open_bytes(path: PathLike) -> IO[bytes]:
    """Open a file, plain or ``.gz``, for reading bytes."""
    with damage_errors(path, "check the path"):
        if str(path).endswith(".gz"):
            return gzip.open(path, "rb")  # type: ignore[return-value]
        return open(path, "rb")


def without_mark(content: bytes) -> bytes:
    """Take away the byte order mark of UTF-8 at the start of a file, if there is one."""
    return content[3:] if content.startswith(codecs.BOM_UTF8) else content


def bounded_lines(
    file: IO[bytes], where: object, longest: int = LONGEST_LINE
) -> Iterator[Tuple[int, bytes]]:
    """Read the lines of an open file, from its position on."""
    read_line = functools.partial(file.readline, longest + 1)
    with damage_errors(where):
        for number, line in enumerate(iter(read_line, b""), 1):
            if len(line) > longest:
                hint = "check that it is a file of this format"
                problem = f"more than {longest:,} bytes"
                raise DataError(f"{where}, line {number}", problem, "shorter lines", hint)
            if number == 1:
                line = without_mark(line)
            if line:
                yield number, line


def decoded(raw: bytes, where: object) -> str:
    """Decode UTF-8 text."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        problem, hint = f"byte {error.start} is not UTF-8", "convert the file, as by iconv"
        raise DataError(where, problem, "UTF-8 text", hint) from None


def decoded_lines(lines: Iterable[Tuple[int, bytes]], where: object) -> Iterator[Tuple[int, str]]:
    """Decode lines of UTF-8 text."""
    for number, raw in lines:
        yield number, decoded(raw, f"{where}, line {number}")


def text_lines(path: PathLike, longest: int = LONGEST_LINE) -> Iterator[Tuple[int, str]]:
    """Read the lines of a file of UTF-8 text."""
    with open_bytes(path) as file:
        yield from decoded_lines(bounded_lines(file, path, longest), path)


def json_value(line: str, where: str) -> Any:
    """Parse a line, whose objects have unique keys."""
    try:
        return parse_json(line)
    except ValueError as error:
        problem = f"malformed JSON ({error})" if line.strip() else "an empty line"
        hint = "correct or delete the line"
        raise DataError(where, problem, "one JSON object a line", hint) from None


def object_of(value: Any, needed: Set[str], known: Iterable[str], where: str) -> Dict[str, Any]:
    """Take a value as an object that has all needed keys, and only known keys."""
    if not isinstance(value, dict):
        raise DataError(where, shorten(value), "a JSON object with " + ", ".join(sorted(needed)))
    for key in sorted(needed.difference(value)):
        raise DataError(where, f"no key {key!r}", "the keys " + ", ".join(sorted(needed)))
    for key in sorted(set(value).difference(known)):
        expected = "only " + ", ".join(sorted(known))
        raise DataError(where, f"unknown key {shorten(key)}", expected)
    return value


def fields_of(
    value: Any, checks: Mapping[str, Check], needed: Set[str], where: str
) -> Dict[str, Any]:
    """Take a value as an object of fields, each of which its own check takes."""
    fields = object_of(value, needed, checks, where)
    return {name: checks[name](field, name, where) for name, field in fields.items()}


class UniqueIds:
    """Ids of the records of a file, of which no two may be the same."""

    def __init__(self, kind: str, unit: str = "line") -> None:
        self._kind, self._unit = kind, unit
        self._lines: Dict[str, Optional[int]] = {}

    def add(self, record_id: str, where: str, line: Optional[int] = None) -> None:
        """Add the id of a record, with the number of its line if it was read from one."""
        if record_id in self._lines:
            first = self._lines[record_id]
            problem = f"two {self._kind}s have the id {shorten(record_id)}"
            if first is not None:
                problem = f"{self._kind} id {shorten(record_id)} is on {self._unit} {first} too"
            hint = "rename one of the two"
            raise DataError(where, problem, "ids that are unique in a file", hint)
        self._lines[record_id] = line


def read_records(
    path: PathLike,
    kind: str,
    parse: Callable[[str, str], Any],
    longest: int = LONGEST_LINE,
) -> Iterator[Any]:
    """Read the records of a file of lines, whose ids are unique."""
    ids, number = UniqueIds(kind), 0
    for number, line in text_lines(path, longest):
        where = f"{path}, line {number}"
        record = parse(line, where)
        ids.add(record.id, where, number)
        yield record
    if not number:
        raise DataError(path, f"the file holds no {kind}", "one JSON object a line")


def record_lines(
    records: Iterable[Any], kind: str, fields_of: Callable[[Any, str], Dict[str, Any]]
) -> Iterator[str]:
    """Lines of JSON of records, whose ids must be unique."""
    ids = UniqueIds(kind)
    for record in records:
        where = f"{kind} {shorten(record.id)}"
        ids.add(record.id, where)
        yield json.dumps(fields_of(record, where), ensure_ascii=False)


@contextlib.contextmanager
def damage_errors(where: object, hint: str = "fetch or write it again") -> Iterator[None]:
    """Convert what a damaged file raises while it is read into a `DataError`."""
    try:
        yield
    except DAMAGE as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(where, f"cannot be read ({reason})", "a whole file", hint) from None


def text_of(value: Any, name: str, where: str) -> str:
    """Take a value as a string that UTF-8 can represent."""
    if not isinstance(value, str):
        raise DataError(where, f"{name} is {shorten(value)}", "a string")
    return checked_utf8(value, where, name)


def filled_text(value: Any, name: str, where: str) -> str:
    """Take a value as a string that is not blank."""
    if not text_of(value, name, where).strip():
        raise DataError(where, f"{name} is empty", "text")
    return value


def filled_texts(values: Any, name: str, where: str, hint: str) -> Tuple[str, ...]:
    """Take a value as a list of strings, none of which is blank."""
    if not isinstance(values, (list, tuple)) or not values:
        found, expected = f"{name} is {shorten(values)}", "a list of at least one text"
        raise DataError(where, found, expected, hint)
    return tuple(filled_text(text, f"{name} {row}", where) for row, text in enumerate(values, 1))


def checked_utf8(text: str, where: str, name: str = "text") -> str:
    """Check that UTF-8 can represent a text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        problem = f"{name} holds half a surrogate pair"
        raise DataError(where, problem, "whole characters") from None
    return text


def meta_of(value: Any, name: str, where: str) -> Dict[str, Any]:
    """Take a value as the ``meta`` of a record, which reads back as it was written."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
        reads_back = json.loads(text) == value
    except (TypeError, ValueError, RecursionError):
        reads_back = False
    if not isinstance(value, dict) or not reads_back:
        raise DataError(where, f"{name} is {shorten(value)}", f"a JSON object, or no {name}")
    return value


def write_lines(path: PathLike, lines: Iterable[str]) -> None:
    """Write lines as UTF-8, plain or ``.gz``; the file appears when it is whole."""
    encoded = ((line + "\n").encode("utf-8") for line in lines)
    with atomic_writer(path, "wb") as raw:
        if pathlib.Path(path).suffix == ".gz":
            # No name and no time in the header: the same lines give the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                packed.writelines(encoded)
        else:
            raw.writelines(encoded)
