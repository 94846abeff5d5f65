"""Safe writing: a file is written under a temporary name, flushed, then renamed.

A temporary file or folder is called ``.NAME.MACHINE.PID.tmp``, beside the file that it becomes. A
process that is killed leaves it. The next writer of the same name removes it.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import tempfile
import time
import zlib
from typing import IO, Any, Collection, Iterator, Union

from wqa.config.runs import open_file, read_json
from wqa.errors import OptionError, StorageError, shorten

#: Seconds after which a file of another machine, where processes cannot be looked up, is abandoned.
ABANDONED_AFTER = 24 * 3600.0

#: Bytes of a name to which endings are added as it is.
_LONGEST = 200

_OWNER = re.compile(r"(?P<machine>[0-9a-f]{8})\.(?P<pid>[0-9]+)(?:\.\w+)?\.tmp")
_TEMPORARY = re.compile(rf"\..+\.{_OWNER.pattern}")


def machine() -> str:
    """Digest of the name of this machine, on which numbers of processes have a meaning."""
    return f"{zlib.crc32(platform.node().encode('utf-8')):08x}"


def process_is_alive(pid: int) -> bool:
    """Whether a process of this machine lives."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's process
        return True
    return True


def short_name(name: str) -> str:
    """A name that stays valid with an ending, as file systems take 255 bytes."""
    raw = os.fsencode(name)
    return name if len(raw) <= _LONGEST else f"{name[:40]}.{zlib.crc32(raw):08x}"


def temporary_path(target: pathlib.Path) -> pathlib.Path:
    """The temporary name of a file or folder that this process writes."""
    return target.with_name(f".{short_name(target.name)}.{machine()}.{os.getpid()}.tmp")


def is_temporary(path: pathlib.Path) -> bool:
    """Whether a path is that of a temporary file."""
    return path.is_file() and _TEMPORARY.fullmatch(path.name) is not None


def remove_abandoned(folder: pathlib.Path, prefix: str) -> None:
    """Remove the temporary files and folders of a prefix that dead processes left in a folder.

    Those of another machine are removed when they have not changed for a day. What cannot be
    removed stays.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            owner = _OWNER.fullmatch(name[len(prefix) :]) if name.startswith(prefix) else None
            if owner is not None and _is_abandoned(folder / name, owner):
                remove(folder / name)


def _is_abandoned(path: pathlib.Path, owner: re.Match) -> bool:
    if owner["machine"] == machine():
        return not process_is_alive(int(owner["pid"]))
    return time.time() - path.lstat().st_mtime > ABANDONED_AFTER


def remove(path: pathlib.Path) -> None:
    """Remove a file or a folder if that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def scratch_folder(name: str) -> Iterator[pathlib.Path]:
    """Make a folder for intermediate files, which is removed when the context ends.

    It lies in the system's folder for temporary files (``TMPDIR``). Folders of the same name that
    dead processes left there are removed.
    """
    parent = pathlib.Path(tempfile.gettempdir())
    prefix = f".wqa-{name}."
    remove_abandoned(parent, prefix)
    owned = f"{prefix}{machine()}.{os.getpid()}."
    with tempfile.TemporaryDirectory(prefix=owned, suffix=".tmp", dir=parent) as folder:
        yield pathlib.Path(folder)


PathLike = Union[str, "os.PathLike[str]"]

#: Bytes of a file that are read at once.
BLOCK = 1 << 20


@contextlib.contextmanager
def storage_errors(path: PathLike) -> Iterator[None]:
    """Convert an ``OSError`` while writing into a `StorageError` that names the file.

    Parameters
    ----------
    path : str or path-like
        The file or folder that is being written.

    Raises
    ------
    StorageError
        For a full disk, a missing folder, a refused permission and the like.
    """
    try:
        yield
    except OSError as error:
        problem = f"could not be written ({error.strerror or error})"
        hint = "check the space and the permissions there, or choose another path, then run again"
        raise StorageError(path, problem, hint=f"{hint}; an older file is unchanged") from error


def sync(path: PathLike) -> None:
    """Flush a file to the disk, or the names in a folder, so that a rename in it is durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[pathlib.Path]:
    """Yield the temporary name of a file or folder, which gets its own name when it is whole.

    It is flushed to the disk before it is renamed. What dead processes left for this name is
    removed.

    Parameters
    ----------
    path : str or path-like
        Final name. Its folder is made if it is missing.

    Yields
    ------
    pathlib.Path
        The temporary name, under which there is nothing yet.

    Raises
    ------
    StorageError
        If it cannot be written; what was written is removed and the old content stays.
    """
    target = pathlib.Path(path)
    temporary = temporary_path(target)
    old = temporary.with_suffix(".old.tmp")
    with storage_errors(target):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            prefix = f".{short_name(target.name)}."
            for old_path in target.parent.glob(f"{glob.escape(prefix)}*.old.tmp"):
                _restore(old_path, target)  # its process was killed between the two renames
            remove_abandoned(target.parent, prefix)
            remove(temporary)  # of an earlier process of this number
            yield temporary
            for file in [temporary, *temporary.glob("*")]:
                sync(file)
            try:
                if temporary.is_dir() and target.is_dir():
                    os.rename(target, old)  # a folder replaces an empty one alone
                os.replace(temporary, target)
            finally:
                _restore(old, target)
            sync(target.parent)
        finally:
            remove(temporary)
            remove(old)


def _restore(old: pathlib.Path, target: pathlib.Path) -> None:
    """Give a folder its name back, unless another one has taken its place."""
    if old.exists() and not os.path.lexists(target):
        os.rename(old, target)


@contextlib.contextmanager
def atomic_writer(path: PathLike, mode: str = "w") -> Iterator[IO]:
    """Open a file that appears under its name only when it is whole, as by `replacing`.

    A device or a pipe, such as ``/dev/stdout`` or a shell's ``>(command)``, is written directly: a
    rename would replace it.

    Parameters
    ----------
    path : str or path-like
        Final name of the file. Its folder is made if it is missing.
    mode : {"w", "wb"}
        Text or bytes. Text is UTF-8 with ``\\n`` line ends.

    Yields
    ------
    file object
        The temporary file, or the device or pipe.

    Raises
    ------
    StorageError
        If it cannot be written; the temporary file is removed and the old content stays.
    """
    target = pathlib.Path(path)
    text_options = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    if target.is_dir():
        raise StorageError(target, "is a folder", "the name of a file")
    is_device = target.parts[:2] == ("/", "dev")  # perhaps a link to a file, as /dev/stdout
    is_stream = target.exists() and (is_device or not target.is_file())
    context = storage_errors(target) if is_stream else replacing(target)
    with context as temporary, open(temporary or target, mode, **text_options) as file:  # type: ignore[call-overload]
        yield file


def write_json(path: PathLike, values: Any) -> None:
    """Write values as indented JSON; the file appears when it is whole."""
    with atomic_writer(path) as file:
        json.dump(values, file, indent=2)
        file.write("\n")


def sha256(path: PathLike) -> str:
    """Compute the SHA-256 digest of a file.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    str
        The digest in hexadecimal.
    """
    digest = hashlib.sha256()
    with open_file(path) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def refuse(folder: pathlib.Path, name: str, kind: str) -> OptionError:
    """Error for a folder with something that the package has not written."""
    problem = f"{folder}, a folder with other files, such as {shorten(name)}"
    expected = f"the path of a folder to make, or of a {kind}"
    return OptionError("out", problem, expected, "move it away, or choose another folder")


def check_file(path: pathlib.Path, keys: Collection[str]) -> None:
    """Refuse to replace a JSON file without the keys of those that the package writes there."""
    if not os.path.lexists(path):
        return
    with contextlib.suppress(OSError, ValueError, TypeError):
        values = read_json(path)
        if all(key in values for key in keys):
            return
    raise refuse(path.parent, path.name, "run")


def named_path(path: PathLike) -> pathlib.Path:
    """A path whose last part is a name, such as that of the working directory for ``.``."""
    target = pathlib.Path(path)
    if not target.name or target.name == "..":
        target = pathlib.Path(os.path.abspath(path))
    if not target.name:
        raise OptionError("out", f"{path}, which has no name", "the path of a folder to make")
    return target
