"""oneDNN's engine."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import mxnet as mx
import numpy as np

from wqa.config import EngineConfig
from wqa.inference.engine import Engine, Readings
from wqa.inference.engine_locks import MXNET_LOCK, in_mxnet_thread
from wqa.inference.hidden import RowStore
from wqa.models import Network
from wqa.onednn import DenseChain, PackedBatch, PackedLayers, encoding_kind
from wqa.onednn.packing import round_up
from wqa.onednn.process import count_threads, in_usable_thread, openmp_threads
from wqa.onednn.quantize import QuantizedLayers
from wqa.text import Encoded, pack_batches

#: Default number of tokens of a micro-batch.
_TOKENS = 1024


class PackedEngine(Engine):
    """oneDNN's layers on packed rows, on the CPU, in any precision.

    A head of dense layers is oneDNN's too, in float32; MXNet computes any other.

    It reads the parameters of the network once.

    Parameters
    ----------
    network, typed, padding_id, config
        As `Engine` takes them. The network has `encoder_stages`, and its parameters are on the CPU.
    quantized : list of dict, optional
        `wqa.onednn.Quantized` products of each layer, for int8.
    """

    def __init__(
        self,
        network: Network,
        typed: bool,
        padding_id: int,
        config: EngineConfig,
        quantized: Optional[QuantizedLayers] = None,
    ) -> None:
        super().__init__(network, typed, padding_id, config)
        # One number for all threads that rank: products of other numbers are rounded differently.
        self._threads = config.threads or count_threads()
        self._stages = network.encoder_stages()
        self._bounds = [0, *np.cumsum([len(stage.layers) for stage in self._stages]).tolist()]
        layers = [layer for stage in self._stages for layer in stage.layers]
        self._tokens = max(config.batch_tokens or _TOKENS, network.config.max_positions)
        self._layers = PackedLayers(
            network.config,
            network.encoders[0].embeddings,
            layers,
            typed,
            encoding_kind(config.precision),
            self._tokens,
            quantized,
        )
        # A head of dense layers runs where the layers run, without a change of threads.
        self._chains: List[Optional[DenseChain]] = []
        for stage in self._stages:
            layers_of_head = stage.head.chain()
            self._chains.append(DenseChain(layers_of_head) if layers_of_head else None)
            if not layers_of_head:
                self._hybridized.append(stage.head)
        self._hybridize()

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return pack_batches(lengths, self._tokens)

    def store(self) -> RowStore:
        return RowStore(self._config.hidden_bytes)

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return in_usable_thread(self._with_threads, function, *arguments)

    def _with_threads(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with openmp_threads(self._threads):
            return super()._exclusively(function, *arguments)

    def _run(
        self,
        stages: Sequence[int],
        numbers: np.ndarray,
        pairs: Sequence[Encoded],
        store: Optional[RowStore],
        following: Optional[RowStore],
    ) -> Readings:
        lengths = np.array([len(pair.token_ids) for pair in pairs])
        layers, batch = self._layers, PackedBatch(lengths)
        if store is None:
            layers.embed(pairs, batch)
        else:
            layers.load(store.take(numbers.tolist()))
        rows = [self._run_stage(stage, batch) for stage in stages]
        if following is not None:
            following.put(numbers.tolist(), lengths, layers.encodings[: batch.tokens])
        return Readings(lengths, rows)

    def _run_stage(self, index: int, batch: PackedBatch) -> np.ndarray:
        """Rows that the head of a stage reads, (pairs, C)."""
        layers, stage = self._layers, self._stages[index]
        start, end = self._bounds[index : index + 2]
        only_first = stage.layers.needed == "first"
        for layer in range(start, end - only_first):
            layers.layer(layer, batch)
        if only_first:
            return layers.layer_of_first_rows(end - 1, batch)
        return layers.means(batch) if stage.head.reads == "mean" else layers.first_rows(batch)

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        chain = self._chains[stage]
        if chain is not None:
            return chain(rows)[:, 0]
        # The number of rows is rounded up, so that few shapes are compiled.
        padded = np.zeros((round_up(len(rows)), rows.shape[1]), np.float32)
        padded[: len(rows)] = rows
        return in_mxnet_thread(self._head_scores, stage, padded)[: len(rows)]

    def _head_scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        with MXNET_LOCK:
            return self._stages[stage].head(mx.nd.array(rows)).asnumpy()
