"""Writes a folder of arrays block by block; a writer that was stopped is continued.

While the folder is written it is called ``.NAME.partial``. Its ``journal.json`` holds how many
bytes of each file are valid, and their SHA-256. A writer continues from there, if the bytes are
those that were written. The folder gets its final name when it is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
from typing import IO, Any, Dict, Mapping, Optional

import numpy as np

from wqa.config import read_json
from wqa.io.arrays import Types, check_digests, file_sizes
from wqa.io.files import PathLike, atomic_writer, sha256_of_start, storage_errors, sync_directory


class ArrayWriter:
    """Writes a folder of arrays; continues where a writer of the same arrays was stopped.

    It is a context manager. Leaving it before `finish` keeps what was committed.
    """

    def __init__(
        self, path: PathLike, version: int, types: Types, made_with: Mapping[str, Any]
    ) -> None:
        self.path = pathlib.Path(path)
        self.progress: Dict[str, Any] = {}
        self._partial = self.path.with_name(f".{self.path.name}.partial")
        self._types = {name: np.dtype(element) for name, element in types.items()}
        self._made_with = {"format": version, **made_with}
        self._sizes = dict.fromkeys(self._types, 0)
        self._digests = {name: hashlib.sha256() for name in self._types}
        self._files: Dict[str, IO[bytes]] = {}

    def __enter__(self) -> ArrayWriter:
        try:
            with storage_errors(self._partial):
                self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _open(self) -> None:
        """Open the files: those of a writer that was stopped, or new ones."""
        journal = self._read_journal()
        if journal is None:
            if self._partial.exists():
                shutil.rmtree(self._partial)
            self._partial.mkdir(parents=True)
        else:
            self._sizes = journal["files"]
            self.progress = journal["progress"]
        for name, size in self._sizes.items():
            self._files[name] = open(self._file(name), "ab")  # noqa: SIM115 (`__exit__` closes it)
            # What was written after the last entry of the journal may be incomplete.
            self._files[name].truncate(size)

    def __exit__(self, *_: Any) -> None:
        for file in self._files.values():
            # Values behind the last commit are not valid, so that a full disk loses nothing here.
            with contextlib.suppress(OSError):
                file.close()

    def _file(self, name: str) -> pathlib.Path:
        return self._partial / f"{name}.bin"

    def _read_journal(self) -> Optional[Dict[str, Any]]:
        """The journal of a writer that was stopped, or None where there is nothing to continue."""
        try:
            journal = read_json(self._partial / "journal.json")
            if journal["made_with"] != self._made_with or not isinstance(journal["progress"], dict):
                return None
            sizes = file_sizes(journal["files"])
            if set(sizes) != set(self._types):
                return None
            written = check_digests(journal.get("sha256", {}), sizes)
            for name, size in sizes.items():
                if size % self._types[name].itemsize or self._file(name).stat().st_size < size:
                    return None
            for name, size in sizes.items():
                self._digests[name] = sha256_of_start(self._file(name), size)
                digest = self._digests[name].hexdigest()
                if written.get(name, digest) != digest:
                    raise ValueError("other bytes than were written")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._digests = {name: hashlib.sha256() for name in self._types}
            return None
        return journal

    def restart(self) -> None:
        """Delete what was written, and start again with empty arrays."""
        self.__exit__()
        self._sizes = dict.fromkeys(self._types, 0)
        self._digests = {name: hashlib.sha256() for name in self._types}
        self.progress = {}
        with storage_errors(self._partial):
            shutil.rmtree(self._partial)
        self.__enter__()

    def count(self, name: str) -> int:
        """Number of elements of an array so far."""
        return self._sizes[name] // self._types[name].itemsize

    def append(self, name: str, values: np.ndarray) -> None:
        """Append elements to an array. They are valid from the next `commit` on."""
        element = self._types[name]
        values = np.ascontiguousarray(values, element.base)
        if values.shape[1:] != element.shape:
            raise ValueError(
                f"array {name} takes elements of shape {element.shape}, not {values.shape[1:]}"
            )
        content = values.tobytes()
        with storage_errors(self._file(name)):
            self._files[name].write(content)
        self._digests[name].update(content)
        self._sizes[name] += len(content)

    def commit(self) -> None:
        """Flush all arrays to the disk and enter their sizes and the progress in the journal."""
        with storage_errors(self._partial):
            for file in self._files.values():
                file.flush()
                os.fsync(file.fileno())
            journal = {
                "made_with": self._made_with,
                "progress": self.progress,
                "files": self._sizes,
                "sha256": self._hexadecimal(),
            }
            with atomic_writer(self._partial / "journal.json") as journal_file:
                json.dump(journal, journal_file)

    def _hexadecimal(self) -> Dict[str, str]:
        return {name: digest.hexdigest() for name, digest in self._digests.items()}

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Commit, write ``meta.json``, and give the folder its final name."""
        self.commit()
        meta = {
            **self._made_with,
            **facts,
            "files": self._sizes,
            "sha256": self._hexadecimal(),
        }
        with atomic_writer(self._partial / "meta.json") as file:
            json.dump(meta, file, indent=2)
            file.write("\n")
        with storage_errors(self.path):
            if self.path.exists():
                self.path.rmdir()  # it is empty
            os.rename(self._partial, self.path)
            sync_directory(self.path.parent)
            # Last, so that a writer that is stopped before the rename can continue.
            (self.path / "journal.json").unlink()
