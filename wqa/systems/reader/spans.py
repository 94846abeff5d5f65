"""Decoding of spans: the best texts of documents by the logits of their tokens' starts and ends."""

from __future__ import annotations

from typing import Iterable, Iterator, List, NamedTuple, Sequence, Set

import numpy as np

from wqa.systems.reader.inputs import Window
from wqa.text import Located


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

    Shapes: `starts, ends` (n,), the result (n, most_tokens).
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

    Shapes: `logits` (n, 2).
    """
    tables: List[np.ndarray] = []
    for window, window_logits in zip(windows, logits):
        document = documents[window.document]
        part = slice(window.start, window.end)
        # A token of white space alone, as SentencePiece has, neither starts nor ends an answer.
        blank = document.ends[part] == document.starts[part]
        masked = np.where(blank[:, None], -np.inf, window_logits)
        scores = span_scores(masked[:, 0], masked[:, 1], most_tokens)
        tables.append(scores.ravel())
    spans = _Spans(texts, documents, windows, tables, most_tokens)
    count = min(4 * n_best, len(spans.existing))
    while count:
        answers = _distinct(spans.best(count), n_best)
        if len(answers) == n_best or count == len(spans.existing):
            return answers
        count = min(4 * count, len(spans.existing))
    return []


class _Spans:
    """Spans of all windows with their scores, in the order of the windows and of their starts."""

    def __init__(
        self,
        texts: Sequence[str],
        documents: Sequence[Located],
        windows: Sequence[Window],
        tables: Sequence[np.ndarray],
        most_tokens: int,
    ) -> None:
        self._texts, self._documents, self._windows = texts, documents, windows
        self._most_tokens = most_tokens
        sizes = [len(table) for table in tables]
        self._starts = np.cumsum([0, *sizes])
        self._scores = np.concatenate([np.zeros(0), *tables])
        #: Indices of the spans that exist.
        self.existing = np.flatnonzero(np.isfinite(self._scores))

    def best(self, count: int) -> Iterator[Answer]:
        """The best spans, best first: ``count`` of them, and those that tie with the last."""
        scores = self._scores[self.existing]
        least = np.partition(scores, -count)[-count]
        chosen = self.existing[scores >= least]
        by_score = np.argsort(-self._scores[chosen], kind="stable")
        return map(self._answer, chosen[by_score].tolist())

    def _answer(self, index: int) -> Answer:
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        window = self._windows[number]
        document = self._documents[window.document]
        row, further = divmod(index - int(self._starts[number]), self._most_tokens)
        first = window.start + row
        start = int(document.starts[first])
        end = int(document.ends[first + further])
        text = self._texts[window.document][start:end]
        return Answer(text, float(self._scores[index]), window.document, start, end)


def _distinct(answers: Iterable[Answer], most: int) -> List[Answer]:
    """The first answers of different texts."""
    texts: Set[str] = set()
    distinct: List[Answer] = []
    for answer in answers:
        if answer.text in texts:
            continue
        texts.add(answer.text)
        distinct.append(answer)
        if len(distinct) == most:
            break
    return distinct
