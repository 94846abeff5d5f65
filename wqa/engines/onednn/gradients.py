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

import contextlib
import functools
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd

from wqa.config import BackboneConfig
from wqa.engines.engine import check_process
from wqa.engines.onednn.layer_gradients import Part, compile_embedding, compile_layer
from wqa.engines.onednn.library import count_streams, count_threads, openmp_threads
from wqa.engines.onednn.operations import address
from wqa.engines.onednn.padded import PaddedOperations, Run, Shape
from wqa.engines.onednn.relative import TrainedBias
from wqa.engines.onednn.trained import (
    ADD,
    NULL,
    Gradient,
    Trained,
    TrainedEmbeddings,
    TrainedLayer,
    record,
    view,
)
from wqa.engines.threads import in_threads
from wqa.errors import OptionError
from wqa.models.backbone import LayerStack
from wqa.models.embeddings import Embeddings
from wqa.models.masks import MASKED_SCORE, at_marks


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
        self._config = config
        self._padded = PaddedOperations(config, kind, tokens, length)
        self._threads = count_threads()
        self._streams = [self._padded]
        for _ in range(1, count_streams(self._threads)):
            self._streams.append(self._padded.sibling())
        self._trained: Dict[mx.gluon.Block, Any] = {}
        self._parts: Dict[tuple, Part] = {}
        self._copies: Dict[tuple, Tuple[Part, Part]] = {}
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
        shape, units = self._shape(sums), self._config.units
        with self._lock:
            trained = self._parameters([block], TrainedEmbeddings)[block]
            call = self._begin()
            part = self._embedding(call, trained, shape, False)
            out = mx.nd.empty((shape.pairs, shape.length, units))
            chunks = self._split(shape)
            self._padded.bind(f"{call} sums", chunks, self._padded.width, sums)
            self._padded.bind(f"{call} out", chunks, units, out)
            self._run_forward([part])

        def backward(outputs: Sequence[int], inputs: Sequence[Gradient]) -> None:
            with self._lock:
                self._backward_began = True
                add = any(gradient.request == ADD for gradient in inputs[1:])
                part = self._embedding(call, trained, shape, add)
                trained.set_gradients(inputs[1:], add)
                padded, width = self._padded, self._padded.width
                padded.bind(f"{call} sums", chunks, width, sums)
                padded.set_address(f"{call} out gradient", chunks, units, outputs[0])
                self._run_backward(f"{call} result", shape, width, inputs[0], [part])

        self._record([sums, *_data(trained)], out, backward)
        return out

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
        shape = self._shape(hidden)
        if marks is None:
            count = shape.length if stack.needed is None else min(stack.needed, shape.length)
            read = np.broadcast_to(np.arange(count), (shape.pairs, count))
            return self._layers(stack, hidden, valid_length, read)
        if marks.shape[1] >= shape.length:
            return at_marks(mx.nd, self._layers(stack, hidden, valid_length), marks)
        read = np.maximum(marks.asnumpy(), 0).astype(np.intp)
        rows = self._layers(stack, hidden, valid_length, read)
        return mx.nd.broadcast_mul(rows, mx.nd.expand_dims(marks >= 0, axis=2))

    def _layers(
        self,
        stack: LayerStack,
        hidden: mx.nd.NDArray,
        valid_length: mx.nd.NDArray,
        read: Optional[np.ndarray] = None,
    ) -> mx.nd.NDArray:
        """Run layers, the last one for the positions that are read; all by default.

        Shapes: `read` (B, n).
        """
        shape, units = Shape(*hidden.shape[:2]), self._config.units
        if read is None or read.shape[1] == shape.length:
            needed, read = shape, None
        else:
            needed = Shape(shape.pairs, read.shape[1], all_positions=False)
        lengths = valid_length.asnumpy()
        biases = [] if stack.relative_positions is None else [stack.relative_positions(hidden)]
        with self._lock:
            known = self._parameters(list(dict.fromkeys(stack)), TrainedLayer)
            layers = [known[layer] for layer in stack]
            call = self._begin()
            parts = self._slice(call, layers, shape, needed, False)
            out = mx.nd.empty((needed.pairs, needed.length, units))
            self._padded.bind(f"{call} in", self._split(shape), units, hidden)
            self._padded.bind(f"{call} out", self._split(needed), units, out)
            if read is not None:
                for chunk in self._split(needed):
                    self._padded.set_read(call, chunk, shape.length, read)
            is_padding = np.arange(shape.length) >= lengths[:, None]
            mask = np.where(is_padding, MASKED_SCORE, 0).ravel()
            self._padded.padding(shape).data[: shape.rows] = mask
            for array in biases:
                array.wait_to_read()
                self._padded.bias(call, shape.length).move(address(array))
            self._run_forward(parts)
        distinct = list(dict.fromkeys(layers))

        def backward(outputs: Sequence[int], inputs: Sequence[Gradient]) -> None:
            with self._lock:
                self._backward_began = True
                end = len(inputs) - len(biases)
                add = any(gradient.request == ADD for gradient in inputs[1:end])
                parts = self._slice(call, layers, shape, needed, add)
                start = 1
                for trained in distinct:
                    stop = start + len(trained.parameters)
                    trained.set_gradients(inputs[start:stop], add)
                    start = stop
                chunks = self._split(needed)
                self._padded.set_address(f"{call} out gradient", chunks, units, outputs[0])
                bias = TrainedBias(self._padded, call, shape.length)
                for _ in biases:
                    bias.clear(len(chunks))
                self._run_backward(f"{call} result", shape, units, inputs[0], parts)
                for gradient in inputs[end:]:
                    _write(gradient, bias.gradient(len(chunks)))

        arrays = [array for trained in distinct for array in _data(trained)]
        self._record([hidden, *arrays, *biases], out, backward)
        return out

    def _shape(self, array: mx.nd.NDArray) -> Shape:
        shape = Shape(*array.shape[:2])
        tokens, length = self._padded.tokens, self._padded.length
        if shape.rows > tokens or shape.length > length:
            raise OptionError(
                "tokens and length",
                f"a mini-batch of {shape.pairs} x {shape.length} positions",
                f"at most {tokens} positions in all and {length} a pair",
            )
        check_process()
        mx.nd.waitall()  # the optimizer may still be writing
        return shape

    def _parameters(
        self, blocks: Sequence[mx.gluon.Block], kind: Callable[..., Any]
    ) -> Dict[mx.gluon.Block, Any]:
        """Parameters of blocks, packed as they are now."""
        stale = []
        for block in blocks:
            trained = self._trained.get(block)
            if trained is None or trained.moved():
                self._trained[block] = kind(block)
                self._parts.clear()  # they read the old addresses
            else:
                stale.append(trained)
        in_threads(lambda trained: trained.refresh(), stale, len(self._streams))
        return {block: self._trained[block] for block in blocks}

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

    def _run_forward(self, parts: Sequence[Part]) -> None:
        is_training, seed = autograd.is_training(), self._masks_seed
        numbered = []  # the number of a mask in the pass, and each thread's chunk of it
        for part in parts:
            for masks in zip(*part.masks):
                numbered.append((self._masks_drawn, masks))
                if is_training:
                    self._masks_drawn += 1

        def run(thread: int) -> None:
            for number, masks in numbered:
                if is_training:
                    masks[thread].draw(seed, number)
                else:
                    masks[thread].values[:] = 1
            for part in parts:
                for call in part.forward[thread]:
                    call()

        self._in_threads(run, len(parts[0].forward))

    def _in_threads(self, run: Callable[[int], None], count: int) -> None:
        """Call a function for each of several threads, by the thread's number."""

        def compute(thread: int) -> None:
            with openmp_threads(self._threads // count):
                run(thread)

        in_threads(compute, range(count), len(self._streams))

    def _run_backward(
        self, name: str, shape: Shape, width: int, gradient: Gradient, parts: Sequence[Part]
    ) -> None:
        """Run parts backward, and write or add the gradient of their input as MXNet wants."""
        result, size, chunks = gradient.address, shape.rows * width, self._split(shape)
        if gradient.request in (NULL, ADD):
            buffer = self._padded.rows(f"input gradient {width}", shape, width, "float32")
            result = buffer.data.ctypes.data
        self._padded.set_address(name, chunks, width, result)

        def run(calls: List[List[Run]], thread: int) -> None:
            for call in calls[thread]:
                call()

        for part in reversed(parts):
            self._in_threads(functools.partial(run, part.backward), len(chunks))
            if any(part.parameters):
                self._in_threads(functools.partial(run, part.parameters), len(chunks))
        if gradient.request == ADD:
            target = view(gradient.address, size)
            np.add(target, view(result, size), out=target)

    @staticmethod
    def _record(inputs: List[mx.nd.NDArray], out: mx.nd.NDArray, backward: Callable) -> None:
        if autograd.is_recording():
            record(inputs, [out], backward)

    # Compiling

    def _split(self, shape: Shape) -> List[Shape]:
        """Chunks of a mini-batch, one for each thread that computes it."""
        return shape.split(min(shape.pairs, len(self._streams)))

    @contextlib.contextmanager
    def _compiling(self, shape: Shape) -> Iterator[List[PaddedOperations]]:
        """Operations for each thread that computes a mini-batch.

        What is compiled meanwhile is for the threads that each of these has to itself.
        """
        count = len(self._split(shape))
        with openmp_threads(self._threads // count):
            yield self._streams[:count]

    def _embedding(self, call: int, trained: Any, shape: Shape, add: bool) -> Part:
        key = (call, id(trained), shape, add)
        if key not in self._parts:
            with self._compiling(shape) as streams:
                self._parts[key] = compile_embedding(streams, call, trained, shape, add)
        return self._parts[key]

    def _slice(
        self, call: int, layers: Sequence[TrainedLayer], shape: Shape, needed: Shape, add: bool
    ) -> List[Part]:
        """Compiled parts of a slice: a copy of its input, its layers, a copy of its output."""
        enter, leave = self._copies_of(call, len(layers), shape, needed)
        parts = [enter]
        for index, layer in enumerate(layers):
            queries = needed if index == len(layers) - 1 else shape
            # A shared layer accumulates the gradients of its uses, last use first.
            adds = add or layer in layers[index + 1 :]
            key = (call, index, id(layer), shape, queries, adds)
            if key not in self._parts:
                with self._compiling(shape) as streams:
                    self._parts[key] = compile_layer(
                        streams, call, index, layer, shape, queries, adds
                    )
            parts.append(self._parts[key])
        return [*parts, leave]

    def _copies_of(self, call: int, depth: int, shape: Shape, needed: Shape) -> Tuple[Part, Part]:
        """Copies between MXNet's arrays and the buffers: a slice's input, and its output."""
        key = (call, depth, shape, needed)
        if key in self._copies:
            return self._copies[key]
        units, chunks = self._config.units, self._split(shape)
        none: List[List[Any]] = [[] for _ in chunks]
        enter, leave = Part([], [], none, none), Part([], [], none, none)
        with self._compiling(shape) as streams:
            for padded, chunk, needed_chunk in zip(streams, chunks, self._split(needed)):
                convert = padded.operations.convert
                source = padded.external(f"{call} in", chunk, units)
                result = padded.external(f"{call} result", chunk, units)
                first = padded.rows(f"{call} x0", chunk, units)
                first_gradient = padded.rows("gradient", chunk, units, "float32")
                enter.forward.append([convert(source, first)])
                enter.backward.append([convert(first_gradient, result)])
                last = padded.rows(f"{call} x{depth}", needed_chunk, units)
                out = padded.external(f"{call} out", needed_chunk, units)
                leave.forward.append([convert(last, out)])
                out_gradient = padded.external(f"{call} out gradient", needed_chunk, units)
                last_gradient = padded.rows("gradient", needed_chunk, units, "float32")
                leave.backward.append([convert(out_gradient, last_gradient)])
        self._copies[key] = (enter, leave)
        return enter, leave


def _write(gradient: Gradient, values: np.ndarray) -> None:
    """Write or add a gradient as MXNet wants, (size,)."""
    if gradient.request == ADD:
        view(gradient.address, values.size)[:] += values
    elif gradient.request != NULL:
        view(gradient.address, values.size)[:] = values


def _data(trained: Trained) -> List[mx.nd.NDArray]:
    return [parameter.data() for parameter in trained.parameters]
