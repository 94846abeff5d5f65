"""Encoding of documents as a job: partitions of whole chunks, merged into one cache.

The chunks are those of one process that encodes all documents, so that the merged cache holds the
same encodings, to the bit, as a new one of `wqa.systems.encode.encode_documents`.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, ClassVar, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

import numpy as np

from wqa.cache.cache_index import (
    INDEX,
    EntryFormat,
    PackedDocument,
    pack_document,
    refuse_other_files,
)
from wqa.cache.document_cache import text_digest
from wqa.cache.document_cache_writer import (
    PARTITION_TOKENS,
    DocumentCacheWriter,
    chunk_settings,
    document_chunks,
    document_partitions,
)
from wqa.cluster.job import Job, PartitionRunner, Wording
from wqa.cluster.partition_files import NAME, Content, Layout, Manifest
from wqa.config import EngineConfig
from wqa.data.digests import ranker_digest
from wqa.data.documents import (
    LONGEST_DOCUMENT,
    Document,
    parse_document,
    read_placed_documents,
)
from wqa.data.partitions import Partition, PartitionReader
from wqa.errors import DataError, StorageError, check_choice
from wqa.io.files import sha256
from wqa.io.locks import has_locks
from wqa.systems.encode import CacheReport, check_cached, remove_from
from wqa.systems.scores import machine_settings
from wqa.systems.text_encoder import (
    TextEncoder,
    cache_settings,
    check_cache_options,
    load_document_inputs,
    load_identity,
    load_text_encoder,
)

#: Settings of a job that are none of the cache.
_JOB_SETTINGS = ("documents_sha256", "run_sha256", "partition_tokens", "prune")
_DIGEST_BYTES = len(text_digest(""))


@dataclasses.dataclass(frozen=True)
class EncodingJob(Job):
    """Encodings of a file of documents by a run, for a document cache.

    Parameters
    ----------
    run : str
        Run directory of a system that encodes documents by themselves.
    data : str
        Documents, JSONL, plain or ``.gz``.
    out : str
        Folder of the cache. Documents that an older cache of the same settings holds stay in it;
        those of the file are added, or replaced if their text has changed.
    partition_tokens
        As `Job` takes it.
    options : dict
        Fields of `EngineConfig`: ``engine``, ``precision`` (float32 or bfloat16), ``threads`` and
        ``ctx``.
    store : {"float16", "bfloat16", "float32", "int8"}
        Element type of the cache.
    first_tokens : int
        Number of rows of each document to keep, from the first on; 0 for all.
    prune : bool
        Remove documents from the cache that are not in the file.

    Raises
    ------
    OptionError
        If a value is out of range, or ``options`` has another key.
    """

    partition_tokens: int = PARTITION_TOKENS
    store: str = "float16"
    first_tokens: int = 0
    prune: bool = False

    wording: ClassVar[Wording] = Wording("encode", "encoding", "encoded", "document", "encodings")
    layout: ClassVar[Layout] = Layout(
        {
            "ids": np.dtype("u1"),  # JSON
            "digests": np.dtype("u1"),  # of the texts, one after another
            "rows": np.dtype("<u4"),  # 0 for a document without a token
            "truncated": np.dtype("u1"),
            "entries": np.dtype("u1"),  # as the cache holds them, one after another
        },
        ("documents",),
    )
    optional_settings: ClassVar[Tuple[str, ...]] = ("partition_tokens", "prune")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cache_options(self.store, self.first_tokens)
        names = [field.name for field in dataclasses.fields(EngineConfig)]
        for name in self.options:
            check_choice("options", name, names)

    @property
    def engine(self) -> EngineConfig:
        """Engine that encodes the documents."""
        return EngineConfig(**self.options)

    def settings(self) -> Dict[str, Any]:
        """What the encodings depend on: digests and options."""
        try:
            digest = sha256(self.data)
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
            raise DataError(self.data, problem, "a file", "check the path") from None
        settings = {
            "documents_sha256": digest,
            "run_sha256": ranker_digest(self.run),
            "precision": self.options.get("precision", "float32"),
            "store": self.store,
            "tokens": self.first_tokens,
        }
        if self.partition_tokens != PARTITION_TOKENS:
            settings["partition_tokens"] = self.partition_tokens
        if self.prune:
            settings["prune"] = True
        return settings

    def load(self) -> PartitionEncoder:
        """Load the encoder of documents."""
        return PartitionEncoder(self)

    def settings_of(self, encoder: TextEncoder) -> Dict[str, Any]:
        """Settings of the cache.

        Parameters
        ----------
        encoder : TextEncoder
            Encoder of the documents.

        Returns
        -------
        dict of str to Any
        """
        return cache_settings(encoder, self.engine.precision, self.store, self.first_tokens)

    def finished(self, made_with: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """Counts of a cache that holds all documents; None where it does not, or may not yet.

        While there is a manifest, the partitions are not merged, or not removed.
        """
        out = pathlib.Path(self.out)
        refuse_other_files(out)
        if (self.folder / NAME).is_file() or not (out / INDEX).is_file():
            return None
        settings = _cache_settings(made_with)
        if "encoder_sha256" not in settings:  # this process has not loaded the run
            settings.update(load_identity(self.run))
        report = check_cached(load_document_inputs(self.run), settings, self.data, out)
        if report is None or self.prune and report.documents > report.unchanged:
            return None
        return report._asdict()

    def unpack(self, content: Content, partition: Partition) -> List[PackedDocument]:
        """Take the documents of a partition from the content of its file."""
        arrays = content.arrays
        ids = json.loads(arrays["ids"].tobytes())
        rows, truncated = arrays["rows"].tolist(), arrays["truncated"].tolist()
        lengths = {len(ids), len(rows), len(truncated), content.counts["documents"]}
        if lengths != {partition.records}:
            raise ValueError("counts other documents")
        total = sum(rows)
        size = len(arrays["entries"]) // total if total else 0
        if len(arrays["digests"]) != len(ids) * _DIGEST_BYTES:
            raise ValueError("has digests of other documents")
        if len(arrays["entries"]) != size * total:
            raise ValueError("has entries of other lengths")
        digests = arrays["digests"].reshape(len(ids), _DIGEST_BYTES)
        ends = np.cumsum(arrays["rows"], dtype=np.int64) * size
        entries = np.split(arrays["entries"], ends[:-1])
        documents = []
        for id, digest, entry, count, cut in zip(ids, digests, entries, rows, truncated):
            documents.append(PackedDocument(id, digest.tobytes(), entry, count, bool(cut)))
        return documents

    def merge(self, manifest: Manifest, parts: Iterable[List[PackedDocument]]) -> Dict[str, Any]:
        """Write the documents to the cache that it lacks; the fields of a `CacheReport`.

        Several processes that write a cache at once would damage it: without locks, none does.
        """
        if not has_locks(self.out):
            raise StorageError(
                self.out,
                "its file system has no locks",
                "one with locks, as several processes may merge at once",
                f"copy {self.folder} to a local disk, then merge it there",
            )
        settings = _cache_settings(manifest.made_with)
        counts = dict.fromkeys(("new", "changed", "unchanged", "truncated", "blank"), 0)
        ids: Set[str] = set()
        with DocumentCacheWriter(self.out, settings) as writer:
            for part in parts:
                _add(writer, part, counts)
                if self.prune:
                    ids.update(document.id for document in part)
            removed = 0
            if self.prune:
                removed = remove_from(writer, set(writer.ids()) - ids)
            writer.compact()
            size = writer.used_bytes()
            return CacheReport(len(writer), removed=removed, bytes=size, **counts)._asdict()


def _cache_settings(made_with: Mapping[str, Any]) -> Dict[str, Any]:
    """Settings of the cache among those of a manifest."""
    return {name: value for name, value in made_with.items() if name not in _JOB_SETTINGS}


def _add(
    writer: DocumentCacheWriter, documents: List[PackedDocument], counts: Dict[str, int]
) -> None:
    """Add the documents of a partition that a cache lacks, and count them."""
    stored = writer.stored_digests([document.id for document in documents])
    before = counts["unchanged"]
    for document in documents:
        if not document.rows:
            counts["blank"] += 1
            writer.remove([document.id])
        elif stored.get(document.id) == document.digest:
            counts["unchanged"] += 1
        else:
            writer.put_packed(document)
            counts["changed" if document.id in stored else "new"] += 1
            counts["truncated"] += int(document.truncated)
    if counts["unchanged"] - before < len(documents):
        writer.commit()


class PartitionEncoder(PartitionRunner):
    """Encodes partitions of a job by the run's encoder of documents, which it loads.

    Parameters
    ----------
    job : EncodingJob
        The job.

    Raises
    ------
    WqaError
        If the run or the documents cannot be read.
    """

    job: EncodingJob

    def __init__(self, job: EncodingJob) -> None:
        self._encoder = load_text_encoder(job.run, job.engine)
        settings = job.settings_of(self._encoder)
        made_with = {**job.settings(), **settings}
        computed_by = {**machine_settings(job.options), **chunk_settings()}
        reader = PartitionReader(job.data, parse_document, LONGEST_DOCUMENT)
        super().__init__(job, made_with, computed_by, reader)
        self._format = EntryFormat(settings["units"], job.store)

    def divide(self) -> Iterator[Partition]:
        """Divide the documents into partitions of whole chunks."""
        return document_partitions(read_placed_documents(self.job.data), self.job.partition_tokens)

    def content(self, partition: Partition) -> Content:
        """Encode a partition."""
        documents: List[Document] = self.reader.read(partition)
        if len(documents) != partition.read:
            self.refuse(partition, f"{len(documents)} documents", str(partition.read))
        packed: List[PackedDocument] = []
        for chunk, _ in document_chunks((document, 0) for document in documents):
            texts = [document.full_text for document in chunk]
            for document, text, encoded in zip(chunk, texts, self._encoder.encode(texts)):
                id, digest, kept = document.id, text_digest(text), self.job.first_tokens
                if encoded is None:
                    packed.append(PackedDocument(id, digest, np.zeros(0, np.uint8), 0, False))
                    continue
                rows, cut = encoded.rows, encoded.truncated
                packed.append(pack_document(self._format, kept, id, digest, rows, cut))
        return _content(packed)


def _content(documents: List[PackedDocument]) -> Content:
    ids = json.dumps([document.id for document in documents], ensure_ascii=False)
    rows = [document.rows for document in documents]
    truncated = [int(document.truncated) for document in documents]
    arrays = {
        "ids": np.frombuffer(ids.encode("utf-8"), np.uint8),
        "digests": np.frombuffer(b"".join(document.digest for document in documents), np.uint8),
        "rows": np.array(rows, "<u4"),
        "truncated": np.array(truncated, np.uint8),
        "entries": np.concatenate([document.content for document in documents]),
    }
    return Content(arrays, {"documents": len(rows)})
