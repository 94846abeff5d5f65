"""Safe writing: a file is written under a temporary name, flushed, then renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pathlib
import sys
from typing import IO, Any, Iterator, Union

from wqa.config.reading import open_file
from wqa.errors import StorageError
from wqa.io.temporary import remove_abandoned, temporary_path

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
    return sha256_of_start(path).hexdigest()


def sha256_of_start(path: PathLike, size: int = sys.maxsize) -> Any:
    """Compute the SHA-256 digest of the first bytes of a file, to be continued."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        while block := file.read(min(size, BLOCK)):
            digest.update(block)
            size -= len(block)
    return digest
