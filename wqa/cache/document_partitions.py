"""Chunks of documents, which are encoded together, and partitions of whole chunks.

The chunks of a partition are those of the whole file, so that its documents have the same
encodings, to the bit, as in one process that encodes all.
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Tuple

from wqa.data.documents import Document
from wqa.data.partitions import CHARACTERS, Partition, bounded_groups

#: Most documents of a chunk, and characters after which it ends.
CHUNK_DOCUMENTS, CHUNK_CHARACTERS = 64, 1 << 18
#: Special tokens of a document.
SPECIAL = 2
#: Estimated tokens of a partition. Its file has two bytes for each unit of each token in float16:
#: 100 MB at BERT-base's width.
PARTITION_TOKENS = 1 << 16


def document_chunks(
    placed: Iterable[Tuple[Document, int]],
) -> Iterator[Tuple[List[Document], int]]:
    """Divide documents into chunks.

    The chunks after one of them do not depend on the documents before it.
    """
    chunk: List[Document] = []
    characters = end = 0
    for document, end in placed:
        chunk.append(document)
        characters += len(document.text)
        if len(chunk) == CHUNK_DOCUMENTS or characters >= CHUNK_CHARACTERS:
            yield chunk, end
            chunk, characters = [], 0
    if chunk:
        yield chunk, end


def chunk_settings() -> Dict[str, int]:
    """Sizes of chunks, on which the last bits of encodings depend."""
    return {"chunk_documents": CHUNK_DOCUMENTS, "chunk_characters": CHUNK_CHARACTERS}


def document_partitions(
    placed: Iterable[Tuple[Document, int]], limit: int = PARTITION_TOKENS
) -> Iterator[Partition]:
    """Divide documents into partitions of whole chunks."""
    start, line = 0, 1
    for sizes, tokens, end in bounded_groups(_counted(document_chunks(placed)), limit):
        count = sum(sizes)
        yield Partition(start, end, line, count, count, count, tokens)
        start, line = end, line + count


def _counted(chunks: Iterable[Tuple[List[Document], int]]) -> Iterator[Tuple[int, int, int]]:
    """Number of documents of each chunk, their estimated tokens, and the position after them."""
    for chunk, end in chunks:
        characters = sum(len(document.full_text) for document in chunk)
        yield len(chunk), SPECIAL * len(chunk) + characters // CHARACTERS, end
