"""Buffers and operations on padded mini-batches, forward and backward.

Rows are (B * L, C). The queries, keys and values of the attention heads are views of them,
(B, H, L, C / H). Attention scores are (B, H, Q, L), with Q queries a pair. Each buffer has a name
and the size of the largest mini-batch. A part of a mini-batch has its place in each of them, so
that threads compute parts of their own, and the gradients of parameters read all rows.
"""

from __future__ import annotations

import copy
import functools
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from wqa.config import BackboneConfig
from wqa.engines.onednn.library import Array, Memory, one
from wqa.engines.onednn.operations import Operations, View, Workspace, address
from wqa.engines.onednn.primitives import MEAN, VARIANCE
from wqa.engines.onednn.trained import TrainedNorm, TrainedProduct, view

#: A compiled operation; calling it runs it.
Run = Callable[[], object]


class Shape(NamedTuple):
    """Pairs of a mini-batch or of a part of it, and positions a pair.

    First positions alone have buffers of their own: the place of a part in a buffer depends on the
    number of positions, and another thread may be at a layer of all positions.
    """

    pairs: int
    length: int
    first: int = 0  # index of the part's first pair
    is_whole: bool = True  # whether these are all positions of the pairs

    @property
    def rows(self) -> int:
        """Positions of all pairs."""
        return self.pairs * self.length

    @property
    def start(self) -> int:
        """The first of these positions in the mini-batch."""
        return self.first * self.length

    def split(self, count: int) -> List[Shape]:
        """Parts of the mini-batch, whose pairs differ by one at most in number."""
        bounds = [self.pairs * part // count for part in range(count + 1)]
        return [
            self._replace(pairs=end - start, first=start) for start, end in zip(bounds, bounds[1:])
        ]

    def buffer(self, name: str) -> str:
        """Name of the buffer of such positions."""
        return name if self.is_whole else f"{name} of first positions"


class Share(NamedTuple):
    """One of several parts of a work, each by a thread of its own."""

    part: int
    parts: int

    def of(self, rows: int) -> Tuple[int, int]:
        """First and last row of the part, in blocks of at least 16 rows."""
        blocks = -(-rows // 16)
        first, last = (blocks * part // self.parts for part in (self.part, self.part + 1))
        return 16 * first, min(rows, 16 * last)


class Mask(NamedTuple):
    """Mask of a dropout on a part of a mini-batch, with values 0 and 1 / (1 - rate).

    Shapes: `values` (pairs, values a pair).
    """

    array: Array
    values: np.ndarray
    rate: float
    first: int  # index of the first pair in the mini-batch

    @property
    def words(self) -> int:
        """Draws of 64 bits a pair."""
        return -(-self.values.shape[1] // 4)

    def draw(self, seed: int, position: int) -> None:
        """Draw the mask by the generator of a seed, where that of the mini-batch has a position.

        The mask of a pair does not depend on the parts into which the mini-batch is split.
        """
        bits = np.random.PCG64DXSM(seed).advance(position + self.first * self.words)
        shape = (len(self.values), self.words)
        raw = np.random.Generator(bits).integers(0, 2**64 - 1, shape, np.uint64, endpoint=True)
        draws = raw.view(np.uint16)[:, : self.values.shape[1]]
        factor = np.float32(1 / (1 - self.rate))
        np.multiply(draws >= round(self.rate * 65536), factor, out=self.values)


class PaddedOperations:
    """Compiles operations on padded mini-batches, and keeps their buffers."""

    def __init__(self, config: BackboneConfig, kind: str, tokens: int, length: int) -> None:
        self.config, self.kind = config, kind
        self.tokens, self.length = max(tokens, length), length
        self.operations, self._workspace = Operations(config.layer_norm_eps), Workspace()

    def sibling(self) -> PaddedOperations:
        """The same buffers and kernels, for another thread."""
        sibling = copy.copy(self)
        sibling.operations = self.operations.sibling()
        return sibling

    # Buffers

    @property
    def width(self) -> int:
        """E, the width of the embeddings' tables."""
        return self.config.embedding_size or self.config.units

    def rows(self, name: str, shape: Shape, width: int, kind: str = "") -> View:
        """A buffer as rows, (B * L, width)."""
        name, kind = shape.buffer(name), kind or self.kind
        layout, start = (shape.rows, width), shape.start * width
        return self._workspace.array(name, self.tokens * width, layout, kind, start=start)

    def values(self, name: str, shape: Shape, width: int, kind: str) -> np.ndarray:
        """The buffer of `rows` as a NumPy array, (B, L, width)."""
        flat = self.rows(name, shape, width, kind).data[: shape.rows * width]
        return flat.reshape(shape.pairs, shape.length, width)

    def heads(self, name: str, shape: Shape, transposed: bool = False) -> View:
        """The buffer of `rows` by attention head, (B, H, L, C / H), or (B, H, C / H, L)."""
        heads, units = self.config.num_heads, self.config.units
        size = units // heads
        view, strides = (shape.length, size), (units, 1)
        if transposed:
            view, strides = view[::-1], strides[::-1]
        return self._workspace.array(
            shape.buffer(name),
            self.tokens * units,
            (shape.pairs, heads, *view),
            self.kind,
            (shape.length * units, size, *strides),
            shape.start * units,
        )

    def scores(
        self, name: str, shape: Shape, queries: Shape, kind: str = "", transposed: bool = False
    ) -> View:
        """A buffer of attention scores, (B, H, Q, L), or (B, H, L, Q)."""
        heads = self.config.num_heads
        view, strides = (queries.length, shape.length), (shape.length, 1)
        if transposed:
            view, strides = view[::-1], strides[::-1]
        items = queries.length * shape.length
        return self._workspace.array(
            queries.buffer(name),
            self.tokens * heads * self.length,
            (shape.pairs, heads, *view),
            kind or self.kind,
            (heads * items, items, *strides),
            shape.first * heads * items,
        )

    def padding(self, shape: Shape) -> View:
        """The attention mask, added to the scores, (B, 1, 1, L)."""
        view = (shape.pairs, 1, 1, shape.length)
        return self._workspace.array("padding", self.tokens, view, "float32", start=shape.start)

    def external(self, name: str, shape: Shape, width: int) -> View:
        """float32 rows in memory that MXNet owns."""
        name = f"{name} from {shape.first}"
        return self._workspace.array(name, 1, (shape.rows, width), "float32")

    def set_address(self, name: str, parts: Sequence[Shape], width: int, address: int) -> None:
        """Set the address of external rows, of which each part has its own."""
        for part in parts:
            self.external(name, part, width).move(address + 4 * part.start * width)

    def bind(self, name: str, parts: Sequence[Shape], width: int, array: mx.nd.NDArray) -> None:
        """Let external rows share the memory of an MXNet array."""
        array.wait_to_read()
        self.set_address(name, parts, width, address(array))

    def mask(self, name: str, like: View, rate: float, shape: Shape) -> List[Mask]:
        """The mask of a dropout on the rows or scores of a shape; an empty list at rate 0."""
        if not rate:
            return []
        array = self._workspace.like(shape.buffer(name), like, "float32")
        values = array.data[: int(np.prod(array.layout.shape))].reshape(shape.pairs, -1)
        return [Mask(array, values, rate, shape.first)]

    # Operations of several calls

    def statistics(self, name: str, shape: Shape) -> Dict[int, Memory]:
        """Buffers for the mean and the variance of each row."""
        return {
            number: self._workspace.array(
                shape.buffer(f"{title} {name}"),
                self.tokens,
                (shape.rows,),
                "float32",
                start=shape.start,
            )
            for number, title in ((MEAN, "mean"), (VARIANCE, "variance"))
        }

    def multiply(
        self, source: View, factors: Optional[Array], out: View, buffer: str = ""
    ) -> List[Run]:
        """Multiply by factors, if any, and convert to the type of ``out``.

        ``buffer`` is that of the float32 product where that is rounded.
        """
        runs: List[Run] = []
        if factors is not None:
            narrower = source.layout.kind == "float32" != out.layout.kind
            product = out
            if narrower:
                product = self._workspace.like(buffer, source, "float32")
            runs.append(self.operations.multiply(source, factors, product))
            source = product
        if source is not out:
            runs.append(self.operations.convert(source, out))
        return runs

    def rounded(
        self, name: str, shape: Shape, factors: Optional[Array], runs: List[Run]
    ) -> Tuple[View, str]:
        """The gradient of a dropout's input, rounded for products, and the name of its buffer.

        ``name`` is that of the gradient of its output. The calls are appended to ``runs``.
        """
        source = self.rows(name, shape, self.config.units, "float32")
        if factors is None and self.kind == "float32":
            return source, name
        out = self.rows(f"rounded {name}", shape, self.config.units)
        runs += self.multiply(source, factors, out, shape.buffer("dropped"))
        return out, f"rounded {name}"

    def input_gradient(self, gradient: Array, product: TrainedProduct, out: Array, *steps) -> Run:
        """The gradient of a product's input, ``steps(gradient @ weight)``."""
        return self.operations.dense(gradient, product.dense, out, *steps, backward=True)

    def weight_gradients(
        self,
        name: str,
        shape: Shape,
        source: Array,
        product: TrainedProduct,
        add: bool,
        share: Share,
    ) -> List[Run]:
        """Gradients of a share of a weight's rows, and of the same share of its bias.

        Parameters
        ----------
        name : str
            Buffer of the gradient of the product's output, of the mini-batch `shape`.
        source : Array
            (rows, in) input of the product.
        add : bool
            Whether they are added to what stands there.
        share : Share
            Which rows of the weight.
        """
        first, last = share.of(product.rows)
        if first == last:
            return []
        size, count = self.tokens * product.rows, last - first
        view, strides = (shape.rows, count), (product.rows, 1)
        array = functools.partial(self._workspace.array, shape.buffer(name), size)
        gradient = array(view, self.kind, strides, first)
        transposed = array(view[::-1], self.kind, strides[::-1], first)
        ones = self._workspace.array("ones", self.tokens, (1, shape.rows), self.kind)
        ones.data[:] = one(self.kind)
        steps = [("sum", None)] if add else []
        weight_target, bias_target = product.targets(first, last)
        return [
            self.operations.product(transposed, source, weight_target, *steps),
            self.operations.product(ones, gradient, bias_target, *steps),
        ]

    def norm_gradients(self, name: str, width: int, share: Share) -> List[View]:
        """Buffers for a part's gradients of the gain and the offset of a normalisation."""
        start, size = share.part * width, share.parts * width
        names = (f"{parameter} {name} of {share.parts}" for parameter in ("gain", "offset"))
        array = self._workspace.array
        return [array(name, size, (width,), "float32", start=start) for name in names]

    def sum_norm_gradients(
        self, name: str, norm: TrainedNorm, add: bool, share: Share
    ) -> List[Run]:
        """Sums of the parts' gradients of a normalisation, in the order of the parts."""
        if share.part:
            return []
        width = norm.gradients[0].layout.shape[0]
        parts = self.norm_gradients(name, width, share)
        return [
            functools.partial(_sum_to, target, part.data.reshape(share.parts, width), add)
            for target, part in zip(norm.gradients, parts)
        ]


def _sum_to(target: Array, parts: np.ndarray, add: bool) -> None:
    values = view(target.address, parts.shape[1])
    total = parts.sum(axis=0)
    values[:] = values + total if add else total
