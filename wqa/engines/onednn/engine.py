"""oneDNN's engine."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import numpy as np

from wqa.config import EngineConfig
from wqa.engines.engine import Engine, LockedEngine, Readings
from wqa.engines.hidden import RowStore
from wqa.engines.onednn import PackedBatch, PackedLayers, encoding_kind
from wqa.engines.onednn.library import count_threads, in_usable_thread, openmp_threads
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.engines.onednn.stage import PackedStage
from wqa.models import Network
from wqa.text import pack_batches

#: Default number of tokens of a micro-batch.
TOKENS = 1024


class OnOneDNN(LockedEngine):
    """Base class of engines on packed rows, which compute by a number of OpenMP threads."""

    def _prepare(self, config: EngineConfig, longest: int) -> None:
        """Set the threads, and the tokens of a micro-batch, which holds the longest input."""
        # One number for all threads that rank: products of other numbers are rounded differently.
        self._threads = config.threads or count_threads()
        self._tokens = max(config.batch_tokens or TOKENS, longest)

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        """Divide inputs into micro-batches.

        Shapes: `lengths` (n,), ascending.
        """
        return pack_batches(lengths, self._tokens)

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return in_usable_thread(self._with_threads, function, *arguments)

    def _with_threads(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with openmp_threads(self._threads):
            return super()._exclusively(function, *arguments)


class PackedEngine(OnOneDNN, Engine):
    """oneDNN's layers on packed rows, on the CPU, in any precision.

    A head of dense layers is oneDNN's too, in float32; MXNet computes any other. Branches of a head
    run on the same encodings.

    It reads the parameters of the network once.
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
        self._prepare(config, network.config.max_positions)
        stages = network.encoder_stages()
        layers = [layer for stage in stages for layer in stage.all_layers()]
        self._layers = PackedLayers(
            network.config,
            stages[0].embeddings,
            layers,
            typed,
            encoding_kind(config.precision),
            self._tokens,
            quantized,
        )
        self._stages: List[PackedStage] = []
        end = 0
        for stage in stages:
            self._stages.append(PackedStage(stage, end))
            end += len(stage.all_layers())
            self._hybridized += self._stages[-1].computed_by_mxnet()
        self._hybridize()

    def store(self) -> RowStore:
        return RowStore(self._config.hidden_bytes)

    def _run(
        self,
        stages: Sequence[int],
        numbers: np.ndarray,
        pairs: Sequence[Any],
        store: Optional[RowStore],
        following: Optional[RowStore],
    ) -> Readings:
        layers, batch = self._layers, self._batch(pairs)
        lengths = batch.lengths
        if store is None:
            self._begin(pairs, batch)
        else:
            layers.load(store.take(numbers.tolist()))
        rows = [self._stages[stage].run(layers, batch) for stage in stages]
        if following is not None:
            following.put(numbers.tolist(), lengths, layers.encodings[: batch.tokens])
        return Readings(lengths, rows)

    def _batch(self, pairs: Sequence[Any]) -> PackedBatch:
        """Rows of the pairs of a micro-batch."""
        return PackedBatch(np.array([pair.length for pair in pairs]))

    def _begin(self, pairs: Sequence[Any], batch: PackedBatch) -> None:
        """Set the first encodings of a micro-batch."""
        self._layers.embed(pairs, batch)

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        return self._stages[stage].scores(self._layers, rows)
