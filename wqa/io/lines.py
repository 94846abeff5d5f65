"""Lines of files, in bounded memory, whatever a file holds.

Only ``\\n`` ends a line. The other line ends of Unicode, such as U+0085 and U+2028, are text. A
byte order mark at the start of a file, which some editors write, is not.
"""

from __future__ import annotations

import codecs
import functools
import gzip
from typing import IO, Iterable, Iterator, Optional, Tuple

from wqa.config.reading import open_file
from wqa.errors import DataError
from wqa.io.archives import DAMAGE
from wqa.io.files import PathLike

#: Greatest length of a line, in bytes.
LONGEST_LINE = 1 << 26


def open_bytes(path: PathLike) -> IO[bytes]:
    """Open a file for reading bytes."""
    file = open_file(path)
    if str(path).endswith(".gz"):
        file.close()
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return file


def without_mark(content: bytes) -> bytes:
    """Take away the byte order mark of UTF-8 at the start of a file, if there is one."""
    return content[3:] if content.startswith(codecs.BOM_UTF8) else content


def bounded_lines(
    file: IO[bytes],
    where: object,
    longest: int = LONGEST_LINE,
    largest: Optional[int] = None,
    first: int = 1,
) -> Iterator[Tuple[int, bytes]]:
    """Read the lines of an open file, from its position on."""
    number, total = first - 1, 0
    read_line = functools.partial(file.readline, longest + 1)
    try:
        for line in iter(read_line, b""):
            number += 1
            total += len(line)
            if len(line) > longest:
                raise DataError(
                    f"{where}, line {number}",
                    f"more than {longest:,} bytes",
                    "shorter lines",
                    "check that it is a file of this format",
                )
            if largest is not None and total > largest:
                raise DataError(
                    f"{where}, line {number}",
                    f"the file has more than {largest:,} bytes",
                    "a file of this corpus",
                    "fetch it again",
                )
            if number == 1:
                line = without_mark(line)
            if line:
                yield number, line
    except DAMAGE as error:
        raise DataError(
            f"{where}, after line {number}",
            f"cannot be read ({error})",
            "a whole file",
            "fetch or write it again",
        ) from None


def decoded_lines(lines: Iterable[Tuple[int, bytes]], where: object) -> Iterator[Tuple[int, str]]:
    """Decode lines of UTF-8 text."""
    for number, raw in lines:
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{where}, line {number}",
                f"byte {error.start} is not UTF-8",
                "UTF-8 text",
                "convert the file, for example with iconv",
            ) from None
        yield number, line


def open_lines(path: PathLike) -> IO[bytes]:
    """Open a file of lines for reading bytes, as `open_bytes` does."""
    try:
        return open_bytes(path)
    except FileNotFoundError:
        raise DataError(path, "cannot be read (no such file)", mend="check the path") from None
    except OSError as error:
        raise DataError(
            path, f"cannot be read ({error.strerror})", "a file", "check the path"
        ) from None


def text_lines(
    path: PathLike, longest: int = LONGEST_LINE, largest: Optional[int] = None
) -> Iterator[Tuple[int, str]]:
    """Read the lines of a file of UTF-8 text."""
    with open_lines(path) as file:
        yield from decoded_lines(bounded_lines(file, path, longest, largest), path)
