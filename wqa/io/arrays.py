"""A folder of arrays on disk: written whole, block by block, and memory-mapped when it is read.

The folder holds one file ``NAME.bin`` an array, which is the bare values, or the file of a text,
and ``meta.json``: the mark of the package, what the arrays were computed from, facts about them,
and the size of every file in bytes and its SHA-256. It gets its name when it is whole: its sizes
are compared when it is opened, its digests by `ArrayFolder.check`.

The mark is the key ``wqa`` of ``meta.json``, with the kind of the folder and its version. A folder
without it is not the package's own, and is not replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import time
from typing import IO, Any, Dict, Iterable, Iterator, Mapping, Optional, Sequence

import numpy as np

from wqa.config import read_json
from wqa.errors import DataError, OptionError, shorten
from wqa.io.files import PathLike, refuse, replacing, sha256, write_json

Types = Mapping[str, np.dtype]

#: Key of the mark.
MARK = "wqa"


class Output:
    """A folder that a command writes, or replaces once the new one is whole.

    Parameters
    ----------
    path : str or path-like
        The folder.
    version : int
        Version of the kind.
    kind : str
        Kind of the folder.
    names : iterable of str
        Names of its arrays.
    """

    def __init__(self, path: PathLike, version: int, kind: str, names: Iterable[str]) -> None:
        self.path = pathlib.Path(os.path.realpath(path))  # a link stays, its folder is replaced
        self.kind, self.version = kind, version
        self._own = {"meta.json", *map(file_of, names)}

    def meta(self) -> Optional[Dict[str, Any]]:
        """``meta.json`` of the folder, whole or not; None for one that is absent or empty.

        Raises
        ------
        OptionError
            If the path is that of something else.
        """
        if self.path.exists() and not self.path.is_dir():
            raise OptionError("out", f"{self.path}, a file", "the path of a folder to make")
        entries = sorted(self.path.iterdir()) if self.path.is_dir() else []
        entries = [entry for entry in entries if entry.name != ".lock"]  # of `lock_output`
        if not entries:
            return None
        meta = {}
        with contextlib.suppress(OSError, ValueError):
            meta = read_json(self.path / "meta.json")
        own = set()
        if _is_of_kind(meta, self.kind):  # another version may have other files, which it lists
            listed = meta.get("files")
            own = self._own.union(map(file_of, listed if isinstance(listed, dict) else ()))
        for entry in entries:
            if entry.name not in own or entry.is_dir():
                raise refuse(self.path, entry.name, self.kind)
        return meta

    @contextlib.contextmanager
    def writing(self) -> Iterator[pathlib.Path]:
        """Yield a folder to write to, which takes the place of an earlier one when it is whole."""
        self.meta()
        with replacing(self.path) as folder:
            folder.mkdir()
            yield folder
            self.meta()

    def write_meta(self, folder: pathlib.Path, meta: Mapping[str, Any]) -> None:
        """Write ``meta.json`` with the mark."""
        mark = {MARK: {"kind": self.kind, "version": self.version}, "format": self.version}
        write_json(folder / "meta.json", {**mark, **meta})


def _is_of_kind(meta: Any, kind: str) -> bool:
    """Whether ``meta.json`` has the mark of a kind."""
    mark = meta.get(MARK) if isinstance(meta, dict) else None
    return isinstance(mark, dict) and mark.get("kind") == kind


def file_of(name: str) -> str:
    """Name of the file of an array; a name with an ending, such as a text's, is that already."""
    return name if "." in name else f"{name}.bin"


def _inode(path: pathlib.Path) -> Optional[int]:
    """Number of a folder, which one that takes its place does not have."""
    with contextlib.suppress(OSError):
        return path.stat().st_ino
    return None


#: Seconds that the renames of a folder which takes another's place last at most.
_REPLACING = 0.05


class ArrayFolder:
    """A whole folder of arrays, open for reading."""

    def __init__(
        self, path: PathLike, version: int, kind: str, hint: str, facts: Sequence[str] = ()
    ) -> None:
        self.path, self._hint = pathlib.Path(path), f"delete the folder, then {hint}"
        opened = _inode(self.path)
        with contextlib.suppress(DataError):
            self._open(version, kind, hint, facts)
            if _inode(self.path) == opened:
                return
        time.sleep(_REPLACING)  # another process may have been replacing the folder
        self._open(version, kind, hint, facts)

    def _open(self, version: int, kind: str, hint: str, facts: Sequence[str]) -> None:
        try:
            self.meta: Dict[str, Any] = read_json(self.path / "meta.json")
            sizes, stored_version = dict(self.meta["files"]), self.meta["format"]
            self._digests = dict(self.meta["sha256"])
            if MARK in self.meta and not _is_of_kind(self.meta, kind):  # version 0.2 has none
                raise ValueError("a folder of another kind")
            if not all(type(self.meta[name]) is int and self.meta[name] >= 0 for name in facts):
                raise ValueError("no counts")
        except (OSError, ValueError, KeyError, TypeError):
            problem = f"is no {kind}, or one that is not whole"
            if not self.path.exists():
                problem = "there is no such file or folder"
            raise DataError(self.path, problem, f"a whole {kind}", hint) from None
        if stored_version != version:
            problem = f"a {kind} of format {shorten(stored_version)}"
            raise DataError(self.path, problem, f"format {version}", hint)
        self._files: Dict[str, np.ndarray] = {}
        for name, size in sizes.items():
            array_file = self.path / file_of(name)
            actual = array_file.stat().st_size if array_file.is_file() else None
            if actual != size:
                problem = "is missing" if actual is None else f"{actual} bytes"
                raise DataError(array_file, problem, f"{size} bytes", self._hint)
            self._files[name] = np.zeros(0, np.uint8)
            if size:  # an empty file cannot be mapped
                self._files[name] = np.memmap(array_file, np.uint8, "r")

    def __contains__(self, name: str) -> bool:
        """Whether the folder has an array of this name."""
        return name in self._files

    def arrays(self, types: Types) -> Dict[str, np.ndarray]:
        """Take arrays of the folder, which are mapped into memory."""
        arrays: Dict[str, np.ndarray] = {}
        for name, element in types.items():
            if name not in self:
                raise DataError(self.path, f"has no array {name}", "the arrays " + ", ".join(types))
            size = len(self._files[name])
            rows, rest = divmod(size, element.itemsize)
            if rest:
                problem, expected = f"{size} bytes", f"{element.itemsize} an element"
                raise DataError(self.path / file_of(name), problem, expected, self._hint)
            # A plain array: slices of a memmap are slow to make.
            arrays[name] = np.ndarray((rows,), element, self._files[name])
        return arrays

    def check_lengths(self, arrays: Mapping[str, np.ndarray], lengths: Mapping[str, int]) -> None:
        """Check the number of elements of each array."""
        for name, values in arrays.items():
            if len(values) != lengths[name]:
                problem = f"{len(values)} elements"
                expected = f"{lengths[name]} elements"
                raise DataError(self.path / file_of(name), problem, expected, self._hint)

    def check(self, name: str) -> None:
        """Read an array once, and compare its digest with that of ``meta.json``."""
        path, expected = self.path / file_of(name), self._digests.get(name)
        digest = sha256(path)
        if digest != expected:
            raise DataError(path, f"SHA-256 {digest}", expected, self._hint)


def reusable_folder(
    output: Output,
    made_with: Mapping[str, Any],
    hint: str = "delete the folder, or choose another one",
) -> Optional[ArrayFolder]:
    """Open the folder that a writer would write, if it exists.

    A folder that cannot be read, as it was copied incompletely or is of another version, is left to
    the writer, which replaces it, if it was made with the same.
    """
    meta = output.meta()
    if meta is None:
        return None
    check_made_with(output.path, meta, made_with, hint)
    with contextlib.suppress(DataError):
        return ArrayFolder(output.path, output.version, output.kind, hint)
    return None


def check_made_with(
    path: pathlib.Path, meta: Mapping[str, Any], settings: Mapping[str, Any], hint: str
) -> None:
    """Check the settings that a folder was computed with, by its ``meta.json``."""
    for name, expected in settings.items():
        if meta.get(name) != expected:
            problem = f"made with {name} {shorten(meta.get(name))}"
            raise DataError(path, problem, shorten(expected), hint)


class ArrayWriter:
    """Appends to the arrays of a folder; `write_arrays` makes it."""

    def __init__(self, files: Mapping[str, IO[bytes]], types: Types) -> None:
        self._files = files
        self._types = types
        self._digests = {name: hashlib.sha256() for name in types}
        #: Facts of ``meta.json``.
        self.meta: Dict[str, Any] = {}

    def count(self, name: str) -> int:
        """Number of elements of an array so far."""
        return self._files[name].tell() // self._types[name].itemsize

    def append(self, name: str, values: np.ndarray) -> None:
        """Append elements to an array."""
        element = self._types[name]
        values = np.ascontiguousarray(values, element.base)
        if values.shape[1:] != element.shape:
            problem = f"takes elements of shape {element.shape}, not {values.shape[1:]}"
            raise ValueError(f"array {name} {problem}")
        content = values.tobytes()
        self._files[name].write(content)
        self._digests[name].update(content)

    def append_texts(self, name: str, contents: Sequence[bytes]) -> None:
        """Append texts to the array of their bytes, and where they end to another."""
        lengths = np.array([len(content) for content in contents], "i8")
        ends = self.count(f"{name}_bytes") + np.cumsum(lengths)
        self.append(f"{name}_bytes", np.frombuffer(b"".join(contents), np.uint8))
        self.append(f"{name}_ends", ends)

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Note the facts of ``meta.json``, after the last element."""
        sizes = {name: file.tell() for name, file in self._files.items()}
        digests = {name: digest.hexdigest() for name, digest in self._digests.items()}
        self.meta = {**facts, "files": sizes, "sha256": digests}


@contextlib.contextmanager
def write_arrays(
    output: Output, types: Types, made_with: Mapping[str, Any]
) -> Iterator[ArrayWriter]:
    """Write a folder of arrays, which has its name when the block ends; it calls `finish`."""
    with output.writing() as folder, contextlib.ExitStack() as stack:
        files = {}
        for name in types:
            files[name] = stack.enter_context((folder / file_of(name)).open("wb"))
        writer = ArrayWriter(files, types)
        yield writer
        output.write_meta(folder, {**made_with, **writer.meta})
