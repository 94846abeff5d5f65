"""Locks of outputs: two processes never write to the same run, store or folder.

The lock of ``runs/wikiqa`` is the file ``runs/.wikiqa.lock``, and ``runs/.wikiqa.holder`` says
which process holds it. Both are removed when the lock is released. The kernel releases the lock of
a process that dies; its files then stay until the next writer of the same output.

Some network file systems have no such locks. There a writer prints a note and takes none: a lock
file alone, without the kernel's lock, would refuse all writers after a kill.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import pathlib
import platform
import shlex
import stat
import sys
import tempfile
import time
from typing import Any, Dict, Iterator, Optional, Tuple

from filelock import FileLock, Timeout

from wqa.config import read_json
from wqa.errors import OptionError, OutputLocked, StorageError, printable
from wqa.io.files import (
    PathLike,
    machine,
    process_is_alive,
    remedy,
    remove,
    remove_abandoned,
    short_name,
    storage_errors,
    sync_directory,
    temporary_path,
)

LOGGER = logging.getLogger(__name__)

#: Attempts to take a lock whose file is removed at the same moment, or to read who holds it: a
#: process writes that just after it takes the lock.
_ATTEMPTS = 100
_PAUSE = 0.02  # seconds between them
#: What `fcntl.flock` raises on a file system without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


@contextlib.contextmanager
def lock_output(path: PathLike) -> Iterator[None]:
    """Hold the lock of an output inside the ``with`` block.

    It does not wait. Readers need no lock. On a file system without locks it prints a note on
    standard error and takes none.
    """
    target = pathlib.Path(path)
    with storage_errors(target):
        lock_path, holder_path = _files_of(target)
    if not has_locks(target):
        folder = printable(str(lock_path.parent))
        LOGGER.warning(
            f"the file system of {folder} has no locks; let no other process write to "
            f"{printable(str(target))} meanwhile"
        )
        yield
        return
    with storage_errors(lock_path):
        lock = _acquire(target, lock_path, holder_path)
    try:
        with storage_errors(target):
            _write_holder(holder_path)
        yield
    finally:
        # A process that waits for neither file takes a new lock only when both are gone.
        try:
            for file in (holder_path, lock_path):
                with contextlib.suppress(OSError):
                    file.unlink()
        finally:
            lock.release()


def _files_of(target: pathlib.Path) -> Tuple[pathlib.Path, pathlib.Path]:
    """The lock file and the holder file of an output."""
    resolved = target.resolve()
    folder, name = resolved.parent, f".{short_name(resolved.name)}"
    if resolved.is_dir() and not os.access(folder, os.W_OK):
        folder, name = resolved, ""  # the folder is all that may be written to
    else:
        folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.lock", folder / f"{name}.holder"


def has_locks(path: PathLike) -> bool:
    """Whether the file system of an output has locks.

    filelock does not tell: by its version and the error, it takes the lock for held, raises the
    error, or takes a lock that a killed process holds for ever.
    """
    target = pathlib.Path(path)
    with storage_errors(target), tempfile.TemporaryFile(dir=_files_of(target)[0].parent) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            raise
    return True


def _acquire(target: pathlib.Path, lock_path: pathlib.Path, holder_path: pathlib.Path) -> FileLock:
    """Take a lock, whose file must still have its name, or name its holder."""
    for _ in range(_ATTEMPTS):
        lock = FileLock(str(lock_path), mode=_make_file(lock_path))
        try:
            lock.acquire(timeout=0)
        except FileNotFoundError:
            continue  # removed while it was opened
        except Timeout:
            holder = _read_holder(holder_path)
            if holder is None:
                # It has not written who it is yet, or is about to release the lock.
                time.sleep(_PAUSE)
                continue
            text = (
                f"locked by process {holder['pid']} on {holder['host']} since "
                f"{holder['start']} ({holder['command']})"
            )
            raise OutputLocked(target, text, lock_path) from None
        if _has_name(lock, lock_path):
            return lock
        lock.release()  # the holder before has removed the file
    raise OutputLocked(target, "locked by another process", lock_path)


def _make_file(path: pathlib.Path) -> int:
    """Make a lock file with the permissions that the umask gives, and return them.

    Early versions of filelock give 0644, which other users of a shared folder cannot open.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


def _has_name(lock: FileLock, path: pathlib.Path) -> bool:
    """Whether the locked file still has its name; filelock before version 4 does not check."""
    descriptor = getattr(getattr(lock, "_context", None), "lock_file_fd", None)
    try:
        status = path.stat()
    except OSError:
        return False
    return descriptor is None or os.path.samestat(status, os.fstat(descriptor))


def _write_holder(path: pathlib.Path) -> None:
    holder = {
        "pid": os.getpid(),
        "host": platform.node(),
        "machine": machine(),
        "start": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": shlex.join(sys.argv),
    }
    # Not flushed to the disk: the lock does not outlive the machine's memory either.
    path.write_text(json.dumps(holder), encoding="utf-8")


def _read_holder(path: pathlib.Path) -> Optional[Dict[str, Any]]:
    """The holder, or None if it is not written yet or is that of a dead process."""
    try:
        holder = read_json(path)
        is_here = holder["machine"] == machine()
        if not isinstance(holder["pid"], int):
            return None
        if is_here and not process_is_alive(holder["pid"]):
            return None
        return {name: holder[name] for name in ("pid", "host", "start", "command")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def new_directory(path: PathLike) -> Iterator[pathlib.Path]:
    """Write a directory under a temporary name and rename it when the context ends."""
    target = pathlib.Path(path)
    if not target.name:  # "." has no name that a temporary one could be made of
        target = target.absolute()
    with lock_output(target):
        if target.is_file() or (target.is_dir() and any(target.iterdir())):
            raise OptionError(
                target, "exists already", "a new directory", "choose another name or delete it"
            )
        temporary = temporary_path(target)
        try:
            remove_abandoned(target)
            remove(temporary)  # of an earlier process of this number
            temporary.mkdir(parents=True)
            yield temporary
            for written in temporary.iterdir():
                # To the disk, so that the directory's rename is not there before the content.
                with open(written, "rb+") as file:
                    os.fsync(file.fileno())
            sync_directory(temporary)
            os.replace(temporary, target)
            sync_directory(target.parent)
        except OSError as error:
            raise StorageError(
                target,
                f"could not be written ({error.strerror or error})",
                mend=remedy(error),
            ) from error
        finally:
            remove(temporary)
