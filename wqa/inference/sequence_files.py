"""Files of sequences of rankers."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, NamedTuple, Tuple

from wqa.config import read_json
from wqa.errors import RunDirectoryError, shorten

#: Content of a sequence's file.
CONTENT = (
    '{"rankers": [RUN, {"run": RUN, "drop_ratio": A, "keep": K}, ...], "drop_ratio": [A, ...], '
    '"keep": [K, ...]}'
)

#: Greatest number of rankers of a sequence, those of sequences inside it included.
MOST_RANKERS = 100


class Entry(NamedTuple):
    """A ranker of a sequence."""

    run: pathlib.Path
    drop_ratio: Any
    keep: Any


class SequenceFile(NamedTuple):
    """Content of a sequence's file."""

    entries: List[Entry]
    drop_ratio: Any
    keep: Any


def is_sequence(path: pathlib.Path) -> bool:
    """Whether a path is that of a sequence's file.

    Parameters
    ----------
    path : pathlib.Path
        File or directory.

    Returns
    -------
    bool
    """
    try:
        return path.suffix == ".json" and path.is_file()
    except OSError:  # a name that is too long
        return False


def read_sequence(path: pathlib.Path) -> SequenceFile:
    """Read the file of a sequence, and check those of the sequences inside it.

    Parameters
    ----------
    path : pathlib.Path
        File to read.

    Returns
    -------
    SequenceFile
        Its rankers and what each of them drops.

    Raises
    ------
    RunDirectoryError
        If a file does not hold a sequence, a sequence is inside itself, or there are more than
        `MOST_RANKERS` rankers.
    """
    sequence = _read(path)
    waiting: List[Tuple[pathlib.Path, Tuple[pathlib.Path, ...]]] = [(path, ())]
    count = 0
    while waiting:
        inner, around = waiting.pop()
        resolved = inner.resolve()
        if resolved in around:
            raise RunDirectoryError(inner, "a sequence that is inside itself", CONTENT)
        entries = _read(inner).entries
        count += len(entries)
        if count > MOST_RANKERS:
            raise RunDirectoryError(path, f"{count} rankers or more", f"at most {MOST_RANKERS}")
        inside = [entry.run for entry in entries if is_sequence(entry.run)]
        waiting += [(run, (*around, resolved)) for run in inside]
    return sequence


def _read(path: pathlib.Path) -> SequenceFile:
    try:
        values = read_json(path)
        _check_fields(values, {"rankers", "drop_ratio", "keep"})
        if not isinstance(values["rankers"], list):
            raise ValueError(f"rankers is {shorten(values['rankers'])}")
        entries = [_entry(path.parent, entry) for entry in values["rankers"][: MOST_RANKERS + 1]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(
            path, f"is no sequence of rankers ({type(error).__name__}: {error})", CONTENT
        ) from None
    return SequenceFile(entries, values.get("drop_ratio"), values.get("keep"))


def _entry(folder: pathlib.Path, entry: Any) -> Entry:
    """One ranker, given as a path or as a path with its drops."""
    values = entry if isinstance(entry, dict) else {"run": entry}
    _check_fields(values, {"run", "drop_ratio", "keep"})
    if not isinstance(values["run"], str):
        raise ValueError(f"run is {shorten(values['run'])}")
    return Entry(folder / values["run"], values.get("drop_ratio"), values.get("keep"))


def _check_fields(values: Dict[str, Any], known: set) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{shorten(values)} is no object")
    if set(values) - known:
        raise ValueError(f"a field besides {', '.join(sorted(known))}")
    for name in ("drop_ratio", "keep"):
        value = values.get(name)
        items = value if isinstance(value, list) else [value]
        for item in items:
            if not _is_drop(item) and not (name == "drop_ratio" and value == "tuned"):
                raise ValueError(f"{name} is {shorten(value)}")


def _is_drop(item: Any) -> bool:
    return item is None or (isinstance(item, (int, float)) and not isinstance(item, bool))
