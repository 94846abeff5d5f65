"""Files: atomic writing, one writer for each output, digests, members of tars.

A file is written under the temporary name ``.NAME.MACHINE.PID.tmp`` beside it, flushed, then
renamed. A process that is killed leaves it. The next writer of the same name removes it.

The lock of ``runs/wikiqa`` is the file ``runs/.wikiqa.lock``, which is removed when it is released.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import lzma
import os
import pathlib
import platform
import shutil
import struct
import tarfile
import tempfile
import zlib
from typing import IO, Any, Iterator, Union

from filelock import FileLock, Timeout

from wqa.errors import OptionError, OutputLocked, StorageError, shorten

PathLike = Union[str, "os.PathLike[str]"]

#: Bytes of a file that are read at once.
BLOCK = 1 << 20

#: Raised while a damaged file is read, compressed or not, and while the headers of a tar are.
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)
TAR_DAMAGE = (*DAMAGE, tarfile.TarError, ValueError, OverflowError, RecursionError, struct.error)


def _machine() -> str:
    """Part of temporary names, as processes of other machines are not seen here."""
    return f"{zlib.crc32(platform.node().encode('utf-8')):08x}"


def _owner() -> str:
    """End of temporary names: the machine and the process."""
    return f".{_machine()}.{os.getpid()}.tmp"


def remove_abandoned(folder: pathlib.Path, prefix: str) -> None:
    """Remove what dead processes of this machine left in a folder under a prefix."""
    for path in folder.glob(f"{glob.escape(prefix)}*{_machine()}.*.tmp"):
        pid = path.suffixes[-2][1:]
        with contextlib.suppress(PermissionError, ValueError):  # another user's process
            try:
                os.kill(int(pid), 0)
            except (ProcessLookupError, OverflowError):
                remove(path)


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
    parent, prefix = pathlib.Path(tempfile.gettempdir()), f".wqa-{name}-"
    remove_abandoned(parent, prefix)
    with tempfile.TemporaryDirectory(_owner(), prefix, parent) as folder:
        yield pathlib.Path(folder)


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
    temporary = target.parent / f".{target.name}{_owner()}"
    old = target.parent / f".{target.name}.old"
    with storage_errors(target):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(target.parent, f".{target.name}.")
            remove(temporary)  # of an earlier process of this number
            yield temporary
            for file in [temporary, *temporary.glob("*")]:
                sync(file)
            if temporary.is_dir() and target.is_dir():  # a folder replaces an empty one alone
                remove(old)
                os.rename(target, old)
            os.replace(temporary, target)
            sync(target.parent)
        finally:
            remove(temporary)
            if old.is_dir():
                if not os.path.lexists(target):  # or a process was killed in between
                    os.rename(old, target)
                remove(old)


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
    # Perhaps a link to a file, as /dev/stdout; below /dev/shm are files.
    is_device = target.parts[:2] == ("/", "dev") and target.parts[2:3] != ("shm",)
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
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def refuse(folder: pathlib.Path, name: str, kind: str) -> OptionError:
    """Error for a folder with something that the package has not written."""
    problem = f"{folder}, a folder with other files, such as {shorten(name)}"
    expected = f"the path of a folder to make, or of a {kind}"
    return OptionError("out", problem, expected, "move it away, or choose another folder")


@contextlib.contextmanager
def lock_output(path: PathLike) -> Iterator[None]:
    """Hold the lock of an output inside the ``with`` block. It does not wait; readers need no lock.

    Raises
    ------
    OutputLocked
        If another process, or another thread, holds it.
    """
    target = pathlib.Path(path).resolve()
    name = target.parent / f".{target.name}.lock"
    if target.is_dir() and not os.access(target.parent, os.W_OK):  # such as a container's volume
        name = target / ".lock"
    lock = FileLock(name, timeout=0)
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            held = lock.acquire()
        except Timeout:
            raise OutputLocked(target, lock.lock_file) from None
    with held:
        try:
            yield
        finally:
            remove(pathlib.Path(lock.lock_file))


@contextlib.contextmanager
def new_directory(path: PathLike) -> Iterator[pathlib.Path]:
    """Write a directory under a temporary name and rename it when the context ends."""
    target = pathlib.Path(os.path.abspath(path))
    with lock_output(target):
        if target.is_file() or (target.is_dir() and any(target.iterdir())):
            expected, hint = "a new directory", "choose another name or delete it"
            raise OptionError(target, "exists already", expected, hint)
        with replacing(target) as temporary:
            temporary.mkdir()
            yield temporary


def checked_members(tar: tarfile.TarFile, largest: int) -> Iterator[tarfile.TarInfo]:
    """Members of a tar, which unpack to at most so many bytes."""
    total = 0
    for member in tar:
        total += member.size
        if member.size < 0 or total > largest:
            raise tarfile.ReadError(f"it unpacks to more than {largest:,} bytes")
        yield member
    # `tarfile` ends quietly at a damaged header and at a cut.
    file: Any = tar.fileobj
    file.seek(tar.offset)
    block = file.read(tarfile.BLOCKSIZE)
    if not block or block.strip(b"\0"):
        raise tarfile.ReadError("it is cut, or a header between its members is damaged")
