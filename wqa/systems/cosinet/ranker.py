"""Ranking by networks on lists of candidates, which they read in their original order.

Pairs are encoded in micro-batches. The recurrent layer and the score follow for each list of a
group of questions, so that no list is too long for the memory.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.engines.engine import Engine, MicroBatch
from wqa.inference.dropping import FREE, Cost
from wqa.inference.loop import InputsRanker
from wqa.inference.ranker import Capabilities
from wqa.inference.ranking import Ranking
from wqa.systems.cosinet.inputs import WordList


class QuestionList(NamedTuple):
    """Words of a question with its candidates."""

    words: WordList
    order: np.ndarray  # candidates with words, in their original order
    truncated: np.ndarray  # of all candidates, in the order in which they come
    question: Question


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

    def _build_engine(self, quantized: Any) -> Engine:
        if self._config.engine == "onnxruntime":
            from wqa.systems.cosinet.graphs import ListOnnxEngine

            return ListOnnxEngine(self.network, self.inputs, self._config)
        from wqa.systems.cosinet.engines import build_list_engine  # needs MXNet

        return build_list_engine(self.network, self.inputs, self._config)

    @property
    def capabilities(self) -> Capabilities:
        """One stage without exits. A recurrent layer reads the candidates together."""
        return Capabilities(self._system, joint=self.network.own_config.recurrent != "none")

    def _encode(self, question: Question) -> Tuple[QuestionList, int]:
        """Tokenize a question; returns its number of words, with each candidate, too."""
        order = np.array(question.original_order)
        texts = [question.candidates[index].text for index in order]
        words, non_blank, truncated = self.inputs.encode_list(question.question, texts, question.id)
        by_candidate = np.empty_like(truncated)
        by_candidate[order] = truncated
        encoded = QuestionList(words, order[non_blank], by_candidate, question)
        return encoded, len(words.words) + len(words.question) * len(texts)

    def _rank_group(self, group: Sequence[QuestionList]) -> List[Ranking]:
        counts = [len(encoded.order) for encoded in group]
        lists = [encoded.words for encoded in group if len(encoded.order)]
        scores = positions = np.zeros(0)
        if lists:
            batch = MicroBatch([0], np.arange(len(lists)), lists)
            [readings] = self._engine.run_all([batch])
            positions, [scores] = readings.positions, readings.rows
        edges = np.cumsum(counts)[:-1]
        of_questions = zip(group, np.split(scores, edges), np.split(positions, edges))
        return [self._ranking(*of_question) for of_question in of_questions]

    def _ranking(self, encoded: QuestionList, scores: np.ndarray, positions: np.ndarray) -> Ranking:
        """Ranking by scores of the candidates with words, and the positions that ran for each."""
        return self._ranking_of_stage(
            encoded.order,
            scores,
            encoded.question,
            exits=1,
            truncated=encoded.truncated,
            cost=self._cost(encoded, positions) if len(encoded.order) else FREE,
        )

    def _cost(self, encoded: QuestionList, positions: np.ndarray) -> Cost:
        count = len(encoded.order)
        work, list_work = self._work
        words = len(encoded.words.words) + len(encoded.words.question) * count
        of_lists = count * list_work
        multiply_adds = float(words * work + of_lists)
        padded = float(positions.sum() * work + of_lists)
        one_token = float(count * work)
        return Cost(1.0, one_token, one_token, multiply_adds, padded, multiply_adds)
