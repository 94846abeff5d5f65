"""Ranking by networks on lists of candidates, which they read in their original order.

Without a recurrent layer a candidate is scored by itself, and pairs run in micro-batches of similar
lengths. With one, lists do.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.engines.engine import MicroBatch
from wqa.inference.exit_ranker import InputsRanker
from wqa.inference.loop import micro_batches, score_inputs
from wqa.inference.ranker import Capabilities
from wqa.inference.ranking import Ranking
from wqa.systems.cosinet.inputs import ListEngineInputs, WordList, WordPair, plan_lists

#: Default number of padded words of a micro-batch of lists.
LIST_WORDS = 32768


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

    It takes the parameters of `wqa.inference.exit_ranker.InputsRanker`. A text has words for
    tokens.
    """

    engine_inputs = ListEngineInputs

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
        size = len(words.words) + len(words.question) * len(texts)
        return encoded, size

    def _rank_group(self, group: Sequence[QuestionList]) -> List[Ranking]:
        lists = [encoded.words for encoded in group if len(encoded.order)]
        scored = zip(*self._scores(lists))
        rankings = []
        for encoded in group:
            texts, count = encoded.words, len(encoded.order)
            scores, positions = next(scored) if count else (np.zeros(0), 0.0)
            ranking = self._ranking_of_stage(
                encoded,
                encoded.order,
                scores,
                layer=1,
                tokens=len(texts.words) + len(texts.question) * count,
                positions=positions,
            )
            rankings.append(ranking)
        return rankings

    def _scores(self, lists: Sequence[WordList]) -> Tuple[List[np.ndarray], np.ndarray]:
        """Scores of the candidates of each list, and the positions that ran for all of them."""
        counts = np.array([len(words.lengths) for words in lists], dtype=int)
        if not self.capabilities.joint and not getattr(self._engine, "takes_lists", False):
            pairs: List[WordPair] = []
            for words in lists:
                pairs += words.pairs()
            scores, positions = score_inputs(self._engine, pairs, 1)
            sums = np.concatenate([[0], np.cumsum(positions)])
            ends = np.cumsum(counts)
            return np.split(scores[:, 0], ends[:-1]), sums[ends] - sums[ends - counts]
        of_lists: List[np.ndarray] = [np.zeros(0)] * len(lists)
        positions = np.zeros(len(lists))
        works = self._list_batches(lists, counts)
        for work, done in zip(works, self._engine.run_all(works)):
            positions[work.numbers] = done.positions
            for number, row in zip(work.numbers, done.rows[0]):
                of_lists[number] = row[: counts[number]]
        return of_lists, positions

    def _list_batches(self, lists: Sequence[WordList], counts: np.ndarray) -> List[MicroBatch]:
        """Micro-batches of lists of similar numbers of candidates and of words."""
        if getattr(self._engine, "takes_lists", False):
            lengths = np.array([words.length for words in lists], dtype=int)
            return micro_batches(self._engine, lists, lengths)
        longest = [(len(words.question), int(words.lengths.max())) for words in lists]
        most = self._config.batch_tokens or LIST_WORDS
        batches = plan_lists(counts, np.array(longest).reshape(-1, 2), most)
        return [MicroBatch([0], batch, [lists[index] for index in batch]) for batch in batches]
