"""Slices of a backbone's layers in MXNet's autograd graph, computed by oneDNN on a CPU.

`GradientEngine` runs the layers that a network calls, forward and backward. MXNet keeps the
parameters, the embeddings' lookups, the heads, the losses and the optimizer. A graph may hold
several slices.

Mini-batches are padded rows. Each thread computes some pairs of a mini-batch forward and backward,
with weights that all share, and a share of the gradients of each layer's parameters, over all
pairs. Weights are packed again at each call, as the optimizer changes them.
Bias, dropout and residual are steps of the products. In bfloat16 the operands of products are
rounded, while their sums, the residuals, the normalisations and the gradients of parameters are
float32.

Where n positions of each pair are read, keys and values of the last layer of a slice are those of
all positions, and all else is computed for these n: about 2 of the layer's 12 C^2 multiply-adds a
token. Gradients reach all positions of its input, through keys and values.

A pass draws the masks of its dropouts in the order of its calls and layers, for what is computed
alone. With one seed, they do not depend on the number of threads; the masks of a last layer of n
positions are not those that these positions have in a layer of all.
"""

from __future__ import annotations

import functools
import itertools
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd

from wqa.config import BackboneConfig
from wqa.engines.onednn.library import Memory, cached, count_streams, count_threads, openmp_threads
from wqa.engines.onednn.operations import Operations, address, view
from wqa.engines.onednn.training_memory import (
    ADD,
    Chunk,
    Trained,
    TrainedEmbeddings,
    TrainedLayer,
    TrainingMemory,
    record,
)
from wqa.engines.onednn.training_tape import Operation, Tape, Targets, accumulate
from wqa.engines.threads import check_process, in_threads
from wqa.errors import OptionError
from wqa.models.backbone import MASKED_SCORE, LayerStack, at_marks
from wqa.models.embeddings import Embeddings


class Compiled(NamedTuple):
    """Embeddings, or layers in sequence, compiled for a mini-batch."""

    #: Parameters of the embeddings, or of each layer, with the tape of each thread.
    parts: Sequence[Tuple[Trained, List[Tape]]]
    #: Input of the first part and output of the last one, with their gradients.
    source: Tuple[Memory, Memory]
    out: Tuple[Memory, Memory]
    #: Rows that are read, (B, n); None where all are.
    positions: Optional[np.ndarray] = None
    #: Biases by relative position, and each thread's sum of their gradients, (n, H, L, L), if any.
    biases: Any = ()

    def blocks(self) -> List[Trained]:
        """Each block once, in the order of their parameters among MXNet's inputs."""
        return list(dict.fromkeys(trained for trained, _ in self.parts))


class GradientEngine:
    """Computes the layers of a backbone, and their gradients, by oneDNN on one CPU.

    `wqa.models.Backbone.attach` takes it. Networks that are not hybridized then train by it. All
    slices of a pass must run forward before the first of them runs backward, as one call of
    ``mxnet.autograd.backward`` does.

    Parameters
    ----------
    config : BackboneConfig
        Sizes of the encoder.
    kind : {"float32", "bfloat16"}
        Element type to which the operands of products are rounded.
    tokens : int
        Most tokens of a mini-batch, padding included.
    length : int
        Greatest length of a pair, padding included.
    """

    def __init__(self, config: BackboneConfig, kind: str, tokens: int, length: int) -> None:
        self._memory = TrainingMemory(config, kind, max(tokens, length), length)
        self._threads = count_threads()
        own = Operations(config.layer_norm_eps)
        siblings = [own.sibling() for _ in range(1, count_streams(self._threads))]
        self._operations = [own, *siblings]
        self._trained: Dict[mx.gluon.Block, Any] = {}
        self._cache: Dict[tuple, Compiled] = {}
        self._lock = threading.Lock()  # MXNet may run two slices backward at once
        self._masks_seed, self._masks_drawn = 0, 0  # of the pass
        self._seed: Optional[int] = None
        self._calls, self._backward_began = 0, True

    def seed(self, seed: int) -> None:
        """Set the seed of the dropouts of the next pass.

        Parameters
        ----------
        seed : int
            Seed, from 0. Without a call it is drawn from MXNet's generator.
        """
        self._seed, self._backward_began = seed, True

    # Called by the blocks

    def embed(self, block: Embeddings, sums: mx.nd.NDArray) -> mx.nd.NDArray:
        """Normalise and project summed embeddings.

        Parameters
        ----------
        block : Embeddings
            Block that holds the parameters.
        sums : mxnet.nd.NDArray
            (B, L, E) float32 sums.

        Returns
        -------
        mxnet.nd.NDArray
            (B, L, C) float32.
        """
        whole = self._chunk(sums)
        with self._lock:
            [trained] = self._parameters([block], TrainedEmbeddings)
            compiled = self._compile_embeddings(trained, self._begin(), whole)
            return self._run(compiled, sums, whole)

    def layers(
        self,
        stack: LayerStack,
        hidden: mx.nd.NDArray,
        valid_length: mx.nd.NDArray,
        marks: Optional[mx.nd.NDArray] = None,
    ) -> mx.nd.NDArray:
        """Run layers in sequence.

        Parameters
        ----------
        stack : LayerStack
            Layers to run; its ``needed`` says which positions of the output are computed.
        hidden : mxnet.nd.NDArray
            (B, L, C) float32 encodings.
        valid_length : mxnet.nd.NDArray
            (B,) number of each pair's positions that are not padding.
        marks : mxnet.nd.NDArray, optional
            (B, n) float32 positions that are read, -1 where one is absent.

        Returns
        -------
        mxnet.nd.NDArray
            (B, L, C) float32, or (B, n, C) where only n positions are read; 0 where absent.
        """
        keys = self._chunk(hidden)
        read = np.broadcast_to(np.arange(keys.length), (keys.pairs, keys.length))
        if marks is None:
            read = read[:, : stack.needed]
        elif marks.shape[1] < keys.length:
            read = np.maximum(marks.asnumpy(), 0).astype(np.intp)
        queries, lengths = Chunk(*read.shape), valid_length.asnumpy()
        biases = [] if stack.relative_positions is None else [stack.relative_positions(hidden)]
        with self._lock:
            layers = tuple(self._parameters(stack, TrainedLayer))
            compiled = self._compile_layers(layers, self._begin(), keys, queries)
            if compiled.positions is not None:
                starts = np.arange(0, keys.rows, keys.length)
                np.add(read, starts[:, None], out=compiled.positions)
            is_padding = np.arange(keys.length) >= lengths[:, None]
            mask = np.where(is_padding, MASKED_SCORE, 0).ravel()
            self._memory.padding.data[: keys.rows] = mask
            rows = self._run(compiled, hidden, queries, *biases)
        if marks is None:
            return rows
        if queries == keys:
            return at_marks(mx.nd, rows, marks)
        return mx.nd.broadcast_mul(rows, mx.nd.expand_dims(marks >= 0, axis=2))

    def _chunk(self, array: mx.nd.NDArray) -> Chunk:
        """The mini-batch of an array, (B, L, ...), once the optimizer has finished."""
        whole = Chunk(*array.shape[:2])
        tokens, length = self._memory.tokens, self._memory.length
        if whole.rows > tokens or whole.length > length:
            problem = f"a mini-batch of {whole.pairs} x {whole.length} positions"
            expected = f"at most {tokens} positions in all and {length} a pair"
            raise OptionError("tokens and length", problem, expected)
        check_process()
        mx.nd.waitall()
        return whole

    def _parameters(self, blocks: Sequence[mx.gluon.Block], kind: Callable[..., Any]) -> List[Any]:
        """Parameters of blocks, packed as they are now."""
        known = self._trained
        if any(block in known and known[block].moved() for block in blocks):
            known.clear()
            self._cache.clear()  # it reads the old addresses
        for block in blocks:
            if block not in known:
                known[block] = kind(block)
        trained = [known[block] for block in blocks]
        in_threads(Trained.refresh, list(dict.fromkeys(trained)), len(self._operations))
        return trained

    def _begin(self) -> int:
        """Number of a call in its pass; each call of a pass has activations of its own."""
        if not autograd.is_recording():
            return self._calls  # its activations are overwritten by the next call
        if self._backward_began:
            seed = self._seed
            if seed is None:
                seed = int(mx.nd.random.randint(0, 2**31 - 1, 1).asscalar())
            self._masks_seed, self._masks_drawn = seed, 0
            self._calls, self._backward_began, self._seed = 0, False, None
        self._calls += 1
        return self._calls - 1

    def _tapes(self, pairs: int) -> List[Tape]:
        """A tape for each thread, of at least one of the pairs."""
        operations, memory = self._operations[:pairs], self._memory
        threads = len(operations)
        return [Tape(memory, own, pairs, part, threads) for part, own in enumerate(operations)]

    @cached
    def _compile_embeddings(self, trained: TrainedEmbeddings, call: int, whole: Chunk) -> Compiled:
        own, tapes = self._memory.embeddings(call), self._tapes(whole.pairs)
        with openmp_threads(self._threads // len(tapes)):
            for tape in tapes:
                tape.embeddings(trained, own, whole.length)
        out = own.embedded if trained.projection is None else own.projected
        return Compiled([(trained, tapes)], own.sums.rows(whole), out.rows(whole))

    @cached
    def _compile_layers(
        self, layers: Sequence[TrainedLayer], call: int, keys: Chunk, queries: Chunk
    ) -> Compiled:
        """Compile layers for each thread, the last one for the positions that are read."""
        memory, heads, positions = self._memory, self._memory.config.num_heads, None
        parts = [(layer, self._tapes(keys.pairs)) for layer in layers]
        threads = len(parts[0][1])
        biases: Any = ()
        if memory.config.family.relative_buckets:
            biases = memory.biases.part(Chunk(1 + threads, 1), heads, keys.length, keys.length)
        if queries != keys:
            positions = np.zeros((queries.pairs, queries.length), np.intp)
        for index, (layer, tapes) in enumerate(parts):
            of_keys = own = memory.activations(call, index, False)
            lengths, read = (keys.length, keys.length), None
            if index == len(layers) - 1 and queries != keys:
                own = memory.activations(call, index, True)
                lengths, read = (keys.length, queries.length), positions
            with openmp_threads(self._threads // threads):
                for tape in tapes:
                    tape.layer(layer, of_keys, own, lengths, read, biases)
        source = memory.activations(call, 0, False).x
        return Compiled(parts, source.rows(keys), own.after.rows(queries), positions, biases)

    # Running

    def _run(
        self, compiled: Compiled, hidden: mx.nd.NDArray, out: Chunk, *biases: mx.nd.NDArray
    ) -> mx.nd.NDArray:
        """Run forward, and record the gradients if MXNet records."""
        result = mx.nd.empty((out.pairs, out.length, self._memory.config.units))
        for array in (hidden, result, *biases):
            array.wait_to_read()
        self._convert(_rows_of(hidden), compiled.source[0])
        for bias in biases:
            compiled.biases[0][:] = bias.asnumpy()
        self._forward(compiled)
        self._convert(compiled.out[0], _rows_of(result))
        if autograd.is_recording():
            parameters = [array for trained in compiled.blocks() for array in trained.data]
            inputs = [hidden, *parameters, *biases]
            record(inputs, result, functools.partial(self._backward, compiled))
        return result

    def _convert(self, source: Memory, out: Memory) -> None:
        """Copy rows to or from MXNet's memory."""
        with openmp_threads(self._threads):
            self._operations[0].convert(source, out)()

    def _forward(self, compiled: Compiled) -> None:
        """Draw the masks, numbered by their order in the pass, and run all parts."""
        first, is_training = self._masks_drawn, autograd.is_training()

        def run(tapes: Sequence[Tape]) -> None:
            masks = itertools.chain.from_iterable(tape.masks for tape in tapes)
            for number, mask in enumerate(masks, first):
                if is_training:
                    mask.draw(self._masks_seed, number)
                else:
                    mask.values[:] = 1
            for tape in tapes:
                _call_all(tape.forward)

        by_thread = list(zip(*(tapes for _, tapes in compiled.parts)))
        if is_training:
            self._masks_drawn += sum(len(tape.masks) for tape in by_thread[0])
        self._in_threads(run, by_thread)

    def _in_threads(self, function: Callable[[Any], None], parts: Sequence[Any]) -> None:
        """Call a function for each thread's part, with the processors that each of them has."""

        def compute(part: Any) -> None:
            with openmp_threads(self._threads // len(parts)):
                function(part)

        in_threads(compute, parts, len(self._operations))

    def _backward(self, compiled: Compiled, of_out: int, targets: Targets) -> None:
        """Write or add the gradients of the inputs: encodings, parameters and bias."""
        with self._lock:
            self._backward_began = True
            gradient = compiled.out[1]
            self._convert(Memory.of(view(of_out, *gradient.layout.shape)), gradient)
            for total in compiled.biases[1:]:
                total[:] = 0
            remaining, by_block = iter(targets[1:]), {}
            for trained in compiled.blocks():
                by_block[trained] = list(itertools.islice(remaining, len(trained.data)))
            for trained, tapes in reversed(compiled.parts):
                own = by_block[trained]
                self._in_threads(_call_all, [tape.backward for tape in tapes])
                with openmp_threads(self._threads // len(tapes)):
                    calls = [tape.gradient_calls(own) for tape in tapes]
                self._in_threads(_call_all, calls)
                for norm in trained.norms:
                    for (start, request), by_thread in zip(own[norm.gain :], norm.gradients):
                        accumulate(start, request, by_thread[: len(tapes)].sum(axis=0))
                # A shared layer sums the gradients of its uses.
                by_block[trained] = [(start, request and ADD) for start, request in own]
            accumulate(*targets[0], compiled.source[1].data)
            for target in remaining:
                accumulate(*target, compiled.biases[1:].sum(axis=0))


def _rows_of(array: mx.nd.NDArray) -> Memory:
    """MXNet's array as a matrix, (B L, C)."""
    return Memory.of(view(address(array.handle), array.size // array.shape[-1], array.shape[-1]))


def _call_all(calls: Sequence[Operation]) -> None:
    for call in calls:
        call()
