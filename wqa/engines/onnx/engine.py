"""ONNX Runtime's engine: exported graphs on padded micro-batches, on a CPU or a GPU, in float32.

Each stage is a graph of its own, so that candidates can be dropped between them by any rule.
Between two stages encodings are stored without padding, and padded anew to the longest survivor.
"""

from __future__ import annotations

from typing import List

import numpy as np

from wqa.config import EngineConfig
from wqa.engines.engine import (
    Engine,
    MicroBatch,
    Readings,
    store_encodings,
    take_encodings,
)
from wqa.engines.inputs import EngineInputs, pad_encodings, real_rows
from wqa.engines.onnx.sessions import MASKS, GraphSessions, graph_inputs, mask_of
from wqa.errors import OptionError
from wqa.text import plan_batches

#: Default number of tokens of a micro-batch, padding included.
TOKENS = 2048
_MASK = MASKS["valid_length"].name


class OnnxEngine(Engine):
    """Graphs of the stages of an exported network.

    Parameters
    ----------
    inputs : EngineInputs
        Pads the pairs; its network has the ``folder`` and the names of its ``graphs``.
    config : EngineConfig
        Device, threads and sizes.

    Raises
    ------
    OptionError
        If the network is not exported.
    RunDirectoryError, DeviceError, MissingDependency
        As `GraphSessions` raises them.
    """

    def __init__(self, inputs: EngineInputs, config: EngineConfig) -> None:
        if not inputs.is_exported:
            raise OptionError(
                "engine",
                "onnxruntime for a network in memory",
                "a folder of exported graphs, or the directory of a run",
                "save the run, then export it: wqa export RUN OUT --format onnx",
            )
        super().__init__(config)
        self._inputs, self._stages = inputs, inputs.network.graphs
        self._sessions = GraphSessions(inputs.network.folder, self._stages, config)

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return plan_batches(lengths, self._config.batch_tokens or TOKENS)

    def _run(self, batch: MicroBatch) -> Readings:
        lengths = batch.lengths
        if batch.store is None:
            arrays = self._inputs.arrays(batch.pairs)
            positions = self._inputs.positions(arrays)
            inputs = graph_inputs(arrays)
        else:
            positions = int(lengths.max())
            encodings = take_encodings(batch.store, batch.numbers)
            stored = pad_encodings(encodings, positions)  # (B, L, C)
            inputs = {"hidden": stored, _MASK: mask_of(lengths, positions)}
        rows = []
        for stage in batch.stages:
            outputs = self._sessions.run(self._stages[stage], inputs)
            if "logits" in outputs:
                rows.append(outputs["logits"])
            if "last_hidden_state" in outputs:
                hidden = outputs["last_hidden_state"]
                inputs = {"hidden": hidden, _MASK: mask_of(lengths, hidden.shape[1])}
        if batch.next_store is not None:
            rows_of_pairs = real_rows(hidden, lengths)
            store_encodings(batch.next_store, batch.numbers, lengths, rows_of_pairs)
        return Readings(np.full(len(lengths), positions), rows)
