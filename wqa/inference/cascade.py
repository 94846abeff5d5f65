"""Cascade inference (Soldaini and Moschitti 2020, section 4.3.2), also of one-exit rankers.

Pairs of all questions in flight are sorted by length and run in micro-batches of bucketed shapes.
At an exit that drops candidates, every question keeps its best, and the survivors of all questions
are regrouped and trimmed into new micro-batches, so that what was dropped costs nothing more. At an
exit that drops none, a micro-batch goes straight on to the next layers.
"""
from __future__ import annotations

import sys
from typing import Iterable, Iterator, List, Sequence, Tuple, Union

import mxnet as mx
import numpy as np
from tqdm import tqdm

from wqa.data import Question
from wqa.errors import OptionError, shorten
from wqa.inference.cost import Cost
from wqa.inference.hidden import HiddenStore
from wqa.inference.ranker import Ranker, Ranking
from wqa.models import parse_devices
from wqa.models.cascade import drop_ratios, dropped, relative_cost
from wqa.models.heads import ExitNetwork
from wqa.text import EncodedPair, PairEncoder, bucketed, pad_pairs, plan_batches

#: What candidates an exit compares: all of a question's, or those of a batch of it.
POOLS = ("question", "batch")


class CascadeRanker(Ranker):
    """Ranks with an exit network, pruning at each exit.

    Parameters
    ----------
    model : ExitNetwork
        With its parameters on ``ctx``.
    encoder : PairEncoder
    drop_ratio : float or sequence of float
        alpha: one, or one an exit. At 0 the ranking is the full model's.
    ctx : str
        A single device.
    pool : {"question", "batch"}
        Prune among all candidates of a question, or, as the paper's inference does, inside
        batches of ``pool_size`` of them.
    pool_size : int
        b, for ``pool="batch"``.
    batch_tokens : int
        Padded tokens of a micro-batch.
    flight_tokens : int
        Tokens of the questions that are ranked together; a longer question flies alone.
    hidden_bytes : int
        Encodings held in memory between exits; more go to a temporary file.
    progress : bool
        Show a bar on standard error while a flight takes longer than two seconds.
    """

    def __init__(self, model: ExitNetwork, encoder: PairEncoder, drop_ratio: Union[float, Sequence[float]] = 0.0,
                 ctx: str = "cpu", pool: str = "question", pool_size: int = 128, batch_tokens: int = 2048,
                 flight_tokens: int = 32768, hidden_bytes: int = 1 << 29, progress: bool = False) -> None:
        if pool not in POOLS:
            raise OptionError("--pool", shorten(pool), "one of " + ", ".join(POOLS))
        for name, value in (("--pool-size", pool_size), ("--batch-tokens", batch_tokens)):
            if value < 1:
                raise OptionError(name, value, "a whole number above 0")
        self.model, self.encoder = model, encoder
        self.drop_ratio = drop_ratio
        self._pool_size = pool_size if pool == "batch" else 0
        self._batch_tokens, self._flight_tokens, self._hidden_bytes = batch_tokens, flight_tokens, hidden_bytes
        self._ctx, self._progress = _one_device(ctx), progress
        self._stages = [model.stage(index) for index in range(len(model.exits))]
        for stage in self._stages:
            stage.hybridize()

    @property
    def drop_ratio(self) -> List[float]:
        """Drop ratios, one an exit, the last 0; may be set anew between rankings."""
        return self._ratios

    @drop_ratio.setter
    def drop_ratio(self, alpha: Union[float, Sequence[float]]) -> None:
        self._ratios = drop_ratios(alpha, len(self.model.exits))

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        flight: List[List[EncodedPair]] = []
        tokens = 0
        for question in questions:
            pairs = self.encoder.encode(question.question, question.texts, question.id)
            size = sum(len(pair.token_ids) for pair in pairs)
            if flight and tokens + size > self._flight_tokens:
                yield from self.rank_pairs(flight)
                flight, tokens = [], 0
            flight.append(pairs)
            tokens += size
        if flight:
            yield from self.rank_pairs(flight)

    def rank_pairs(self, flight: Sequence[Sequence[EncodedPair]]) -> List[Ranking]:
        """Rank questions that are encoded already.

        Parameters
        ----------
        flight : sequence of sequence of EncodedPair
            Pairs of each question.

        Returns
        -------
        list of Ranking
        """
        return _Flight(self, flight).rank()


def _one_device(ctx: str) -> mx.Context:
    devices = parse_devices(ctx)
    if len(devices) > 1:
        raise OptionError("--ctx", f"{ctx}, which is {len(devices)} devices", "one device to rank on")
    return devices[0]


class _Flight:
    """Questions that go through the exits together. Their pairs are numbered through."""

    def __init__(self, ranker: CascadeRanker, flight: Sequence[Sequence[EncodedPair]]) -> None:
        self._ranker, self._flight = ranker, flight
        self._pairs = [pair for pairs in flight for pair in pairs]
        self._lengths = np.array([len(pair.token_ids) for pair in self._pairs])
        self._starts = np.cumsum([0] + [len(pairs) for pairs in flight])
        exits = len(ranker.model.exits)
        self._scores = np.full((exits, len(self._pairs)), np.nan)
        self._padded = np.zeros(len(self._pairs), dtype=np.int64)  # layers x padded tokens that each pair ran
        self._layers = np.diff([0, *ranker.model.exits])

    def rank(self) -> List[Ranking]:
        filled = np.array([not pair.empty for pair in self._pairs])
        alive = np.flatnonzero(filled)
        alive = alive[np.argsort(self._lengths[alive], kind="stable")]
        pools = [pool for start, end in zip(self._starts, self._starts[1:])
                 for pool in self._split(start + np.flatnonzero(filled[start:end]))]
        store = None
        for segment in self._segments():
            store = self._run(segment, alive, store)
            last = segment[-1]
            pools = [self._keep(pool, last) for pool in pools]
            kept = np.zeros(len(self._pairs), dtype=bool)
            kept[np.concatenate(pools).astype(int)] = True
            alive = alive[kept[alive]]
        return [self._ranking(start, end) for start, end in zip(self._starts, self._starts[1:])]

    def _split(self, pairs: np.ndarray) -> List[np.ndarray]:
        size = self._ranker._pool_size
        if not size:
            return [pairs]
        return [pairs[start: start + size] for start in range(0, len(pairs), size)]

    def _segments(self) -> List[List[int]]:
        """Stages that follow one another without a drop between them."""
        segments: List[List[int]] = [[]]
        for stage, ratio in enumerate(self._ranker.drop_ratio):
            segments[-1].append(stage)
            if ratio > 0:
                segments.append([])
        return segments

    def _run(self, segment: List[int], alive: np.ndarray, store: Union[HiddenStore, None]) -> HiddenStore:
        ranker = self._ranker
        most = ranker.model.config.max_positions
        is_last = segment[-1] == len(ranker.model.exits) - 1
        following = HiddenStore(ranker._hidden_bytes)
        batches = plan_batches(self._lengths[alive], ranker._batch_tokens)
        for rows in tqdm(batches, desc=f"to exit {ranker.model.exits[segment[-1]]}", unit="batch", delay=2, leave=False,
                         disable=not ranker._progress, file=sys.stderr):
            batch = alive[rows]
            length = bucketed(int(self._lengths[batch].max()), most)
            inputs = self._inputs(batch, length, store)
            scores = []
            for stage in segment:
                hidden, score = ranker._stages[stage](*inputs)
                inputs = (hidden, inputs[-1])
                scores.append(score)
            if not is_last:
                following.put(batch.tolist(), hidden)
            for stage, score in zip(segment, scores):
                self._scores[stage, batch] = score.asnumpy()
                self._padded[batch] += self._layers[stage] * length
        return following

    def _inputs(self, batch: np.ndarray, length: int, store: Union[HiddenStore, None]) -> Tuple[mx.nd.NDArray, ...]:
        ctx, tokenizer = self._ranker._ctx, self._ranker.encoder.tokenizer
        if store is not None:
            valid_length = mx.nd.array(self._lengths[batch], ctx=ctx, dtype="float32")
            return store.take(batch.tolist(), length, ctx), valid_length
        arrays = pad_pairs([self._pairs[pair] for pair in batch], length, tokenizer.padding_id, tokenizer.pair_form == "bert")
        return tuple(mx.nd.array(array, ctx=ctx, dtype=array.dtype) for array in arrays)

    def _keep(self, pool: np.ndarray, stage: int) -> np.ndarray:
        """The pool without its floor(alpha k) lowest scores; ties keep the earlier candidate."""
        count = len(pool) - dropped(self._ranker.drop_ratio[stage], len(pool))
        return pool[np.sort(np.argsort(-self._scores[stage, pool], kind="stable")[:count])]

    def _ranking(self, start: int, end: int) -> Ranking:
        model, pairs = self._ranker.model, self._pairs[start:end]
        exit_scores = self._scores[:, start:end]
        reached = (~np.isnan(exit_scores)).sum(axis=0)  # exits that scored each candidate
        last = np.maximum(reached - 1, 0)
        scores = np.where(reached > 0, exit_scores[last, np.arange(end - start)], -np.inf)
        layers = np.concatenate([[0], model.exits])[reached]
        lengths, filled = self._lengths[start:end], reached > 0
        depth = model.config.num_layers
        paper = (relative_cost(model.exits, self._ranker.drop_ratio, int(filled.sum()), depth) if filled.any() else 0.0)
        cost = Cost(paper, int(layers.sum()), int(depth * filled.sum()), int((layers * lengths).sum()),
                    int(self._padded[start:end].sum()), int(depth * lengths[filled].sum()))
        return Ranking(
            # Survivors by the last exit's score, then what each earlier exit dropped; ties in the original order.
            order=np.lexsort((np.arange(end - start), -scores, -layers)), scores=scores, exits=layers,
            truncated=np.array([pair.truncated for pair in pairs]), blank=~filled, cost=cost, exit_scores=exit_scores)
