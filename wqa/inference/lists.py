"""Ranking by networks on lists of candidates, which they read in their original order.

Pairs are encoded in micro-batches of similar lengths. The recurrent layer and the score follow for
each list of a group of questions, so that no list is too long for the memory.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from wqa.config import EngineConfig
from wqa.data import Candidate, Question
from wqa.errors import OptionError, shorten
from wqa.inference.cost import FREE, Cost
from wqa.inference.dropping import DropRatio, Keep
from wqa.inference.engine import LockedEngine
from wqa.inference.engine_choice import packing_obstacle
from wqa.inference.engine_locks import MXNET_LOCK, in_mxnet_thread
from wqa.inference.lookahead import LookAhead
from wqa.inference.ranker import Capabilities, Ranker, Ranking, question_name, score_error
from wqa.models import ListNetwork, parse_devices
from wqa.onednn import choose_engine
from wqa.text import ListEncoder, WordPair, plan_batches

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
    """MXNet's hybridized blocks on padded micro-batches, on any device, in float32.

    It reads the current parameters of the network at each run. All such engines have one lock.

    Parameters
    ----------
    network : ListNetwork
        Network with its parameters on the device.
    encoder : ListEncoder
        Pads pairs.
    config : EngineConfig
        Device, threads and sizes.
    """

    _shares_lock = True

    def __init__(self, network: ListNetwork, encoder: ListEncoder, config: EngineConfig) -> None:
        super().__init__()
        self._encoder, self._config = encoder, config
        self._ctx = parse_devices(config.ctx)[0]
        self._pairs, self._lists = network.parts()
        self._hybridized = [self._pairs, self._lists]
        self._hybridize()
        if config.threads is not None:
            mx.base.check_call(mx.base._LIB.MXSetNumOMPThreads(config.threads))

    def score(self, lists: Sequence[Sequence[WordPair]]) -> List[ListScores]:
        """Score the pairs of lists.

        Parameters
        ----------
        lists : sequence of sequence of WordPair
            Pairs of each list in their original order, at least one, and none of them empty.

        Returns
        -------
        list of ListScores
            Scores of each list.
        """
        return self._exclusively(self._score, lists)

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return in_mxnet_thread(super()._exclusively, function, *arguments)

    def _score(self, lists: Sequence[Sequence[WordPair]]) -> List[ListScores]:
        pairs = [pair for pairs in lists for pair in pairs]
        encoded, positions = self._encode(pairs)
        ends = np.cumsum([len(pairs) for pairs in lists])
        starts = ends - [len(pairs) for pairs in lists]
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
            arrays = self._encoder.pad([pairs[index] for index in batch])
            rows = self._pairs(*self._arrays(arrays[:-1])).asnumpy()  # (pairs, 1, C)
            if not encoded.size:
                encoded = np.zeros((len(pairs), rows.shape[2]), np.float32)
            encoded[batch] = rows[:, 0]
            positions[batch] = arrays[0].shape[1] + arrays[2].shape[2]
        return encoded, positions

    def _arrays(self, arrays: Sequence[np.ndarray]) -> List[mx.nd.NDArray]:
        """Copies on the device."""
        return [mx.nd.array(array, ctx=self._ctx, dtype=array.dtype) for array in arrays]


def _by_length(counts: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Group lists of similar lengths, each padded to the longest, up to ``most`` candidates."""
    order = np.argsort(counts, kind="stable")
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - start) * counts[order[end]] > most:
            yield order[start:end]
            start = end


class EncodedList(NamedTuple):
    """An encoded question with its candidates, and what errors call it."""

    pairs: List[WordPair]
    order: np.ndarray  # candidates with words, in their original order
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
        Engine, precision, device and sizes; MXNet in float32.
    quantized : optional
        None, as there are no transformer layers.
    pool, pool_size : optional
        Without effect, as nothing is dropped.
    group_tokens : int
        Most words of a group of questions; a longer question is a group of its own.
    progress : bool
        Without effect: a group takes less than a second.
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
        self.set_drops(drop_ratio, keep)
        self._engine = self._build_engine(engine or EngineConfig(engine="mxnet"))

    def _build_engine(self, config: EngineConfig) -> ListEngine:
        count = len(parse_devices(config.ctx))
        if count > 1:
            raise OptionError("ctx", f"{config.ctx}, which is {count} devices", "one device")
        choose_engine(config, packing_obstacle(self.network))
        with MXNET_LOCK:
            return ListEngine(self.network, self.encoder, config)

    @property
    def capabilities(self) -> Capabilities:
        """One stage without exits; a recurrent layer makes it a joint one."""
        joint = self.network.own_config.recurrent != "none"
        return Capabilities(self._system, joint=joint)

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        with LookAhead(questions, self._encode, self._group_tokens) as groups:
            for group in groups:
                yield from self._rank_group(group)

    def rank(self, question: str, candidates: Sequence[str]) -> Ranking:
        pairs = self.encoder.encode(question, candidates)
        texts = tuple(Candidate(text) for text in candidates)
        return self._rank_group([_listed(pairs, Question("", question, texts))])[0]

    def _encode(self, question: Question) -> Tuple[EncodedList, int]:
        """Encode a question; returns its number of words, with each candidate, too."""
        pairs = self.encoder.encode(question.question, question.texts, question.id)
        return _listed(pairs, question), sum(pair.length for pair in pairs)

    def _rank_group(self, group: Sequence[EncodedList]) -> List[Ranking]:
        lists = []
        for encoded in group:
            if len(encoded.order):
                lists.append([encoded.pairs[index] for index in encoded.order])
        results = iter(self._engine.score(lists) if lists else ())
        rankings = []
        for encoded in group:
            scored = next(results) if len(encoded.order) else None
            rankings.append(self._ranking(encoded, scored))
        return rankings

    def _ranking(self, encoded: EncodedList, scored: Optional[ListScores]) -> Ranking:
        count = len(encoded.pairs)
        scores = np.full(count, -np.inf)
        exit_scores = np.full((1, count), np.nan)
        cost = FREE
        if scored is not None:
            _check(encoded, scored.scores)
            scores[encoded.order] = exit_scores[0, encoded.order] = scored.scores
            cost = self._cost(encoded, scored)
        blank = np.isneginf(scores)
        return Ranking(
            order=np.lexsort((np.arange(count), -scores)),
            scores=scores,
            exits=(~blank).astype(int),
            truncated=np.array([pair.truncated for pair in encoded.pairs]),
            blank=blank,
            cost=cost,
            exit_scores=exit_scores,
        )

    def _cost(self, encoded: EncodedList, scored: ListScores) -> Cost:
        words = sum(encoded.pairs[index].length for index in encoded.order)
        count, work = len(encoded.order), self.network.word_work()
        of_lists = count * self.network.list_work()
        multiply_adds = float(words * work + of_lists)
        padded = float(scored.positions.sum() * work + of_lists)
        one_token = float(count * work)
        return Cost(1.0, one_token, one_token, multiply_adds, padded, multiply_adds)


def _listed(pairs: List[WordPair], question: Question) -> EncodedList:
    """A question whose pairs that are not blank are listed in their original order."""
    order = np.array(question.original_order)
    filled = np.array([not pair.empty for pair in pairs])
    return EncodedList(pairs, order[filled[order]], question)


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
