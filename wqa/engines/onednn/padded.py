"""Buffers and operations on padded mini-batches, forward and backward.

Rows are (B * L, C). The queries, keys and values of the attention heads are views of them,
(B, H, L, C / H). Attention scores are (B, H, Q, L), with Q queries a pair. Each buffer has a name
and the size of the largest mini-batch.
"""

from __future__ import annotations

import functools
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from wqa.config import BackboneConfig
from wqa.engines.onednn.library import Array, Memory, one
from wqa.engines.onednn.operations import Operations, Workspace, address
from wqa.engines.onednn.primitives import MEAN, VARIANCE
from wqa.engines.onednn.trained import TrainedNorm, TrainedProduct, view

#: A compiled operation; calling it runs it.
Run = Callable[[], object]


class Shape(NamedTuple):
    """Number of pairs of a mini-batch, and positions a pair."""

    pairs: int
    length: int

    @property
    def rows(self) -> int:
        """Positions of all pairs."""
        return self.pairs * self.length


class Mask(NamedTuple):
    """Mask of a dropout, with values 0 and 1 / (1 - rate)."""

    array: Array
    values: np.ndarray
    rate: float


class PaddedOperations:
    """Compiles operations on padded mini-batches, and keeps their buffers."""

    def __init__(self, config: BackboneConfig, kind: str, tokens: int, length: int) -> None:
        self.config, self.kind = config, kind
        self.tokens, self.length = max(tokens, length), length
        self.operations, self._workspace = Operations(config.layer_norm_eps), Workspace()

    # Buffers

    @property
    def width(self) -> int:
        """E, the width of the embeddings' tables."""
        return self.config.embedding_size or self.config.units

    def rows(self, name: str, shape: Shape, width: int, kind: str = "") -> Array:
        """A buffer as rows, (B * L, width)."""
        kind = kind or self.kind
        return self._workspace.array(name, self.tokens * width, (shape.rows, width), kind)

    def values(self, name: str, shape: Shape, width: int, kind: str) -> np.ndarray:
        """The buffer of `rows` as a NumPy array, (B, L, width)."""
        flat = self.rows(name, shape, width, kind).data[: shape.rows * width]
        return flat.reshape(shape.pairs, shape.length, width)

    def transposed(self, rows: Array, name: str) -> Array:
        """The buffer of rows, transposed."""
        count, width = rows.layout.shape
        kind = rows.layout.kind
        return self._workspace.array(name, rows.data.size, (width, count), kind, (1, width))

    def heads(self, name: str, shape: Shape, transposed: bool = False) -> Array:
        """The buffer of `rows` by attention head, (B, H, L, C / H), or (B, H, C / H, L)."""
        heads, units = self.config.num_heads, self.config.units
        size = units // heads
        view, strides = (shape.length, size), (units, 1)
        if transposed:
            view, strides = view[::-1], strides[::-1]
        return self._workspace.array(
            name,
            self.tokens * units,
            (shape.pairs, heads, *view),
            self.kind,
            (shape.length * units, size, *strides),
        )

    def scores(
        self, name: str, shape: Shape, queries: Shape, kind: str = "", transposed: bool = False
    ) -> Array:
        """A buffer of attention scores, (B, H, Q, L), or (B, H, L, Q)."""
        heads = self.config.num_heads
        view, strides = (queries.length, shape.length), (shape.length, 1)
        if transposed:
            view, strides = view[::-1], strides[::-1]
        items = queries.length * shape.length
        return self._workspace.array(
            name,
            self.tokens * heads * self.length,
            (shape.pairs, heads, *view),
            kind or self.kind,
            (heads * items, items, *strides),
        )

    def padding(self, shape: Shape) -> Array:
        """The attention mask, added to the scores, (B, 1, 1, L)."""
        view = (shape.pairs, 1, 1, shape.length)
        return self._workspace.array("padding", self.tokens, view, "float32")

    def external(self, name: str, shape: Shape, width: int) -> Array:
        """float32 rows in memory that MXNet owns."""
        return self._workspace.array(name, 1, (shape.rows, width), "float32")

    def set_address(self, name: str, shape: Shape, width: int, address: int) -> None:
        """Set the address of external rows."""
        self.external(name, shape, width).move(address)

    def bind(self, name: str, shape: Shape, width: int, array: mx.nd.NDArray) -> None:
        """Let external rows share the memory of an MXNet array."""
        array.wait_to_read()
        self.set_address(name, shape, width, address(array))

    def mask(self, name: str, like: Array, rate: float) -> List[Mask]:
        """The mask of a dropout on an array; an empty list at rate 0."""
        if not rate:
            return []
        array = self._workspace.array(name, like.data.size, like.layout.shape, "float32")
        return [Mask(array, array.data[: int(np.prod(like.layout.shape))], rate)]

    # Operations of several calls

    def statistics(self, name: str, source: Array) -> Dict[int, Memory]:
        """Buffers for the mean and the variance of each row."""
        rows = (source.layout.shape[0],)
        return {
            MEAN: self._workspace.array(f"mean {name}", self.tokens, rows, "float32"),
            VARIANCE: self._workspace.array(f"variance {name}", self.tokens, rows, "float32"),
        }

    def multiply(
        self, source: Array, factors: Optional[Array], out: Array, buffer: str = ""
    ) -> List[Run]:
        """Multiply by factors, if any, and convert to the type of ``out``; ``buffer`` names the
        buffer of the float32 product where that is rounded."""
        runs: List[Run] = []
        if factors is not None:
            narrower = source.layout.kind == "float32" != out.layout.kind
            product = out
            if narrower:
                size, shape = source.data.size, source.layout.shape
                product = self._workspace.array(buffer, size, shape, "float32")
            runs.append(self.operations.multiply(source, factors, product))
            source = product
        if source.data is not out.data:
            runs.append(self.operations.convert(source, out))
        return runs

    def rounded(
        self, source: Array, name: str, factors: Optional[Array], shape: Shape, runs: List[Run]
    ) -> Tuple[Array, str]:
        """The gradient of a dropout's input, rounded for products, and the name of its buffer.

        The calls that compute it are appended to ``runs``.
        """
        if factors is None and self.kind == "float32":
            return source, name
        out = self.rows("rounded", shape, source.layout.shape[1])
        runs += self.multiply(source, factors, out, "dropped")
        return out, "rounded"

    def input_gradient(self, gradient: Array, product: TrainedProduct, out: Array, *steps) -> Run:
        """The gradient of a product's input, ``steps(gradient @ weight)``."""
        return self.operations.dense(gradient, product.dense, out, *steps, backward=True)

    def weight_gradients(
        self, gradient: Array, name: str, source: Array, product: TrainedProduct, add: bool
    ) -> List[Run]:
        """Gradients of a weight and its bias; ``name`` is the buffer of ``gradient``."""
        rows = gradient.layout.shape[0]
        ones = self._workspace.array("ones", self.tokens, (1, rows), self.kind)
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
        """Gradients of a normalisation; with ``add``, its parameters' gradients accumulate."""
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
