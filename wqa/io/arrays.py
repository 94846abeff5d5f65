"""A folder of arrays on disk: written block by block, memory-mapped when it is complete.

The folder holds one file ``NAME.bin`` an array, which is the bare values, and ``meta.json``: the
mark of `wqa.io.outputs`, the version of the format, what the arrays were computed from, facts about
them, and the size of every file in bytes and its SHA-256. A folder under its final name is whole,
or it is refused: its sizes are checked when it is opened, its digests by `ArrayFolder.check`.

While the folder is written it is called ``.NAME.partial``. It gets its final name when it is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import time
from typing import IO, Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple

import numpy as np

from wqa.config import read_json
from wqa.errors import DataError, shorten
from wqa.io.files import PathLike, storage_errors
from wqa.io.outputs import MARK, Output, replaced_path

Types = Mapping[str, np.dtype]

#: Says what is wrong with a block of elements, given the index of its first, or nothing.
BlockCheck = Callable[[np.ndarray, int], str]

#: Bytes of an array that are read, and checked, at once.
BLOCK = 1 << 22

#: Seconds in which a folder that is being replaced has its name again.
_RENAMING = 0.1

_SHA256 = re.compile("[0-9a-f]{64}")


class ArrayFolder:
    """A whole folder of arrays, open for reading."""

    def __init__(
        self, path: PathLike, version: int, kind: str, mend: str, facts: Sequence[str] = ()
    ) -> None:
        self.path = pathlib.Path(path)
        self._mend = f"delete the folder, then {mend}"
        try:
            self._open(version, kind, mend, facts)
        except DataError:
            time.sleep(_RENAMING)  # a command may be replacing the folder
            self._open(version, kind, mend, facts)

    def _open(self, version: int, kind: str, mend: str, facts: Sequence[str]) -> None:
        """Read ``meta.json``, compare the files with it, and map them into memory."""
        before = self._generation()
        try:
            self._read_meta(version, kind, mend, facts)
            self._files = {name: self._map(name, size) for name, size in self._sizes.items()}
        except DataError:
            if self._generation() == before:
                raise
        # Files of two folders of the same sizes would pass for one.
        if self._generation() != before:
            expected = f"a {kind} that is not replaced meanwhile"
            raise DataError(self.path, "was replaced", expected, "run the command again")

    def _generation(self) -> Optional[Tuple[int, ...]]:
        """What tells a folder from the one that takes its place."""
        try:
            state = os.stat(self.path / "meta.json")
        except OSError:
            return None
        return state.st_dev, state.st_ino, state.st_mtime_ns

    def _read_meta(self, version: int, kind: str, mend: str, facts: Sequence[str]) -> None:
        """Read and check ``meta.json``."""
        try:
            self.meta: Dict[str, Any] = read_json(self.path / "meta.json")
            if self.meta.get(MARK, {"kind": kind})["kind"] != kind:
                raise ValueError("a folder of another kind")
            needed = {name: self.meta[name] for name in ("format", *facts)}
            self._sizes = file_sizes(self.meta["files"])
            self._digests = check_digests(self.meta.get("sha256", {}), self._sizes)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            found = f"is no {kind}, or one that is not whole"
            replaced = replaced_path(self.path)
            if replaced.exists() and not self.path.exists():
                found = f"is missing; what a stopped command was replacing is {replaced.name}"
                mend = "run that command again, or rename the folder"
            raise DataError(self.path, found, f"a whole {kind}", mend) from None
        stored_version = needed.pop("format")
        if not _is_count(stored_version) or stored_version != version:
            problem = f"a {kind} of format {shorten(stored_version)}"
            raise DataError(self.path, problem, f"format {version}", mend)
        for name, value in needed.items():
            if not _is_count(value):
                problem = f"{name} is {shorten(value)}"
                raise DataError(self.path / "meta.json", problem, "a number from 0 on", self._mend)

    def __contains__(self, name: str) -> bool:
        """Whether the folder has an array of this name."""
        return name in self._sizes

    def _map(self, name: str, size: int) -> np.ndarray:
        """Bytes of a file, which has a certain size; its pages are read when they are used."""
        path = self.path / f"{name}.bin"
        try:
            actual = path.stat().st_size
            if path.is_file() and actual == size:
                # An empty file cannot be mapped.
                return np.memmap(path, np.uint8, "r", shape=size) if size else np.zeros(0, np.uint8)
            problem = f"{actual} bytes" if path.is_file() else "is no file"
        except FileNotFoundError:
            problem = "is missing"
        except (OSError, ValueError) as error:  # a ValueError if the file is shorter by now
            problem = f"cannot be read ({error})"
        raise DataError(path, problem, f"{size} bytes", self._mend)

    def arrays(self, types: Types) -> Dict[str, np.ndarray]:
        """Take arrays of the folder, which are mapped into memory."""
        arrays: Dict[str, np.ndarray] = {}
        for name, element in types.items():
            if name not in self._sizes:
                raise DataError(self.path, f"has no array {name}", "the arrays " + ", ".join(types))
            path = self.path / f"{name}.bin"
            if self._sizes[name] % element.itemsize:
                expected = f"elements of {element.itemsize} bytes"
                raise DataError(path, f"{self._sizes[name]} bytes", expected, self._mend)
            # A plain array: slices of a memmap are slow to make.
            rows = self._sizes[name] // element.itemsize
            arrays[name] = np.ndarray((rows,), element, self._files[name])
        return arrays

    def check_lengths(
        self, arrays: Mapping[str, np.ndarray], lengths: Mapping[str, int], mend: str
    ) -> None:
        """Check the number of elements of each array."""
        for name, values in arrays.items():
            if len(values) != lengths[name]:
                expected = f"{lengths[name]} elements"
                path = self.path / f"{name}.bin"
                raise DataError(path, f"{len(values)} elements", expected, mend)

    def check_sha256(self, names: Sequence[str], mend: str) -> None:
        """Check that fields of ``meta.json`` are digests."""
        for name in names:
            if not _SHA256.fullmatch(str(self.meta.get(name))):
                problem = f"{name} is {shorten(self.meta.get(name))}"
                raise DataError(self.path / "meta.json", problem, "64 hexadecimal digits", mend)

    def check(
        self, name: str, values: np.ndarray, check_block: Optional[BlockCheck] = None
    ) -> None:
        """Read an array once, and check its digest and its elements."""
        path = self.path / f"{name}.bin"
        digest = hashlib.sha256()
        problem = ""
        for start, block in _blocks(values):
            digest.update(block.view(np.uint8).data)
            if check_block is not None:
                problem = problem or check_block(block, start)
        if self._digests.get(name, digest.hexdigest()) != digest.hexdigest():
            raise DataError(path, f"SHA-256 {digest.hexdigest()}", self._digests[name], self._mend)
        if problem:
            raise DataError(path, problem, mend=self._mend)

    def check_made_with(self, settings: Mapping[str, Any], mend: str) -> None:
        """Check the settings that a folder was computed with."""
        check_made_with(self.path, self.meta, settings, mend)


def _blocks(values: np.ndarray) -> Iterator[Tuple[int, np.ndarray]]:
    """Blocks of an array, with the index of the first element of each."""
    rows = max(1, BLOCK // max(1, values[:1].nbytes))
    for start in range(0, len(values), rows):
        yield start, values[start : start + rows]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def file_sizes(files: Mapping[str, Any]) -> Dict[str, int]:
    """Take the sizes of files from a ``meta.json``."""
    for name, size in files.items():
        if not re.fullmatch(r"\w+", name) or not _is_count(size):
            raise ValueError(f"file {shorten(name)} of {shorten(size)} bytes")
    return dict(files)


def check_digests(digests: Mapping[str, Any], sizes: Mapping[str, int]) -> Dict[str, str]:
    """Check the digests of files in a ``meta.json``."""
    if digests and set(digests) != set(sizes):
        raise ValueError("digests of other files")
    for digest in digests.values():
        if not _SHA256.fullmatch(digest):
            raise ValueError(f"digest {shorten(digest)}")
    return dict(digests)


def reusable_folder(
    output: Output,
    made_with: Mapping[str, Any],
    mend: str = "delete the folder, or choose another one",
) -> Optional[ArrayFolder]:
    """Open the folder that a writer would write, if it exists.

    A folder that cannot be read, as it was copied incompletely or is of another version, is left to
    the writer, which replaces it, if it was made with the same.
    """
    output.check()
    meta = output.meta()
    if meta is None:
        return None
    try:
        stored = ArrayFolder(output.path, output.version, output.kind, "choose another folder")
    except DataError:
        check_made_with(output.path, meta, made_with, mend)
        return None
    stored.check_made_with(made_with, mend)
    return stored


def check_made_with(
    path: pathlib.Path, meta: Mapping[str, Any], settings: Mapping[str, Any], mend: str
) -> None:
    """Check the settings that a folder was computed with, by its ``meta.json``."""
    for name, expected in settings.items():
        if meta.get(name) != expected:
            found = f"made with {name} {shorten(meta.get(name))}"
            raise DataError(path, found, shorten(expected), mend)


def values_below(limit: int, name: str) -> BlockCheck:
    """Check that values are from 0 up to a limit."""

    def check(block: np.ndarray, start: int) -> str:
        wrong = (block < 0) | (block >= limit)
        if not wrong.any():
            return ""
        index = int(wrong.argmax())
        return f"{name} {block[index]} at index {start + index}, not from 0 to {limit - 1}"

    return check


def check_text_ends(longest: int, shortest: int = 1, unit: str = "token") -> BlockCheck:
    """Check the ends of texts: no text is shorter or longer than a limit."""
    last = 0

    def check(block: np.ndarray, start: int) -> str:
        nonlocal last
        lengths = np.diff(block, prepend=last)
        last = block[-1]
        wrong = (lengths < shortest) | (lengths > longest)
        if not wrong.any():
            return ""
        index = int(wrong.argmax())
        length = f"{lengths[index]} {unit}s"
        return f"text {start + index} has {length}, not from {shortest} to {longest}"

    return check


class ArrayWriter:
    """Writes a folder of arrays, which has its name when it is whole.

    It is a context manager. Leaving it before `finish` removes what was written.
    """

    def __init__(self, output: Output, types: Types, made_with: Mapping[str, Any]) -> None:
        self._output = output
        self._types = {name: np.dtype(element) for name, element in types.items()}
        self._made_with = {"format": output.version, **made_with}
        self._files: Dict[str, IO[bytes]] = {}
        self._sizes = dict.fromkeys(self._types, 0)
        self._digests = {name: hashlib.sha256() for name in self._types}

    def __enter__(self) -> ArrayWriter:
        self._output.check()
        folder = self._output.begin()
        with storage_errors(folder):
            for name in self._types:
                self._files[name] = open(folder / f"{name}.bin", "wb")  # noqa: SIM115 (`__exit__`)
        return self

    def __exit__(self, *exception: Any) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # a full disk: the folder is not whole anyway
                file.close()
        self._output.discard()

    def count(self, name: str) -> int:
        """Number of elements of an array so far."""
        return self._sizes[name] // self._types[name].itemsize

    def append(self, name: str, values: np.ndarray) -> None:
        """Append elements to an array."""
        element = self._types[name]
        values = np.ascontiguousarray(values, element.base)
        if values.shape[1:] != element.shape:
            raise ValueError(
                f"array {name} takes elements of shape {element.shape}, not {values.shape[1:]}"
            )
        content = values.tobytes()
        with storage_errors(self._output.partial / f"{name}.bin"):
            self._files[name].write(content)
        self._digests[name].update(content)
        self._sizes[name] += len(content)

    def append_texts(self, name: str, contents: Sequence[bytes]) -> None:
        """Append texts to the array of their bytes, and where they end to another."""
        lengths = np.array([len(content) for content in contents], "i8")
        ends = self.count(f"{name}_bytes") + np.cumsum(lengths)
        self.append(f"{name}_bytes", np.frombuffer(b"".join(contents), np.uint8))
        self.append(f"{name}_ends", ends)

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Flush all arrays to the disk, write ``meta.json``, and give the folder its name."""
        with storage_errors(self._output.partial):
            for file in self._files.values():
                file.flush()
                os.fsync(file.fileno())
        digests = {name: digest.hexdigest() for name, digest in self._digests.items()}
        written = {"files": self._sizes, "sha256": digests}
        self._output.finish({**self._made_with, **facts, **written})
