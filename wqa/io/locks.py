"""Locks of outputs: two processes never write to the same run, store or folder.

The lock of ``runs/wikiqa`` is the file ``runs/.wikiqa.lock``, and ``runs/.wikiqa.holder`` says
which process holds it. Both are removed when the lock is released. The kernel releases the lock of
a process that dies; its files then stay until the next writer of the same output.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pathlib
import platform
import shlex
import sys
import tempfile
import time
from typing import Any, Iterator

from filelock import FileLock, Timeout

from wqa.errors import OptionError, OutputLocked, printable
from wqa.io.files import PathLike, remove, replacing, short_name, storage_errors

LOGGER = logging.getLogger(__name__)


#: Attempts to read who holds a lock, and the seconds between them: a process writes it just after
#: it takes the lock, and removes both files when it releases it.
_ATTEMPTS, _PAUSE = 100, 0.01


@contextlib.contextmanager
def lock_output(path: PathLike) -> Iterator[None]:
    """Hold the lock of an output inside the ``with`` block.

    It does not wait. Readers need no lock. On a file system without locks, as some of networks are,
    it prints a note on standard error and takes none.
    """
    target = pathlib.Path(path).resolve()
    folder, name = target.parent, f".{short_name(target.name)}"
    if target.is_dir() and not os.access(folder, os.W_OK):
        folder, name = target, ""  # the folder is all that may be written to
    with storage_errors(target):
        folder.mkdir(parents=True, exist_ok=True)
        has_locks = _has_locks(folder)
    if not has_locks:
        LOGGER.warning(
            f"the file system of {printable(str(folder))} has no locks; let no other process write "
            f"to {printable(str(target))} meanwhile"
        )
        yield
        return
    lock_path, holder_path = folder / f"{name}.lock", folder / f"{name}.holder"
    with storage_errors(lock_path):
        lock = _acquire(target, lock_path, holder_path)
    try:
        with storage_errors(target):
            start = time.strftime("%Y-%m-%d %H:%M:%S %z")
            holder = f"process {os.getpid()} on {platform.node()} since {start}"
            holder_path.write_text(f"{holder} ({shlex.join(sys.argv)})", encoding="utf-8")
        yield
    finally:
        # A process that waits for neither file takes a new lock only when both are gone.
        try:
            remove(holder_path)
            remove(lock_path)
        finally:
            lock.release()


def _has_locks(folder: pathlib.Path) -> bool:
    """Whether a file system has locks; versions of filelock take the lack of them for a lock."""
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def _acquire(target: pathlib.Path, lock_path: pathlib.Path, holder_path: pathlib.Path) -> FileLock:
    """Take a lock, whose file must still have its name, or name its holder."""
    attempts = _ATTEMPTS
    while True:
        lock = FileLock(str(lock_path), timeout=0)
        try:
            lock.acquire()
        except Timeout:
            holder = ""
            with contextlib.suppress(OSError):
                holder = holder_path.read_text(encoding="utf-8", errors="replace")
            attempts -= 1
            if attempts and not holder:
                time.sleep(_PAUSE)
                continue
            holder = holder or "another process"
            raise OutputLocked(target, f"locked by {holder}", lock_path) from None
        # The holder before may have removed the file after it was opened here.
        descriptor: Any = lock._context.lock_file_fd
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), lock_path.stat()):
                return lock
        lock.release()


@contextlib.contextmanager
def new_directory(path: PathLike) -> Iterator[pathlib.Path]:
    """Write a directory under a temporary name and rename it when the context ends."""
    target = pathlib.Path(os.path.abspath(path))
    with lock_output(target):
        if target.is_file() or (target.is_dir() and any(target.iterdir())):
            raise OptionError(
                target, "exists already", "a new directory", "choose another name or delete it"
            )
        with replacing(target) as temporary:
            temporary.mkdir()
            yield temporary
