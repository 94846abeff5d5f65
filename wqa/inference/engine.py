"""Engines, which compute encodings and scores: MXNet's hybridized stages, or oneDNN's layers.

An engine plans micro-batches, runs consecutive stages on them, and stores the encodings of pairs
between stages. The ranker decides which pairs are dropped (`wqa.inference.cascade`). An engine
keeps no results: `Engine.run` returns the input of the heads, and `Engine.scores` the scores. Both
hold the engine's lock, so that several threads may rank at once. Neither reads results of a call
before it, which an exception may have interrupted.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock

from wqa.config import PAIR_FORMS, EngineConfig
from wqa.errors import OptionError
from wqa.inference.engine_locks import (
    MXNET_LOCK,
    engine_lock,
    in_mxnet_thread,
    name_scope_kept,
)
from wqa.inference.hidden import HiddenStore, RowStore
from wqa.models import Network, parse_devices
from wqa.models.backbone import break_cycles
from wqa.onednn import DenseChain, PackedBatch, PackedLayers, choose_engine, encoding_kind
from wqa.onednn.packing import round_up
from wqa.onednn.process import count_threads, in_usable_thread, openmp_threads
from wqa.onednn.quantize import QuantizedLayers
from wqa.text import Encoded, Tokenizer, bucketed, pack_batches, pad_pairs, plan_batches

#: Values of `wqa.models.Head.reads` that oneDNN's engine supports.
READ_ROWS = ("first", "mean")

#: Default number of tokens of a micro-batch.
_HYBRID_TOKENS, _PACKED_TOKENS = 2048, 1024


class Readings(NamedTuple):
    """Result of running stages on a micro-batch."""

    #: (pairs,) positions of each pair, padding included.
    positions: np.ndarray
    #: Input of `Engine.scores` for each stage, pairs first.
    rows: List[np.ndarray]


class Engine:
    """Base class of engines.

    Parameters
    ----------
    network : Network
        Network with its parameters on the device.
    typed : bool
        Whether pairs have token types.
    padding_id : int
        Token id of padding.
    config : EngineConfig
        Device, precision, threads and sizes.
    """

    #: Whether all engines of the type have one lock.
    _shares_lock = False

    def __init__(
        self, network: Network, typed: bool, padding_id: int, config: EngineConfig
    ) -> None:
        self._network, self._typed, self._padding_id = network, typed, padding_id
        self._config = config
        network.apply(break_cycles)
        self._lock = engine_lock(self._shares_lock)
        self._hybridized: List[HybridBlock] = []  # blocks that MXNet traces
        self._was_interrupted = False  # whether the last call did not end

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        """Divide pairs into micro-batches.

        Parameters
        ----------
        lengths : numpy.ndarray
            (pairs,) tokens of each pair, ascending.

        Returns
        -------
        list of numpy.ndarray
            Indices of the pairs of each micro-batch.
        """
        raise NotImplementedError

    def store(self) -> Any:
        """Create an empty store for encodings between two runs."""
        raise NotImplementedError

    def run(
        self,
        stages: Sequence[int],
        numbers: np.ndarray,
        pairs: Sequence[Encoded],
        store: Any,
        following: Any,
    ) -> Readings:
        """Run consecutive stages on a micro-batch.

        Parameters
        ----------
        stages : sequence of int
            Indices of the stages.
        numbers : numpy.ndarray
            (pairs,) numbers of the pairs in the stores.
        pairs : sequence of Encoded
            Pairs of the micro-batch.
        store : optional
            Store that holds the encodings of the pairs; None for the first stage.
        following : optional
            Store for the encodings after the last of the stages; None if nothing reads them.

        Returns
        -------
        Readings
            Positions that ran, and the input of the heads.
        """
        return self._exclusively(self._run, stages, numbers, pairs, store, following)

    def scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        """Scores of a stage.

        Parameters
        ----------
        stage : int
            Index of the stage.
        rows : numpy.ndarray
            Input of the stage's head, as `run` returned it, concatenated over micro-batches.

        Returns
        -------
        numpy.ndarray
            (pairs,) log-odds.
        """
        return self._exclusively(self._scores, stage, rows)

    def _run(
        self,
        stages: Sequence[int],
        numbers: np.ndarray,
        pairs: Sequence[Encoded],
        store: Any,
        following: Any,
    ) -> Readings:
        """`run`, while no other thread uses the engine."""
        raise NotImplementedError

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        """`scores`, while no other thread uses the engine."""
        raise NotImplementedError

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
        self._stages = network.stages()
        self._hybridized = self._stages
        self._hybridize()
        if config.threads is not None:
            mx.base.check_call(mx.base._LIB.MXSetNumOMPThreads(config.threads))

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return in_mxnet_thread(super()._exclusively, function, *arguments)

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return plan_batches(lengths, self._config.batch_tokens or _HYBRID_TOKENS)

    def store(self) -> HiddenStore:
        return HiddenStore(self._config.hidden_bytes)

    def _run(
        self,
        stages: Sequence[int],
        numbers: np.ndarray,
        pairs: Sequence[Encoded],
        store: Optional[HiddenStore],
        following: Optional[HiddenStore],
    ) -> Readings:
        lengths = np.array([len(pair.token_ids) for pair in pairs])
        length = bucketed(int(lengths.max()), self._network.max_positions)
        if store is None:
            arrays = pad_pairs(pairs, length, self._padding_id, self._typed)
            inputs = [mx.nd.array(array, ctx=self._ctx, dtype=array.dtype) for array in arrays]
        else:
            hidden = store.take(numbers.tolist(), length, self._ctx)
            inputs = [hidden, mx.nd.array(lengths, ctx=self._ctx, dtype="float32")]
        scores = []
        for stage in stages:
            outputs = self._stages[stage](*inputs)
            if isinstance(outputs, (list, tuple)):
                hidden, outputs = outputs
                inputs = [hidden, inputs[-1]]
            scores.append(outputs)
        if following is not None:
            following.put(numbers.tolist(), hidden)
        positions = np.full(len(pairs), length)
        return Readings(positions, [stage_scores.asnumpy() for stage_scores in scores])

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        return rows


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
        self._tokens = max(config.batch_tokens or _PACKED_TOKENS, network.config.max_positions)
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


def packing_obstacle(network: Network) -> str:
    """Why oneDNN's engine cannot run a network.

    Parameters
    ----------
    network : Network
        Network of any system.

    Returns
    -------
    str
        The reason; empty if the engine can run the network.
    """
    stages = network.encoder_stages()
    if not stages:
        return "a network that is not made of stages of transformer layers"
    for index, stage in enumerate(stages):
        if stage.head.reads not in READ_ROWS:
            return f"a head that reads {stage.head.reads!r}, not one row a pair"
        expected = None if index else network.encoders[0].embeddings
        if stage.embeddings is not expected or not len(stage.layers):
            return "stages that are not consecutive layers of one encoder"
    return ""


def build_engine(
    network: Network,
    tokenizer: Tokenizer,
    config: EngineConfig,
    quantized: Optional[QuantizedLayers] = None,
) -> Engine:
    """Build the engine of a ranker.

    Parameters
    ----------
    network : Network
        Network with its parameters on ``config.ctx``, which is a single device.
    tokenizer : Tokenizer
        Tokenizer of the network, for the form of pairs and the id of padding.
    config : EngineConfig
        Engine, precision, threads, device and sizes.
    quantized : list of dict, optional
        `wqa.onednn.Quantized` products of each layer; needed for int8.

    Returns
    -------
    Engine
        A `HybridEngine` or a `PackedEngine`.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If the engine, the precision, the device and the network do not go together, or this machine
        lacks them.
    """
    count = len(parse_devices(config.ctx))
    if count > 1:
        raise OptionError("ctx", f"{config.ctx}, which is {count} devices", "one device to rank on")
    chosen = choose_engine(config, packing_obstacle(network))
    shared = (network, PAIR_FORMS[tokenizer.pair_form].typed, tokenizer.padding_id, config)
    if chosen == "mxnet":
        with MXNET_LOCK:
            return HybridEngine(*shared)
    if config.precision == "int8" and quantized is None:
        raise OptionError(
            "precision",
            "int8 of a model without calibration",
            "a calibrated run",
            "calibrate the run with `wqa quantize`",
        )
    with MXNET_LOCK:
        return PackedEngine(*shared, quantized=quantized)
