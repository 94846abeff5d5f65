"""oneDNN's engine: stages on packed rows, each the layers before a head, and the head.

Dense layers of a head run one after another, by oneDNN in float32; MXNet runs any other head.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock, nn

from wqa.config import EngineConfig
from wqa.engines.blocks import BlockEngine, NetworkEngine
from wqa.engines.engine import MXNET_LOCK, Readings, Work, in_mxnet_thread
from wqa.engines.hidden import RowStore
from wqa.engines.onednn.choice import encoding_kind
from wqa.engines.onednn.library import (
    Call,
    as_float32,
    check_thread,
    count_threads,
    in_usable_thread,
    openmp_threads,
)
from wqa.engines.onednn.operations import Dense, Operations, Workspace
from wqa.engines.onednn.packed_parts import PackedBatch, round_up
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.engines.onednn.read_rows import ATTENDING
from wqa.engines.onednn.scoring import PackedLayers
from wqa.engines.onednn.streams import Streams
from wqa.models import Head, LayerStack, Network
from wqa.models.heads import Stage
from wqa.text import pack_batches


class PackedPath:
    """Consecutive layers on packed rows, and the head after them."""

    def __init__(self, layers: LayerStack, head: Head, start: int, last: bool = False) -> None:
        self._start = start
        self._end = start + len(layers)
        # The last layer runs for the rows that the head reads alone.
        few_marks = last and head.reads == "marks" and head.marks <= ATTENDING
        self._reads_rows = len(layers) > 0 and (layers.needed is not None or few_marks)
        self.head = head
        self.chain = None
        dense_layers = head.chain()
        if dense_layers:
            self.chain = DenseChain(dense_layers)

    @property
    def changes_encodings(self) -> bool:
        """Whether `run` changes the current encodings."""
        return self._end - self._start > self._reads_rows

    def width(self, layers: PackedLayers) -> int:
        """Width of the rows that `run` returns."""
        positions = 1
        if self.head.reads == "first":
            positions = self.head.positions
        # An encoding and a context each, where the last layer is not finished.
        return (1 + self._reads_rows) * positions * layers.config.units

    def run(self, layers: PackedLayers, batch: PackedBatch) -> np.ndarray:
        """Run the layers on the current encodings.

        Shapes: the result (pairs, width).
        """
        for layer in range(self._start, self._end - self._reads_rows):
            layers.layer(layer, batch)
        if self.head.reads == "mean":
            return layers.means(batch)
        if self.head.reads == "tokens":
            return as_float32(layers.encodings[: batch.tokens])
        if self._reads_rows:
            rows = layers.attend_read_rows(self._end - 1, batch)
        else:
            rows = layers.read_rows(batch)
        if self.head.reads == "marks":
            return np.concatenate([rows, batch.is_read.astype(np.float32)], axis=1)
        return rows

    def scores(self, layers: PackedLayers, rows: np.ndarray) -> np.ndarray:
        """Run the rest of the last layer, and the head.

        Shapes: the result (pairs,).
        """
        if self.head.reads == "marks":
            rows, is_read = np.split(rows, [-self.head.marks], axis=1)
            if self._reads_rows:
                rows = layers.finish_read_rows(self._end - 1, rows)
            marked = rows.reshape(*is_read.shape, -1) * is_read[:, :, None]
            return self._by_mxnet(marked, is_read)
        if self._reads_rows:
            rows = layers.finish_read_rows(self._end - 1, rows)
        if self.chain is not None:
            outputs = self.chain(rows)
            if self.head.reads == "tokens":
                return outputs
            if outputs.shape[1] == 1:
                return outputs[:, 0]
            return outputs[:, 1] - outputs[:, 0]
        return self._by_mxnet(rows)

    def _by_mxnet(self, *inputs: np.ndarray) -> np.ndarray:
        """Run the head on inputs whose number of rows is rounded up: few shapes are compiled."""
        count = len(inputs[0])
        padded = []
        for rows in inputs:
            array = np.zeros((round_up(count), *rows.shape[1:]), np.float32)
            array[:count] = rows
            padded.append(array)
        return in_mxnet_thread(self._scores_by_mxnet, padded)[:count]

    def _scores_by_mxnet(self, inputs: Sequence[np.ndarray]) -> np.ndarray:
        with MXNET_LOCK:
            return self.head(*map(mx.nd.array, inputs)).asnumpy()


class PackedStage:
    """A stage of a network on packed rows. The branches of a head run on the same encodings."""

    def __init__(self, stage: Stage, start: int) -> None:
        self._head = stage.head
        self._shared = range(start, start + len(stage.layers))
        self._branches: List[PackedPath] = []
        start = self._shared.stop
        for branch in stage.head.branches():
            self._branches.append(PackedPath(branch.layers, branch.head, start))
            start += len(branch.layers)
        self._path: Optional[PackedPath] = None
        if not self._branches:
            self._path = PackedPath(stage.layers, stage.head, self._shared.start, stage.last)

    def computed_by_mxnet(self) -> List[HybridBlock]:
        """Heads that MXNet computes."""
        paths = self._branches
        if self._path is not None:
            paths = [self._path]
        return [path.head for path in paths if path.chain is None]

    def run(self, layers: PackedLayers, batch: PackedBatch) -> np.ndarray:
        """Run the stage on the current encodings, which become those after its layers.

        Shapes: the result (pairs, width).
        """
        if self._path is not None:
            return self._path.run(layers, batch)
        for layer in self._shared:
            layers.layer(layer, batch)
        rows = []
        encodings = layers.encodings[: batch.tokens]
        shared = encodings
        if any(branch.changes_encodings for branch in self._branches):
            shared = encodings.copy()
        # One joint product for the keys and values of all branches saves 8 % of these products in
        # float32, 0.3 % of a base encoder with three heads of one layer: not worth a layout.
        for branch in self._branches:
            rows.append(branch.run(layers, batch))
            if branch.changes_encodings:
                encodings[:] = shared
        return np.concatenate(rows, axis=1)

    def scores(self, layers: PackedLayers, rows: np.ndarray) -> np.ndarray:
        """Run the head, or the heads of its branches and their combination.

        Shapes: the result (pairs,).
        """
        if self._path is not None:
            return self._path.scores(layers, rows)
        scores = []
        edges = np.cumsum([branch.width(layers) for branch in self._branches])
        for branch, branch_rows in zip(self._branches, np.split(rows, edges[:-1], axis=1)):
            scores.append(branch.scores(layers, branch_rows))
        return self._head.combine(np.stack(scores, axis=1))


#: Rows that run together.
CHUNK = 256


class DenseChain:
    """Dense layers, each on the output of the one before it.

    Parameters
    ----------
    layers : sequence of (mxnet.gluon.nn.Dense, str)
        The layers, on the CPU, with the name of the activation after each; empty for none.
        Parameters are read once.
    """

    def __init__(self, layers: Sequence[Tuple[nn.Dense, str]]) -> None:
        self._widths = [layers[0][0].weight.shape[1]]
        self._layers: List[Tuple[Dense, str]] = []
        for block, activation in layers:
            weight = block.weight.data().asnumpy()
            bias = block.bias.data().asnumpy()
            self._layers.append((_dense(weight, bias), activation))
            self._widths.append(weight.shape[0])
        self._operations, self._workspace = Operations(0.0), Workspace()
        self._calls: Dict[int, List[Call]] = {}

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Run the layers.

        Shapes: `rows` (n, in), the result (n, out).
        """
        check_thread()
        chunks = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
        return np.concatenate([self._run(chunk) for chunk in chunks])

    def _run(self, rows: np.ndarray) -> np.ndarray:
        count = len(rows)
        self._values(0)[:count] = rows
        for call in self._calls_of(round_up(count)):
            call()
        outputs = self._values(len(self._layers))
        return outputs[:count].copy()

    def _values(self, index: int) -> np.ndarray:
        """(CHUNK, width) buffer of the input of a layer, or of the last output."""
        width = self._widths[index]
        buffer = self._workspace.buffer(f"rows {index}", CHUNK * width, "float32")
        return buffer.reshape(CHUNK, width)

    def _calls_of(self, rows: int) -> List[Call]:
        if rows not in self._calls:
            arrays = []
            for index, width in enumerate(self._widths):
                shape = (rows, width)
                name = f"rows {index}"
                arrays.append(self._workspace.array(name, CHUNK * width, shape, "float32"))
            calls = []
            for index, (weight, activation) in enumerate(self._layers):
                steps = [(activation, None)] if activation else []
                source, out = arrays[index : index + 2]
                calls.append(self._operations.dense(source, weight, out, *steps))
            self._calls[rows] = calls
        return self._calls[rows]


def _dense(weight: np.ndarray, bias: np.ndarray) -> Dense:
    return Dense(lambda: weight, bias)


#: Default number of tokens of a micro-batch.
TOKENS = 1024
#: Maximal number of micro-batches of a stream whose encodings are in memory beside the store.
AHEAD = 8


class OnOneDNN(BlockEngine):
    """Base class of engines on packed rows, which compute by a number of threads."""

    def _prepare(self, config: EngineConfig, longest: int) -> None:
        """Set the threads, and the tokens of a micro-batch, which holds the longest input."""
        # One number for all threads that rank: products of other numbers are rounded differently.
        self._threads = config.threads or count_threads()
        self._tokens = max(config.batch_tokens or TOKENS, longest)

    def _set_layers(self, layers: PackedLayers) -> None:
        """Set the layers that compute."""
        self._layers = layers
        self._streams = Streams(layers, self._threads)

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        """Divide inputs into micro-batches of equal size, the same number for each stream.

        Shapes: `lengths` (n,), ascending.
        """
        packed = pack_batches(lengths, self._tokens)
        count = self._streams.count
        tokens_until = np.cumsum(lengths)
        batches = -(-len(packed) // count) * count
        shares = tokens_until[-1:] * np.arange(1, batches) // batches
        edges = np.searchsorted(tokens_until, shares, side="right")
        equal = [part for part in np.split(np.arange(len(lengths)), edges) if len(part)]
        if all(lengths[part].sum() <= self._tokens for part in equal):
            return equal
        return packed  # of long inputs

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return in_usable_thread(self._with_threads, function, *arguments)

    def _with_threads(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with openmp_threads(self._threads):
            return super()._exclusively(function, *arguments)


class PackedEngine(OnOneDNN, NetworkEngine):
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
        parts = (network.config, stages[0].embeddings, layers)
        kind = encoding_kind(config.precision)
        self._set_layers(PackedLayers(*parts, typed, kind, self._tokens, quantized))
        self._at_once = self._streams.count
        if self._streams.count > 1:
            bytes_of_batch = self._tokens * network.config.units * 4
            ahead = config.hidden_bytes // (bytes_of_batch * self._streams.count)
            self._at_once *= max(1, min(AHEAD, ahead))
        self._stages: List[PackedStage] = []
        end = 0
        for stage in stages:
            self._stages.append(PackedStage(stage, end))
            end += len(stage.all_layers())
            self._hybridized += self._stages[-1].computed_by_mxnet()
        self._hybridize()

    def store(self) -> RowStore:
        return RowStore(self._config.hidden_bytes)

    def _run_some(self, works: Sequence[Work]) -> List[Readings]:
        """Run micro-batches; the stores are read and written in their order."""
        parts = []
        for work in works:
            rows = None if work.store is None else work.store.take(work.numbers.tolist())
            parts.append((work, rows))
        results = self._streams.map(self._run_one, parts)
        for work, (readings, encodings) in zip(works, results):
            if work.following is not None:
                work.following.put(work.numbers.tolist(), readings.positions, encodings)
        return [readings for readings, _ in results]

    def _run_one(
        self, layers: PackedLayers, part: Tuple[Work, Optional[List[np.ndarray]]]
    ) -> Tuple[Readings, Optional[np.ndarray]]:
        """Run a micro-batch; also returns its encodings if something reads them."""
        work, stored = part
        batch = self._batch(work.pairs)
        if stored is None:
            self._begin(layers, work.pairs, batch)
        else:
            layers.load(stored)
        rows = [self._stages[stage].run(layers, batch) for stage in work.stages]
        encodings = None
        if work.following is not None:
            encodings = layers.encodings[: batch.tokens].copy()
        return Readings(batch.lengths, rows), encodings

    def _batch(self, pairs: Sequence[Any]) -> PackedBatch:
        """Rows of the pairs of a micro-batch."""
        return PackedBatch(np.array([pair.length for pair in pairs]))

    def _begin(self, layers: PackedLayers, pairs: Sequence[Any], batch: PackedBatch) -> None:
        """Set the first encodings of a micro-batch."""
        layers.embed(pairs, batch)

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        return self._stages[stage].scores(self._layers, rows)
