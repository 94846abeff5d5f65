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

import ctypes
import functools
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd

from wqa.config import BackboneConfig
from wqa.errors import OptionError
from wqa.models.backbone import MASKED, Embeddings, EncoderLayer, LayerStack
from wqa.onednn.kernels import MEAN, VARIANCE
from wqa.onednn.library import Array, Layout, Memory, one
from wqa.onednn.operations import Operations, Workspace
from wqa.onednn.parameters import Dense, Norm, address, shared_memory, split_queries
from wqa.onednn.recording import ADD, NULL, Gradient, record

#: Something that runs when it is called.
Run = Callable[[], object]


class Shape(NamedTuple):
    """Pairs of a mini-batch and positions of each."""

    pairs: int
    length: int

    @property
    def rows(self) -> int:
        """Positions of all pairs."""
        return self.pairs * self.length


class Mask(NamedTuple):
    """Factors of a dropout: 0, or 1 / (1 - rate)."""

    array: Array
    values: np.ndarray
    rate: float


class _Trained:
    """Parameters of a block, and arrays that are pointed at their gradients before each use.

    ``parameters`` are those of the block in the order in which their gradients are handed over.
    """

    def __init__(self, parameters: Sequence[mx.gluon.Parameter]) -> None:
        self.parameters = list(parameters)
        self.addresses = [address(parameter.data()) for parameter in self.parameters]
        self._targets: List[Tuple[Array, int, int]] = []  # array, parameter, offset in bytes
        self._discarded: Dict[int, np.ndarray] = {}

    def moved(self) -> bool:
        """Whether a parameter stands elsewhere by now, as after an initialisation."""
        return self.addresses != [address(parameter.data()) for parameter in self.parameters]

    def target(self, parameter: int, shape: Sequence[int], offset: int = 0) -> Array:
        """An array for the gradient of a parameter, or of its part from an element on."""
        array = Array(Layout(shape, "float32"), np.zeros(1, np.float32))
        self._targets.append((array, parameter, 4 * offset))
        return array

    def point(self, gradients: Sequence[Gradient], add: bool) -> None:
        """Point the arrays at where the gradients go; where they are to be added, parameters whose
        gradient is written start from zero."""
        places = []
        for index, gradient in enumerate(gradients):
            size = self.parameters[index].data().size
            place = gradient.address
            if gradient.request == NULL:
                place = self._discarded.setdefault(index, np.zeros(size, np.float32)).ctypes.data
            if add and gradient.request != ADD:
                _view(place, size)[:] = 0
            places.append(place)
        for array, index, offset in self._targets:
            array.move(places[index] + offset)


class _Product(NamedTuple):
    """A dense layer: what products read, and where its gradients go."""

    dense: Dense
    weight_gradient: Array
    bias_gradient: Array
    shape: Tuple[int, int]  # (out, in)


class _TrainedNorm(NamedTuple):
    """A normalisation: what kernels read, and where its gradients go."""

    norm: Norm
    gradients: Tuple[Array, Array]


def _product(trained: _Trained, weight: int, third: Optional[int] = None) -> _Product:
    """The product of a weight and the bias after it among the parameters, or of a third of them."""
    values = shared_memory(trained.parameters[weight].data())
    values = values.reshape(trained.parameters[weight].shape)
    bias = shared_memory(trained.parameters[weight + 1].data())
    offset = 0
    if third is not None:
        values, bias = split_queries(values)[third], split_queries(bias)[third]
        offset = third * len(values)
    rows, width = values.shape
    dense = Dense(lambda: values, bias, refreshable=True)
    weight_gradient = trained.target(weight, (rows, width), offset * width)
    bias_gradient = trained.target(weight + 1, (1, rows), offset)
    return _Product(dense, weight_gradient, bias_gradient, (rows, width))


def _norm(trained: _Trained, gamma: int) -> _TrainedNorm:
    """The normalisation of a gain and the offset after it among the parameters."""
    values = [shared_memory(trained.parameters[gamma + index].data()) for index in range(2)]
    gradients = tuple(trained.target(gamma + index, (values[0].size,)) for index in range(2))
    return _TrainedNorm(Norm(*values), gradients)  # type: ignore[arg-type]


class _TrainedLayer(_Trained):
    """Parameters of one layer."""

    def __init__(self, layer: EncoderLayer) -> None:
        parameters = []
        for dense in (layer.qkv, layer.proj, layer.ffn_1, layer.ffn_2):
            parameters += [dense.weight, dense.bias]
        for norm in (layer.attention_norm, layer.ffn_norm):
            parameters += [norm.gamma, norm.beta]
        super().__init__(parameters)
        self.query, self.key, self.value = (_product(self, 0, third) for third in range(3))
        self.output, self.inner, self.outer = (_product(self, weight) for weight in (2, 4, 6))
        self.attention_norm, self.ffn_norm = _norm(self, 8), _norm(self, 10)

    def refresh(self) -> None:
        """Pack the weights again."""
        for product in (self.query, self.key, self.value, self.output, self.inner, self.outer):
            product.dense.refresh()


class _TrainedEmbeddings(_Trained):
    """Parameters of the embeddings' normalisation and projection."""

    def __init__(self, block: Embeddings) -> None:
        parameters = [block.layer_norm.gamma, block.layer_norm.beta]
        if block.projection is not None:
            parameters += [block.projection.weight, block.projection.bias]
        super().__init__(parameters)
        self.norm = _norm(self, 0)
        self.projection = None if block.projection is None else _product(self, 2)

    def refresh(self) -> None:
        """Pack the weights again."""
        if self.projection is not None:
            self.projection.dense.refresh()


class _Part(NamedTuple):
    """Compiled calls of a layer, or of the embeddings."""

    forward: List[Run]
    backward: List[Run]
    masks: List[Mask]


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
        self._config, self._kind = config, kind
        self._tokens, self._length = max(tokens, length), length
        self._operations, self._workspace = Operations(config.layer_norm_eps), Workspace()
        self._trained: Dict[mx.gluon.Block, Any] = {}
        self._parts: Dict[tuple, _Part] = {}
        self._ends: Dict[tuple, Tuple[_Part, _Part]] = {}
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
            trained = self._parameters(block, _TrainedEmbeddings)
            call = self._begin()
            part = self._embedding(call, trained, shape, False)
            out = mx.nd.empty((*shape, self._config.units))
            ends = (sums, out)
            self._point(f"{call} sums", shape, self._width, sums)
            self._point(f"{call} out", shape, self._config.units, out)
            self._run_forward([part])

        def backward(outputs: Sequence[int], inputs: Sequence[Gradient]) -> None:
            with self._lock:
                self._backward_began = True
                add = any(gradient.request == ADD for gradient in inputs[1:])
                part = self._embedding(call, trained, shape, add)
                trained.point(inputs[1:], add)
                self._point(f"{call} sums", shape, self._width, ends[0])
                self._move(f"{call} out gradient", shape, self._config.units, outputs[0])
                self._run_backward(f"{call} result", shape, self._width, inputs[0], [part])

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
            layers = [self._parameters(layer, _TrainedLayer) for layer in stack]
            call = self._begin()
            parts = self._slice(call, layers, shape, needed, False)
            out = mx.nd.empty((*needed, units))
            self._point(f"{call} in", shape, units, hidden)
            self._point(f"{call} out", needed, units, out)
            padded = np.arange(shape.length) >= lengths[:, None]
            self._padding(shape).data[: shape.rows] = np.where(padded, MASKED, 0).ravel()
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
                self._move(f"{call} out gradient", needed, units, outputs[0])
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

    def _run_forward(self, parts: Sequence[_Part]) -> None:
        for part in parts:
            for mask in part.masks:
                self._draw(mask)
        for part in parts:
            for run in part.forward:
                run()

    def _run_backward(
        self, name: str, shape: Shape, width: int, gradient: Gradient, parts: Sequence[_Part]
    ) -> None:
        """Run parts backward; the gradient of their input goes to where MXNet wants it."""
        place, size = gradient.address, shape.rows * width
        if gradient.request in (NULL, ADD):
            place = self._rows(f"aside of {width}", shape, width, "float32").data.ctypes.data
        self._move(name, shape, width, place)
        for part in reversed(parts):
            for run in part.backward:
                run()
        if gradient.request == ADD:
            target = _view(gradient.address, size)
            np.add(target, _view(place, size), out=target)

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

    # Buffers

    @property
    def _width(self) -> int:
        """E, the width of the embeddings' tables."""
        return self._config.embedding_size or self._config.units

    def _rows(self, name: str, shape: Shape, width: int, kind: str = "") -> Array:
        """(B * L, width)."""
        kind = kind or self._kind
        return self._workspace.array(name, self._tokens * width, (shape.rows, width), kind)

    def _values(self, name: str, shape: Shape, width: int, kind: str) -> np.ndarray:
        """The same memory as (B, L, width)."""
        flat = self._rows(name, shape, width, kind).data[: shape.rows * width]
        return flat.reshape(shape.pairs, shape.length, width)

    def _transposed(self, rows: Array, name: str) -> Array:
        """The memory of rows with the axes exchanged."""
        count, width = rows.layout.shape
        kind = rows.layout.kind
        return self._workspace.array(name, rows.data.size, (width, count), kind, (1, width))

    def _heads(self, name: str, shape: Shape, transposed: bool = False) -> Array:
        """Rows of that name as (B, H, L, C / H), or with the last two axes exchanged."""
        heads, units = self._config.num_heads, self._config.units
        size = units // heads
        view, strides = (shape.length, size), (units, 1)
        if transposed:
            view, strides = view[::-1], strides[::-1]
        return self._workspace.array(
            name,
            self._tokens * units,
            (shape.pairs, heads, *view),
            self._kind,
            (shape.length * units, size, *strides),
        )

    def _scores(
        self, name: str, shape: Shape, queries: Shape, kind: str = "", transposed: bool = False
    ) -> Array:
        """(B, H, Q, L), Q queries a pair; or with the last two axes exchanged."""
        heads = self._config.num_heads
        view, strides = (queries.length, shape.length), (shape.length, 1)
        if transposed:
            view, strides = view[::-1], strides[::-1]
        items = queries.length * shape.length
        return self._workspace.array(
            name,
            self._tokens * heads * self._length,
            (shape.pairs, heads, *view),
            kind or self._kind,
            (heads * items, items, *strides),
        )

    def _padding(self, shape: Shape) -> Array:
        """What is added to the attention scores of each position, (B, 1, 1, L)."""
        view = (shape.pairs, 1, 1, shape.length)
        return self._workspace.array("padding", self._tokens, view, "float32")

    def _end(self, name: str, shape: Shape, width: int) -> Array:
        """float32 rows that stand in memory of MXNet's."""
        return self._workspace.array(name, 1, (shape.rows, width), "float32")

    def _move(self, name: str, shape: Shape, width: int, place: int) -> None:
        self._end(name, shape, width).move(place)

    def _point(self, name: str, shape: Shape, width: int, array: mx.nd.NDArray) -> None:
        array.wait_to_read()
        self._move(name, shape, width, address(array))

    def _mask(self, name: str, like: Array, rate: float) -> List[Mask]:
        """The mask of a dropout on an array; none at rate 0."""
        if not rate:
            return []
        array = self._workspace.array(name, like.data.size, like.layout.shape, "float32")
        return [Mask(array, array.data[: int(np.prod(like.layout.shape))], rate)]

    # Compiling

    def _embedding(self, call: int, trained: Any, shape: Shape, add: bool) -> _Part:
        key = (call, id(trained), shape, add)
        if key not in self._parts:
            self._parts[key] = self._compile_embedding(call, trained, shape, add)
        return self._parts[key]

    def _compile_embedding(
        self, call: int, trained: _TrainedEmbeddings, shape: Shape, add: bool
    ) -> _Part:
        config, operations, width = self._config, self._operations, self._width
        sums = self._end(f"{call} sums", shape, width)
        out = self._end(f"{call} out", shape, config.units)
        normed = self._rows(f"{call} normed", shape, width, "float32")
        entering = self._rows(f"{call} embedded", shape, width)
        masks = self._mask(f"{call} mask embedding", normed, config.dropout)
        factors = masks[0].array if masks else None
        statistics = self._statistics(f"{call} embedding", sums)
        forward: List[Run] = [operations.norm(sums, trained.norm.norm, normed, statistics)]
        forward += self._times(normed, factors, entering, "dropped embedding")
        # Views of the gradient are taken below, so that it moves from MXNet's memory to a buffer.
        gradient = self._rows("gradient", shape, config.units, "float32")
        out_gradient = self._end(f"{call} out gradient", shape, config.units)
        backward: List[Run] = [operations.convert(out_gradient, gradient)]
        if trained.projection is not None:
            projected = self._rows(f"{call} projected", shape, config.units)
            forward.append(operations.dense(entering, trained.projection.dense, projected))
            forward.append(operations.convert(projected, out))
            rounded, name = self._rounded(gradient, "gradient", None, shape, backward)
            gradient = self._rows("projection gradient", shape, width, "float32")
            backward += self._weight_gradients(rounded, name, entering, trained.projection, add)
            backward.append(self._back(rounded, trained.projection, gradient))
        else:
            forward.append(operations.convert(entering, out))
        if factors is not None:
            dropped = self._rows("normed gradient", shape, width, "float32")
            backward += self._times(gradient, factors, dropped)
            gradient = dropped
        result = self._end(f"{call} result", shape, width)
        backward += self._norm_backward(
            sums, trained.norm, normed, gradient, result, statistics, add
        )
        return _Part(forward, backward, masks)

    def _slice(
        self, call: int, layers: Sequence[_TrainedLayer], shape: Shape, needed: Shape, add: bool
    ) -> List[_Part]:
        """Calls of all layers of a slice, with what leads in and out."""
        entry, leave = self._ends_of(call, len(layers), shape, needed)
        parts = [entry]
        for index, layer in enumerate(layers):
            queries = needed if index == len(layers) - 1 else shape
            # A shared layer adds to the gradients of its positions above.
            adds = add or layer in layers[index + 1 :]
            key = (call, index, id(layer), shape, queries, adds)
            if key not in self._parts:
                compiler = _LayerCompiler(self, call, index, layer, shape, queries)
                self._parts[key] = compiler.part(adds)
            parts.append(self._parts[key])
        return [*parts, leave]

    def _ends_of(self, call: int, depth: int, shape: Shape, needed: Shape) -> Tuple[_Part, _Part]:
        """From MXNet's arrays into the first layer's, and out of the last layer's; and back."""
        key = (call, depth, shape, needed)
        if key not in self._ends:
            units, operations = self._config.units, self._operations
            source = self._end(f"{call} in", shape, units)
            result = self._end(f"{call} result", shape, units)
            first = self._rows(f"{call} x0", shape, units)
            gradient = self._rows("gradient", shape, units, "float32")
            enter: List[Run] = [operations.convert(source, first)]
            enter_back: List[Run] = [operations.convert(gradient, result)]
            out = self._end(f"{call} out", needed, units)
            out_gradient = self._end(f"{call} out gradient", needed, units)
            last = self._rows(f"{call} x{depth}", needed, units)
            gradient = self._rows("gradient", needed, units, "float32")
            leave: List[Run] = [operations.convert(last, out)]
            leave_back: List[Run] = [operations.convert(out_gradient, gradient)]
            self._ends[key] = (_Part(enter, enter_back, []), _Part(leave, leave_back, []))
        return self._ends[key]

    # Operations of several calls

    def _statistics(self, name: str, source: Array) -> Dict[int, Memory]:
        rows = (source.layout.shape[0],)
        return {
            MEAN: self._workspace.array(f"mean {name}", self._tokens, rows, "float32"),
            VARIANCE: self._workspace.array(f"variance {name}", self._tokens, rows, "float32"),
        }

    def _times(
        self, source: Array, factors: Optional[Array], out: Array, between: str = ""
    ) -> List[Run]:
        """Multiply where there are factors, and convert; ``between`` names the buffer for a
        float32 product that is rounded."""
        runs: List[Run] = []
        if factors is not None:
            narrower = source.layout.kind == "float32" != out.layout.kind
            product = out
            if narrower:
                size, shape = source.data.size, source.layout.shape
                product = self._workspace.array(between, size, shape, "float32")
            runs.append(self._operations.multiply(source, factors, product))
            source = product
        if source.data is not out.data:
            runs.append(self._operations.convert(source, out))
        return runs

    def _rounded(
        self, source: Array, name: str, factors: Optional[Array], shape: Shape, runs: List[Run]
    ) -> Tuple[Array, str]:
        """A gradient before its dropout, in the type of the products' operands, and the name of
        its buffer; ``runs`` gets what computes it."""
        if factors is None and self._kind == "float32":
            return source, name
        out = self._rows("rounded", shape, source.layout.shape[1])
        runs += self._times(source, factors, out, "dropped")
        return out, "rounded"

    def _back(self, gradient: Array, product: _Product, out: Array, *steps) -> Run:
        """``steps(gradient @ weight)``: the gradient of a product's input."""
        return self._operations.dense(gradient, product.dense, out, *steps, backward=True)

    def _weight_gradients(
        self, gradient: Array, name: str, source: Array, product: _Product, add: bool
    ) -> List[Run]:
        """Gradients of a weight and its bias; ``name`` is that of the gradient's buffer."""
        rows = gradient.layout.shape[0]
        ones = self._workspace.array("ones", self._tokens, (1, rows), self._kind)
        ones.data[:] = one(self._kind)
        steps = [("sum", None)] if add else []
        transposed = self._transposed(gradient, name)
        return [
            self._operations.product(transposed, source, product.weight_gradient, *steps),
            self._operations.product(ones, gradient, product.bias_gradient, *steps),
        ]

    def _norm_backward(
        self,
        source: Array,
        norm: _TrainedNorm,
        out: Array,
        gradient: Array,
        result: Array,
        statistics: Dict[int, Memory],
        add: bool,
    ) -> List[Run]:
        """Gradients of a normalisation, those of its parameters added where ``add`` says so."""
        targets: Sequence[Array] = norm.gradients
        if add:
            shape = targets[0].layout.shape
            width = shape[0]  # E for the embeddings, C for the layers
            targets = [
                self._workspace.array(f"norm gradient {index} of {width}", width, shape, "float32")
                for index in range(2)
            ]
        runs: List[Run] = [
            self._operations.norm_backward(
                source, norm.norm, out, gradient, result, statistics, targets
            )
        ]
        if add:
            for target, part in zip(norm.gradients, targets):
                runs.append(functools.partial(_add_to, target, part))
        return runs


class _LayerCompiler:
    """Compiles one layer of a slice, for one shape, into calls on the engine's buffers."""

    def __init__(
        self,
        engine: GradientEngine,
        call: int,
        index: int,
        layer: _TrainedLayer,
        shape: Shape,
        queries: Shape,
    ) -> None:
        self._engine, self._config, self._layer = engine, engine._config, layer
        self._operations = engine._operations
        self._prefix, self._suffix = f"{call} ", str(index)
        self._next = f"{call} x{index + 1}"
        self._shape, self._queries = shape, queries
        self._weight_masks = self._mask("weights", self._scores("weights"), True)
        total = self._rows("total", kind="float32")
        self._output_masks = self._mask("output", total)
        self._outer_masks = self._mask("outer", total)

    def part(self, add: bool) -> _Part:
        """Calls forward and backward; ``add`` says that gradients of parameters are added."""
        masks = [*self._weight_masks, *self._output_masks, *self._outer_masks]
        return _Part(self._forward(), self._backward(add), masks)

    # Buffers of the layer's own, which live until its gradients are computed

    def _name(self, name: str) -> str:
        return f"{self._prefix}{name}{self._suffix}"

    def _rows(
        self, name: str, width: int = 0, kind: str = "", shape: Optional[Shape] = None
    ) -> Array:
        width = width or self._config.units
        return self._engine._rows(self._name(name), shape or self._queries, width, kind)

    def _heads(self, name: str, shape: Shape, transposed: bool = False) -> Array:
        return self._engine._heads(self._name(name), shape, transposed)

    def _scores(self, name: str, transposed: bool = False) -> Array:
        return self._engine._scores(
            self._name(name), self._shape, self._queries, transposed=transposed
        )

    def _mask(self, name: str, like: Array, attention: bool = False) -> List[Mask]:
        rate = self._config.attention_dropout if attention else self._config.dropout
        return self._engine._mask(self._name(f"mask {name}"), like, rate)

    def _kept_weights(self, transposed: bool = False) -> Array:
        """Attention weights after their dropout."""
        return self._scores("kept" if self._weight_masks else "weights", transposed)

    def _query_rows(self) -> Array:
        """Encodings that become queries: all, or those of the first positions."""
        if self._queries == self._shape:
            return self._rows("x")
        return self._rows("first x")

    # Buffers that all layers share while they run backward

    def _shared(
        self, name: str, width: int = 0, kind: str = "", shape: Optional[Shape] = None
    ) -> Array:
        width = width or self._config.units
        return self._engine._rows(name, shape or self._queries, width, kind)

    def _shared_scores(self, name: str, transposed: bool = False) -> Array:
        return self._engine._scores(name, self._shape, self._queries, transposed=transposed)

    # Forward

    def _forward(self) -> List[Run]:
        operations, layer, hidden_size = self._operations, self._layer, self._config.hidden_size
        x = self._query_rows()
        middle, total = self._rows("middle"), self._rows("total", kind="float32")
        inner, active = self._rows("inner", hidden_size), self._rows("active", hidden_size)
        last = self._rows("last", kind="float32")
        after = self._engine._rows(self._next, self._queries, self._config.units)
        output_mask, outer_mask = _array(self._output_masks), _array(self._outer_masks)
        return [
            *self._project_forward(x),
            *self._attention_forward(),
            operations.dense(
                self._rows("context"),
                layer.output.dense,
                total,
                ("multiply", output_mask),
                ("add", x),
            ),
            operations.norm(
                total, layer.attention_norm.norm, middle, self._statistics("attention", total)
            ),
            operations.dense(middle, layer.inner.dense, inner),
            operations.activation(self._config.activation, inner, active),
            operations.dense(
                active, layer.outer.dense, last, ("multiply", outer_mask), ("add", middle)
            ),
            operations.norm(last, layer.ffn_norm.norm, after, self._statistics("ffn", last)),
        ]

    def _project_forward(self, x: Array) -> List[Run]:
        runs: List[Run] = []
        if self._queries != self._shape:
            units, kind = self._config.units, self._engine._kind
            first = self._engine._values(self._name("first x"), self._queries, units, kind)
            everywhere = self._engine._values(self._name("x"), self._shape, units, kind)
            runs.append(functools.partial(np.copyto, first, everywhere[:, :1]))
        rows, layer = self._rows("x", shape=self._shape), self._layer
        runs.append(self._operations.dense(x, layer.query.dense, self._rows("query")))
        for name, product in (("key", layer.key), ("value", layer.value)):
            out = self._rows(name, shape=self._shape)
            runs.append(self._operations.dense(rows, product.dense, out))
        return runs

    def _attention_forward(self) -> List[Run]:
        operations, engine = self._operations, self._engine
        raw = engine._scores("raw", self._shape, self._queries, "float32")
        weights = self._scores("weights")
        return [
            operations.product(
                self._heads("query", self._queries),
                self._heads("key", self._shape, transposed=True),
                raw,
                ("times", self._config.attention_scale),
                ("add", engine._padding(self._shape)),
            ),
            operations.softmax(raw, weights, training=True),
            *engine._times(weights, _array(self._weight_masks), self._kept_weights()),
            operations.product(
                self._kept_weights(),
                self._heads("value", self._shape),
                self._heads("context", self._queries),
            ),
        ]

    def _statistics(self, name: str, source: Array) -> Dict[int, Memory]:
        return self._engine._statistics(self._name(name), source)

    # Backward

    def _backward(self, add: bool) -> List[Run]:
        """From the gradient of the layer's output to that of its input, in the same buffer."""
        return [
            *self._ffn_backward(add),
            *self._output_backward(add),
            *self._attention_backward(),
            *self._input_backward(add),
        ]

    def _ffn_backward(self, add: bool) -> List[Run]:
        engine, layer, hidden_size = self._engine, self._layer, self._config.hidden_size
        gradient, through, below = (
            self._shared(name, kind="float32") for name in ("gradient", "through", "below")
        )
        middle, inner = self._rows("middle"), self._rows("inner", hidden_size)
        active = self._rows("active", hidden_size)
        active_gradient = self._shared("active gradient", hidden_size)
        inner_gradient = self._shared("inner gradient", hidden_size)
        last = self._rows("last", kind="float32")
        after = engine._rows(self._next, self._queries, self._config.units)
        statistics = self._statistics("ffn", last)
        runs = engine._norm_backward(
            last, layer.ffn_norm, after, gradient, through, statistics, add
        )
        mask = _array(self._outer_masks)
        rounded, name = engine._rounded(through, "through", mask, self._queries, runs)
        runs += engine._weight_gradients(rounded, name, active, layer.outer, add)
        runs.append(engine._back(rounded, layer.outer, active_gradient))
        runs.append(
            self._operations.activation_backward(
                self._config.activation, inner, active_gradient, inner_gradient
            )
        )
        runs += engine._weight_gradients(inner_gradient, "inner gradient", middle, layer.inner, add)
        runs.append(engine._back(inner_gradient, layer.inner, below, ("add", through)))
        return runs

    def _output_backward(self, add: bool) -> List[Run]:
        engine, layer = self._engine, self._layer
        through, below = (self._shared(name, kind="float32") for name in ("through", "below"))
        total = self._rows("total", kind="float32")
        runs = engine._norm_backward(
            total,
            layer.attention_norm,
            self._rows("middle"),
            below,
            through,
            self._statistics("attention", total),
            add,
        )
        mask = _array(self._output_masks)
        rounded, name = engine._rounded(through, "through", mask, self._queries, runs)
        runs += engine._weight_gradients(rounded, name, self._rows("context"), layer.output, add)
        runs.append(engine._back(rounded, layer.output, self._shared("context gradient")))
        return runs

    def _attention_backward(self) -> List[Run]:
        operations, engine = self._operations, self._engine
        scale = ("times", self._config.attention_scale)
        gradient = engine._heads("context gradient", self._queries)
        kept, weights = (
            self._shared_scores("kept gradient"),
            self._shared_scores("weights gradient"),
        )
        raw = self._shared_scores("raw gradient")
        raw_transposed = self._shared_scores("raw gradient", transposed=True)
        source = engine._scores("raw", self._shape, self._queries, "float32")
        return [
            operations.product(
                self._kept_weights(transposed=True),
                gradient,
                engine._heads("value gradient", self._shape),
            ),
            operations.product(gradient, self._heads("value", self._shape, transposed=True), kept),
            *engine._times(kept, _array(self._weight_masks), weights),
            operations.softmax_backward(source, self._scores("weights"), weights, raw),
            operations.product(
                raw,
                self._heads("key", self._shape),
                engine._heads("query gradient", self._queries),
                scale,
            ),
            operations.product(
                raw_transposed,
                self._heads("query", self._queries),
                engine._heads("key gradient", self._shape),
                scale,
            ),
        ]

    def _input_backward(self, add: bool) -> List[Run]:
        """Through queries, keys and values in turn. Each adds to the gradient so far, which starts
        with that of the residual."""
        engine, layer, shape = self._engine, self._layer, self._shape
        through, below = (self._shared(name, kind="float32") for name in ("through", "below"))
        gradient = self._shared("gradient", kind="float32", shape=shape)
        other = self._shared("other", kind="float32", shape=shape)
        query = self._shared("query gradient")
        key, value = (self._shared(f"{name} gradient", shape=shape) for name in ("key", "value"))
        rows = self._rows("x", shape=shape)
        runs = engine._weight_gradients(
            query, "query gradient", self._query_rows(), layer.query, add
        )
        runs += engine._weight_gradients(key, "key gradient", rows, layer.key, add)
        runs += engine._weight_gradients(value, "value gradient", rows, layer.value, add)
        runs.append(engine._back(query, layer.query, below, ("add", through)))
        if self._queries == shape:
            runs.append(engine._back(key, layer.key, other, ("add", below)))
            runs.append(engine._back(value, layer.value, gradient, ("add", other)))
            return runs
        units = self._config.units
        first = engine._values("below", self._queries, units, "float32")
        target = engine._values("gradient", shape, units, "float32")[:, :1]
        runs.append(engine._back(key, layer.key, other))
        runs.append(engine._back(value, layer.value, gradient, ("add", other)))
        runs.append(functools.partial(np.add, target, first, out=target))
        return runs


def _array(masks: Sequence[Mask]) -> Optional[Array]:
    return masks[0].array if masks else None


def _data(trained: _Trained) -> List[mx.nd.NDArray]:
    return [parameter.data() for parameter in trained.parameters]


def _view(place: int, size: int) -> np.ndarray:
    """float32 numbers at an address."""
    pointer = ctypes.cast(place, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(pointer, (size,))


def _add_to(target: Array, part: Array) -> None:
    view = _view(target.address, part.data.size)
    np.add(view, part.data, out=view)
