"""Slices of a backbone's layers in MXNet's autograd graph, computed by oneDNN on a CPU.

`GradientEngine` takes over what a network computes when it calls its layers: forward, and backward
when MXNet asks for gradients. MXNet keeps the parameters, the embeddings' lookups, the heads, the
losses and the optimizer. Several slices may stand in one graph.

Mini-batches are padded rows. Weights are packed again at each call, as the optimizer changes them.
Bias, dropout and residual are steps of the products. In bfloat16 the operands of products are
rounded, while their sums, the residuals, the normalisations and the gradients of parameters are
float32.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd

from wqa.config import BackboneConfig
from wqa.errors import OptionError
from wqa.models.backbone import MASKED, Embeddings, LayerStack
from wqa.onednn.layer_gradients import LayerCompiler, Part, compile_embedding
from wqa.onednn.padded import Mask, PaddedOperations, Run, Shape
from wqa.onednn.recording import ADD, NULL, Gradient, record
from wqa.onednn.trained import Trained, TrainedEmbeddings, TrainedLayer, view


class GradientEngine:
    """Computes the layers of a backbone, and their gradients, by oneDNN on one CPU.

    Give it to `wqa.models.Backbone.attach`; a network that is not hybridized then trains by it.
    All slices of one pass run forward before the first of them runs backward, as with one call of
    ``mxnet.autograd.backward``.

    Parameters
    ----------
    config : BackboneConfig
        Shape of the encoder.
    kind : {"float32", "bfloat16"}
        What the operands of products are rounded to.
    tokens : int
        Most padded tokens of a mini-batch.
    length : int
        Greatest length of a pair, padding included.
    """

    def __init__(self, config: BackboneConfig, kind: str, tokens: int, length: int) -> None:
        self._config = config
        self._tokens, self._length = max(tokens, length), length
        self._padded = PaddedOperations(config, kind, tokens, length)
        self._trained: Dict[mx.gluon.Block, Any] = {}
        self._parts: Dict[tuple, Part] = {}
        self._ends: Dict[tuple, Tuple[Part, Part]] = {}
        self._lock = threading.Lock()  # MXNet may run two slices backward at once
        self._generator = np.random.Generator(np.random.SFC64(0))
        self._seed: Optional[int] = None
        self._calls, self._backward_began = 0, True

    def seed(self, seed: int) -> None:
        """Set the seed of the next pass's dropout; it is drawn from MXNet's generator otherwise.

        Parameters
        ----------
        seed : int
            From 0.
        """
        self._seed = seed

    # What the blocks call

    def embed(self, block: Embeddings, sums: mx.nd.NDArray) -> mx.nd.NDArray:
        """Normalise and project the sums of the embeddings.

        Parameters
        ----------
        block : Embeddings
            Its parameters are read.
        sums : mxnet.nd.NDArray
            (B, L, E) float32.

        Returns
        -------
        mxnet.nd.NDArray
            (B, L, C) float32.
        """
        shape = self._shape(sums)
        with self._lock:
            trained = self._parameters(block, TrainedEmbeddings)
            call = self._begin()
            part = self._embedding(call, trained, shape, False)
            out = mx.nd.empty((*shape, self._config.units))
            ends = (sums, out)
            self._padded.point(f"{call} sums", shape, self._padded.width, sums)
            self._padded.point(f"{call} out", shape, self._config.units, out)
            self._run_forward([part])

        def backward(outputs: Sequence[int], inputs: Sequence[Gradient]) -> None:
            with self._lock:
                self._backward_began = True
                add = any(gradient.request == ADD for gradient in inputs[1:])
                part = self._embedding(call, trained, shape, add)
                trained.point(inputs[1:], add)
                self._padded.point(f"{call} sums", shape, self._padded.width, ends[0])
                self._padded.move(f"{call} out gradient", shape, self._config.units, outputs[0])
                self._run_backward(f"{call} result", shape, self._padded.width, inputs[0], [part])

        self._record([sums, *_data(trained)], out, backward)
        return out

    def layers(
        self, stack: LayerStack, hidden: mx.nd.NDArray, valid_length: mx.nd.NDArray
    ) -> mx.nd.NDArray:
        """Run layers in sequence.

        Parameters
        ----------
        stack : LayerStack
            The layers; those of its outputs' positions that it says are needed are computed.
        hidden : mxnet.nd.NDArray
            (B, L, C) float32.
        valid_length : mxnet.nd.NDArray
            (B,) positions of each pair that are not padding.

        Returns
        -------
        mxnet.nd.NDArray
            (B, L, C) float32, or (B, 1, C) where only first positions are needed.
        """
        shape, units = self._shape(hidden), self._config.units
        needed = Shape(shape.pairs, 1) if stack.needed == "first" else shape
        lengths = valid_length.asnumpy()
        with self._lock:
            layers = [self._parameters(layer, TrainedLayer) for layer in stack]
            call = self._begin()
            parts = self._slice(call, layers, shape, needed, False)
            out = mx.nd.empty((*needed, units))
            self._padded.point(f"{call} in", shape, units, hidden)
            self._padded.point(f"{call} out", needed, units, out)
            padded = np.arange(shape.length) >= lengths[:, None]
            self._padded.padding(shape).data[: shape.rows] = np.where(padded, MASKED, 0).ravel()
            self._run_forward(parts)
        distinct = list(dict.fromkeys(layers))

        def backward(outputs: Sequence[int], inputs: Sequence[Gradient]) -> None:
            with self._lock:
                self._backward_began = True
                add = any(gradient.request == ADD for gradient in inputs[1:])
                start = 1
                for trained in distinct:
                    end = start + len(trained.parameters)
                    trained.point(inputs[start:end], add)
                    start = end
                self._padded.move(f"{call} out gradient", needed, units, outputs[0])
                parts = self._slice(call, layers, shape, needed, add)
                self._run_backward(f"{call} result", shape, units, inputs[0], parts)

        arrays = [array for trained in distinct for array in _data(trained)]
        self._record([hidden, *arrays], out, backward)
        return out

    def _shape(self, array: mx.nd.NDArray) -> Shape:
        shape = Shape(*array.shape[:2])
        if shape.rows > self._tokens or shape.length > self._length:
            raise OptionError(
                "tokens and length",
                f"a mini-batch of {shape.pairs} x {shape.length} positions",
                f"at most {self._tokens} positions in all and {self._length} a pair",
            )
        mx.nd.waitall()  # the optimizer may still be writing
        return shape

    def _parameters(self, block: mx.gluon.Block, kind: Callable[..., Any]) -> Any:
        """Parameters of a block, packed as they are now."""
        trained = self._trained.get(block)
        if trained is None or trained.moved():
            trained = self._trained[block] = kind(block)
            self._parts.clear()  # what was compiled for the parameters that stood elsewhere
        else:
            trained.refresh()
        return trained

    def _begin(self) -> int:
        """Number of a call in its pass; each call of a pass has activations of its own."""
        if self._backward_began:
            seed = self._seed
            if seed is None:
                seed = int(mx.nd.random.randint(0, 2**31 - 1, 1).asscalar())
            self._generator = np.random.Generator(np.random.SFC64(seed))
            self._calls, self._backward_began, self._seed = 0, False, None
        call = self._calls
        self._calls += autograd.is_recording()
        return call

    def _run_forward(self, parts: Sequence[Part]) -> None:
        for part in parts:
            for mask in part.masks:
                self._draw(mask)
        for part in parts:
            for run in part.forward:
                run()

    def _run_backward(
        self, name: str, shape: Shape, width: int, gradient: Gradient, parts: Sequence[Part]
    ) -> None:
        """Run parts backward; the gradient of their input goes to where MXNet wants it."""
        place, size = gradient.address, shape.rows * width
        if gradient.request in (NULL, ADD):
            place = self._padded.rows(f"aside of {width}", shape, width, "float32").data.ctypes.data
        self._padded.move(name, shape, width, place)
        for part in reversed(parts):
            for run in part.backward:
                run()
        if gradient.request == ADD:
            target = view(gradient.address, size)
            np.add(target, view(place, size), out=target)

    def _draw(self, mask: Mask) -> None:
        if not autograd.is_training():
            mask.values[:] = 1
            return
        raw = self._generator.bytes(2 * mask.values.size)
        draws = np.frombuffer(raw, dtype=np.uint16)
        factor = np.float32(1 / (1 - mask.rate))
        np.multiply(draws >= round(mask.rate * 65536), factor, out=mask.values)

    @staticmethod
    def _record(inputs: List[mx.nd.NDArray], out: mx.nd.NDArray, backward: Callable) -> None:
        if autograd.is_recording():
            record(inputs, [out], backward)

    # Compiling

    def _embedding(self, call: int, trained: Any, shape: Shape, add: bool) -> Part:
        key = (call, id(trained), shape, add)
        if key not in self._parts:
            self._parts[key] = compile_embedding(self._padded, call, trained, shape, add)
        return self._parts[key]

    def _slice(
        self, call: int, layers: Sequence[TrainedLayer], shape: Shape, needed: Shape, add: bool
    ) -> List[Part]:
        """Calls of all layers of a slice, with what leads in and out."""
        entry, leave = self._ends_of(call, len(layers), shape, needed)
        parts = [entry]
        for index, layer in enumerate(layers):
            queries = needed if index == len(layers) - 1 else shape
            # A shared layer adds to the gradients of its positions above.
            adds = add or layer in layers[index + 1 :]
            key = (call, index, id(layer), shape, queries, adds)
            if key not in self._parts:
                compiler = LayerCompiler(self._padded, call, index, layer, shape, queries)
                self._parts[key] = compiler.part(adds)
            parts.append(self._parts[key])
        return [*parts, leave]

    def _ends_of(self, call: int, depth: int, shape: Shape, needed: Shape) -> Tuple[Part, Part]:
        """From MXNet's arrays into the first layer's, and out of the last layer's; and back."""
        key = (call, depth, shape, needed)
        if key not in self._ends:
            units, operations = self._config.units, self._padded.operations
            source = self._padded.end(f"{call} in", shape, units)
            result = self._padded.end(f"{call} result", shape, units)
            first = self._padded.rows(f"{call} x0", shape, units)
            gradient = self._padded.rows("gradient", shape, units, "float32")
            enter: List[Run] = [operations.convert(source, first)]
            enter_back: List[Run] = [operations.convert(gradient, result)]
            out = self._padded.end(f"{call} out", needed, units)
            out_gradient = self._padded.end(f"{call} out gradient", needed, units)
            last = self._padded.rows(f"{call} x{depth}", needed, units)
            gradient = self._padded.rows("gradient", needed, units, "float32")
            leave: List[Run] = [operations.convert(last, out)]
            leave_back: List[Run] = [operations.convert(out_gradient, gradient)]
            self._ends[key] = (Part(enter, enter_back, []), Part(leave, leave_back, []))
        return self._ends[key]


def _data(trained: Trained) -> List[mx.nd.NDArray]:
    return [parameter.data() for parameter in trained.parameters]
