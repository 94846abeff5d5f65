"""ONNX Runtime's engine of networks on lists of candidates."""

from __future__ import annotations

from typing import Any, List, Sequence

import numpy as np

from wqa.config import EngineConfig
from wqa.engines.onnx.inputs import graph_inputs
from wqa.engines.onnx.sessions import GraphSessions
from wqa.systems.cosinet.inputs import ListInputs, WordList, plan_lists
from wqa.systems.cosinet.ranker import ListEngine, ListScores

#: Default number of words of a micro-batch, padding included.
_WORDS = 8192


class ListOnnxEngine(ListEngine):
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
        super().__init__()
        [self._graph] = network.graphs
        self._inputs, self._words = inputs, config.batch_tokens or _WORDS
        self._sessions = GraphSessions(network.folder, network.graphs, config)

    def _score(self, lists: Sequence[WordList]) -> List[ListScores]:
        counts = np.array([len(words.lengths) for words in lists])
        lengths = np.array([(len(words.question), words.lengths.max()) for words in lists])
        results: List[Any] = [None] * len(lists)
        for batch in plan_lists(counts, lengths, self._words):
            padded = self._inputs.pad_lists([lists[index].pairs() for index in batch])
            inputs = graph_inputs(dict(zip(self._inputs.names, padded)))
            [scores] = self._sessions.run(self._graph, inputs)  # (Q, n)
            width = inputs["question_ids"].shape[1] + inputs["candidate_ids"].shape[2]
            for row, index in zip(scores, batch):
                positions = np.full(counts[index], width)
                results[index] = ListScores(row[: counts[index]], positions)
        return results
