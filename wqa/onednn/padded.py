"""Buffers and operations on padded mini-batches, forward and backward.

Rows are (B * L, C). A head's queries, keys and values are views of them, (B, H, L, C / H). Scores
are (B, H, Q, L), Q queries a pair. Buffers go by names, and are as large as the largest mini-batch
needs.
"""

from __future__ import annotations

import functools
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from wqa.config import BackboneConfig
from wqa.onednn.kernels import MEAN, VARIANCE
from wqa.onednn.library import Array, Memory, one
from wqa.onednn.operations import Operations, Workspace
from wqa.onednn.parameters import address
from wqa.onednn.trained import TrainedNorm, TrainedProduct, view

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


class PaddedOperations:
    """Compiles operations on padded mini-batches, and keeps their buffers.

    Parameters
    ----------
    config : BackboneConfig
        Sizes of the encoder.
    kind : {"float32", "bfloat16"}
        What the operands of products are rounded to.
    tokens : int
        Most padded tokens of a mini-batch.
    length : int
        Greatest length of a pair, padding included.
    """

    def __init__(self, config: BackboneConfig, kind: str, tokens: int, length: int) -> None:
        self.config, self.kind = config, kind
        self._tokens, self._length = max(tokens, length), length
        self.operations, self._workspace = Operations(config.layer_norm_eps), Workspace()

    # Buffers

    @property
    def width(self) -> int:
        """E, the width of the embeddings' tables."""
        return self.config.embedding_size or self.config.units

    def rows(self, name: str, shape: Shape, width: int, kind: str = "") -> Array:
        """(B * L, width)."""
        kind = kind or self.kind
        return self._workspace.array(name, self._tokens * width, (shape.rows, width), kind)

    def values(self, name: str, shape: Shape, width: int, kind: str) -> np.ndarray:
        """The same memory as (B, L, width)."""
        flat = self.rows(name, shape, width, kind).data[: shape.rows * width]
        return flat.reshape(shape.pairs, shape.length, width)

    def transposed(self, rows: Array, name: str) -> Array:
        """The memory of rows with the axes exchanged."""
        count, width = rows.layout.shape
        kind = rows.layout.kind
        return self._workspace.array(name, rows.data.size, (width, count), kind, (1, width))

    def heads(self, name: str, shape: Shape, transposed: bool = False) -> Array:
        """Rows of that name as (B, H, L, C / H), or with the last two axes exchanged."""
        heads, units = self.config.num_heads, self.config.units
        size = units // heads
        view, strides = (shape.length, size), (units, 1)
        if transposed:
            view, strides = view[::-1], strides[::-1]
        return self._workspace.array(
            name,
            self._tokens * units,
            (shape.pairs, heads, *view),
            self.kind,
            (shape.length * units, size, *strides),
        )

    def scores(
        self, name: str, shape: Shape, queries: Shape, kind: str = "", transposed: bool = False
    ) -> Array:
        """(B, H, Q, L), Q queries a pair; or with the last two axes exchanged."""
        heads = self.config.num_heads
        view, strides = (queries.length, shape.length), (shape.length, 1)
        if transposed:
            view, strides = view[::-1], strides[::-1]
        items = queries.length * shape.length
        return self._workspace.array(
            name,
            self._tokens * heads * self._length,
            (shape.pairs, heads, *view),
            kind or self.kind,
            (heads * items, items, *strides),
        )

    def padding(self, shape: Shape) -> Array:
        """What is added to the attention scores of each position, (B, 1, 1, L)."""
        view = (shape.pairs, 1, 1, shape.length)
        return self._workspace.array("padding", self._tokens, view, "float32")

    def end(self, name: str, shape: Shape, width: int) -> Array:
        """float32 rows that stand in memory of MXNet's."""
        return self._workspace.array(name, 1, (shape.rows, width), "float32")

    def move(self, name: str, shape: Shape, width: int, place: int) -> None:
        self.end(name, shape, width).move(place)

    def point(self, name: str, shape: Shape, width: int, array: mx.nd.NDArray) -> None:
        array.wait_to_read()
        self.move(name, shape, width, address(array))

    def mask(self, name: str, like: Array, rate: float) -> List[Mask]:
        """The mask of a dropout on an array; none at rate 0."""
        if not rate:
            return []
        array = self._workspace.array(name, like.data.size, like.layout.shape, "float32")
        return [Mask(array, array.data[: int(np.prod(like.layout.shape))], rate)]

    # Operations of several calls

    def statistics(self, name: str, source: Array) -> Dict[int, Memory]:
        rows = (source.layout.shape[0],)
        return {
            MEAN: self._workspace.array(f"mean {name}", self._tokens, rows, "float32"),
            VARIANCE: self._workspace.array(f"variance {name}", self._tokens, rows, "float32"),
        }

    def times(
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
            runs.append(self.operations.multiply(source, factors, product))
            source = product
        if source.data is not out.data:
            runs.append(self.operations.convert(source, out))
        return runs

    def rounded(
        self, source: Array, name: str, factors: Optional[Array], shape: Shape, runs: List[Run]
    ) -> Tuple[Array, str]:
        """A gradient before its dropout, in the type of the products' operands, and the name of
        its buffer; ``runs`` gets what computes it."""
        if factors is None and self.kind == "float32":
            return source, name
        out = self.rows("rounded", shape, source.layout.shape[1])
        runs += self.times(source, factors, out, "dropped")
        return out, "rounded"

    def back(self, gradient: Array, product: TrainedProduct, out: Array, *steps) -> Run:
        """``steps(gradient @ weight)``: the gradient of a product's input."""
        return self.operations.dense(gradient, product.dense, out, *steps, backward=True)

    def weight_gradients(
        self, gradient: Array, name: str, source: Array, product: TrainedProduct, add: bool
    ) -> List[Run]:
        """Gradients of a weight and its bias; ``name`` is that of the gradient's buffer."""
        rows = gradient.layout.shape[0]
        ones = self._workspace.array("ones", self._tokens, (1, rows), self.kind)
        ones.data[:] = one(self.kind)
        steps = [("sum", None)] if add else []
        transposed = self.transposed(gradient, name)
        return [
            self.operations.product(transposed, source, product.weight_gradient, *steps),
            self.operations.product(ones, gradient, product.bias_gradient, *steps),
        ]

    def norm_backward(
        self,
        source: Array,
        norm: TrainedNorm,
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
            self.operations.norm_backward(
                source, norm.norm, out, gradient, result, statistics, targets
            )
        ]
        if add:
            for target, part in zip(norm.gradients, targets):
                runs.append(functools.partial(_add_to, target, part))
        return runs


def _add_to(target: Array, part: Array) -> None:
    values = view(target.address, part.data.size)
    np.add(values, part.data, out=values)
