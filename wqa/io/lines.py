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
    """Open a file for reading bytes.

    Parameters
    ----------
    path : str or path-like
        The file; it is unpacked if its name ends in ``.gz``.

    Returns
    -------
    file object
        The open file.

    Raises
    ------
    OSError
        If it cannot be opened.
    """
    file = open_file(path)
    if str(path).endswith(".gz"):
        file.close()
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return file


def without_mark(content: bytes) -> bytes:
    """Take away the byte order mark of UTF-8 at the start of a file, if there is one.

    Parameters
    ----------
    content : bytes
        First bytes of the file, or all.

    Returns
    -------
    bytes
    """
    return content[3:] if content.startswith(codecs.BOM_UTF8) else content


def bounded_lines(
    file: IO[bytes],
    where: object,
    longest: int = LONGEST_LINE,
    largest: Optional[int] = None,
    first: int = 1,
) -> Iterator[Tuple[int, bytes]]:
    """Read the lines of an open file, from its position on.

    Parameters
    ----------
    file : file object
        The file, open for reading bytes.
    where : object
        Its name, for messages.
    longest : int
        Greatest length of a line in bytes.
    largest : int, optional
        Greatest length of the whole file in bytes, unpacked; by default it is not bounded.
    first : int
        Number of the line at the position of the file.

    Yields
    ------
    tuple of int and bytes
        Number of the line and the line with its line end; line 1 without a byte order mark.

    Raises
    ------
    DataError
        If the file cannot be read, or it or a line is longer than it may be.
    """
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
    """Decode lines of UTF-8 text.

    Parameters
    ----------
    lines : iterable of tuple of int and bytes
        Numbers and lines, as `bounded_lines` reads them.
    where : object
        Name of the file, for messages.

    Yields
    ------
    tuple of int and str
        Number of the line and its text.

    Raises
    ------
    DataError
        If a line is not UTF-8.
    """
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
    """Open a file of lines for reading bytes, as `open_bytes` does.

    Parameters
    ----------
    path : str or path-like
        The file; it is unpacked if its name ends in ``.gz``.

    Returns
    -------
    file object
        The open file.

    Raises
    ------
    DataError
        If it cannot be opened.
    """
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
    """Read the lines of a file of UTF-8 text.

    Parameters
    ----------
    path : str or path-like
        The file; it is unpacked if its name ends in ``.gz``.
    longest : int
        Greatest length of a line in bytes.
    largest : int, optional
        Greatest length of the whole file in bytes, unpacked; by default it is not bounded.

    Yields
    ------
    tuple of int and str
        Number of the line, counted from 1, and the line with its line end.

    Raises
    ------
    DataError
        If the file cannot be read, is not UTF-8, or it or a line is longer than it may be.
    """
    with open_lines(path) as file:
        yield from decoded_lines(bounded_lines(file, path, longest, largest), path)
