"""ONNX Runtime's engine of networks on lists of candidates."""

from __future__ import annotations

from typing import Any, List

import numpy as np

from wqa.config import EngineConfig
from wqa.engines.engine import Engine, MicroBatch, Readings
from wqa.engines.onnx.sessions import GraphSessions, graph_inputs
from wqa.systems.cosinet.inputs import ListInputs, plan_lists

#: Default number of words of a micro-batch, padding included.
_WORDS = 8192


class ListOnnxEngine(Engine):
    """The graph of a network on lists, which are padded in micro-batches.

    Parameters
    ----------
    network : ExportedNetwork
        Description of the network.
    inputs : ListInputs
        Pads lists.
    config : EngineConfig
        Device, threads and sizes.
    """

    def __init__(self, network: Any, inputs: ListInputs, config: EngineConfig) -> None:
        super().__init__(config)
        [self._graph] = network.graphs
        self._inputs, self._words = inputs, config.batch_tokens or _WORDS
        self._sessions = GraphSessions(network.folder, network.graphs, config)

    def _run(self, batch: MicroBatch) -> Readings:
        lists = batch.pairs
        counts = np.array([len(words.lengths) for words in lists])
        lengths = np.array([(len(words.question), words.lengths.max()) for words in lists])
        scores: List[Any] = [None] * len(lists)
        positions: List[Any] = [None] * len(lists)
        for indices in plan_lists(counts, lengths, self._words):
            padded = self._inputs.pad_lists([lists[index].pairs() for index in indices])
            inputs = graph_inputs(dict(zip(self._inputs.names, padded)))
            outputs = self._sessions.run(self._graph, inputs)
            width = inputs["question_ids"].shape[1] + inputs["candidate_ids"].shape[2]
            for row, index in zip(outputs["logits"], indices):  # (n,)
                scores[index] = row[: counts[index]]
                positions[index] = np.full(counts[index], width)
        return Readings(np.concatenate(positions), [np.concatenate(scores)])
