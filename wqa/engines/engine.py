"""The contract of engines, which compute encodings and scores in ranking.

An engine plans micro-batches, runs consecutive stages on them, and stores the encodings of pairs
between stages. The ranker decides which pairs are dropped (`wqa.inference.exit_ranker`). An engine
keeps no results: `Engine.run` returns the input of the heads, and `Engine.scores` the scores. Both
hold the engine's lock, so that several threads may rank at once. Neither reads results of a call
before it, which an exception may have interrupted.

A new engine is a subclass of `Engine` with `plan`, `store`, `_run` and `_scores`, and a branch in
`wqa.engines.choice`, which says before anything runs whether it can compute a network in a
precision. MXNet's engine (`wqa.engines.mxnet`), oneDNN's (`wqa.engines.onednn.engine`) and sparse
products (`wqa.engines.sparse`) are examples. In training, an engine is attached to the network
inside MXNet's autograd graph (`wqa.engines.choice.attach_engines`).
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Sequence

import numpy as np
from mxnet.gluon import HybridBlock

from wqa.config import EngineConfig
from wqa.engines.locks import engine_lock, name_scope_kept
from wqa.models import Network
from wqa.models.backbone import break_cycles


class Readings(NamedTuple):
    """Result of running stages on a micro-batch."""

    #: (pairs,) positions of each pair, padding included.
    positions: np.ndarray
    #: Input of `Engine.scores` for each stage, pairs first.
    rows: List[np.ndarray]


class LockedEngine:
    """Base class of what computes for one thread at a time, by a library or by MXNet."""

    #: Whether all engines of the type have one lock.
    _shares_lock = False

    def __init__(self) -> None:
        self._lock = engine_lock(self._shares_lock)
        self._hybridized: List[HybridBlock] = []  # blocks that MXNet traces
        self._was_interrupted = False  # whether the last call did not end

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function while no other thread uses the engine, and nothing is half traced."""
        with self._lock, name_scope_kept():
            if self._was_interrupted:
                self._hybridize()
            self._was_interrupted = True
            try:
                result = function(*arguments)
            except BaseException:
                self._hybridize()
                raise
            self._was_interrupted = False
            return result

    def _hybridize(self) -> None:
        """Let MXNet trace the blocks anew."""
        for block in self._hybridized:
            block.hybridize()


class Engine(LockedEngine):
    """Base class of engines."""

    def __init__(
        self, network: Network, typed: bool, padding_id: int, config: EngineConfig
    ) -> None:
        super().__init__()
        self._network, self._typed, self._padding_id = network, typed, padding_id
        self._config = config
        network.apply(break_cycles)

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        """Divide pairs into micro-batches.

        Shapes: `lengths` (pairs,).
        """
        raise NotImplementedError

    def store(self) -> Any:
        """Create an empty store for encodings between two runs."""
        raise NotImplementedError

    def run(
        self,
        stages: Sequence[int],
        numbers: np.ndarray,
        pairs: Sequence[Any],
        store: Any,
        following: Any,
    ) -> Readings:
        """Run consecutive stages on a micro-batch.

        Shapes: `numbers` (pairs,).
        """
        return self._exclusively(self._run, stages, numbers, pairs, store, following)

    def scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        """Scores of a stage.

        Shapes: the result (pairs,).
        """
        return self._exclusively(self._scores, stage, rows)

    def _run(
        self,
        stages: Sequence[int],
        numbers: np.ndarray,
        pairs: Sequence[Any],
        store: Any,
        following: Any,
    ) -> Readings:
        """`run`, while no other thread uses the engine."""
        raise NotImplementedError

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        """`scores`, while no other thread uses the engine."""
        raise NotImplementedError
