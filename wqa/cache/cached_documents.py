"""Documents of questions looked up in a document cache, and counted."""

from __future__ import annotations

import threading
from typing import Any, List, Mapping, Optional, Sequence, Union

from wqa.cache.document_cache import CachedDocument, DocumentCache, open_cache, text_digest
from wqa.data.records import Candidate
from wqa.io.files import PathLike


class CachedDocuments:
    """A document cache that counts what is looked up in it. Several threads may use it."""

    def __init__(self, path: PathLike) -> None:
        self.path = path
        self._cache: Optional[DocumentCache] = None
        self._counting = threading.Lock()
        self.documents = self.missing = 0

    @classmethod
    def of(cls, cache: Union[PathLike, CachedDocuments]) -> CachedDocuments:
        """The same object, or a new one for a path."""
        return cache if isinstance(cache, cls) else cls(cache)  # type: ignore[arg-type]

    def open(self, made_with: Mapping[str, Any]) -> None:
        """Open the cache, and check what its encodings were computed with."""
        self._cache = open_cache(self.path, made_with)

    @property
    def tokens(self) -> int:
        """Greatest number of rows of an entry; 0 for all rows of a document."""
        assert self._cache is not None
        return self._cache.tokens

    def get(
        self, candidates: Sequence[Candidate], tokens: Optional[int] = None
    ) -> List[Optional[CachedDocument]]:
        """Encodings of candidates."""
        assert self._cache is not None
        ids = [candidate.id for candidate in candidates]
        digests = [text_digest(candidate.text) for candidate in candidates]
        documents = self._cache.find_many(ids, digests, tokens)
        self.count(len(documents), documents.count(None))
        return documents

    def count(self, documents: int, missing: int) -> None:
        """Count documents that were looked up."""
        with self._counting:
            self.documents += documents
            self.missing += missing
