"""Ranking by networks on lists of candidates, which they read in their original order.

Without a recurrent layer a candidate is scored by itself, and pairs run in micro-batches of similar
lengths. With one, lists do.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.engines.engine import MicroBatch
from wqa.inference.exit_ranker import InputsRanker, StageInputs
from wqa.inference.loop import micro_batches, score_inputs
from wqa.inference.ranker import Capabilities
from wqa.inference.ranking import Ranking
from wqa.systems.cosinet.inputs import ListEngineInputs, WordList, WordPair, plan_lists

#: Default number of padded words of a micro-batch of lists.
LIST_WORDS = 32768


class ListRanker(InputsRanker):
    """Ranks by a network on lists of candidates. Its only stage drops nothing.

    The network reads the candidates in the order in which they were retrieved,
    `Question.original_order`, whatever the order in which they come. A blank candidate is not part
    of the list.

    It takes the parameters of `wqa.inference.exit_ranker.InputsRanker`. A text has words for
    tokens.
    """

    engine_inputs = ListEngineInputs

    @property
    def capabilities(self) -> Capabilities:
        """One stage without exits. A recurrent layer reads the candidates together."""
        return Capabilities(self._system, joint=self.network.own_config.recurrent != "none")

    def _encode(self, question: Question) -> Tuple[StageInputs, int]:
        """Tokenize a question; returns its number of words, with each candidate, too."""
        order = np.array(question.original_order)
        texts = [question.candidates[index].text for index in order]
        words, non_blank, truncated = self.inputs.encode_list(question.question, texts, question.id)
        by_candidate = np.empty_like(truncated)
        by_candidate[order] = truncated
        indices = order[non_blank]
        question_words = len(words.question)
        tokens = len(words.words) + question_words * len(indices)
        encoded = StageInputs(words, indices, by_candidate, tokens, question)
        size = len(words.words) + question_words * len(texts)
        return encoded, size

    def _rank_group(self, group: Sequence[StageInputs]) -> List[Ranking]:
        lists = [encoded.inputs for encoded in group if len(encoded.indices)]
        scored = iter(self._scores(lists))
        rankings = []
        for encoded in group:
            scores = next(scored) if len(encoded.indices) else np.zeros(0)
            rankings.append(self._ranking_of_stage(encoded, scores, layer=1))
        return rankings

    def _scores(self, lists: Sequence[WordList]) -> List[np.ndarray]:
        """Scores of the candidates of each list."""
        counts = np.array([len(words.lengths) for words in lists], dtype=int)
        if not self.capabilities.joint and not getattr(self._engine, "takes_lists", False):
            pairs: List[WordPair] = []
            for words in lists:
                pairs += words.pairs()
            scores = score_inputs(self._engine, pairs, 1)
            return np.split(scores[:, 0], np.cumsum(counts)[:-1])
        of_lists = [np.zeros(0)] * len(lists)
        works = self._list_batches(lists, counts)
        for work, done in zip(works, self._engine.run_all(works)):
            for number, row in zip(work.numbers, done.rows[0]):
                of_lists[number] = row[: counts[number]]
        return of_lists

    def _list_batches(self, lists: Sequence[WordList], counts: np.ndarray) -> List[MicroBatch]:
        """Micro-batches of lists of similar numbers of candidates and of words."""
        if getattr(self._engine, "takes_lists", False):
            lengths = np.array([words.length for words in lists], dtype=int)
            return micro_batches(self._engine, lists, lengths)
        widths = np.zeros((len(lists), 2), dtype=int)
        for row, words in zip(widths, lists):
            row[:] = len(words.question), words.lengths.max()
        most = self._config.batch_tokens or LIST_WORDS
        batches = plan_lists(counts, widths, most)
        return [MicroBatch([0], batch, [lists[index] for index in batch]) for batch in batches]
