"""LlamaIndex's postprocessor of nodes by a ranker, and retriever of a collection's sentences."""

from __future__ import annotations

from typing import List, Optional

from wqa.errors import InputError, check_range, not_installed
from wqa.inference import Ranker
from wqa.inference.pipeline import Pipeline

try:
    from llama_index.core.bridge.pydantic import Field
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError:
    raise not_installed("llama_index.core", "llama-index-core", "llamaindex") from None


class Reranker(BaseNodePostprocessor):
    """Ranks nodes by how well their texts, without their metadata, answer a query.

    Attributes
    ----------
    ranker : Ranker
        The ranker, with its drop ratio.
    top_n : int, optional
        Number of nodes to return; by default all.
    """

    ranker: Ranker = Field(exclude=True)
    top_n: Optional[int] = Field(default=None, ge=1)

    @classmethod
    def class_name(cls) -> str:
        """Name of the class in LlamaIndex's records."""
        return "WqaReranker"

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        """Rank nodes; their scores become the relevance, in [0, 1], which falls along the ranking.

        The nodes themselves are shared with the input, their old scores stay there.
        """
        if query_bundle is None:
            raise InputError("query_bundle", "there is none", "the question, as query_str")
        if not nodes:
            return []
        texts = [node.get_content() for node in nodes]
        ranking = self.ranker.rank(query_bundle.query_str, texts, top_k=self.top_n)
        return [
            NodeWithScore(node=nodes[index].node, score=float(ranking.relevance[index]))
            for index in ranking.order
        ]


class SentenceRetriever(BaseRetriever):
    """Retrieves the sentences of a collection that answer a query best.

    Parameters
    ----------
    pipeline : wqa.inference.pipeline.Pipeline
        An index with sentences, and a ranker.
    top_n : int
        Number of sentences.

    Raises
    ------
    OptionError
        If ``top_n`` is below 1.
    """

    def __init__(self, pipeline: Pipeline, top_n: int = 5) -> None:
        super().__init__()
        check_range("top_n", top_n, 1)
        self._pipeline, self._top_n = pipeline, top_n

    def _retrieve(self, query_bundle: QueryBundle) -> List[NodeWithScore]:
        """The sentences, best first, with what `Pipeline.ask` knows of each in their metadata."""
        nodes = []
        for text, metadata in self._pipeline.ask(query_bundle.query_str).records(self._top_n):
            score = metadata.pop("relevance_score")
            nodes.append(NodeWithScore(node=TextNode(text=text, metadata=metadata), score=score))
        return nodes
