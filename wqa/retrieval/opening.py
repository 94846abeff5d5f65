"""Collections to ask: an index, or texts that are indexed for as long as they are asked."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Iterator

from wqa.data.folders import is_collection
from wqa.io.files import PathLike
from wqa.retrieval.collection import build_index
from wqa.retrieval.index import Index


@contextlib.contextmanager
def open_collection(path: PathLike, progress: bool = False) -> Iterator[Index]:
    """Open an index, or index texts for as long as the block lasts.

    Parameters
    ----------
    path : str or path-like
        Folder that `build_index` wrote, or a folder, a table or JSONL of documents, as
        `wqa.data.read_collection` reads it.
    progress : bool
        Show bars on standard error.

    Yields
    ------
    Index
        An index with sentences where it was made here. It is deleted at the end of the block.

    Raises
    ------
    DataError
        If the index is damaged, or the documents cannot be read.
    MissingDependency
        If the extra that finds sentences, or reads HTML, is not installed.
    """
    is_index = os.path.isfile(os.path.join(path, "meta.json"))
    if is_index or not (is_collection(path) or os.path.isfile(path)):
        yield Index(path, progress)
        return
    with tempfile.TemporaryDirectory(prefix="wqa-") as folder:
        made = os.path.join(folder, "index")
        build_index(path, made, progress=progress, sentences=True)
        yield Index(made)
