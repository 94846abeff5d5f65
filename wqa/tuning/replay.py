"""Rankings of parts of the candidates, replayed from rankings of all of them."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.inference.cost import Cost
from wqa.inference.ranker import Capabilities, Ranker
from wqa.inference.ranking import Ranking

#: A question and the document ids of its candidates.
_Key = Tuple[str, Tuple[str, ...]]


class ReplayedRanker(Ranker):
    """A ranker that scores questions once, and replays the scores for some of their candidates.

    Where the score of a candidate depends on the others, as in a ranker that reads them together or
    drops some of them, parts are ranked anew, each part once.
    """

    def __init__(self, ranker: Ranker, questions: Sequence[Question]) -> None:
        self._ranker = ranker
        self._replays = not depends_on_others(ranker)
        self._questions = {question.id: question for question in questions}
        self._rankings: Dict[_Key, Ranking] = {}

    @property
    def capabilities(self) -> Capabilities:
        """Those of the ranker."""
        return self._ranker.capabilities

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        group = list(questions)
        if self._replays:
            self._rank(self._questions[question.id] for question in group)
        else:
            self._rank(group)
        for question in group:
            key = _key_of(question)
            if key not in self._rankings:
                self._rankings[key] = self._part(question)
            yield self._rankings[key]

    def _rank(self, questions: Iterable[Question]) -> None:
        """Rank those questions that have not been ranked."""
        missing = [question for question in questions if _key_of(question) not in self._rankings]
        rankings = list(self._ranker.rank_all(missing))
        for question, ranking in zip(missing, rankings):
            self._rankings[_key_of(question)] = ranking

    def _part(self, question: Question) -> Ranking:
        """Ranking of some candidates of a question whose ranking is known."""
        whole = self._questions[question.id]
        index = {key: number for number, key in enumerate(whole.document_ids)}
        part = np.array([index[key] for key in question.document_ids], dtype=int)
        ranking = self._rankings[_key_of(whole)]
        scored = np.count_nonzero(~ranking.blank)
        blank = ranking.blank[part]
        share = np.count_nonzero(~blank) / scored if scored else 0.0
        scores = ranking.scores[part]
        return Ranking(
            order=np.argsort(-scores, kind="stable"),
            scores=scores,
            exits=ranking.exits[part],
            truncated=ranking.truncated[part],
            blank=blank,
            cost=_share_of(ranking.cost, share),
            exit_scores=ranking.exit_scores[:, part],
            probabilities=ranking.probabilities[part],
            threshold=ranking.threshold,
        )


def depends_on_others(ranker: Ranker) -> bool:
    """Whether a ranker's score of a candidate depends on the others of its question."""
    capabilities = ranker.capabilities
    own = capabilities.joint or any(drop.discards for drop in ranker.drops)
    return own or any(map(depends_on_others, capabilities.rankers))


def _key_of(question: Question) -> _Key:
    return question.id, question.document_ids


def _share_of(cost: Cost, share: float) -> Cost:
    """Cost of a share of the candidates, each of which counts alike."""
    return Cost(cost.paper, *(share * part for part in cost[1:]))
