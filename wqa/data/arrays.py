"""A folder of arrays on disk: written block by block, memory-mapped when it is complete.

The folder holds one file ``NAME.bin`` an array, which is the bare values, and ``meta.json``: the
version of the format, what the arrays were computed from, facts about them, and the size of every
file in bytes.

While it is written the folder is called ``.NAME.partial``, and ``journal.json`` holds how many
bytes of each file are valid. A writer that was stopped continues from there. A folder under its
final name is whole, or it is refused.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from typing import IO, Any, Dict, Mapping, Optional, Sequence

import numpy as np

from wqa.config import parse_json, read_json
from wqa.data.files import PathLike, atomic_writer, storage_errors, sync_directory
from wqa.errors import DataError, OptionError, shorten

Types = Mapping[str, np.dtype]


class ArrayFolder:
    """A whole folder of arrays, open for reading.

    Parameters
    ----------
    path : str or path-like
        The folder.
    version : int
        The version of the format that the caller reads.
    kind : str
        Word for the folder in errors, such as "store".
    mend : str
        Remedy that errors name: how to make such a folder.
    facts : sequence of str
        Fields that ``meta.json`` has in a folder of this kind.

    Attributes
    ----------
    path : pathlib.Path
        The folder.
    meta : dict
        The content of ``meta.json``.

    Raises
    ------
    DataError
        If the folder is absent, incomplete, truncated, or of another version.
    """

    def __init__(
        self, path: PathLike, version: int, kind: str, mend: str, facts: Sequence[str] = ()
    ) -> None:
        self.path = pathlib.Path(path)
        try:
            text = (self.path / "meta.json").read_text(encoding="utf-8")
            self.meta: Dict[str, Any] = parse_json(text)
            needed = {name: self.meta[name] for name in ("files", "format", *facts)}
            self._sizes: Dict[str, int] = dict(needed["files"])
        except (OSError, ValueError, KeyError, TypeError):
            raise DataError(
                self.path, f"is no {kind}, or one that is not whole", f"a whole {kind}", mend
            ) from None
        if needed["format"] != version:
            raise DataError(
                self.path,
                f"a {kind} of format {shorten(needed['format'])}",
                f"format {version}",
                mend,
            )
        for name, size in self._sizes.items():
            self._check_size(self.path / f"{name}.bin", size, mend)

    @staticmethod
    def _check_size(path: pathlib.Path, size: int, mend: str) -> None:
        if not path.exists():
            problem = "is missing"
        elif path.stat().st_size != size:
            problem = f"{path.stat().st_size} bytes"
        else:
            return
        raise DataError(path, problem, f"{size} bytes", f"delete the folder, then {mend}")

    def arrays(self, types: Types) -> Dict[str, np.ndarray]:
        """Map the arrays into memory; their pages are read when they are used.

        Parameters
        ----------
        types : dict of str to numpy.dtype
            The element type of each array, by name, as the writer took them.

        Returns
        -------
        dict of str to numpy.ndarray
            Read-only arrays by name.

        Raises
        ------
        DataError
            If the folder has no array of one of the names.
        """
        arrays = {}
        for name, element in types.items():
            if name not in self._sizes:
                raise DataError(self.path, f"has no array {name}", "the arrays " + ", ".join(types))
            if self._sizes[name] == 0:  # an empty file cannot be mapped
                arrays[name] = np.zeros(0, element)
            else:
                mapped = np.memmap(self.path / f"{name}.bin", element, "r")
                # A plain array: slices of a memmap are slow to make.
                arrays[name] = mapped.view(np.ndarray)
        return arrays

    def check_made_with(self, settings: Mapping[str, Any], mend: str) -> None:
        """Check the settings that a folder was computed with.

        Parameters
        ----------
        settings : dict
            The expected values, by their names in ``meta.json``.
        mend : str
            Remedy that the error names.

        Raises
        ------
        DataError
            At the first value that differs.
        """
        for name, expected in settings.items():
            stored = self.meta.get(name)
            if stored != expected:
                raise DataError(
                    self.path, f"made with {name} {shorten(stored)}", shorten(expected), mend
                )


def reusable_folder(
    path: PathLike, version: int, kind: str, made_with: Mapping[str, Any]
) -> Optional[ArrayFolder]:
    """Open the folder that a writer would write, if it exists.

    A folder of the same kind that cannot be read is deleted: under its final name, it was copied
    incompletely or belongs to another version.

    Parameters
    ----------
    path : str or path-like
        Final name of the folder.
    version : int
        The version of the format.
    kind : str
        Word for the folder in errors, as `ArrayFolder` takes it.
    made_with : dict
        Settings that the arrays are computed with, by names in ``meta.json``.

    Returns
    -------
    ArrayFolder or None
        The folder if it is complete and was computed with the same settings; None if a writer can
        write.

    Raises
    ------
    DataError
        If the folder is complete, but was computed with other settings.
    OptionError
        If the path is a file, or a folder with files that no writer writes.
    StorageError
        If a folder that is not whole cannot be deleted.
    """
    folder = pathlib.Path(path)
    if folder.is_file():
        raise OptionError("out", f"{folder}, a file", "the path of a folder to make")
    if not folder.exists():
        return None
    try:
        stored = ArrayFolder(folder, version, kind, "choose another folder")
    except DataError:
        if not _is_remainder(folder, made_with):
            raise OptionError(
                "out", f"{folder}, a folder with other files", "the path of a folder to make"
            ) from None
        with storage_errors(folder):
            shutil.rmtree(folder)
        return None
    stored.check_made_with(made_with, "delete the folder, or choose another one")
    return stored


def _is_remainder(folder: pathlib.Path, made_with: Mapping[str, Any]) -> bool:
    """Whether a folder holds only files of an incomplete folder of the same kind."""
    for entry in folder.iterdir():
        if entry.suffix != ".bin" and entry.name not in ("meta.json", "journal.json"):
            return False
    try:
        meta = read_json(folder / "meta.json")
    except (OSError, ValueError):
        return True
    return isinstance(meta, dict) and all(name in meta for name in made_with)


class ArrayWriter:
    """Writes a folder of arrays; continues where a writer of the same arrays was stopped.

    It is a context manager. Leaving it before `finish` keeps what was committed.

    Parameters
    ----------
    path : str or path-like
        Name of the folder once it is complete.
    version : int
        Version of the format.
    types : dict of str to numpy.dtype
        Element type of each array, by name. A type such as ``np.dtype(("<f4", (3,)))`` stores
        rows of three numbers.
    made_with : dict
        Settings that the arrays are computed with, in JSON values, for ``meta.json``. A partial
        folder that was computed with other settings is deleted.

    Attributes
    ----------
    progress : dict
        The caller's record of its progress, in JSON values; empty at the start. Each commit stores
        it, and a writer that continues restores it.
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
        self._files: Dict[str, IO[bytes]] = {}

    def __enter__(self) -> ArrayWriter:
        with storage_errors(self._partial):
            journal = self._read_journal()
            if journal is None:
                shutil.rmtree(self._partial, ignore_errors=True)
                self._partial.mkdir(parents=True)
            else:
                self._sizes = journal["files"]
                self.progress = journal["progress"]
            for name, size in self._sizes.items():
                self._files[name] = open(self._file(name), "ab")
                # What was written after the last entry of the journal may be incomplete.
                self._files[name].truncate(size)
        return self

    def __exit__(self, *_: Any) -> None:
        for file in self._files.values():
            file.close()

    def _file(self, name: str) -> pathlib.Path:
        return self._partial / f"{name}.bin"

    def _read_journal(self) -> Optional[Dict[str, Any]]:
        """The journal of a writer that was stopped, or None where there is nothing to continue."""
        try:
            journal = read_json(self._partial / "journal.json")
            if journal["made_with"] != self._made_with or not isinstance(journal["progress"], dict):
                return None
            if set(journal["files"]) != set(self._types):
                return None
            for name, size in journal["files"].items():
                if self._file(name).stat().st_size < size:
                    return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return journal

    def count(self, name: str) -> int:
        """Number of elements of an array so far.

        Parameters
        ----------
        name : str
            The array.

        Returns
        -------
        int
            Elements appended by this writer and by those that it continues.
        """
        return self._sizes[name] // self._types[name].itemsize

    def append(self, name: str, values: np.ndarray) -> None:
        """Append elements to an array. They are valid from the next `commit` on.

        Parameters
        ----------
        name : str
            The array.
        values : numpy.ndarray
            The elements, converted to the array's type.

        Raises
        ------
        StorageError
            If they cannot be written.
        """
        element = self._types[name]
        values = np.ascontiguousarray(values, element.base)
        if values.shape[1:] != element.shape:
            raise ValueError(
                f"array {name} takes elements of shape {element.shape}, not {values.shape[1:]}"
            )
        with storage_errors(self._file(name)):
            self._files[name].write(values.tobytes())
        self._sizes[name] += values.nbytes

    def commit(self) -> None:
        """Flush all arrays to the disk and enter their sizes and the progress in the journal.

        Raises
        ------
        StorageError
            If they cannot be written; what was committed before stays valid.
        """
        with storage_errors(self._partial):
            for file in self._files.values():
                file.flush()
                os.fsync(file.fileno())
            journal = {
                "made_with": self._made_with,
                "progress": self.progress,
                "files": self._sizes,
            }
            with atomic_writer(self._partial / "journal.json") as journal_file:
                json.dump(journal, journal_file)

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Commit, write ``meta.json``, and give the folder its final name.

        Parameters
        ----------
        facts : dict
            Further fields of ``meta.json``, in JSON values.

        Raises
        ------
        StorageError
            If the folder cannot be written or renamed; what was committed stays valid.
        """
        self.commit()
        meta = {**self._made_with, **facts, "files": self._sizes}
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
