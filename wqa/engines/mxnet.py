"""MXNet's engine: hybridized stages on padded micro-batches, on any device, in float32."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence

from wqa.models.runtime import parse_devices

import mxnet as mx
import numpy as np

from wqa.config import EngineConfig
from wqa.engines.engine import (
    MXNET_LOCK,
    Engine,
    MicroBatch,
    Readings,
    check_process,
    in_mxnet_thread,
    store_encodings,
    take_encodings,
)
from wqa.engines.inputs import EngineInputs, pad_encodings, real_rows
from wqa.models.embeddings import break_cycles
from wqa.text import bucketed, plan_batches

#: Default number of tokens of a micro-batch.
TOKENS = 2048


class MXNetEngine(Engine):
    """The stages of a network on padded micro-batches.

    Parameters
    ----------
    inputs : EngineInputs
        Pads the pairs; its network has its parameters on the device.
    config : EngineConfig
        Device, threads and sizes.
    """

    def __init__(self, inputs: EngineInputs, config: EngineConfig) -> None:
        inputs.network.apply(break_cycles)
        super().__init__(config, MXNET_LOCK)
        self._inputs, self._stages = inputs, inputs.blocks()
        self._traced = self._stages if inputs.is_traced else []
        self._ctx = parse_devices(config.ctx)[0]
        self._hybridize()
        if config.threads is not None:
            mx.base.check_call(mx.base._LIB.MXSetNumOMPThreads(config.threads))

    def _hybridize(self) -> None:
        for block in self._traced:
            block.hybridize()

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        check_process()
        try:
            return in_mxnet_thread(super()._exclusively, function, *arguments)
        except BaseException:
            with MXNET_LOCK:
                self._hybridize()  # an interrupt may have left a block half traced
            raise

    def _arrays(self, arrays: Sequence[np.ndarray]) -> List[mx.nd.NDArray]:
        """Copies on the device."""
        return [mx.nd.array(array, ctx=self._ctx, dtype=array.dtype) for array in arrays]

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return plan_batches(lengths, self._config.batch_tokens or TOKENS)

    def _run(self, batch: MicroBatch) -> Readings:
        lengths = batch.lengths
        if batch.store is None:
            arrays = self._inputs.arrays(batch.pairs)
            positions = self._inputs.positions(arrays)
            inputs = self._inputs.start(*self._arrays(list(arrays.values())))
        else:
            config = self._inputs.network.config
            positions = bucketed(int(lengths.max()), config and config.max_positions)
            encodings = take_encodings(batch.store, batch.numbers)
            stored = pad_encodings(encodings, positions)  # (B, L, C)
            inputs = self._arrays([stored, lengths.astype(np.float32)])
        rows = []
        for stage in batch.stages:
            outputs = self._stages[stage](*inputs)
            if isinstance(outputs, (list, tuple)):
                hidden, *own = outputs
                rows += own
                inputs = [hidden, inputs[-1]]
            else:  # a network that is its own only stage
                rows.append(outputs)
        if batch.next_store is not None:
            rows_of_pairs = real_rows(hidden.asnumpy(), lengths)
            store_encodings(batch.next_store, batch.numbers, lengths, rows_of_pairs)
        scores = [stage_scores.asnumpy() for stage_scores in rows]
        return Readings(np.full(len(lengths), positions), scores)
