"""Documents of questions looked up in a document cache, and counted."""

from __future__ import annotations

import threading
from typing import Any, List, Mapping, Optional, Sequence, Union

from wqa.cache.document_cache import CachedDocument, DocumentCache, open_cache, text_digest
from wqa.data.records import Candidate
from wqa.io.files import PathLike


class CachedDocuments:
    """A document cache that counts what is looked up in it. Several threads may use it.

    Parameters
    ----------
    path : str or path-like
        Folder of the cache, which is opened by `open`.

    Attributes
    ----------
    path : str or path-like
        The folder.
    documents : int
        Number of documents that were looked up.
    missing : int
        Number of those that were not in the cache, or with another text.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = path
        self._cache: Optional[DocumentCache] = None
        self._counting = threading.Lock()
        self.documents = self.missing = 0

    @classmethod
    def of(cls, cache: Union[PathLike, CachedDocuments]) -> CachedDocuments:
        """The same object, or a new one for a path.

        Parameters
        ----------
        cache : str, path-like or CachedDocuments
            A cache.

        Returns
        -------
        CachedDocuments
        """
        return cache if isinstance(cache, cls) else cls(cache)  # type: ignore[arg-type]

    def open(self, made_with: Mapping[str, Any]) -> None:
        """Open the cache, and check what its encodings were computed with.

        Parameters
        ----------
        made_with : dict
            As `wqa.cache.document_cache.open_cache` takes it.

        Raises
        ------
        DataError
            If there is no whole cache, or its encodings were computed with something else.
        """
        self._cache = open_cache(self.path, made_with)

    @property
    def tokens(self) -> int:
        """Greatest number of rows of an entry; 0 for all rows of a document."""
        assert self._cache is not None
        return self._cache.tokens

    def get(
        self, candidates: Sequence[Candidate], tokens: Optional[int] = None
    ) -> List[Optional[CachedDocument]]:
        """Encodings of candidates.

        Parameters
        ----------
        candidates : sequence of Candidate
            Documents, by id and text. One without an id is not in the cache.
        tokens : int, optional
            Number of rows to read of each, from the first on; by default all.

        Returns
        -------
        list of CachedDocument or None
            As `wqa.cache.document_cache.DocumentCache.find_many` returns them.

        Raises
        ------
        DataError
            If the cache is damaged.
        """
        assert self._cache is not None
        ids = [candidate.id for candidate in candidates]
        digests = [text_digest(candidate.text) for candidate in candidates]
        documents = self._cache.find_many(ids, digests, tokens)
        self.count(len(documents), documents.count(None))
        return documents

    def count(self, documents: int, missing: int) -> None:
        """Count documents that were looked up.

        Parameters
        ----------
        documents, missing : int
            Number of all, and of those that were not in the cache.
        """
        with self._counting:
            self.documents += documents
            self.missing += missing
