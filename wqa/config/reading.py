"""Reading of JSON, whatever a file holds."""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Tuple, Union

from wqa.errors import shorten

#: Builds an object from its keys and values, as `json.loads` calls it.
Hook = Callable[[List[Tuple[str, Any]]], Any]

#: Greatest size of a file in bytes, where a reader does not state its own.
LARGEST = 1 << 26

#: Folders of the process's open files.
_DESCRIPTORS = ("/dev/fd", "/proc/self/fd")


def unique_keys(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """Build an object of which no key occurs twice; a hook for `parse_json`."""
    values: Dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"key {shorten(name)} occurs twice")
        values[name] = value
    return values


def parse_json(text: Union[str, bytes], object_pairs_hook: Optional[Hook] = None) -> Any:
    """Parse a JSON document.

    Parameters
    ----------
    text : str or bytes
        The document.
    object_pairs_hook : callable, optional
        Builds an object from the list of its keys and values.

    Returns
    -------
    dict, list, str, int, float, bool or None
        Value of the document.

    Raises
    ------
    ValueError
        If the text is not UTF-8, is not JSON, or is nested more deeply than Python can parse.
    """
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def open_file(path: Union[str, os.PathLike[str]]) -> BinaryIO:
    """Open a regular file for reading bytes, without waiting for a writer of a named pipe."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    is_pipe = stat.S_ISFIFO(mode) and os.path.dirname(path) in _DESCRIPTORS
    if stat.S_ISREG(mode) or is_pipe:
        os.set_blocking(handle, True)
        return open(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise OSError(errno.EINVAL, "is no regular file", os.fspath(path))


def read_json(
    path: Union[str, os.PathLike[str]],
    largest: int = LARGEST,
    object_pairs_hook: Optional[Hook] = None,
) -> Any:
    """Parse a file that holds one JSON document.

    Parameters
    ----------
    path : str or path-like
        File to read, in UTF-8, with or without a byte order mark.
    largest : int
        Greatest size of the file in bytes, so that a file of another kind does not take all memory.
    object_pairs_hook : callable, optional
        As `parse_json` takes it.

    Returns
    -------
    dict, list, str, int, float, bool or None
        Value of the document.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is larger, or does not hold JSON, as `parse_json` says.
    """
    with open_file(path) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"it has more than {largest:,} bytes")
    return parse_json(content.decode("utf-8-sig"), object_pairs_hook)
