"""The manifest of a job: what its partitions are, and what all who compute them must agree on.

It is written once, by whoever comes first. Everybody else compares: digests of the run and the
data, the options, and what the last bits depend on, such as the number of threads.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from wqa.config import read_json
from wqa.data.partitions import Partition
from wqa.errors import DataError, OptionError, shorten
from wqa.io.files import atomic_writer

#: Changes whenever older manifests, or files of partitions, can no longer be read.
FORMAT = 1
#: Greatest size of a manifest in bytes.
LARGEST = 1 << 30

#: File of the manifest.
NAME = "manifest.json"


class Manifest(NamedTuple):
    """What a job consists of."""

    made_with: Dict[str, Any]
    computed_by: Dict[str, Any]
    partitions: List[Partition]
    digest: str


def partitions_folder(out: pathlib.Path) -> pathlib.Path:
    """Folder of the manifest and of the partitions that are computed, until they are merged."""
    return out.with_name(f"{out.name}.partitions")


def write_manifest(
    folder: pathlib.Path,
    made_with: Mapping[str, Any],
    computed_by: Mapping[str, Any],
    partitions: Iterable[Partition],
) -> Manifest:
    """Write a manifest; the file appears when it is whole."""
    manifest = _manifest(dict(made_with), dict(computed_by), list(partitions))
    with atomic_writer(folder / NAME) as file:
        file.write(f'{{"format": {FORMAT},\n')
        for name in ("made_with", "computed_by"):
            file.write(f'"{name}": {json.dumps(getattr(manifest, name))},\n')
        file.write(f'"sha256": "{manifest.digest}",\n"partitions": [\n')
        rows = [json.dumps(row) for row in _rows(manifest.partitions)]
        file.write(",\n".join(rows) + "\n]}\n")
    return manifest


def read_manifest(folder: pathlib.Path) -> Optional[Manifest]:
    """Read the manifest of a folder."""
    path = folder / NAME
    try:
        value = read_json(path, LARGEST)
    except FileNotFoundError:
        _refuse_other_files(folder)
        return None
    except (OSError, ValueError) as error:
        raise _damaged(path, f"cannot be read ({error})") from None
    try:
        if value["format"] != FORMAT:
            raise _damaged(path, f"format {shorten(value['format'])}", f"format {FORMAT}")
        manifest = _manifest(
            dict(value["made_with"]), dict(value["computed_by"]), _partitions(value["partitions"])
        )
        recorded = value["sha256"]
    except (KeyError, TypeError, ValueError):
        raise _damaged(path, "is no manifest, or one that is not whole") from None
    if recorded != manifest.digest:
        raise _damaged(path, f"SHA-256 {manifest.digest}", shorten(recorded, 70))
    return manifest


def check_manifest(
    manifest: Manifest,
    folder: pathlib.Path,
    expected: Mapping[str, Any],
    optional: Sequence[str] = (),
) -> None:
    """Check that a manifest is that of a command."""
    stored = {**manifest.made_with, **manifest.computed_by}
    others = [name for name in optional if name in stored and name not in expected]
    for name in [*expected, *others]:
        if stored.get(name) != expected.get(name):
            mend = f"repeat the command that began it, or delete {folder}, or choose another folder"
            if name == "threads":
                mend = f"give threads={stored.get(name)} on every machine, or delete {folder}"
            raise DataError(
                folder / NAME,
                f"made with {name} {shorten(stored.get(name), 70)}",
                shorten(expected.get(name), 70),
                mend,
            )


def _manifest(
    made_with: Dict[str, Any], computed_by: Dict[str, Any], partitions: List[Partition]
) -> Manifest:
    content = [FORMAT, made_with, computed_by, _rows(partitions)]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8")).hexdigest()
    return Manifest(made_with, computed_by, partitions, digest)


def _rows(partitions: Iterable[Partition]) -> List[List[int]]:
    """Partitions without what follows from those before: where they begin."""
    rows = []
    for part in partitions:
        rows.append([part.end, part.read, part.records, part.texts, part.tokens])
    return rows


def _partitions(rows: Any) -> List[Partition]:
    partitions = []
    start, line = 0, 1
    for end, read, records, texts, tokens in rows:
        for number in (end, read, records, texts, tokens):
            if type(number) is not int:
                raise ValueError("a row of other values than whole numbers")
        if end <= start or read < 1:
            raise ValueError("a partition without a record")
        partitions.append(Partition(start, end, line, read, records, texts, tokens))
        start, line = end, line + read
    if not partitions:
        raise ValueError("no partition")
    return partitions


def _damaged(path: pathlib.Path, problem: str, expected: str = "a whole manifest") -> DataError:
    return DataError(path, problem, expected, f"delete {path.parent}, then run the command again")


def _refuse_other_files(folder: pathlib.Path) -> None:
    """Refuse a folder with other files than a killed writer of the manifest leaves."""
    if not folder.exists():
        return
    if folder.is_dir() and all(entry.name.startswith(f".{NAME}.") for entry in folder.iterdir()):
        return
    raise OptionError(
        "out",
        f"{folder} is beside it, with other files",
        "a path beside which the partitions can be written",
        "choose another path, or move that folder",
    )
