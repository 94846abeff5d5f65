"""Ranking by networks on lists of candidates, which they read in their original order.

Pairs are encoded in micro-batches. The recurrent layer and the score follow for each list of a
group of questions, so that no list is too long for the memory.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.data import Question
from wqa.engines.choice import choose_ranking_engine
from wqa.engines.engine import MXNET_LOCK
from wqa.inference.cost import FREE, Cost
from wqa.inference.dropping import DropRatio, Keep
from wqa.inference.loop import EncodingRanker, Names
from wqa.inference.ranker import Capabilities
from wqa.inference.ranking import Ranking
from wqa.systems.cosinet.engines import HybridListEngine, ListEngine, ListScores, SparseListEngine
from wqa.systems.cosinet.inputs import WordList


class EncodedList(NamedTuple):
    """An encoded question with its candidates, and what errors call it."""

    words: WordList
    order: np.ndarray  # candidates with words, in their original order
    truncated: np.ndarray  # of all candidates, in the order in which they come
    names: Names


class ListRanker(EncodingRanker):
    """Ranks by a network on lists of candidates.

    The network reads the candidates in the order in which they were retrieved,
    `Question.original_order`, whatever the order in which they come. A blank candidate is not part
    of the list.

    Parameters
    ----------
    network : ListNetwork
        Network with its parameters on the engine's device.
    encoder : ListEncoder
        Encodes questions and candidates.
    drop_ratio, keep : optional
        As `Ranker.set_drops` takes them; the only stage drops nothing.
    engine : EngineConfig, optional
        Engine, precision, device and sizes. By default MXNet on the CPU, which reads the current
        parameters at each ranking; sparse products read them once.
    quantized : optional
        None, as there are no transformer layers.
    pool, pool_size : optional
        Without effect, as nothing is dropped.
    group_tokens : int
        Most words of a group of questions; a longer question is a group of its own.
    progress : bool
        Without effect: a group of questions is scored as a whole.
    system : str
        Name of the system, for `Ranker.capabilities`.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option is out of range, or does not fit the network or this machine.
    """

    def __init__(
        self,
        network: Any,
        encoder: Any,
        drop_ratio: DropRatio = None,
        keep: Keep = None,
        engine: Optional[EngineConfig] = None,
        quantized: Any = None,
        pool: str = "question",
        pool_size: int = 128,
        group_tokens: int = 65536,
        progress: bool = False,
        system: str = "lists",
    ) -> None:
        self.network, self.encoder, self._system = network, encoder, system
        self._group_tokens = group_tokens
        self._work = network.word_work(), network.list_work()
        self.set_drops(drop_ratio, keep)
        self._engine = self._build_engine(engine or EngineConfig(engine="mxnet"))

    def _build_engine(self, config: EngineConfig) -> ListEngine:
        if choose_ranking_engine(self.network, config) == "sparse":
            return SparseListEngine(self.network, config)
        with MXNET_LOCK:
            return HybridListEngine(self.network, self.encoder, config)

    @property
    def capabilities(self) -> Capabilities:
        """One stage without exits. A recurrent layer reads the candidates together."""
        return Capabilities(self._system, joint=self.network.recurrent is not None)

    def _encode(self, question: Question) -> Tuple[EncodedList, int]:
        """Encode a question; returns its number of words, with each candidate, too."""
        order = np.array(question.original_order)
        texts = [question.candidates[index].text for index in order]
        words, filled, truncated = self.encoder.encode_list(question.question, texts, question.id)
        by_candidate = np.empty_like(truncated)
        by_candidate[order] = truncated
        encoded = EncodedList(words, order[filled], by_candidate, Names(record=question))
        return encoded, len(words.words) + len(words.question) * len(texts)

    def _rank_group(self, group: Sequence[EncodedList]) -> List[Ranking]:
        lists = [encoded.words for encoded in group if len(encoded.order)]
        results = iter(self._engine.score(lists) if lists else ())
        rankings = []
        for encoded in group:
            scored = next(results) if len(encoded.order) else None
            rankings.append(self._ranking(encoded, scored))
        return rankings

    def _ranking(self, encoded: EncodedList, scored: Optional[ListScores]) -> Ranking:
        return self._ranking_of_stage(
            encoded.order,
            np.zeros(0) if scored is None else scored.scores,
            encoded.names,
            exits=1,
            truncated=encoded.truncated,
            cost=FREE if scored is None else self._cost(encoded, scored),
        )

    def _cost(self, encoded: EncodedList, scored: ListScores) -> Cost:
        count = len(encoded.order)
        work, list_work = self._work
        words = len(encoded.words.words) + len(encoded.words.question) * count
        of_lists = count * list_work
        multiply_adds = float(words * work + of_lists)
        padded = float(scored.positions.sum() * work + of_lists)
        one_token = float(count * work)
        return Cost(1.0, one_token, one_token, multiply_adds, padded, multiply_adds)
