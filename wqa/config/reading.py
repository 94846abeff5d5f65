"""Reading of JSON, whatever a file holds."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Callable, List, Optional, Tuple, Union

#: Builds an object from its keys and values, as `json.loads` calls it.
Hook = Callable[[List[Tuple[str, Any]]], Any]


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


def read_json(path: Union[str, os.PathLike[str]]) -> Any:
    """Parse a file that holds one JSON document.

    Parameters
    ----------
    path : str or path-like
        File to read, in UTF-8.

    Returns
    -------
    dict, list, str, int, float, bool or None
        Value of the document.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it does not hold JSON, as `parse_json` says.
    """
    return parse_json(pathlib.Path(path).read_text(encoding="utf-8"))
