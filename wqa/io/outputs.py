"""Folders that the package writes, and may replace: those that a mark proves to be its own.

The mark is the key ``wqa`` of a JSON file in the folder, with the kind of the folder and its
version. It is written before anything else, so that also what a killed process leaves has it. What
has no mark is refused by name.

`Output` writes a folder whole under the name ``.NAME.partial`` beside its own. What it replaces
keeps its name until then, and is called ``.NAME.replaced`` between two renames.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import Any, Collection, Dict, Iterable, List, Optional, Sequence

from wqa.config import read_json
from wqa.errors import OptionError, OutputLocked, shorten
from wqa.io.files import PathLike, is_temporary, storage_errors, sync_directory, write_json
from wqa.io.locks import lock_output

#: Key of the mark.
MARK = "wqa"

#: Files by which a process says that it writes to a folder; see `wqa.io.locks`.
_LOCKS = (".lock", ".holder")
#: Keys of the journals of version 0.2.
_JOURNAL = ("made_with", "progress", "files")


def mark_of(kind: str, version: int) -> Dict[str, Any]:
    """The mark, as the first entry of a JSON file."""
    return {MARK: {"kind": kind, "version": version}}


def marked(path: pathlib.Path, kind: str, keys: Collection[str] = ()) -> Optional[Dict[str, Any]]:
    """Content of a JSON file with the mark of a kind, None for any other file.

    Files of versions without marks are recognised by their keys.
    """
    try:
        values = read_json(path)
    except (OSError, ValueError):
        return None
    if not isinstance(values, dict):
        return None
    mark = values.get(MARK)
    if mark is None:
        return values if keys and all(key in values for key in keys) else None
    return values if isinstance(mark, dict) and mark.get("kind") == kind else None


def refuse(folder: pathlib.Path, name: str, kind: str) -> OptionError:
    """Error for a folder with something that the package has not written."""
    found = f"{folder}, a folder with other files, such as {shorten(name)}"
    expected = f"the path of a folder to make, or of a {kind}"
    return OptionError("out", found, expected, "move it away, or choose another folder")


def check_file(path: pathlib.Path, keys: Collection[str]) -> None:
    """Refuse to replace a JSON file without the keys of those that the package writes there."""
    if os.path.lexists(path) and marked(path, "", keys) is None:
        raise refuse(path.parent, path.name, "run")


def other_entries(folder: pathlib.Path, own: Collection[str]) -> List[str]:
    """Names of what a folder holds besides some files and what killed processes left of them."""
    names = []
    for entry in folder.iterdir():
        if not os.path.lexists(entry):
            continue  # of a process that removes it
        is_own = entry.name in own and (entry.is_file() or entry.is_symlink())
        if not is_own and not is_temporary(entry) and entry.name not in _LOCKS:
            names.append(entry.name)
    return sorted(names)


class Output:
    """A folder that a command makes, or replaces once the new one is whole.

    Parameters
    ----------
    path : str or path-like
        The folder.
    kind : str
        Kind of the folder.
    version : int
        Version of the kind.
    files : collection of str
        Names of its files besides ``meta.json``.
    keys : collection of str
        Keys of ``meta.json`` in folders of versions without marks.
    """

    def __init__(
        self,
        path: PathLike,
        kind: str,
        version: int,
        files: Collection[str],
        keys: Collection[str] = (),
    ) -> None:
        # A link stays, and the folder behind it is replaced.
        self.path = named_path(os.path.realpath(path) if os.path.islink(path) else path)
        self.kind, self.version = kind, version
        self.partial = self.path.with_name(f".{self.path.name}.partial")
        self._replaced = replaced_path(self.path)
        self._files, self._keys = files, keys

    def meta(self) -> Optional[Dict[str, Any]]:
        """``meta.json`` of the folder, whole or not; None for one that is absent or empty.

        Raises
        ------
        OptionError
            If the path is that of something else.
        """
        if self.path.exists() and not self.path.is_dir():
            raise OptionError("out", f"{self.path}, a file", "the path of a folder to make")
        if self._is_empty(self.path):
            return None
        meta = marked(self.path / "meta.json", self.kind, self._keys)
        if meta is None:
            raise refuse(self.path, min(os.listdir(self.path)), self.kind)
        return meta

    def check(self) -> None:
        """Check that nothing else than folders of the kind is replaced.

        Raises
        ------
        OptionError
            If the folder, or one beside it with a name that is needed, holds other files.
        """
        self.meta()
        for folder in (self.path, self.partial, self._replaced):
            self._check(folder)

    def _check(self, folder: pathlib.Path) -> None:
        if self._is_empty(folder):
            return
        if not folder.is_dir():
            raise OptionError("out", f"{folder}, a file beside it", "no such file", "move it away")
        others = other_entries(folder, self._own(folder))
        if others:
            raise refuse(folder, others[0], self.kind)
        # Version 0.2 wrote ``meta.json`` last, and ``journal.json`` until then.
        is_journal = folder == self.partial and marked(folder / "journal.json", self.kind, _JOURNAL)
        if not marked(folder / "meta.json", self.kind, self._keys) and not is_journal:
            raise refuse(folder, min(os.listdir(folder)), self.kind)

    def _own(self, folder: pathlib.Path) -> List[str]:
        """Names of the files of a folder of the kind, of this version or of another."""
        own = ["meta.json", "journal.json", *self._files]
        for name, keys in (("meta.json", self._keys), ("journal.json", _JOURNAL)):
            values = marked(folder / name, self.kind, keys) or {}
            own += values.get("names", [])
            files = values.get("files")
            if isinstance(files, dict):
                own += [f"{array}.bin" for array in files]
        return own

    @staticmethod
    def _is_empty(folder: pathlib.Path) -> bool:
        if not os.path.lexists(folder):
            return True
        return folder.is_dir() and not folder.is_symlink() and not other_entries(folder, ())

    def mend_unless_locked(self) -> None:
        """Do what `mend` does, unless a process is replacing the folder now."""
        if self._replaced.exists():
            with contextlib.suppress(OutputLocked), lock_output(self.path):
                self.check()
                self.mend()

    def mend(self) -> None:
        """Complete or undo a replacement that was stopped, once `check` has passed."""
        if not self._replaced.exists():
            return
        with storage_errors(self.path):
            if self._is_empty(self.path):
                os.rename(self._replaced, self.path)
            else:
                self._remove(self._replaced)

    def begin(self) -> pathlib.Path:
        """Make the folder to write to, with the mark, in place of an earlier one."""
        with storage_errors(self.partial):
            self._remove(self.partial)
            self.partial.mkdir(parents=True)
        record = {**mark_of(self.kind, self.version), "names": list(self._files)}
        write_json(self.partial / "meta.json", record)
        return self.partial

    def finish(self, meta: Dict[str, Any]) -> None:
        """Write ``meta.json``, and give the folder its name."""
        write_json(self.partial / "meta.json", {**mark_of(self.kind, self.version), **meta})
        self.check()
        with storage_errors(self.path):
            sync_directory(self.partial)
            if self.path.is_dir() and os.listdir(self.path):
                os.rename(self.path, self._replaced)
            os.rename(self.partial, self.path)
            sync_directory(self.path.parent)
            self._remove(self._replaced)

    def discard(self) -> None:
        """Remove what was written, if the folder has not its name yet."""
        with contextlib.suppress(OSError):
            self._remove(self.partial)

    def _remove(self, folder: pathlib.Path) -> None:
        """Remove the files of a folder that `check` has passed, that with the mark as the last."""
        if not folder.is_dir():
            return
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == "meta.json"):
            entry.unlink()
        folder.rmdir()


def replaced_path(path: pathlib.Path) -> pathlib.Path:
    """Name of a folder while another one takes its place."""
    return path.with_name(f".{path.name}.replaced")


def named_path(path: PathLike) -> pathlib.Path:
    """A path whose last part is a name, such as that of the working directory for ``.``.

    Raises
    ------
    OptionError
        If it is the root of all folders.
    """
    target = pathlib.Path(path)
    if not target.name or target.name == "..":
        target = pathlib.Path(os.path.abspath(path))
    if not target.name:
        raise OptionError("out", f"{path}, which has no name", "the path of a folder to make")
    return target


def output_of(
    path: PathLike, version: int, kind: str, types: Iterable[str], keys: Sequence[str]
) -> Output:
    """The folder of arrays that a command writes; older ones have certain keys."""
    files = [f"{name}.bin" for name in types]
    return Output(path, kind, version, files, ("format", "files", *keys))
