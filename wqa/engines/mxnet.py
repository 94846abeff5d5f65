"""MXNet's engine: hybridized stages on padded micro-batches, on any device."""

from __future__ import annotations

import itertools
import operator
from typing import Any, Callable, Dict, List, Sequence, Tuple

from wqa.models.runtime import parse_devices

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock

from wqa.config import EngineConfig
from wqa.engines.blocks import BlockEngine, NetworkEngine
from wqa.engines.engine import Readings, Work, in_mxnet_thread
from wqa.engines.hidden import Block, BlockStore, Spilled
from wqa.text import bucketed, pad_pairs, plan_batches

#: Default number of tokens of a micro-batch.
TOKENS = 2048


class OnMXNet(BlockEngine):
    """Base class of engines whose blocks MXNet traces and runs on one device, by one lock."""

    _shares_lock = True

    def _prepare(self, config: EngineConfig, blocks: Sequence[HybridBlock]) -> None:
        """Set the device and the threads, and hybridize the blocks."""
        self._ctx = parse_devices(config.ctx)[0]
        self._hybridized = list(blocks)
        self._hybridize()
        if config.threads is not None:
            mx.base.check_call(mx.base._LIB.MXSetNumOMPThreads(config.threads))

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return in_mxnet_thread(super()._exclusively, function, *arguments)

    def _arrays(self, arrays: Sequence[np.ndarray]) -> List[mx.nd.NDArray]:
        """Copies on the device."""
        return [mx.nd.array(array, ctx=self._ctx, dtype=array.dtype) for array in arrays]


class HybridEngine(OnMXNet, NetworkEngine):
    """MXNet's hybridized stages on padded micro-batches, on any device, in float32.

    It reads the current parameters of the network at each run. All such engines have one lock.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._stages = self._blocks()
        self._prepare(self._config, self._stages)

    def _blocks(self) -> List[HybridBlock]:
        """The stages, as blocks that MXNet traces."""
        return self._network.stages()

    def _begin(self, pairs: Sequence[Any]) -> Tuple[List[mx.nd.NDArray], int]:
        """Inputs of the first stage, and the positions of each pair."""
        length = bucketed(max(pair.length for pair in pairs), self._network.max_positions)
        return self._arrays(pad_pairs(pairs, length, self._padding_id, self._typed)), length

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return plan_batches(lengths, self._config.batch_tokens or TOKENS)

    def store(self) -> HiddenStore:
        return HiddenStore(self._config.hidden_bytes)

    def _run(self, work: Work) -> Readings:
        stages, numbers, pairs, store, following = work
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


class HiddenStore(BlockStore):
    """Encodings of pairs as padded blocks, by pair number."""

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self._positions: Dict[int, Tuple[int, int]] = {}  # pair: block, row

    def put(self, pairs: Sequence[int], hidden: mx.nd.NDArray) -> None:
        """Store the encodings of a micro-batch.

        Shapes: `hidden` (B, L, C).
        """
        for row, pair in enumerate(pairs):
            self._positions[pair] = (len(self._blocks), row)
        if self._reserve(hidden.size * 4):
            self._blocks.append(hidden)
        else:
            self._spill(hidden.asnumpy())

    def take(self, pairs: Sequence[int], length: int, ctx: mx.Context) -> mx.nd.NDArray:
        """Gather the encodings of pairs into a micro-batch, trimmed or padded to a length.

        Pairs must be taken in the order in which they were put: earlier blocks are freed.

        Shapes: the result (B, L, C).
        """
        parts: List[mx.nd.NDArray] = []
        positions = [self._positions[pair] for pair in pairs]
        self._free(positions[0][0])
        for block, group in itertools.groupby(positions, key=operator.itemgetter(0)):
            rows = [row for _, row in group]
            parts.append(_rows(self._blocks[block], rows, length, ctx))
        return parts[0] if len(parts) == 1 else mx.nd.concat(*parts, dim=0)


def _rows(block: Block, rows: List[int], length: int, ctx: mx.Context) -> mx.nd.NDArray:
    if isinstance(block, Spilled):
        part = mx.nd.array(block.read()[rows, :length], ctx=ctx)
    else:
        part = mx.nd.take(block, mx.nd.array(rows, ctx=ctx, dtype="int32"))
        if part.shape[1] > length:
            part = mx.nd.slice_axis(part, axis=1, begin=0, end=length)
    count, positions, units = part.shape
    if positions < length:
        padding = mx.nd.zeros((count, length - positions, units), ctx=ctx)
        part = mx.nd.concat(part, padding, dim=1)
    return part
