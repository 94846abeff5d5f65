"""One question to a collection, by names of an index and a ranker."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Union

from wqa.inference.pipeline import Pipeline, SentenceAnswers
from wqa.inference.ranker import Ranker
from wqa.io.files import PathLike
from wqa.retrieval import open_collection
from wqa.systems.load import load_ranker


def ask(
    index: Union[PathLike, Any],
    run: Union[PathLike, Ranker],
    question: str,
    top: int = 80,
    **options: Any,
) -> SentenceAnswers:
    """Answer a question by the sentences of a collection.

    Parameters
    ----------
    index : str, path-like or wqa.retrieval.Index
        Index with sentences, its folder, or texts as `wqa.retrieval.open_collection` takes them,
        which are indexed for this question.
    run : str, path-like or Ranker
        What `load_ranker` takes, or a ranker.
    question : str
        Text of the question.
    top : int
        Documents to retrieve.
    **options
        Keywords of `load_ranker`, for a run that is not loaded yet.

    Returns
    -------
    wqa.inference.pipeline.SentenceAnswers
        Documents, and their sentences, best first. For many questions keep a
        `wqa.inference.pipeline.Pipeline`, as this opens the index and loads the run each time.

    Raises
    ------
    WqaError
        As `load_ranker`, `wqa.retrieval.open_collection` and `Pipeline.ask` raise them.
    """
    opened: Any = contextlib.nullcontext(index)
    if isinstance(index, (str, os.PathLike)):
        opened = open_collection(index)
    with opened as collection:
        ranker: Any = load_ranker(run, **options) if isinstance(run, (str, os.PathLike)) else run
        return Pipeline(collection, ranker=ranker, top=top).ask(question)
