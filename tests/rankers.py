"""Rankers whose scores are known, for tests of what ranks with them."""

import dataclasses

import numpy as np

from wqa.inference import Capabilities, Cost, Ranker, ranking
from wqa.inference.calibrated import Calibration
from wqa.inference.dropping import FREE


def ranking_of(stages, cost=FREE, exits=None, **fields):
    """A ranking by scores after one stage, or after each of several.

    NaN or minus infinity stand where a candidate was not scored; one without a score is blank.
    """
    stages = np.array(stages, dtype=float, ndmin=2)
    stages[np.isneginf(stages)] = np.nan
    fields.setdefault("truncated", np.zeros(stages.shape[1], dtype=bool))
    layers = exits or range(1, len(stages) + 1)
    made = ranking.ranking_of(stages, layers, fields["truncated"], cost, Calibration())
    return dataclasses.replace(made, **fields)


def cascade_ranking(scores, drops, exits, **fields):
    """A cascade's ranking of candidates by their scores at every exit, one row an exit.

    A candidate whose scores are NaN is blank.
    """
    seen = np.full(scores.shape, np.nan)
    left = np.flatnonzero(~np.isnan(scores[0]))
    work, full = 0, exits[-1] * len(left)
    for stage, drop in enumerate(drops):
        seen[stage, left] = scores[stage, left]
        work += (exits[stage] - (0, *exits)[stage]) * len(left)
        best = left[np.lexsort((left, -scores[stage, left]))]
        left = best[: drop.kept(len(left))]
    cost = Cost(work / full if full else 0, work, full, 10 * work, 10 * full)
    return ranking_of(seen, cost, exits, **fields)


class Table(Ranker):
    """Scores by candidate text; a text without a score is blank, and the text "long" is shortened.

    It runs ``layers`` of ``depth`` for each candidate of 5 tokens.
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
            cost = Cost(work / full if full else 0, work, full, 5 * work, 5 * full)
            truncated = np.array([text == "long" for text in question.texts])
            yield ranking_of(scores, cost, (self._layers,), truncated=truncated)
