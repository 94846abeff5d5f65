"""ONNX Runtime's engine: exported graphs on padded micro-batches, on a CPU or a GPU, in float32.

Each stage is a graph of its own, so that candidates can be dropped between them by any rule.
Between two stages encodings are stored without padding, and padded anew to the longest survivor.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

import numpy as np

from wqa.config import EngineConfig
from wqa.engines.engine import Engine, LockedEngine, Readings, Work
from wqa.engines.hidden import RowStore
from wqa.engines.onnx.inputs import MASKS, graph_inputs, mask_of
from wqa.engines.onnx.sessions import GraphSessions
from wqa.errors import OptionError
from wqa.text import Tokenizer, plan_batches

#: Default number of tokens of a micro-batch, padding included.
TOKENS = 2048
_MASK = MASKS["valid_length"].name


class OnnxEngine(Engine):
    """Graphs of the stages of an exported network.

    Parameters
    ----------
    network : ExportedNetwork
        Description of the network, with the ``folder`` and the ``stages`` of its graphs.
    inputs : PairInputs
        Pads the pairs.
    config : EngineConfig
        Device, threads and sizes.

    Raises
    ------
    OptionError
        If the network is not exported.
    RunDirectoryError, DeviceError, MissingDependency
        As `GraphSessions` raises them.
    """

    def __init__(self, network: Any, inputs: Any, config: EngineConfig) -> None:
        if not hasattr(network, "graphs"):
            raise OptionError(
                "engine",
                "onnxruntime for a network in memory",
                "a folder of exported graphs, or the directory of a run",
                "save the run, then export it: wqa export RUN OUT --format onnx",
            )
        super().__init__(config)
        self._inputs, self._stages = inputs, network.graphs
        self._sessions = GraphSessions(network.folder, network.graphs, config)

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return plan_batches(lengths, self._config.batch_tokens or TOKENS)

    def store(self) -> RowStore:
        return RowStore(self._config.hidden_bytes)

    def _run(self, work: Work) -> Readings:
        stages, numbers, pairs, store, following = work
        lengths = np.array([pair.length for pair in pairs])
        if store is None:
            inputs = self._begin(pairs)
        else:
            inputs = _padded(store.take(numbers.tolist()), lengths)
        rows = []
        for stage in stages:
            *encodings, logits = self._sessions.run(self._stages[stage], inputs)
            rows.append(logits)
            if encodings:
                inputs = {"hidden": encodings[0], _MASK: mask_of(lengths, encodings[0].shape[1])}
        if following is not None:
            is_real = inputs[_MASK].astype(bool)
            following.put(numbers.tolist(), lengths, inputs["hidden"][is_real])
        return Readings(np.full(len(pairs), _positions(inputs)), rows)

    def _begin(self, pairs: Sequence[Any]) -> Dict[str, np.ndarray]:
        """Inputs of the first stage."""
        return graph_inputs(dict(zip(self._inputs.names, self._inputs.pad(pairs))))

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        return rows[:, 0] if rows.shape[1] == 1 else rows  # one score a pair comes as a column


def _padded(rows: Sequence[np.ndarray], lengths: np.ndarray) -> Dict[str, np.ndarray]:
    """Encodings of pairs as the input of a stage.

    Shapes: `rows` (length, C), `lengths` (B,).
    """
    hidden = np.zeros((len(rows), lengths.max(), rows[0].shape[1]), np.float32)  # (B, L, C)
    for row, encodings in zip(hidden, rows):
        row[: len(encodings)] = encodings
    return {"hidden": hidden, _MASK: mask_of(lengths, hidden.shape[1])}


def _positions(inputs: Dict[str, np.ndarray]) -> int:
    """Positions of each pair, padding included."""
    return sum(array.shape[-1] for name, array in inputs.items() if name.endswith("_mask"))


class TextGraph(LockedEngine):
    """The graph of an encoder of single texts.

    Parameters
    ----------
    encoder : ExportedEncoder
        Folder and name of the graph.
    tokenizer : Tokenizer
        Tokenizer of the encoder, for the id of padding.
    config : EngineConfig
        Device, threads and sizes.
    """

    kind = "float32"

    def __init__(self, encoder: Any, tokenizer: Tokenizer, config: EngineConfig) -> None:
        super().__init__()
        self._graph, self._padding_id = encoder.graph, tokenizer.padding_id
        self._tokens = config.batch_tokens or TOKENS
        self._sessions = GraphSessions(encoder.folder, [encoder.graph], config)

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        """Divide texts into micro-batches.

        Shapes: `lengths` (texts,), ascending.
        """
        return plan_batches(lengths, self._tokens)

    def encode_all(self, batches: Sequence[Sequence[np.ndarray]]) -> List[List[np.ndarray]]:
        """Encodings of the texts of micro-batches.

        Shapes: token ids (tokens,), the encodings of a text (tokens, C).
        """
        return [self._exclusively(self._encode, token_ids) for token_ids in batches]

    def _encode(self, token_ids: Sequence[np.ndarray]) -> List[np.ndarray]:
        lengths = np.array([len(ids) for ids in token_ids])
        padded = np.full((len(lengths), lengths.max()), self._padding_id, np.int32)
        for row, ids in zip(padded, token_ids):
            row[: len(ids)] = ids
        inputs = graph_inputs({"token_ids": padded, "valid_length": lengths})
        [hidden] = self._sessions.run(self._graph, inputs)  # (B, L, C)
        return [rows[: len(ids)] for rows, ids in zip(hidden, token_ids)]
