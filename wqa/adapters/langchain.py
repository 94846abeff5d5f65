"""LangChain's compressor of documents by a ranker, and retriever of a collection's sentences."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from wqa.errors import not_installed
from wqa.inference import Ranker
from wqa.inference.pipeline import Pipeline

try:
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import ConfigDict, Field
except ImportError:
    raise not_installed("langchain_core", "langchain-core", "langchain") from None


class Reranker(BaseDocumentCompressor):
    """Ranks documents by how well they answer a query.

    Attributes
    ----------
    ranker : Ranker
        The ranker, with its drop ratio.
    top_n : int, optional
        Number of documents to return; by default all.
    """

    ranker: Ranker
    top_n: Optional[int] = Field(default=None, ge=1)

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> List[Document]:
        """Rank documents.

        Parameters
        ----------
        documents : sequence of langchain_core.documents.Document
            Documents, which are not changed.
        query : str
            The question.
        callbacks : Any, optional
            LangChain's callbacks; none is called.

        Returns
        -------
        list of langchain_core.documents.Document
            Copies, best first, with ``relevance_score`` in their metadata: the relevance, in
            [0, 1], which falls along the ranking.

        Raises
        ------
        InputError
            If the query is empty, or too long and not truncated.
        """
        if not documents:
            return []
        texts = [document.page_content for document in documents]
        ranking = self.ranker.rank(query, texts, top_k=self.top_n)
        ranked = []
        for index in ranking.order:
            score = float(ranking.relevance[index])
            metadata = {**documents[index].metadata, "relevance_score": score}
            ranked.append(documents[index].model_copy(update={"metadata": metadata}))
        return ranked


class SentenceRetriever(BaseRetriever):
    """Retrieves the sentences of a collection that answer a query best.

    Attributes
    ----------
    pipeline : wqa.inference.pipeline.Pipeline
        An index with sentences, and a ranker.
    top_n : int
        Number of sentences.
    """

    pipeline: Pipeline
    top_n: int = Field(default=5, ge=1)

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def _get_relevant_documents(self, query: str, *, run_manager: Any = None) -> List[Document]:
        """The sentences, best first, with what `Pipeline.ask` knows of each in their metadata."""
        answers = self.pipeline.ask(query)
        return [
            Document(page_content=text, metadata=metadata)
            for text, metadata in answers.records(self.top_n)
        ]
