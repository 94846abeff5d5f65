"""Safe writing: a file is written under a temporary name, flushed, then renamed.

A temporary file or folder is called ``.NAME.MACHINE.PID.tmp``, beside the file that it becomes. A
process that is killed leaves it. The next writer of the same name removes it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
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
from typing import IO, Any, Iterator, Union

from wqa.config.runs import open_file
from wqa.errors import StorageError

#: Seconds after which a file of another machine, where processes cannot be looked up, is abandoned.
ABANDONED_AFTER = 24 * 3600.0

#: Bytes of a name to which endings are added as it is.
_LONGEST = 200

#: Linux's number of the running system, which differs between machines and between restarts.
BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")

_OWNER = re.compile(r"(?P<machine>[0-9a-f]{8})\.(?P<pid>[0-9]+)(?:\.\w+)?\.tmp")
_TEMPORARY = re.compile(rf"\..+\.{_OWNER.pattern}")


@functools.lru_cache(maxsize=None)
def machine() -> str:
    """Digest of what gives the numbers of processes their meaning.

    That is the host, its start and, for containers, the namespace of the processes. Two hosts of
    one name have two digests.
    """
    identity = platform.node()
    with contextlib.suppress(OSError):
        identity += os.readlink("/proc/self/ns/pid")
    with contextlib.suppress(OSError):
        identity += BOOT_ID.read_text(encoding="ascii")
    return f"{zlib.crc32(identity.encode('utf-8')):08x}"


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


def remove_abandoned(target: pathlib.Path) -> None:
    """Remove the temporary files and folders that dead processes left for a name.

    Files of another machine, or from before a restart, are removed when they have not changed for a
    day. What cannot be removed stays.
    """
    _remove_abandoned(target.parent, f".{short_name(target.name)}.")


def _remove_abandoned(folder: pathlib.Path, prefix: str) -> None:
    try:
        names = [name for name in os.listdir(folder) if name.startswith(prefix)]
    except OSError:
        return
    for name in names:
        owner = _OWNER.fullmatch(name[len(prefix) :])
        if owner is not None and _is_abandoned(folder / name, owner):
            remove(folder / name)


def _is_abandoned(path: pathlib.Path, owner: re.Match) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    if status.st_uid != os.geteuid():
        return False
    if owner["machine"] == machine():
        return not process_is_alive(int(owner["pid"]))
    return time.time() - status.st_mtime > ABANDONED_AFTER


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
    _remove_abandoned(parent, prefix)
    owned = f"{prefix}{machine()}.{os.getpid()}."
    with tempfile.TemporaryDirectory(prefix=owned, suffix=".tmp", dir=parent) as folder:
        yield pathlib.Path(folder)


PathLike = Union[str, "os.PathLike[str]"]

#: Bytes of a file that are read at once.
BLOCK = 1 << 20

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)


def remedy(error: OSError) -> str:
    """What a user can do about a file that cannot be written."""
    if error.errno in _NO_SPACE:
        return "free space or choose another path, then run again"
    if error.errno in _NO_PERMISSION:
        return "get the permission to write there or choose another path, then run again"
    return "check the path and its disk or choose another path, then run again"


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
        reason = error.strerror or str(error)
        raise StorageError(
            path,
            f"could not be written ({reason})",
            mend=f"{remedy(error)}; an older file of this name is unchanged",
        ) from error


def sync_directory(path: PathLike) -> None:
    """Flush a directory to the disk, so that a rename inside it is durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def atomic_writer(path: PathLike, mode: str = "w") -> Iterator[IO]:
    """Open a file that appears under its name only when it is whole.

    Temporary files that dead processes left for this name are removed. A device or a pipe, such as
    ``/dev/stdout`` or a shell's ``>(command)``, is written directly: a rename would replace it.

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
    if target.exists() and not target.is_file():
        with storage_errors(target), open(target, mode, **text_options) as file:  # type: ignore[call-overload]
            yield file
        return
    temporary = temporary_path(target)
    try:
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(target)
            with open(temporary, mode, **text_options) as file:  # type: ignore[call-overload]
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
            sync_directory(target.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


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
