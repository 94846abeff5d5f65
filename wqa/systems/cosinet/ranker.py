"""Ranking by networks on lists of candidates, which they read in their original order.

Pairs are encoded in micro-batches. The recurrent layer and the score follow for each list of a
group of questions, so that no list is too long for the memory.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.data import Question
from wqa.engines.choice import packing_obstacle
from wqa.engines.locks import MXNET_LOCK
from wqa.engines.onednn import choose_engine
from wqa.engines.sparse import takes_sparse
from wqa.errors import OptionError, shorten
from wqa.inference.cost import FREE, Cost
from wqa.inference.dropping import DropRatio, Keep
from wqa.inference.lookahead import LookAhead
from wqa.inference.ranker import Capabilities, Ranker
from wqa.inference.ranking import Ranking, question_name, score_error
from wqa.models import parse_devices
from wqa.systems.cosinet.engines import HybridListEngine, ListEngine, ListScores, SparseListEngine
from wqa.systems.cosinet.inputs import WordList


class EncodedList(NamedTuple):
    """An encoded question with its candidates, and what errors call it."""

    words: WordList
    order: np.ndarray  # candidates with words, in their original order
    truncated: np.ndarray  # of all candidates, in the order in which they come
    question: Question


class ListRanker(Ranker):
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
        count = len(parse_devices(config.ctx))
        if count > 1:
            raise OptionError("ctx", f"{config.ctx}, which is {count} devices", "one device")
        if takes_sparse(config, self.network):
            return SparseListEngine(self.network, config)
        choose_engine(config, packing_obstacle(self.network))
        with MXNET_LOCK:
            return HybridListEngine(self.network, self.encoder, config)

    @property
    def capabilities(self) -> Capabilities:
        """One stage without exits. A recurrent layer reads the candidates together."""
        return Capabilities(self._system, joint=self.network.recurrent is not None)

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        with LookAhead(questions, self._encode, self._group_tokens) as groups:
            for group in groups:
                yield from self._rank_group(group)

    def _rank_question(self, question: Question) -> Ranking:
        encoded, _ = self._encode(question)
        return self._rank_group([encoded])[0]

    def _encode(self, question: Question) -> Tuple[EncodedList, int]:
        """Encode a question; returns its number of words, with each candidate, too."""
        order = np.array(question.original_order)
        texts = [question.candidates[index].text for index in order]
        words, filled, truncated = self.encoder.encode_list(question.question, texts, question.id)
        by_candidate = np.empty_like(truncated)
        by_candidate[order] = truncated
        encoded = EncodedList(words, order[filled], by_candidate, question)
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
        count = len(encoded.truncated)
        scores = np.full(count, -np.inf)
        exit_scores = np.full((1, count), np.nan)
        blank = np.ones(count, dtype=bool)
        cost = FREE
        if scored is not None:
            _check(encoded, scored.scores)
            scores[encoded.order] = exit_scores[0, encoded.order] = scored.scores
            blank[encoded.order] = False
            cost = self._cost(encoded, scored)
        return Ranking(
            order=np.argsort(-scores, kind="stable"),
            scores=scores,
            exits=(~blank).astype(int),
            truncated=encoded.truncated,
            blank=blank,
            cost=cost,
            exit_scores=exit_scores,
            probabilities=self.calibration.probabilities(exit_scores),
            threshold=self.threshold,
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


def _check(encoded: EncodedList, scores: np.ndarray) -> None:
    """Refuse scores that are not finite."""
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        index = int(encoded.order[wrong[0]])
        document_id = encoded.question.candidates[index].id
        name = f"candidate {index + 1}"
        if document_id is not None:
            name = f"document {shorten(document_id)}"
        raise score_error(f"{question_name(encoded.question)}, scores", name, scores[wrong[0]])
