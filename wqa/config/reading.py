"""Reading of JSON, whatever a file holds."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, List, Optional, Tuple, Union

#: Builds an object from its keys and values, as `json.loads` calls it.
Hook = Callable[[List[Tuple[str, Any]]], Any]

#: Greatest size of a file in bytes, where a reader does not state its own.
LARGEST = 1 << 26


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


def read_json(path: Union[str, os.PathLike[str]], largest: int = LARGEST) -> Any:
    """Parse a file that holds one JSON document.

    Parameters
    ----------
    path : str or path-like
        File to read, in UTF-8, with or without a byte order mark.
    largest : int
        Greatest size of the file in bytes, so that a file of another kind does not take all memory.

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
    with open(path, "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"it has more than {largest:,} bytes")
    return parse_json(content.decode("utf-8-sig"))
