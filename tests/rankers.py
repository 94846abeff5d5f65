"""Rankers whose scores are known, for tests of what ranks with them."""

import numpy as np

from wqa.inference import Capabilities, Cost, Ranker, Ranking
from wqa.inference.dropping import FREE


def ranking_of(scores, cost=FREE, exits=1, truncated=None):
    """A ranking by the scores of one stage; minus infinity is that of a blank candidate."""
    scores = np.array(scores, dtype=float)
    blank = np.isneginf(scores)
    if truncated is None:
        truncated = np.zeros(len(scores), dtype=bool)
    order = np.argsort(-scores, kind="stable")
    stages = np.where(blank, np.nan, scores)[None]
    return Ranking(order, scores, np.where(blank, 0, exits), truncated, blank, cost, stages)


class Table(Ranker):
    """Scores by candidate text; a text without a score is blank, and the text "long" is shortened.

    It runs ``layers`` of ``depth`` for each candidate of 5 tokens, 6 with padding.
    """

    def __init__(self, scores, layers=0, depth=0):
        self._scores, self._layers, self._depth = scores, layers, depth
        self.ranked = []

    @property
    def capabilities(self):
        return Capabilities("table", num_layers=self._depth)

    def rank_all(self, questions):
        for question in questions:
            self.ranked.append(question.texts)
            scores = [self._scores.get(text, -np.inf) for text in question.texts]
            count = len(scores) - scores.count(-np.inf)
            work, full = self._layers * count, self._depth * count
            cost = Cost(work / full if full else 0, work, full, 5 * work, 6 * work, 5 * full)
            truncated = np.array([text == "long" for text in question.texts])
            yield ranking_of(scores, cost, self._layers, truncated)
