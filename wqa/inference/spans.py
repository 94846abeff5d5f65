"""Decoding of spans: the best texts of documents by the logits of their tokens' starts and ends."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Set

import numpy as np

from wqa.text import Located, Window


class Answer(NamedTuple):
    """A text that a reader takes for an answer.

    Attributes
    ----------
    text : str
        The answer, as it stands in its document.
    score : float
        Logit of its start plus that of its end; higher is better. Scores of the spans of all
        documents of a question compare.
    document : int
        Index of its document.
    start, end : int
        First character of the answer in the document, and the one behind its last.
    """

    text: str
    score: float
    document: int
    start: int
    end: int


def span_scores(starts: np.ndarray, ends: np.ndarray, most_tokens: int) -> np.ndarray:
    """Score all spans of neighbouring tokens.

    Parameters
    ----------
    starts, ends : numpy.ndarray
        (n,) logits of each token as the start, and as the end, of the answer.
    most_tokens : int
        Most tokens of a span.

    Returns
    -------
    numpy.ndarray
        (n, most_tokens) float64: in row i and column d the score of the span from token i to
        i + d; minus infinity where there is no such token.
    """
    padded = np.concatenate([ends.astype(np.float64), np.full(most_tokens, -np.inf)])
    last = np.arange(len(starts))[:, None] + np.arange(most_tokens)  # (n, most_tokens)
    return starts.astype(np.float64)[:, None] + padded[last]


def decode_spans(
    texts: Sequence[str],
    documents: Sequence[Located],
    windows: Sequence[Window],
    logits: Sequence[np.ndarray],
    most_tokens: int = 30,
    n_best: int = 1,
) -> List[Answer]:
    """Find the best spans of the documents of a question.

    Parameters
    ----------
    texts : sequence of str
        Texts of the documents.
    documents : sequence of Located
        Their tokens.
    windows : sequence of Window
        Windows of the documents, in their order.
    logits : sequence of numpy.ndarray
        (n, 2) logits of the n tokens of each window, as the start and as the end.
    most_tokens : int
        Most tokens of an answer.
    n_best : int
        Most answers to return.

    Returns
    -------
    list of Answer
        Answers of different texts, best first. A text that occurs several times has its best score
        and that occurrence. Of equal scores the earlier document, then the earlier start and the
        earlier end come first.
    """
    tables = [np.zeros(0)]
    for window, window_logits in zip(windows, logits):
        document = documents[window.document]
        part = slice(window.start, window.end)
        # A token of white space alone, as SentencePiece has, neither starts nor ends an answer.
        blank = document.ends[part] == document.starts[part]
        masked = np.where(blank[:, None], -np.inf, window_logits)
        tables.append(span_scores(masked[:, 0], masked[:, 1], most_tokens).ravel())
    scores = np.concatenate(tables)
    offsets = np.cumsum([len(table) for table in tables[1:]])

    def answer(index: int) -> Answer:
        number = int(np.searchsorted(offsets, index, side="right"))
        window, table = windows[number], tables[number + 1]
        row, length = divmod(index - int(offsets[number]) + len(table), most_tokens)
        document = documents[window.document]
        start = int(document.starts[window.start + row])
        end = int(document.ends[window.start + row + length])
        text = texts[window.document][start:end]
        return Answer(text, float(scores[index]), window.document, start, end)

    found = np.flatnonzero(np.isfinite(scores))
    count = min(4 * n_best, len(found))
    while count:
        # All spans down to the count-th best score, ties included.
        least = np.partition(scores[found], -count)[-count]
        chosen = found[scores[found] >= least]
        answers = _distinct([answer(index) for index in chosen[_order(scores[chosen])]], n_best)
        if len(answers) == n_best or count == len(found):
            return answers
        count = min(4 * count, len(found))
    return []


def _order(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-scores, kind="stable")


def _distinct(answers: Sequence[Answer], most: int) -> List[Answer]:
    """The first answers of different texts."""
    texts: Set[str] = set()
    distinct: List[Answer] = []
    for answer in answers:
        if answer.text not in texts and len(distinct) < most:
            texts.add(answer.text)
            distinct.append(answer)
    return distinct
