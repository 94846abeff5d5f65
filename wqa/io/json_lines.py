"""What files of JSON lines share: strict reading of a line, and writing of whole files.

An error names the file and the line, or the part of the line that it is in.
"""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any, Dict, Iterable, List, Set, Tuple

from wqa.config import parse_json
from wqa.errors import DataError, shorten
from wqa.io.files import PathLike, atomic_writer


def json_value(line: str, where: str) -> Any:
    """Parse a line, whose objects have unique keys."""

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        keys: Set[str] = set()
        for key, _ in pairs:
            if key in keys:
                raise DataError(
                    where, f"key {shorten(key)} occurs twice in one object", "each key once"
                )
            keys.add(key)
        return dict(pairs)

    try:
        return parse_json(line, object_pairs_hook=unique)
    except ValueError as error:
        problem = f"malformed JSON ({error})" if line.strip() else "an empty line"
        raise DataError(
            where, problem, "one JSON object a line", "mend or delete the line"
        ) from None


def object_of(value: Any, needed: Set[str], optional: Set[str], where: str) -> Dict[str, Any]:
    """Take a value as an object that has all needed keys, and only needed or optional keys."""
    if not isinstance(value, dict):
        raise DataError(where, shorten(value), "a JSON object with " + ", ".join(sorted(needed)))
    for key in sorted(needed - set(value)):
        raise DataError(where, f"no key {key!r}", "the keys " + ", ".join(sorted(needed)))
    known = needed | optional
    for key in value:
        if key not in known:
            raise DataError(
                where, f"unknown key {shorten(key)}", "only " + ", ".join(sorted(known))
            )
    return value


def text_of(value: Any, name: str, where: str) -> str:
    """Take a value as a string that UTF-8 can represent."""
    if not isinstance(value, str):
        raise DataError(where, f"{name} is {shorten(value)}", "a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(
            where, f"{name} holds half a surrogate pair", "whole characters", "mend its escapes"
        ) from None
    return value


def meta_of(value: Any, where: str) -> Dict[str, Any]:
    """Take a value as the ``meta`` of a record, which reads back as it was written."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
        reads_back = json.loads(text) == value
    except (TypeError, ValueError, RecursionError):
        reads_back = False
    if not isinstance(value, dict) or not reads_back:
        raise DataError(
            where,
            f"meta is {shorten(value)}",
            "a JSON object of text, finite numbers, true, false, null, lists and objects, or no "
            "meta where there is none",
        )
    return value


def checked_utf8(line: str, where: str) -> str:
    """Check that UTF-8 can represent a line that is to be written."""
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(where, "its texts hold half a surrogate pair", "whole characters") from None
    return line


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
