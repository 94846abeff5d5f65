"""MXNet's engine: hybridized stages on padded micro-batches, on any device, in float32."""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Sequence, Tuple

from wqa.models.runtime import parse_devices

import mxnet as mx
import numpy as np

from wqa.config import EngineConfig
from wqa.engines.engine import MicroBatch, PaddedEngine
from wqa.engines.inputs import EngineInputs
from wqa.engines.threads import MXNET_LOCK, check_process, in_mxnet_thread
from wqa.models.embeddings import break_cycles


class MXNetEngine(PaddedEngine):
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
        super().__init__(inputs, config, MXNET_LOCK)
        self._stages = inputs.blocks()
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

    def _compute(
        self, batch: MicroBatch, arrays: Mapping[str, np.ndarray]
    ) -> Tuple[Any, List[np.ndarray]]:
        inputs: Sequence[Any] = [
            mx.nd.array(array, ctx=self._ctx, dtype=array.dtype) for array in arrays.values()
        ]
        if batch.store is None:
            inputs = self._inputs.start(*inputs)
        hidden: Any = None
        scores: List[mx.nd.NDArray] = []
        for stage in batch.stages:
            outputs = self._stages[stage](*inputs)
            if isinstance(outputs, (list, tuple)):
                hidden, *own = outputs
                scores += own
                inputs = [hidden, inputs[-1]]
            else:  # a network that is its own only stage
                scores.append(outputs)
        if batch.next_store is not None:
            hidden = hidden.asnumpy()
        return hidden, [stage_scores.asnumpy() for stage_scores in scores]
