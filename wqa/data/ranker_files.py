"""Files of rankers that consist of other rankers: sequences and ensembles."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from wqa.config import read_json
from wqa.config.training import PRECISIONS
from wqa.data.probe import Probe, probe
from wqa.errors import OptionError, RunDirectoryError, shorten
from wqa.io.files import PathLike

#: Content of a ranker, and of each kind of file.
_ENTRY = '{"run": RUN, "drop_ratio": A, "keep": K, "precision": P}'
CONTENT = {
    "sequence": (f'{{"rankers": [RUN, {_ENTRY}, ...], "drop_ratio": [A, ...], "keep": [K, ...]}}'),
    "ensemble": f'{{"ensemble": [RUN, {_ENTRY}, ...], "weights": [W, ...]}}',
}
#: Field with the rankers of each kind.
RANKERS_FIELD = {"sequence": "rankers", "ensemble": "ensemble"}
#: All fields of each kind; ``tuned`` says how the others were chosen, and is not read.
_FIELDS = {
    "sequence": {"rankers", "drop_ratio", "keep", "tuned"},
    "ensemble": {"ensemble", "weights", "tuned"},
}


class Entry(NamedTuple):
    """A ranker of a file."""

    name: str  # as the file has it
    source: Probe
    drop_ratio: Any
    keep: Any
    precision: Optional[str] = None  # that of the others by default


class RankerFile(NamedTuple):
    """Content of a file."""

    kind: str  # a key of `CONTENT`
    entries: List[Entry]
    drop_ratio: Any = None  # of a sequence
    keep: Any = None  # of a sequence
    weights: Any = None  # of an ensemble


def ranker_file_kind(path: PathLike) -> str:
    """Kind of the file of rankers at a path, a key of `CONTENT`; empty for any other path."""
    source = probe(path)
    return read_ranker_file(source.path).kind if source.kind == "file" else ""


def read_ranker_file(path: pathlib.Path, around: Tuple[pathlib.Path, ...] = ()) -> RankerFile:
    """Read a file of rankers, and check the files inside it; ``around`` has those it is inside."""
    content = _read(path)
    resolved = path.resolve()
    if resolved in around:
        problem = f"the {content.kind} is inside itself"
        raise RunDirectoryError(path, problem, CONTENT[content.kind])
    for entry in content.entries:
        if entry.source.kind == "file":
            read_ranker_file(entry.source.path, (*around, resolved))
    return content


def _read(path: pathlib.Path) -> RankerFile:
    kind = ""
    try:
        values = read_json(path)
        kind = _kind(values)
        _check_fields(values, _FIELDS[kind])
        field = RANKERS_FIELD[kind]
        if not isinstance(values[field], list):
            raise ValueError(f"{field} is {shorten(values[field])}")
        weights = values.get("weights")
        if not (weights is None or isinstance(weights, list)):
            raise ValueError(f"weights is {shorten(weights)}")
        entries = [_entry(path.parent, entry) for entry in values[field]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        expected = CONTENT.get(kind, " or ".join(CONTENT.values()))
        problem = f"is no {kind or ' or '.join(CONTENT)} of rankers ({error})"
        raise RunDirectoryError(path, problem, expected) from None
    return RankerFile(kind, entries, values.get("drop_ratio"), values.get("keep"), weights)


def _kind(values: Any) -> str:
    """Kind of a file by the field that holds its rankers."""
    for kind, field in RANKERS_FIELD.items():
        if field in values:
            return kind
    raise ValueError(f"neither {' nor '.join(RANKERS_FIELD.values())} is in it")


def _entry(folder: pathlib.Path, entry: Any) -> Entry:
    """One ranker, given as a path, or as a path with its drops and its precision."""
    values = entry if isinstance(entry, dict) else {"run": entry}
    _check_fields(values, {"run", "drop_ratio", "keep", "precision"})
    name = values["run"]
    if not isinstance(name, str):
        raise ValueError(f"run is {shorten(name)}")
    try:
        source = probe(name, folder)
    except OptionError as error:
        raise ValueError(f"{error.where} is {error.found}, expected {error.expected}") from None
    precision = values.get("precision")
    if precision is not None and precision not in PRECISIONS:
        found = f"precision is {shorten(precision)}"
        raise ValueError(f"{found}, expected one of {', '.join(PRECISIONS)}")
    drops = values.get("drop_ratio"), values.get("keep")
    return Entry(name, source, *drops, precision)


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
