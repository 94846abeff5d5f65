"""Reading of archives that may be damaged or hostile, in bounded memory.

A compressed file of some kilobytes can unpack to terabytes. A sparse member of a tar can declare
any size. So every reader of an archive states how large its content may be, and a tar is read
through a file object that refuses blocks and positions beyond that size.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import pathlib
import shutil
import struct
import tarfile
import zlib
from typing import IO, Any, Callable, Dict, Iterator, Optional, Type

from wqa.config.runs import open_file
from wqa.errors import DataError, StorageError, WqaError, shorten
from wqa.io.files import PathLike

#: Raised while a damaged file is read, compressed, in a tar, or neither.
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError)
#: Raised while the headers of a damaged tar are read.
TAR_DAMAGE = (*DAMAGE, ValueError, OverflowError, RecursionError, struct.error)

#: Greatest size of a tar of an encoder, unpacked, and of a file in it, in bytes. The largest of
#: the papers' encoders has 1.4 GB.
LARGEST_ENCODER_TAR, LARGEST_ENCODER_FILE = 32 << 30, 8 << 30

#: Largest header of a tar, in bytes, its long names and extended records included.
_LARGEST_HEADER = 1 << 24
#: Largest block that is read at once, in bytes.
_LARGEST_READ = 1 << 26
_MOST_MEMBERS = 100_000
#: Size of the blocks in which a member is copied, in bytes.
_BLOCK = 1 << 20

_OPENERS: Dict[bytes, Callable[[Any, str], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}


class _BoundedFile:
    """The file under a tar, which refuses large blocks and positions beyond the limit."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file = file
        self._limit = limit
        #: Bytes that may be read before the next member, None for no bound.
        self.budget: Optional[int] = None

    def read(self, size: int = -1) -> bytes:
        """Read a block; a negative size, which means the whole file, is refused."""
        if not 0 <= size <= _LARGEST_READ:
            raise tarfile.ReadError(f"a block of {size:,} bytes")
        if self.budget is not None:
            self.budget -= size
            if self.budget < 0:
                raise tarfile.ReadError(f"a header of more than {_LARGEST_HEADER:,} bytes")
        return self._file.read(size)

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position, which must lie inside the limit."""
        if whence == os.SEEK_SET and not 0 <= position <= self._limit:
            raise tarfile.ReadError(
                f"it unpacks to {position:,} bytes, where at most {self._limit:,} are expected"
            )
        return self._file.seek(position, whence)

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._file.tell()


@contextlib.contextmanager
def tar_errors(
    path: PathLike, expected: object = "a whole tar", error_type: Type[WqaError] = DataError
) -> Iterator[None]:
    """Convert whatever a damaged tar raises into a typed error."""
    try:
        yield
    except TAR_DAMAGE as error:
        reason = str(error) or type(error).__name__
        raise error_type(path, f"cannot be read ({reason})", expected, "fetch it again") from None


@contextlib.contextmanager
def open_tar(path: PathLike, largest: int) -> Iterator[tarfile.TarFile]:
    """Open a tar for reading, plain or compressed by gzip, bzip2 or xz."""
    with contextlib.ExitStack() as stack:
        file: Any = stack.enter_context(open_file(path))
        start = file.read(6)
        file.seek(0)
        for magic, opener in _OPENERS.items():
            if start.startswith(magic):
                file = stack.enter_context(opener(file, "rb"))
        bounded: Any = _BoundedFile(file, largest)
        bounded.budget = _LARGEST_HEADER
        yield stack.enter_context(tarfile.TarFile(pathlib.Path(path), fileobj=bounded))


def checked_members(tar: tarfile.TarFile, largest: int) -> Iterator[tarfile.TarInfo]:
    """Members of a tar, of which none is sparse or larger than it may be."""
    bounded: Any = tar.fileobj
    members = iter(tar)
    for _ in range(_MOST_MEMBERS):
        bounded.budget = _LARGEST_HEADER
        member = next(members, None)
        bounded.budget = None
        if member is None:
            _check_end(tar)
            return
        name = shorten(member.name)
        if member.issparse():
            raise tarfile.ReadError(f"the member {name} is sparse, where plain files are expected")
        if not 0 <= member.size <= largest:
            raise tarfile.ReadError(
                f"the member {name} has {member.size:,} bytes, where at most {largest:,} are "
                "expected"
            )
        yield member
    raise tarfile.ReadError(f"it holds more than {_MOST_MEMBERS:,} members")


def _check_end(tar: tarfile.TarFile) -> None:
    """Raise a ReadError unless a block of zeros follows the last member that was read.

    `tarfile` ends quietly at a damaged header and at a cut.
    """
    file: Any = tar.fileobj
    file.seek(tar.offset)
    block = file.read(tarfile.BLOCKSIZE)
    if not block:
        raise tarfile.ReadError("it ends without the end-of-archive marker")
    if block.strip(b"\0"):
        raise tarfile.ReadError("a damaged header between its members")


def require_space(folder: PathLike, size: int) -> None:
    """Check that a file system has room for what is to be written."""
    existing = pathlib.Path(folder).absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < size:
        raise StorageError(
            folder,
            f"{free:,} bytes are free on its disk",
            f"{size:,} or more",
            "free space or choose another folder, then run again",
        )


def copy_member(tar: tarfile.TarFile, member: tarfile.TarInfo, target: IO[bytes]) -> None:
    """Write the content of a tar's member to an open file."""
    source = tar.extractfile(member)
    if source is None:
        raise tarfile.ReadError(f"the member {shorten(member.name)} is no plain file")
    with source:
        while True:
            try:
                block = source.read(_BLOCK)
            except OSError as error:
                raise tarfile.ReadError(str(error)) from None
            if not block:
                return
            target.write(block)
