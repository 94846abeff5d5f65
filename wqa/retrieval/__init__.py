"""Retrieval of documents for questions: indexes, search, distant labels. Nothing here needs MXNet.

TF-IDF in DrQA's manner (Chen et al. 2017) and BM25. `build_index` writes an index, `Index` searches
in it, `retrieve` gives questions their candidates.
"""

from wqa.retrieval.collection import build_index, open_collection, retrieve, write_retrieved
from wqa.retrieval.index import Hit, Index
from wqa.retrieval.methods import BM25, TFIDF, contains_answer

__all__ = [
    "BM25",
    "Hit",
    "Index",
    "TFIDF",
    "build_index",
    "contains_answer",
    "open_collection",
    "retrieve",
    "write_retrieved",
]
