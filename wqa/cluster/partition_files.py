"""Partitions of a job: the manifest, the files of those that are computed, and who computes which.

The manifest says what the partitions are, and what all who compute them must agree on. It is
written once, by whoever comes first. Everybody else compares: digests of the run and the data, the
options, and what the last bits depend on, such as the number of threads.

The file of a partition is a line of JSON, then the bare values of arrays. Under its final name it
is whole. Its first line says of which manifest it is, what it counts, how long it took and on which
processor, and has the SHA-256 of the counts and of what follows. That is the same wherever the
partition was computed.

`HandOut` gives partitions to workers, with a limited number of attempts for each.
"""

from __future__ import annotations

import collections
import hashlib
import json
import pathlib
import re
from typing import Any, Deque, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.config import parse_json, read_json
from wqa.config.reading import open_file
from wqa.data.partitions import Partition
from wqa.errors import ClusterError, DataError, OptionError, shorten
from wqa.io.files import atomic_writer, is_temporary

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


#: Partitions in a folder: the writer of a file looks at all files beside it.
IN_A_FOLDER = 1000
#: Greatest length of the first line in bytes.
LONGEST_HEADER = 1 << 16


class Layout(NamedTuple):
    """What the file of a partition holds."""

    types: Dict[str, np.dtype]
    counts: Tuple[str, ...]


class Content(NamedTuple):
    """Results of a partition, as its file holds them."""

    arrays: Dict[str, np.ndarray]
    counts: Dict[str, int]


class StoredPartition(NamedTuple):
    """A partition that is computed."""

    content: Content
    facts: Dict[str, Any]


def partition_path(folder: pathlib.Path, index: int) -> pathlib.Path:
    """File of a partition."""
    return folder / f"{index // IN_A_FOLDER:03d}" / f"{index:06d}.partition"


def is_own(path: pathlib.Path, folder: pathlib.Path) -> bool:
    """Whether a path in the folder of the partitions has a name that is written there."""
    name = path.relative_to(folder).as_posix()
    if path.is_dir():
        return re.fullmatch(r"[0-9]{3,}", name) is not None and not path.is_symlink()
    is_named = name == NAME or re.fullmatch(r"[0-9]{3,}/[0-9]{6,}\.partition", name) is not None
    return is_named or is_temporary(path)


class PartitionFiles:
    """Files of the partitions of a manifest."""

    def __init__(self, folder: pathlib.Path, manifest: Manifest, layout: Layout) -> None:
        self._folder, self._manifest, self._layout = folder, manifest, layout

    def missing(self) -> List[int]:
        """Indices of the partitions that have no file yet, ascending."""
        # Asked for one by one: network file systems may list a folder as it was a while ago.
        indices = range(len(self._manifest.partitions))
        return [index for index in indices if not partition_path(self._folder, index).is_file()]

    def write(self, index: int, content: Content, facts: Mapping[str, Any]) -> None:
        """Write a partition; the file appears when it is whole."""
        if not (self._folder / NAME).is_file():
            raise DataError(
                self._folder,
                "the manifest is gone",
                "that of the partitions until they are merged",
                "run the command again, if another has not merged them",
            )
        arrays = []
        for name, element in self._layout.types.items():
            arrays.append(np.ascontiguousarray(content.arrays[name], element))
        header = {
            "format": FORMAT,
            "manifest": self._manifest.digest,
            "partition": index,
            "counts": content.counts,
            "bytes": {name: array.nbytes for name, array in zip(self._layout.types, arrays)},
            "sha256": _digest(content.counts, arrays),
            "facts": dict(facts),
        }
        with atomic_writer(partition_path(self._folder, index), "wb") as file:
            file.write(json.dumps(header).encode("utf-8") + b"\n")
            for array in arrays:
                file.write(array)

    def has(self, index: int) -> bool:
        """Whether a partition has its file, by the first line and the size."""
        path = partition_path(self._folder, index)
        try:
            with open_file(path) as file:
                header = self._header(file.readline(LONGEST_HEADER), index)
                if header is None:
                    return False
                return path.stat().st_size == file.tell() + sum(header["bytes"].values())
        except OSError:
            return False

    def read(self, index: int) -> StoredPartition:
        """Read a partition, and check that it is whole."""
        path = partition_path(self._folder, index)
        try:
            with open_file(path) as file:
                header = self._header(file.readline(LONGEST_HEADER), index)
                body = file.read()
        except OSError as error:
            raise self.damaged(index, f"cannot be read ({error.strerror})") from None
        if header is None:
            raise self.damaged(index, "is no partition of this manifest")
        if _digest(header["counts"], [body]) != header["sha256"]:
            raise self.damaged(index, "has changed: its SHA-256 is another")
        arrays = {}
        start = 0
        for name, element in self._layout.types.items():
            end = start + header["bytes"][name]
            arrays[name] = np.frombuffer(memoryview(body)[start:end], element)
            start = end
        return StoredPartition(Content(arrays, header["counts"]), header["facts"])

    def damaged(self, index: int, problem: str) -> DataError:
        """The error of a file that is no whole partition."""
        path = partition_path(self._folder, index)
        return DataError(path, problem, "a whole partition", "delete it, then run its shard again")

    def _header(self, line: bytes, index: int) -> Optional[Dict[str, Any]]:
        """First line of the file of a partition; None if it is that of no such partition."""
        types, counts = self._layout
        try:
            header = parse_json(line)
            if header["format"] != FORMAT or set(header["bytes"]) != set(types):
                return None
            if header["manifest"] != self._manifest.digest or header["partition"] != index:
                return None
            sizes = header["bytes"].items()
            if any(type(size) is not int or size % types[name].itemsize for name, size in sizes):
                return None
            if min(header["bytes"].values()) < 0 or not set(counts) <= set(header["counts"]):
                return None
            return header
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def _digest(counts: Mapping[str, int], parts: Iterable[Any]) -> str:
    """SHA-256 of the counts, and of bytes one after another."""
    digest = hashlib.sha256(json.dumps(counts, sort_keys=True).encode("utf-8"))
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


#: Attempts to compute a partition.
ATTEMPTS = 3
#: Attempts that fail one after another, of any partitions, after which nothing is handed out.
MOST_IN_A_ROW = 24
#: Partitions that an error names.
_NAMED = 5


class HandOut:
    """Partitions that are to be computed, and what became of them."""

    def __init__(self, indices: Iterable[int]) -> None:
        self._waiting: Deque[int] = collections.deque(indices)
        self._out = 0
        self._attempts: Dict[int, int] = {}
        self._failed: Dict[int, str] = {}
        self._in_a_row = 0
        self.computed = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is handed out, and nothing waits."""
        return not self._out and (not self._waiting or self._is_hopeless)

    @property
    def _is_hopeless(self) -> bool:
        return self._in_a_row >= MOST_IN_A_ROW

    def take(self) -> Optional[int]:
        """Take the next partition."""
        if not self._waiting or self._is_hopeless:
            return None
        self._out += 1
        return self._waiting.popleft()

    def succeed(self) -> None:
        """Note that a partition is computed."""
        self._out -= 1
        self._in_a_row = 0
        self.computed += 1

    def fail(self, index: int, error: str) -> None:
        """Note that an attempt has failed. The partition waits behind the others for the next
        one.
        """
        self._out -= 1
        self._in_a_row += 1
        self._attempts[index] = self._attempts.get(index, 0) + 1
        self._failed[index] = error
        if self._attempts[index] < ATTEMPTS:
            self._waiting.append(index)

    def put_back(self, index: int) -> None:
        """Note that a partition was not tried, as the worker had died. It is the next one."""
        self._out -= 1
        self._in_a_row += 1
        self._waiting.appendleft(index)

    def raise_failed(self, manifest: Manifest, data: str) -> None:
        """Raise an error if partitions have failed."""
        given_up = [index for index, count in self._attempts.items() if count >= ATTEMPTS]
        left = sorted({*given_up, *self._waiting})
        if not left:
            return
        named = []
        for index in left[:_NAMED]:
            part = manifest.partitions[index]
            lines = f"lines {part.line} to {part.line + part.read - 1} of {data}"
            reason = self._failed.get(index, "not tried, as everything failed")
            named.append(f"partition {index}, {lines}: {reason}")
        if len(left) > _NAMED:
            named.append(f"and {len(left) - _NAMED} more")
        how = "failed, as every attempt did" if self._is_hopeless else f"failed {ATTEMPTS} times"
        raise ClusterError(
            f"{len(left)} of {len(manifest.partitions)} partitions",
            f"{how}: " + "; ".join(named),
            mend="what is computed stays; mend the cause, then run the command again",
        )
