"""A ranker as a PyTerrier transformer. It starts no Java machine."""

from __future__ import annotations

import numpy as np

from wqa.data import Candidate, Question
from wqa.errors import DataError, not_installed, shorten
from wqa.inference import Ranker

try:
    import pandas as pd
    import pyterrier as pt
except ImportError:
    raise not_installed("pyterrier", "python-terrier 0.11 or newer", "pyterrier") from None


class Reranker(pt.Transformer):
    """Ranks the documents of each query anew.

    Parameters
    ----------
    ranker : Ranker
        The ranker, with its drop ratio.
    text_field : str
        Column with the texts of the documents.
    """

    def __init__(self, ranker: Ranker, text_field: str = "text") -> None:
        self.ranker = ranker
        self.text_field = text_field

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Rank the documents of each query.

        Parameters
        ----------
        inp : pandas.DataFrame
            Columns ``qid``, ``query``, ``docno`` and the column of texts. A column ``rank`` gives
            the order of retrieval, without it the order of the rows does.

        Returns
        -------
        pandas.DataFrame
            The same rows, those of a query best first. ``score`` is the relevance, in [0, 1], which
            falls along the ranking; ``rank`` counts from 0. Other columns are kept.

        Raises
        ------
        pyterrier.validate.InputValidationError
            If a column is missing.
        DataError
            If a document has no text, or a query is none.
        InputError
            If a query is empty, or too long and not truncated.
        """
        pt.validate.result_frame(inp, extra_columns=["query", self.text_field])
        if inp.empty:
            return inp.assign(score=np.zeros(0), rank=np.zeros(0, dtype=int))
        groups = [group for _, group in inp.groupby("qid", sort=False, dropna=False)]
        if "rank" in inp.columns:
            groups = [group.sort_values("rank", kind="stable") for group in groups]
        rankings = self.ranker.rank_all([self._question(group) for group in groups])
        ranked = []
        for group, ranking in zip(groups, rankings):
            rank = np.arange(len(group)) + pt.model.FIRST_RANK
            score = ranking.relevance[ranking.order]
            ranked.append(group.iloc[ranking.order].assign(score=score, rank=rank))
        return pd.concat(ranked, ignore_index=True)

    def _question(self, group: pd.DataFrame) -> Question:
        """The documents of one query as a question with candidates."""
        qid = str(group["qid"].iloc[0])
        candidates = []
        for docno, text in zip(group["docno"], group[self.text_field]):
            if not isinstance(text, str):
                raise DataError(
                    f"query {shorten(qid)}, document {shorten(docno)}",
                    f"{self.text_field} is {shorten(text)}",
                    "its text",
                    "add texts before the ranker, for example by pyterrier.text.get_text",
                )
            candidates.append(Candidate(text, id=str(docno)))
        query = group["query"].iloc[0]
        if not isinstance(query, str):
            raise DataError(f"query {shorten(qid)}", f"query is {shorten(query)}", "its text")
        return Question(qid, query, tuple(candidates))
