"""oneDNN's engine: stages on packed rows, each the layers before a head, and the head.

Dense layers of a head run one after another, by oneDNN in float32; MXNet runs any other head.

Several threads that divide every product among them wait for one another after each of some eighty
products of a micro-batch, and read what another core has just written. So each thread computes a
micro-batch of its own, with layers that share the parameters but have buffers of their own: two
cores of a Xeon rank twice as many candidates a second with MiniLM.
"""

from __future__ import annotations

import itertools
import queue
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet.gluon import nn

from wqa.config import EngineConfig
from wqa.engines.engine import Engine, MicroBatch, Readings, store_encodings
from wqa.engines.inputs import EngineInputs, as_float32
from wqa.engines.onednn.last_layer import ATTENDING
from wqa.engines.onednn.layers import PackedLayers
from wqa.engines.onednn.library import (
    Call,
    Memory,
    cached,
    count_streams,
    count_threads,
    encoding_kind,
    openmp_threads,
    zeros,
)
from wqa.engines.onednn.operations import Dense, Operations
from wqa.engines.onednn.packed_rows import PackedBatch, round_up
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.engines.threads import MXNET_LOCK, in_mxnet_thread, in_threads
from wqa.models import Head, LayerStack
from wqa.models.embeddings import break_cycles
from wqa.text import pack_batches


class PackedStage:
    """Consecutive layers on packed rows, and the head after them, if any.

    The branches of a head are stages too, which all begin with the encodings after the layers.
    """

    def __init__(
        self, layers: LayerStack, head: Optional[Head], start: int, last: bool = False
    ) -> None:
        self._head, self._start, self._end = head, start, start + len(layers)
        self._branches: List[PackedStage] = []
        self._reads_rows, self._chain = False, None
        #: Index of the layer behind those of the stage and of its branches.
        self.stop = self._end
        for branch in [] if head is None else head.branches():
            self._branches.append(PackedStage(branch.layers, branch.head, self.stop))
            self.stop += len(branch.layers)
        if head is None or self._branches:
            return
        # The last layer runs for the rows that the head reads alone.
        few_marks = last and head.reads == "marks" and head.marks <= ATTENDING
        self._reads_rows = len(layers) > 0 and (layers.needed is not None or few_marks)
        dense_layers = head.chain()
        self._chain = DenseChain(dense_layers) if dense_layers else None
        if not dense_layers:
            head.hybridize()

    def run(self, layers: PackedLayers, batch: PackedBatch) -> Optional[np.ndarray]:
        """Run the layers on the current encodings; returns what the head reads.

        Shapes: the result (pairs, width).
        """
        for layer in range(self._start, self._end - self._reads_rows):
            layers.layer(layer, batch)
        if self._branches:
            return self._run_branches(layers, batch)
        if self._head is None:
            return None
        if self._head.reads == "mean":
            return layers.means(batch)
        if self._head.reads == "tokens":
            return as_float32(layers.encodings[: batch.tokens])
        if self._reads_rows:
            rows = layers.last.attend(self._end - 1, layers.encodings, batch)
        else:
            rows = layers.read_rows(batch)
        if self._head.reads == "marks":
            return np.concatenate([rows, batch.is_read.astype(np.float32)], axis=1)
        return rows

    def _run_branches(self, layers: PackedLayers, batch: PackedBatch) -> np.ndarray:
        rows: List[Any] = []
        encodings = layers.encodings[: batch.tokens]
        # A branch of one layer, which runs for the rows that are read, leaves the encodings.
        changing = [branch._end - branch._start > branch._reads_rows for branch in self._branches]
        before = encodings.copy() if any(changing) else encodings
        # One joint product for the keys and values of all branches saves 8 % of these products in
        # float32, 0.3 % of a base encoder with three heads of one layer: not worth a layout.
        for branch, changes in zip(self._branches, changing):
            rows.append(branch.run(layers, batch))
            if changes:
                encodings[:] = before
        return np.concatenate(rows, axis=1)

    def scores(self, layers: PackedLayers, rows: np.ndarray) -> np.ndarray:
        """Run the rest of the last layer, and the head, or the branches and their combination.

        Shapes: the result (pairs,).
        """
        head: Any = self._head
        if self._branches:
            scores = []
            edges = np.cumsum([branch._width(layers) for branch in self._branches])
            for branch, own_rows in zip(self._branches, np.split(rows, edges[:-1], axis=1)):
                scores.append(branch.scores(layers, own_rows))
            return head.combine(np.stack(scores, axis=1))
        if head.reads == "marks":
            rows, is_read = np.split(rows, [-head.marks], axis=1)
        if self._reads_rows:
            rows = layers.last.finish(self._end - 1, rows)
        if head.reads == "marks":
            marked = rows.reshape(*is_read.shape, -1) * is_read[:, :, None]
            return self._by_mxnet(marked, is_read)
        if self._chain is None:
            return self._by_mxnet(rows)
        outputs = self._chain(rows)
        if head.reads == "tokens":
            return outputs
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]

    def _width(self, layers: PackedLayers) -> int:
        """Width of the rows that `run` returns, for a head that reads the first or the mean."""
        head: Any = self._head
        positions = head.positions if head.reads == "first" else 1
        # An encoding and a context each, where the last layer is not finished.
        return (1 + self._reads_rows) * positions * layers.config.units

    def _by_mxnet(self, *inputs: np.ndarray) -> np.ndarray:
        """Run the head on inputs whose number of rows is rounded up: few shapes are compiled."""
        head: Any = self._head
        count = len(inputs[0])
        padded = []
        for rows in inputs:
            array = np.zeros((round_up(count), *rows.shape[1:]), np.float32)
            array[:count] = rows
            padded.append(array)

        def compute() -> np.ndarray:
            with MXNET_LOCK:
                return head(*map(mx.nd.array, padded)).asnumpy()

        return in_mxnet_thread(compute)[:count]


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
        self._layers = [(Dense.of(block), activation) for block, activation in layers]
        self._widths = [layers[0][0].weight.shape[1]]
        self._widths += [block.weight.shape[0] for block, _ in layers]
        self._operations = Operations()
        self._cache: Dict[tuple, Any] = {}

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Run the layers.

        Shapes: `rows` (n, in), the result (n, out).
        """
        outputs = []
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            arrays, calls = self._compile(round_up(len(chunk)))
            arrays[0].data[: len(chunk)] = chunk
            for call in calls:
                call()
            outputs.append(arrays[-1].data[: len(chunk)].copy())
        return np.concatenate(outputs)

    @cached
    def _compile(self, rows: int) -> Tuple[List[Memory], List[Call]]:
        """Input and output of each layer for a number of rows, and the calls between them."""
        arrays = [Memory.of(zeros((rows, width), "float32")) for width in self._widths]
        calls = []
        for (weight, activation), source, out in zip(self._layers, arrays, arrays[1:]):
            steps = [(activation, None)] if activation else []
            calls.append(self._operations.dense(source, weight, out, *steps))
        return arrays, calls


#: Default number of tokens of a micro-batch.
TOKENS = 1024
#: Most micro-batches of a thread whose encodings are in memory beside the store.
AHEAD = 8


class OneDNNEngine(Engine):
    """oneDNN's layers on packed rows, on the CPU, in any precision.

    Branches of a head run on the same encodings. The parameters of the network are read once.

    Parameters
    ----------
    inputs : EngineInputs
        Embeds the pairs; its network is made of stages of transformer layers, on the CPU.
    config : EngineConfig
        Precision, threads and sizes.
    quantized : list of dict, optional
        `Quantized` products of each layer, for int8.
    """

    def __init__(
        self,
        inputs: EngineInputs,
        config: EngineConfig,
        quantized: Optional[QuantizedLayers] = None,
    ) -> None:
        super().__init__(config)
        network = inputs.network
        network.apply(break_cycles)
        self._inputs = inputs
        # One number for all threads that rank: products of other numbers are rounded differently.
        self._threads = config.threads or count_threads()
        self._tokens = max(config.batch_tokens or TOKENS, network.config.max_positions)
        self.kind = encoding_kind(config.precision)
        stages = network.encoder_stages()
        blocks = [layer for stage in stages for layer in stage.all_layers()]
        parts = (network.config, stages[0].embeddings, blocks, inputs.typed)
        layers = PackedLayers(*parts, self.kind, self._tokens, quantized)
        streams = count_streams(self._threads)
        self._layers = [layers] + [layers.sibling() for _ in range(1, streams)]
        self._at_once = streams * AHEAD if streams > 1 else 1
        self._stages: List[PackedStage] = []
        start = 0
        for stage in stages:
            self._stages.append(PackedStage(stage.layers, stage.head, start, stage.last))
            start = self._stages[-1].stop

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        """Divide inputs into micro-batches of equal size, the same number for each thread.

        Shapes: `lengths` (n,), ascending.
        """
        packed = pack_batches(lengths, self._tokens)
        streams = len(self._layers)
        tokens_until = np.cumsum(lengths)
        batches = -(-len(packed) // streams) * streams
        shares = tokens_until[-1:] * np.arange(1, batches) // batches
        edges = np.searchsorted(tokens_until - lengths / 2, shares)  # nearest to the shares
        equal = [part for part in np.split(np.arange(len(lengths)), edges) if len(part)]
        if all(lengths[part].sum() <= self._tokens for part in equal):
            return equal
        return packed  # of long inputs

    def _exclusively(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with openmp_threads(self._threads):
            return super()._exclusively(function, *arguments)

    def run_all(self, batches: Iterable[MicroBatch]) -> Iterator[Readings]:
        remaining = iter(batches)
        while some := list(itertools.islice(remaining, self._at_once)):
            yield from self._exclusively(self._run_some, some)

    def _run_some(self, batches: Sequence[MicroBatch]) -> List[Readings]:
        """Run micro-batches; the stores are read and written in their order."""
        free: queue.SimpleQueue[PackedLayers] = queue.SimpleQueue()
        for layers in self._layers:
            free.put(layers)
        streams = min(len(batches), len(self._layers))
        parts = []
        for batch in batches:
            stored = None
            if batch.store is not None:
                stored = [batch.store.pop(number) for number in batch.numbers.tolist()]
            parts.append((batch, stored))

        def run(part: Tuple[MicroBatch, Optional[List[np.ndarray]]]) -> Any:
            layers = free.get()
            try:
                with openmp_threads(self._threads // streams):
                    return self._run_packed(layers, *part)
            finally:
                free.put(layers)

        results = in_threads(run, parts, streams)
        for batch, (readings, encodings) in zip(batches, results):
            if batch.next_store is not None:
                store_encodings(batch.next_store, batch.numbers, readings.positions, encodings)
        return [readings for readings, _ in results]

    def _run_packed(
        self, layers: PackedLayers, batch: MicroBatch, stored: Optional[List[np.ndarray]]
    ) -> Tuple[Readings, Optional[np.ndarray]]:
        """Run a micro-batch; also returns its encodings if something reads them."""
        packed = PackedBatch(batch.lengths, self._inputs.read_positions(batch.pairs))
        if stored is None:
            self._inputs.embed(layers, batch.pairs, packed)
        else:
            layers.load(stored)
        rows = []
        for number in batch.stages:
            stage_rows = self._stages[number].run(layers, packed)
            if stage_rows is not None:
                rows.append(stage_rows)
        encodings = None
        if batch.next_store is not None:
            encodings = layers.encodings[: packed.tokens].copy()
        return Readings(packed.lengths, rows), encodings

    def _scores(self, stage: int, rows: np.ndarray) -> np.ndarray:
        return self._stages[stage].scores(self._layers[0], rows)
