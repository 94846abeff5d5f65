"""Cascade inference (Soldaini and Moschitti 2020, section 4.3.2), also of one-exit rankers.

Pairs of all questions in flight are sorted by length and run in micro-batches of nearly one length.
At an exit that drops candidates, every question keeps its best, and the survivors of all questions
are regrouped into new micro-batches, so that what was dropped costs nothing more. At an exit that
drops none, a micro-batch goes straight on to the next layers. While one flight is ranked, the next
is tokenized and encoded in a thread.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterable, Iterator, List, Sequence, Union

import numpy as np
from tqdm import tqdm

from wqa.data import Question
from wqa.errors import OptionError, shorten
from wqa.inference.cost import Cost, layer_work, relative_cost
from wqa.inference.engine import build_engine
from wqa.inference.ranker import Ranker, Ranking
from wqa.models.cascade import drop_ratios, dropped
from wqa.models.heads import ExitNetwork
from wqa.text import EncodedPair, PairEncoder

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
    flight_tokens : int
        Tokens of the questions that are ranked together; a longer question flies alone.
    progress : bool
        Show a bar on standard error while a flight takes longer than two seconds.
    **engine
        Parameters of `wqa.inference.engine.build_engine`: ``engine``, ``precision``, ``threads``,
        ``batch_tokens``, ``hidden_bytes``. MXNet's engine, the default here, reads the model's
        parameters as they are at each ranking; oneDNN's reads them once.
    """

    def __init__(
        self,
        model: ExitNetwork,
        encoder: PairEncoder,
        drop_ratio: Union[float, Sequence[float]] = 0.0,
        ctx: str = "cpu",
        pool: str = "question",
        pool_size: int = 128,
        flight_tokens: int = 65536,
        progress: bool = False,
        **engine: Any,
    ) -> None:
        if pool not in POOLS:
            raise OptionError("--pool", shorten(pool), "one of " + ", ".join(POOLS))
        if pool_size < 1:
            raise OptionError("--pool-size", pool_size, "a whole number above 0")
        self.model, self.encoder = model, encoder
        self.drop_ratio = drop_ratio
        self._pool_size = pool_size if pool == "batch" else 0
        self._flight_tokens, self._progress = flight_tokens, progress
        self._engine = build_engine(model, encoder.tokenizer, ctx, **engine)

    @property
    def layer_work(self) -> int:
        return layer_work(self.model.config)

    @property
    def drop_ratio(self) -> List[float]:
        """Drop ratios, one an exit, the last 0; may be set anew between rankings."""
        return self._ratios

    @drop_ratio.setter
    def drop_ratio(self, alpha: Union[float, Sequence[float]]) -> None:
        self._ratios = drop_ratios(alpha, len(self.model.exits))

    def rank(self, question: str, candidates: Sequence[str]) -> Ranking:
        return self.rank_pairs([self.encoder.encode(question, candidates)])[0]

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        flights = self._flights(questions)
        with ThreadPoolExecutor(1) as thread:
            coming = thread.submit(next, flights, None)
            while True:
                flight = coming.result()
                if flight is None:
                    return
                coming = thread.submit(next, flights, None)
                yield from self.rank_pairs(flight)

    def _flights(self, questions: Iterable[Question]) -> Iterator[List[List[EncodedPair]]]:
        flight: List[List[EncodedPair]] = []
        tokens = 0
        for question in questions:
            pairs = self.encoder.encode(question.question, question.texts, question.id)
            size = sum(len(pair.token_ids) for pair in pairs)
            if flight and tokens + size > self._flight_tokens:
                yield flight
                flight, tokens = [], 0
            flight.append(pairs)
            tokens += size
        if flight:
            yield flight

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


class _Flight:
    """Questions that go through the exits together. Their pairs are numbered through."""

    def __init__(self, ranker: CascadeRanker, flight: Sequence[Sequence[EncodedPair]]) -> None:
        self._ranker, self._flight = ranker, flight
        self._pairs = [pair for pairs in flight for pair in pairs]
        self._lengths = np.array([len(pair.token_ids) for pair in self._pairs])
        self._starts = np.cumsum([0] + [len(pairs) for pairs in flight])
        exits = len(ranker.model.exits)
        self._scores = np.full((exits, len(self._pairs)), np.nan)
        self._padded = np.zeros(
            len(self._pairs), dtype=np.int64
        )  # layers x padded tokens that each pair ran
        self._layers = np.diff([0, *ranker.model.exits])

    def rank(self) -> List[Ranking]:
        filled = np.array([not pair.empty for pair in self._pairs])
        alive = np.flatnonzero(filled)
        alive = alive[np.argsort(self._lengths[alive], kind="stable")]
        pools = [
            pool
            for start, end in zip(self._starts, self._starts[1:])
            for pool in self._split(start + np.flatnonzero(filled[start:end]))
        ]
        store: Any = None
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
        return [pairs[start : start + size] for start in range(0, len(pairs), size)]

    def _segments(self) -> List[List[int]]:
        """Stages that follow one another without a drop between them."""
        segments: List[List[int]] = [[]]
        for stage, ratio in enumerate(self._ranker.drop_ratio):
            segments[-1].append(stage)
            if ratio > 0:
                segments.append([])
        return segments

    def _run(self, segment: List[int], alive: np.ndarray, store: Any) -> Any:
        ranker, engine = self._ranker, self._ranker._engine
        is_last = segment[-1] == len(ranker.model.exits) - 1
        following = None if is_last else engine.store()
        batches = engine.plan(self._lengths[alive])
        for rows in tqdm(
            batches,
            desc=f"to exit {ranker.model.exits[segment[-1]]}",
            unit="batch",
            delay=2,
            leave=False,
            disable=not ranker._progress,
            file=sys.stderr,
        ):
            batch = alive[rows]
            length = engine.run(
                segment, batch, [self._pairs[pair] for pair in batch], store, following
            )
            self._padded[batch] += self._layers[segment].sum() * length
        if batches:
            self._scores[np.ix_(segment, alive[np.concatenate(batches)])] = engine.collect()
        return following

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
        paper = 0.0
        if filled.any():
            paper = relative_cost(
                model.exits, self._ranker.drop_ratio, depth, batch_size=int(filled.sum())
            )
        cost = Cost(
            paper,
            int(layers.sum()),
            int(depth * filled.sum()),
            int((layers * lengths).sum()),
            int(self._padded[start:end].sum()),
            int(depth * lengths[filled].sum()),
        )
        return Ranking(
            # Survivors by the last exit's score, then what each earlier exit dropped; ties in the
            # original order.
            order=np.lexsort((np.arange(end - start), -scores, -layers)),
            scores=scores,
            exits=layers,
            truncated=np.array([pair.truncated for pair in pairs]),
            blank=~filled,
            cost=cost,
            exit_scores=exit_scores,
        )
