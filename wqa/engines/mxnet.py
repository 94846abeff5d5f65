"""Engines, which compute encodings and scores: their base class, and MXNet's hybridized stages.

An engine plans micro-batches, runs consecutive stages on them, and stores the encodings of pairs
between stages. The ranker decides which pairs are dropped (`wqa.inference.exit_ranker`). An engine
keeps no results: `Engine.run` returns the input of the heads, and `Engine.scores` the scores. Both
hold the engine's lock, so that several threads may rank at once. Neither reads results of a call
before it, which an exception may have interrupted.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock

from wqa.config import EngineConfig
from wqa.engines.hidden import HiddenStore
from wqa.engines.locks import engine_lock, in_mxnet_thread, name_scope_kept
from wqa.models import Network, parse_devices
from wqa.models.backbone import break_cycles
from wqa.text import bucketed, pad_pairs, plan_batches

#: Default number of tokens of a micro-batch.
_TOKENS = 2048


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


class HybridEngine(Engine):
    """MXNet's hybridized stages on padded micro-batches, on any device, in float32.

    It reads the current parameters of the network at each run. All such engines have one lock.
    """

    _shares_lock = True

    def __init__(
        self, network: Network, typed: bool, padding_id: int, config: EngineConfig
    ) -> None:
        super().__init__(network, typed, padding_id, config)
        self._ctx = parse_devices(config.ctx)[0]
        self._stages = self._blocks()
        self._hybridized = list(self._stages)
        self._hybridize()
        if config.threads is not None:
            mx.base.check_call(mx.base._LIB.MXSetNumOMPThreads(config.threads))

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return in_mxnet_thread(super()._exclusively, function, *arguments)

    def _blocks(self) -> List[HybridBlock]:
        """The stages, as blocks that MXNet traces."""
        return self._network.stages()

    def _begin(self, pairs: Sequence[Any]) -> Tuple[List[mx.nd.NDArray], int]:
        """Inputs of the first stage, and the positions of each pair."""
        length = bucketed(max(pair.length for pair in pairs), self._network.max_positions)
        return self._arrays(pad_pairs(pairs, length, self._padding_id, self._typed)), length

    def _arrays(self, arrays: Sequence[np.ndarray]) -> List[mx.nd.NDArray]:
        """Copies on the device."""
        return [mx.nd.array(array, ctx=self._ctx, dtype=array.dtype) for array in arrays]

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return plan_batches(lengths, self._config.batch_tokens or _TOKENS)

    def store(self) -> HiddenStore:
        return HiddenStore(self._config.hidden_bytes)

    def _run(
        self,
        stages: Sequence[int],
        numbers: np.ndarray,
        pairs: Sequence[Any],
        store: Optional[HiddenStore],
        following: Optional[HiddenStore],
    ) -> Readings:
        if store is None:
            inputs, length = self._begin(pairs)
        else:
            lengths = np.array([pair.length for pair in pairs])
            limit = self._network.config and self._network.config.max_positions
            length = bucketed(int(lengths.max()), limit)
            hidden = store.take(numbers.tolist(), length, self._ctx)
            inputs = [hidden, mx.nd.array(lengths, ctx=self._ctx, dtype="float32")]
        positions = np.full(len(pairs), length)
        scores = []
        for stage in stages:
            outputs = self._stages[stage](*inputs)
            if isinstance(outputs, (list, tuple)):
                hidden, outputs = outputs
                inputs = [hidden, inputs[-1]]
            scores.append(outputs)
        if following is not None:
            following.put(numbers.tolist(), hidden)
        return Readings(positions, [stage_scores.asnumpy() for stage_scores in scores])

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        return rows
