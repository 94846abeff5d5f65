"""Encodings of a file of documents by a run, for a document cache.

The documents are encoded in parts that depend on the file alone (`wqa.data.parts`), in one process
or many. Memory holds the texts and encodings of one part, and the keys of all documents.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any, ClassVar, Dict, Iterator, List, Mapping, Optional, Tuple, Union

import numpy as np

from wqa.config import EngineConfig
from wqa.data.digests import ranker_digest
from wqa.data.documents import Document, parse_document, read_documents
from wqa.data.folders import collection_digest
from wqa.data.partitions import CHARACTERS, Partition, PartitionReader, partitions_of
from wqa.data.parts import Arrays, PartTask, run_whole
from wqa.errors import check_choice, check_range
from wqa.inference.document_cache import (
    STORES,
    cache_output,
    document_key,
    pack_documents,
    write_cache,
)
from wqa.io.arrays import Output
from wqa.io.files import PathLike
from wqa.io.lines import LONGEST_LINE
from wqa.io.progress import StopRequest
from wqa.systems.scores import machine_settings
from wqa.systems.text_encoder import TextEncoder, load_text_encoder

#: Estimated tokens of a part. Its file has two bytes for each unit of each token in float16: 100 MB
#: at BERT-base's width.
PARTITION_TOKENS = 1 << 16
#: Special tokens of a document.
_SPECIAL = 2


@dataclasses.dataclass
class EncodingTask(PartTask):
    """Encodings of a file of documents by a run, for a document cache.

    Parameters
    ----------
    run : str
        Run directory of a system that encodes documents by themselves, or an encoder.
    data : str
        Documents, as `wqa.data.documents.read_documents` reads them.
    out : str
        Folder of the cache.
    partition_tokens : int
        Most estimated tokens of a part.
    store : {"float16", "float32", "int8"}
        Element type of the cache. int8 has a scale for each row.
    first_tokens : int
        Number of rows of each document to keep, from the first on; 0 for all.
    engine : EngineConfig
        Engine, precision (float32 or bfloat16), device and threads.

    Raises
    ------
    OptionError
        If a value is out of range.
    """

    run: str
    data: str
    out: str
    partition_tokens: int = PARTITION_TOKENS
    store: str = "float16"
    first_tokens: int = 0
    engine: EngineConfig = dataclasses.field(default_factory=EngineConfig)

    verb: ClassVar[str] = "encode"
    unit: ClassVar[str] = "document"

    def __post_init__(self) -> None:
        check_range("partition_tokens", self.partition_tokens, 1)
        check_choice("store", self.store, STORES)
        check_range("first_tokens", self.first_tokens, 0)

    @functools.cached_property
    def encoder(self) -> TextEncoder:
        """The encoder, which is loaded when it is first used."""
        return load_text_encoder(self.run, self.engine)

    @functools.cached_property
    def _reader(self) -> PartitionReader:
        return PartitionReader(self.data, parse_document, LONGEST_LINE, read_documents)

    @functools.cached_property
    def settings(self) -> Dict[str, Any]:
        """What the encodings depend on: digests and options."""
        return {
            "documents_sha256": collection_digest(self.data),
            "run_sha256": ranker_digest(self.run),
            "precision": self.engine.precision,
            "store": self.store,
            "tokens": self.first_tokens,
            "partition_tokens": self.partition_tokens,
        }

    def loaded_settings(self) -> Dict[str, Any]:
        """Digests of the encoder and its tokenizer, and the length limit."""
        return self.encoder.identity

    def machine_settings(self) -> Dict[str, Any]:
        """Engine, threads and versions of libraries."""
        return machine_settings(dataclasses.asdict(self.engine))

    def on_device(self, device: str) -> EncodingTask:
        """The same work on another device."""
        return dataclasses.replace(self, engine=dataclasses.replace(self.engine, ctx=device))

    def divide(self) -> Iterator[Partition]:
        """Divide the documents."""
        self.encoder  # noqa: B018 - a run that encodes no documents is an error before the file is read
        divided = partitions_of(read_documents(self.data), _size, self.partition_tokens)
        return (partition for partition, _ in divided)

    def compute(self, partition: Partition) -> Arrays:
        """Encode a part."""
        documents: List[Document] = self._reader.read(partition)
        texts = [document.full_text for document in documents]
        rows, is_cut = self.encoder.encode(texts)
        ids = [document.id for document in documents]
        arrays = pack_documents(ids, rows, self.store, self.first_tokens)
        keys = b"".join(map(document_key, ids, texts))
        arrays["keys"] = np.frombuffer(keys, "<u8")
        shorter = [len(text) > count for text, count in zip(rows, arrays["lengths"])]
        arrays["truncated"] = np.logical_or(is_cut, shorter).astype(np.uint8)
        return arrays

    def destination(self) -> Output:
        """The folder of the cache."""
        return cache_output(self.out)

    def merge(self, settings: Mapping[str, Any], parts: Iterator[Arrays]) -> None:
        """Write the cache."""
        write_cache(self.out, settings, parts)


def _size(document: Document) -> Tuple[int, int]:
    """One text, and its estimated tokens."""
    return 1, _SPECIAL + len(document.full_text) // CHARACTERS


def encode_documents(
    run: Union[str, os.PathLike[str]],
    documents: PathLike,
    out: PathLike,
    store: str = "float16",
    first_tokens: int = 0,
    progress: bool = False,
    stop: Optional[StopRequest] = None,
    engine: Optional[EngineConfig] = None,
) -> Dict[str, Any]:
    """Encode the documents of a file for a document cache.

    A command that was stopped is continued.

    Parameters
    ----------
    run : str or path-like
        Run directory of a system that encodes documents by themselves, or an encoder.
    documents : str or path-like
        Documents, JSONL, as `wqa.data.documents.read_documents` reads them.
    out : str or path-like
        Folder to make. A whole cache of the same run, documents and options is kept as it is; any
        other content is refused.
    store : {"float16", "float32", "int8"}
        Element type of the cache. int8 has a scale for each row.
    first_tokens : int
        Number of rows of each document to keep, from the first on; 0 for all.
    progress : bool
        Show a bar on standard error.
    stop : StopRequest, optional
        Once it holds a signal, the work ends after the current part.
    engine : EngineConfig, optional
        Engine, precision (float32 or bfloat16), device and threads.

    Returns
    -------
    dict
        ``meta.json`` of the folder: ``documents``, ``truncated``, ``blank`` (documents without a
        token, which are left out), and more.

    Raises
    ------
    Stopped
        If a signal has stopped the work. What is computed stays.
    WqaError
        If the run or the documents cannot be read, or ``out`` is another cache, cannot be written,
        or another process writes it.
    """
    task = EncodingTask(str(run), str(documents), str(out), store=store, first_tokens=first_tokens)
    task.engine = engine or task.engine
    return run_whole(task, progress, stop)
