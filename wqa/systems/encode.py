"""Encodings of a file of documents by a run, kept in a document cache.

The documents are encoded in chunks that depend on the file alone, and the cache is committed after
each of them. So a command that was stopped and continued writes, to the bit, the encodings of one
that was not. Memory holds the texts and encodings of one chunk, and the ids of all documents.
"""

from __future__ import annotations

import os
import time
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple, Union

from wqa.cache.document_cache import open_cache, text_digest
from wqa.cache.document_cache_writer import DocumentCacheWriter, document_chunks
from wqa.config import EngineConfig
from wqa.data.documents import Document, read_documents, read_placed_documents
from wqa.errors import Stopped
from wqa.io.files import PathLike
from wqa.io.lines import text_lines
from wqa.io.progress import StopRequest, progress_bar
from wqa.systems.text_encoder import (
    TextEncoder,
    cache_settings,
    check_cache_options,
    load_text_encoder,
)
from wqa.text import SingleInputs


class CacheReport(NamedTuple):
    """What a command has done to a document cache.

    Attributes
    ----------
    documents : int
        Documents in the cache afterwards.
    new, changed, unchanged : int
        Documents of the file that were encoded as they were not in the cache, or with another text,
        and those that were not encoded again.
    removed : int
        Documents that were removed.
    truncated : int
        Documents that were encoded and lost tokens to the length limit, or rows to the cache's
        ``tokens``.
    blank : int
        Documents of the file without a token, which the cache leaves out.
    missing : int
        Ids to remove that were not in the cache.
    bytes : int
        Size of the index and of all entries.
    seconds : float
        Time that encoding and writing took.
    """

    documents: int
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    truncated: int = 0
    blank: int = 0
    missing: int = 0
    bytes: int = 0
    seconds: float = 0.0


def encode_documents(
    run: Union[str, os.PathLike[str]],
    documents: PathLike,
    out: PathLike,
    store: str = "float16",
    first_tokens: int = 0,
    prune: bool = False,
    progress: bool = False,
    stop: Optional[StopRequest] = None,
    engine: Optional[EngineConfig] = None,
) -> CacheReport:
    """Encode the documents of a file that a cache does not hold, or holds with another text.

    A command that was stopped is continued.

    Parameters
    ----------
    run : str or path-like
        Run directory of a system that encodes documents by themselves.
    documents : str or path-like
        Documents, JSONL, as `wqa.data.documents.read_documents` reads them.
    out : str or path-like
        Folder of the cache; it is made if there is none.
    store : {"float16", "bfloat16", "float32", "int8"}
        Element type of the cache. int8 has a scale for each row.
    first_tokens : int
        Number of rows of each document to keep, from the first on; 0 for all.
    prune : bool
        Remove documents that are not in the file.
    progress : bool
        Show a bar on standard error.
    stop : StopRequest, optional
        Once it holds a signal, the work ends after the current chunk.
    engine : EngineConfig, optional
        Engine, precision (float32 or bfloat16), device and threads.

    Returns
    -------
    CacheReport

    Raises
    ------
    Stopped
        If a signal has stopped the work. What is in the cache stays.
    WqaError
        If the run or the documents cannot be read, or ``out`` is a cache of another encoder or
        other options, cannot be written, or another process writes it.
    """
    check_cache_options(store, first_tokens)
    config = engine or EngineConfig()
    # A fault on the last line is found now, not hours later.
    ids = {document.id for document in read_documents(documents)}
    text_encoder = load_text_encoder(run, config)
    settings = cache_settings(text_encoder, config.precision, store, first_tokens)
    with DocumentCacheWriter(out, settings) as writer:
        work = _Encoding(text_encoder, writer, len(ids), stop or StopRequest())
        work.encode(read_placed_documents(documents), progress)
        removed = 0
        if prune:
            removed = remove_from(writer, set(writer.ids()) - ids)
        writer.compact()
        return work.report(removed)


def check_cached(
    inputs: SingleInputs, settings: Mapping[str, Any], documents: PathLike, out: PathLike
) -> Optional[CacheReport]:
    """Check whether a cache holds the documents of a file. Nothing is encoded."""
    cache = open_cache(out, settings)
    unchanged = blank = 0
    for chunk, _ in document_chunks(read_placed_documents(documents)):
        stored = cache.stored_digests([document.id for document in chunk])
        for document in chunk:
            if document.id in stored and stored[document.id] != text_digest(document.full_text):
                return None
        lacking = [document.full_text for document in chunk if document.id not in stored]
        if not all(encoded.empty for encoded in inputs.encode(lacking)):
            return None
        unchanged += len(stored)
        blank += len(lacking)
    return CacheReport(len(cache), unchanged=unchanged, blank=blank)


def remove_documents(out: PathLike, ids: PathLike) -> CacheReport:
    """Remove documents from a cache.

    Parameters
    ----------
    out : str or path-like
        Folder of the cache.
    ids : str or path-like
        File with the id of a document in each line. Ids that the cache does not hold are counted.

    Returns
    -------
    CacheReport

    Raises
    ------
    WqaError
        If the file or the cache cannot be read, the cache cannot be written, or another process
        writes it.
    """
    wanted = set()
    for _, line in text_lines(ids):
        wanted.add(line.strip())
    wanted.discard("")
    with DocumentCacheWriter(out) as writer:
        removed = remove_from(writer, wanted & set(writer.ids()))
        writer.compact()
        missing = len(wanted) - removed
        return CacheReport(len(writer), removed=removed, missing=missing, bytes=writer.used_bytes())


def remove_from(writer: DocumentCacheWriter, ids: Set[str]) -> int:
    """Remove documents from an open cache."""
    if ids:
        writer.remove(sorted(ids))
        writer.commit()
    return len(ids)


class _Encoding:
    """Documents on their way into a cache, and their counts."""

    def __init__(
        self, encoder: TextEncoder, writer: DocumentCacheWriter, total: int, stop: StopRequest
    ) -> None:
        self._encoder, self._writer = encoder, writer
        self._total, self._stop = total, stop
        self._counts = dict.fromkeys(("new", "changed", "unchanged", "truncated", "blank"), 0)
        self._seconds = 0.0

    def encode(self, placed: Iterable[Tuple[Document, int]], progress: bool) -> None:
        """Encode what the cache lacks, chunk by chunk."""
        done = 0
        with progress_bar(self._total, "encoding", "document", progress) as bar:
            for chunk, _ in document_chunks(placed):
                if self._stop.signal:
                    where = f"{self._writer.path}, {done} of {self._total} documents"
                    raise Stopped(self._stop.signal, where, "they are in the cache")
                self._encode_chunk(chunk)
                done += len(chunk)
                bar.update(len(chunk))

    def _encode_chunk(self, chunk: List[Document]) -> None:
        stored = self._writer.stored_digests([document.id for document in chunk])
        digests = {document.id: text_digest(document.full_text) for document in chunk}
        wanted = []
        for document in chunk:
            if stored.get(document.id) != digests[document.id]:
                wanted.append(document)
        self._counts["unchanged"] += len(chunk) - len(wanted)
        if not wanted:
            return
        start = time.perf_counter()
        texts = self._encoder.encode([document.full_text for document in wanted])
        for document, encoded in zip(wanted, texts):
            id = document.id
            if encoded is not None:
                is_cut = self._writer.put(id, digests[id], encoded.rows, encoded.truncated)
                self._counts["changed" if id in stored else "new"] += 1
                self._counts["truncated"] += int(is_cut)
                continue
            self._counts["blank"] += 1
            if id in stored:
                self._writer.remove([id])
        self._writer.commit()
        self._seconds += time.perf_counter() - start

    def report(self, removed: int) -> CacheReport:
        """Counts, after everything is committed."""
        return CacheReport(
            len(self._writer),
            removed=removed,
            bytes=self._writer.used_bytes(),
            seconds=self._seconds,
            **self._counts,
        )
