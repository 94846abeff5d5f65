"""Files of partitions that are scored: a line of JSON, then the bare values of arrays.

A file under its final name is whole. Its first line says of which manifest it is, what it counts,
how long it took and on which processor, and has the SHA-256 of the counts and of what follows. That
is the same wherever the partition was scored.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

import numpy as np

from wqa.cluster.manifest import FORMAT, NAME, Manifest
from wqa.config import parse_json
from wqa.data.files import atomic_writer
from wqa.data.scores import COUNTS
from wqa.errors import DataError
from wqa.inference.scored_questions import ARRAYS, ScoredQuestions

#: Partitions in a folder: the writer of a file looks at all files beside it.
IN_A_FOLDER = 1000
#: Greatest length of the first line in bytes.
LONGEST_HEADER = 1 << 16

_TYPES: Dict[str, np.dtype] = {
    **ARRAYS,
    "lengths": np.dtype("<u4"),
    "names": np.dtype("u1"),  # JSON
}


class StoredPartition(NamedTuple):
    """A partition that is scored.

    Attributes
    ----------
    scored : ScoredQuestions
        The scores.
    facts : dict
        What the writer gave beside them, such as ``seconds``.
    """

    scored: ScoredQuestions
    facts: Dict[str, Any]


def partition_path(folder: pathlib.Path, index: int) -> pathlib.Path:
    """File of a partition.

    Parameters
    ----------
    folder : pathlib.Path
        Folder of the partitions.
    index : int
        Index of the partition.

    Returns
    -------
    pathlib.Path
    """
    return folder / f"{index // IN_A_FOLDER:03d}" / f"{index:06d}.partition"


def write_partition(
    folder: pathlib.Path,
    manifest: Manifest,
    index: int,
    scored: ScoredQuestions,
    facts: Mapping[str, Any],
) -> None:
    """Write a partition; the file appears when it is whole.

    Parameters
    ----------
    folder : pathlib.Path
        Folder of the partitions.
    manifest : Manifest
        Their manifest.
    index : int
        Index of the partition.
    scored : ScoredQuestions
        Its scores.
    facts : dict
        What else is known, in values of JSON: it is no part of the merged scores.

    Raises
    ------
    DataError
        If the folder has no manifest any more, as somebody has merged or removed the partitions.
    StorageError
        If it cannot be written; the temporary file is removed.
    """
    if not (folder / NAME).is_file():
        raise DataError(
            folder,
            "the manifest is gone",
            "that of the partitions until they are merged",
            "run the command again, if another has not merged them",
        )
    names = json.dumps(scored.names, ensure_ascii=False).encode("utf-8")
    arrays: Dict[str, Any] = {**scored.arrays, "lengths": scored.lengths}
    contents = {}
    for name, element in _TYPES.items():
        if name != "names":
            contents[name] = np.asarray(arrays[name], element).tobytes()
    contents["names"] = names
    body = b"".join(contents[name] for name in _TYPES)
    header = {
        "format": FORMAT,
        "manifest": manifest.digest,
        "partition": index,
        "counts": scored.counts,
        "bytes": {name: len(contents[name]) for name in _TYPES},
        "sha256": _digest(scored.counts, body),
        "facts": dict(facts),
    }
    with atomic_writer(partition_path(folder, index), "wb") as file:
        file.write(json.dumps(header).encode("utf-8") + b"\n")
        file.write(body)


def is_scored(folder: pathlib.Path, manifest: Manifest, index: int) -> bool:
    """Whether a partition has its file, by the first line and the size.

    Parameters
    ----------
    folder : pathlib.Path
        Folder of the partitions.
    manifest : Manifest
        Their manifest.
    index : int
        Index of the partition.

    Returns
    -------
    bool
        False also for a file of another manifest, or one that cannot be read or is damaged.
    """
    path = partition_path(folder, index)
    try:
        with open(path, "rb") as file:
            header = _header(file.readline(LONGEST_HEADER), manifest, index)
            if header is None:
                return False
            return path.stat().st_size == file.tell() + sum(header["bytes"].values())
    except OSError:
        return False


def read_scored(folder: pathlib.Path, manifest: Manifest, index: int) -> StoredPartition:
    """Read a partition, and check that it is whole.

    Parameters
    ----------
    folder : pathlib.Path
        Folder of the partitions.
    manifest : Manifest
        Their manifest.
    index : int
        Index of the partition.

    Returns
    -------
    StoredPartition

    Raises
    ------
    DataError
        If it is missing, damaged, or of another manifest.
    """
    path = partition_path(folder, index)
    try:
        with open(path, "rb") as file:
            header = _header(file.readline(LONGEST_HEADER), manifest, index)
            body = file.read()
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error.strerror})") from None
    if header is None:
        raise _damaged(path, "is no partition of this manifest")
    if _digest(header["counts"], body) != header["sha256"]:
        raise _damaged(path, "has changed: its SHA-256 is another")
    arrays = {}
    start = 0
    for name, element in _TYPES.items():
        end = start + header["bytes"][name]
        arrays[name] = np.frombuffer(body[start:end], element)
        start = end
    lengths: List[int] = arrays.pop("lengths").tolist()
    names = [tuple(pair) for pair in json.loads(arrays.pop("names").tobytes())]
    scored = ScoredQuestions(arrays, lengths, names, header["counts"])
    counts = (scored.counts["read"], scored.counts["questions"], scored.counts["pairs"])
    if counts != (manifest.partitions[index].read, len(lengths), sum(lengths)):
        raise _damaged(path, "counts other questions")
    if len(names) != len(lengths) or any(len(array) != sum(lengths) for array in arrays.values()):
        raise _damaged(path, "has arrays of other lengths")
    return StoredPartition(scored, header["facts"])


def _header(line: bytes, manifest: Manifest, index: int) -> Optional[Dict[str, Any]]:
    """First line of the file of a partition; None if it is that of no such partition."""
    try:
        header = parse_json(line)
        if header["format"] != FORMAT or set(header["bytes"]) != set(_TYPES):
            return None
        if header["manifest"] != manifest.digest or header["partition"] != index:
            return None
        sizes = header["bytes"].items()
        if any(type(size) is not int or size % _TYPES[name].itemsize for name, size in sizes):
            return None
        if min(header["bytes"].values()) < 0 or not {"read", *COUNTS} <= set(header["counts"]):
            return None
        return header
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _digest(counts: Mapping[str, int], body: bytes) -> str:
    digest = hashlib.sha256(json.dumps(counts, sort_keys=True).encode("utf-8"))
    digest.update(body)
    return digest.hexdigest()


def _damaged(path: pathlib.Path, problem: str) -> DataError:
    return DataError(path, problem, "a whole partition", "delete it, then run its shard again")
