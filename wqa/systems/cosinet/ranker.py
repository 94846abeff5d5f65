"""Ranking by networks on lists of candidates, which they read in their original order.

Pairs are encoded in micro-batches. The recurrent layer and the score follow for each list of a
group of questions, so that no list is too long for the memory.
"""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from wqa.config import EngineConfig
from wqa.data import Question
from wqa.engines.choice import choose_ranking_engine
from wqa.engines.engine import MXNET_LOCK, LockedEngine
from wqa.engines.mxnet import OnMXNet
from wqa.engines.sparse import (
    ListScorer,
    WordLists,
    count_threads,
    list_parameters,
    network_parameters,
)
from wqa.engines.sparse.threads import one_blas_thread
from wqa.inference.dropping import FREE, Cost
from wqa.inference.loop import InputsRanker, Names
from wqa.inference.ranker import Capabilities
from wqa.inference.ranking import Ranking
from wqa.systems.cosinet.inputs import ListInputs, WordList, WordPair
from wqa.systems.cosinet.lists import ListNetwork
from wqa.text import plan_batches

#: Default number of words of a micro-batch, padding included.
_TOKENS = 8192
#: Most elements of the encoded pairs of a batch of lists.
_ELEMENTS = 1 << 23


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


class HybridListEngine(OnMXNet, ListEngine):
    """MXNet's hybridized blocks on padded micro-batches, on any device, in float32.

    It reads the current parameters of the network at each run. All such engines have one lock.

    Parameters
    ----------
    network : ListNetwork
        Network with its parameters on the device.
    inputs : ListInputs
        Pads pairs.
    config : EngineConfig
        Device, threads and sizes.
    """

    def __init__(self, network: ListNetwork, inputs: ListInputs, config: EngineConfig) -> None:
        super().__init__()
        self._inputs, self._config = inputs, config
        self._pairs, self._lists = network.parts()
        self._prepare(config, [self._pairs, self._lists])

    def _score(self, lists: Sequence[WordList]) -> List[ListScores]:
        pairs: List[WordPair] = []
        for words in lists:
            pairs += words.pairs()
        encoded, positions = self._encode(pairs)
        counts = np.array([len(words.lengths) for words in lists])
        ends = np.cumsum(counts)
        starts = ends - counts
        results: List[Any] = [None] * len(lists)
        for batch in _by_length(ends - starts, max(1, _ELEMENTS // encoded.shape[1])):
            counts = ends[batch] - starts[batch]
            padded = np.zeros((len(batch), counts.max(), encoded.shape[1]), np.float32)
            for row, index in enumerate(batch):
                padded[row, : counts[row]] = encoded[starts[index] : ends[index]]
            arrays = self._arrays((padded, counts.astype(np.float32)))
            scores = self._lists(*arrays).asnumpy()
            for row, index in enumerate(batch):
                own = slice(starts[index], ends[index])
                results[index] = ListScores(scores[row, : counts[row]], positions[own])
        return results

    def _encode(self, pairs: Sequence[WordPair]) -> Tuple[np.ndarray, np.ndarray]:
        """Encodings of pairs, (pairs, C), and their positions, (pairs,)."""
        lengths = np.array([(len(pair.question), len(pair.candidate)) for pair in pairs])
        positions = np.zeros(len(pairs), dtype=np.int64)
        encoded = np.zeros((len(pairs), 0), np.float32)
        for batch in plan_batches(lengths, self._config.batch_tokens or _TOKENS):
            arrays = self._inputs.pad([pairs[index] for index in batch])
            rows = self._pairs(*self._arrays(arrays[:-1])).asnumpy()  # (pairs, 1, C)
            if not encoded.size:
                encoded = np.zeros((len(pairs), rows.shape[2]), np.float32)
            encoded[batch] = rows[:, 0]
            positions[batch] = arrays[0].shape[1] + arrays[2].shape[2]
        return encoded, positions


def _by_length(counts: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Group lists of similar lengths, each padded to the longest, up to ``most`` candidates."""
    order = np.argsort(counts, kind="stable")
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - start) * counts[order[end]] > most:
            yield order[start:end]
            start = end


class SparseListEngine(ListEngine):
    """Sparse products on a CPU, in float32 (`wqa.engines.sparse.ListScorer`).

    It reads the parameters of the network once.

    Parameters
    ----------
    network : ListNetwork
        Network that `wqa.engines.sparse.list_obstacle` has nothing against, on the CPU.
    config : EngineConfig
        Number of threads.
    """

    def __init__(self, network: ListNetwork, config: EngineConfig) -> None:
        super().__init__()
        with MXNET_LOCK:
            mx.nd.waitall()
            parameters = list_parameters(network_parameters(network)).copied()
            vectors = network.vectors.data().asnumpy()
        self._scorer = ListScorer(vectors, parameters, config.threads or count_threads())

    def _score(self, lists: Sequence[WordList]) -> List[ListScores]:
        counts = np.array([len(words.lengths) for words in lists])
        question_lengths = np.array([len(words.question) for words in lists])
        lengths = np.concatenate([words.lengths for words in lists])
        batch = WordLists(
            np.concatenate([words.question for words in lists]),
            question_lengths,
            np.concatenate([words.words for words in lists]),
            lengths,
            counts,
        )
        with one_blas_thread():
            scores = self._scorer.scores(batch)
        positions = lengths + np.repeat(question_lengths, counts)  # nothing is padded
        ends = np.cumsum(counts).tolist()
        results = []
        for start, end in zip([0, *ends], ends):
            results.append(ListScores(scores[start:end], positions[start:end]))
        return results


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
        self._work = network.word_work(), network.list_work()
        super().__init__(network, inputs, *drops, **options)

    def _build_engine(self, quantized: Any) -> ListEngine:
        if choose_ranking_engine(self.network, self._config) == "sparse":
            return SparseListEngine(self.network, self._config)
        with MXNET_LOCK:
            return HybridListEngine(self.network, self.inputs, self._config)

    @property
    def capabilities(self) -> Capabilities:
        """One stage without exits. A recurrent layer reads the candidates together."""
        return Capabilities(self._system, joint=self.network.recurrent is not None)

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
