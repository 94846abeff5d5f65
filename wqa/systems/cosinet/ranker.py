"""Ranking by networks on lists of candidates, which they read in their original order.

Pairs are encoded in micro-batches. The recurrent layer and the score follow for each list of a
group of questions, so that no list is too long for the memory.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.engines.engine import EngineTypes, LockedEngine
from wqa.inference.dropping import FREE, Cost
from wqa.inference.loop import InputsRanker, Names
from wqa.inference.ranker import Capabilities
from wqa.inference.ranking import Ranking
from wqa.systems.cosinet.inputs import WordList


class ListScores(NamedTuple):
    """Scores of a list.

    Attributes
    ----------
    scores : numpy.ndarray
        (n,) float32 scores of its pairs.
    positions : numpy.ndarray
        (n,) words of each pair, padding included.
    """

    scores: np.ndarray
    positions: np.ndarray


class ListEngine(LockedEngine):
    """Base class of engines that score lists."""

    def score(self, lists: Sequence[WordList]) -> List[ListScores]:
        """Score the candidates of lists.

        Parameters
        ----------
        lists : sequence of WordList
            At least one list, each with its candidates in their original order, at least one.

        Returns
        -------
        list of ListScores
            Scores of each list.
        """
        return self._exclusively(self._score, lists)

    def _score(self, lists: Sequence[WordList]) -> List[ListScores]:
        """`score`, while no other thread uses the engine."""
        raise NotImplementedError


class QuestionList(NamedTuple):
    """Words of a question with its candidates, and what errors call it."""

    words: WordList
    order: np.ndarray  # candidates with words, in their original order
    truncated: np.ndarray  # of all candidates, in the order in which they come
    names: Names


class ListRanker(InputsRanker):
    """Ranks by a network on lists of candidates. Its only stage drops nothing.

    The network reads the candidates in the order in which they were retrieved,
    `Question.original_order`, whatever the order in which they come. A blank candidate is not part
    of the list.

    It takes the parameters of `wqa.inference.loop.InputsRanker`; a text has words for tokens.
    """

    def __init__(self, network: Any, inputs: Any, *drops: Any, **options: Any) -> None:
        self._work = network.stage_work()[0], network.list_work()
        super().__init__(network, inputs, *drops, **options)

    engines = EngineTypes(onnxruntime="wqa.systems.cosinet.graphs.ListOnnxEngine")

    def _build_engine(self, quantized: Any) -> ListEngine:
        if self._config.engine == "onnxruntime":
            return super()._build_engine(quantized)
        from wqa.systems.cosinet.engines import build_list_engine

        return build_list_engine(self.network, self.inputs, self._config)

    @property
    def capabilities(self) -> Capabilities:
        """One stage without exits. A recurrent layer reads the candidates together."""
        return Capabilities(self._system, joint=self.network.own_config.recurrent != "none")

    def _encode(self, question: Question) -> Tuple[QuestionList, int]:
        """Tokenize a question; returns its number of words, with each candidate, too."""
        order = np.array(question.original_order)
        texts = [question.candidates[index].text for index in order]
        words, filled, truncated = self.inputs.encode_list(question.question, texts, question.id)
        by_candidate = np.empty_like(truncated)
        by_candidate[order] = truncated
        encoded = QuestionList(words, order[filled], by_candidate, Names(record=question))
        return encoded, len(words.words) + len(words.question) * len(texts)

    def _rank_group(self, group: Sequence[QuestionList]) -> List[Ranking]:
        lists = [encoded.words for encoded in group if len(encoded.order)]
        results = iter(self._engine.score(lists) if lists else ())
        rankings = []
        for encoded in group:
            scored = next(results) if len(encoded.order) else None
            rankings.append(self._ranking(encoded, scored))
        return rankings

    def _ranking(self, encoded: QuestionList, scored: Optional[ListScores]) -> Ranking:
        return self._ranking_of_stage(
            encoded.order,
            np.zeros(0) if scored is None else scored.scores,
            encoded.names,
            exits=1,
            truncated=encoded.truncated,
            cost=FREE if scored is None else self._cost(encoded, scored),
        )

    def _cost(self, encoded: QuestionList, scored: ListScores) -> Cost:
        count = len(encoded.order)
        work, list_work = self._work
        words = len(encoded.words.words) + len(encoded.words.question) * count
        of_lists = count * list_work
        multiply_adds = float(words * work + of_lists)
        padded = float(scored.positions.sum() * work + of_lists)
        one_token = float(count * work)
        return Cost(1.0, one_token, one_token, multiply_adds, padded, multiply_adds)
