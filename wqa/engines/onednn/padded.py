"""Buffers and operations on padded mini-batches, forward and backward.

Rows are (B * L, C). The queries, keys and values of the attention heads are views of them,
(B, H, L, C / H). Attention scores are (B, H, Q, L), with Q queries a pair. Each buffer has a name
and the size of the largest mini-batch. A chunk of a mini-batch has its place in each of them, so
that threads compute chunks of their own, and the gradients of parameters read all rows.
"""

from __future__ import annotations

import copy
import functools
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from wqa.config import BackboneConfig
from wqa.engines.onednn.library import Array, Memory, one
from wqa.engines.onednn.operations import BufferView, Operations, Workspace, address
from wqa.engines.onednn.primitives import MEAN, VARIANCE
from wqa.engines.onednn.trained import TrainedNorm, TrainedProduct, view

#: A compiled operation; calling it runs it.
Run = Callable[[], object]


class Shape(NamedTuple):
    """Number of pairs of a mini-batch or of a chunk of it, and of positions a pair."""

    pairs: int
    length: int
    first_pair: int = 0  # index of the chunk's first pair in the mini-batch
    all_positions: bool = True  # False for those positions of longer pairs that are read

    @property
    def rows(self) -> int:
        """Positions of all pairs."""
        return self.pairs * self.length

    @property
    def start(self) -> int:
        """The first of these positions in the mini-batch."""
        return self.first_pair * self.length

    def split(self, count: int) -> List[Shape]:
        """Chunks of the mini-batch, whose numbers of pairs differ by one at most."""
        bounds = [self.pairs * chunk // count for chunk in range(count + 1)]
        return [
            self._replace(pairs=end - start, first_pair=start)
            for start, end in zip(bounds, bounds[1:])
        ]

    def buffer(self, name: str) -> str:
        """Name of the buffer of such positions.

        Positions that are read have buffers of their own: where a chunk lies in a buffer depends
        on the number of positions, and another thread may be at a layer of all positions.
        """
        return name if self.all_positions else f"{name} of positions that are read"


class Share(NamedTuple):
    """A thread's share of the rows of each weight."""

    thread: int
    threads: int

    def of(self, rows: int) -> Tuple[int, int]:
        """First row, and the one behind the last: whole blocks of 16 rows, but for the last."""
        blocks = -(-rows // 16)
        start, end = (blocks * part // self.threads for part in (self.thread, self.thread + 1))
        return 16 * start, min(rows, 16 * end)


class Mask(NamedTuple):
    """Mask of a dropout on a chunk of a mini-batch, with values 0 and 1 / (1 - rate).

    Shapes: `values` (pairs, values a pair).
    """

    array: Array
    values: np.ndarray
    rate: float
    first_pair: int

    def draw(self, seed: int, number: int) -> None:
        """Draw the mask from a pass's seed and its number in the pass.

        That of a pair does not depend on the chunks into which the mini-batch is split.
        """
        pairs, size = self.values.shape
        words = -(-size // 4)  # of 64 bits, a pair
        bits = np.random.PCG64DXSM([seed, number]).advance(self.first_pair * words)
        generator = np.random.Generator(bits)
        raw = generator.integers(0, 2**64 - 1, (pairs, words), np.uint64, endpoint=True)
        draws = raw.view(np.uint16)[:, :size]
        factor = np.float32(1 / (1 - self.rate))
        np.multiply(draws >= round(self.rate * 65536), factor, out=self.values)


class PaddedOperations:
    """Compiles operations on padded mini-batches, and keeps their buffers."""

    def __init__(self, config: BackboneConfig, kind: str, tokens: int, length: int) -> None:
        self.config, self.kind = config, kind
        self.tokens, self.length = max(tokens, length), length
        self.operations, self._workspace = Operations(config.layer_norm_eps), Workspace()
        self._read: Dict[Tuple[int, Shape], np.ndarray] = {}

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

    def rows(self, name: str, shape: Shape, width: int, kind: str = "") -> BufferView:
        """A buffer as rows, (B * L, width)."""
        name, kind = shape.buffer(name), kind or self.kind
        layout, start = (shape.rows, width), shape.start * width
        return self._workspace.array(name, self.tokens * width, layout, kind, start=start)

    def values(self, name: str, shape: Shape, width: int, kind: str) -> np.ndarray:
        """The buffer of `rows` as a NumPy array, (B * L, width)."""
        rows = self.rows(name, shape, width, kind)
        return rows.data[: shape.rows * width].reshape(shape.rows, width)

    def read_rows(self, call: int, shape: Shape) -> np.ndarray:
        """Rows of a chunk whose encodings a call's output has, (B, n), counted in the chunk."""
        key = (call, shape)
        if key not in self._read:
            self._read[key] = np.zeros((shape.pairs, shape.length), np.intp)
        return self._read[key]

    def set_read(self, call: int, shape: Shape, length: int, read: np.ndarray) -> None:
        """Set `read_rows` from positions in the pairs of the mini-batch.

        Shapes: `read` (pairs of the mini-batch, n).
        """
        own = read[shape.first_pair : shape.first_pair + shape.pairs]
        np.add(own, length * np.arange(shape.pairs)[:, None], out=self.read_rows(call, shape))

    def heads(self, name: str, shape: Shape, transposed: bool = False) -> BufferView:
        """The buffer of `rows` by attention head, (B, H, L, C / H), or (B, H, C / H, L)."""
        heads, units = self.config.num_heads, self.config.units
        size = units // heads
        sizes, strides = (shape.length, size), (units, 1)
        if transposed:
            sizes, strides = sizes[::-1], strides[::-1]
        return self._workspace.array(
            shape.buffer(name),
            self.tokens * units,
            (shape.pairs, heads, *sizes),
            self.kind,
            (shape.length * units, size, *strides),
            shape.start * units,
        )

    def scores(
        self, name: str, shape: Shape, queries: Shape, kind: str = "", transposed: bool = False
    ) -> BufferView:
        """A buffer of attention scores, (B, H, Q, L), or (B, H, L, Q)."""
        heads = self.config.num_heads
        sizes, strides = (queries.length, shape.length), (shape.length, 1)
        if transposed:
            sizes, strides = sizes[::-1], strides[::-1]
        items = queries.length * shape.length
        return self._workspace.array(
            queries.buffer(name),
            self.tokens * heads * self.length,
            (shape.pairs, heads, *sizes),
            kind or self.kind,
            (heads * items, items, *strides),
            shape.first_pair * heads * items,
        )

    def padding(self, shape: Shape) -> BufferView:
        """The attention mask, added to the scores, (B, 1, 1, L)."""
        sizes = (shape.pairs, 1, 1, shape.length)
        return self._workspace.array("padding", self.tokens, sizes, "float32", start=shape.start)

    def bias(self, call: int, length: int) -> BufferView:
        """Biases of attention scores, (1, H, L, L) float32, in memory that MXNet owns."""
        shape = (1, self.config.num_heads, length, length)
        return self._workspace.array(f"{call} bias", 1, shape, "float32")

    def bias_gradient(self, length: int, share: Share) -> BufferView:
        """A thread's sum of the gradients of the biases, (1, H L L) float32."""
        heads, size = self.config.num_heads, self.config.num_heads * length**2
        most, start = share.threads * heads * self.length**2, share.thread * size
        name = f"bias gradient of {share.threads}"
        return self._workspace.array(name, most, (1, size), "float32", start=start)

    def by_pair(self, name: str, shape: Shape, view: BufferView) -> BufferView:
        """A contiguous view of a chunk in a named buffer, as a row a pair."""
        sizes = (shape.pairs, int(np.prod(view.layout.shape)) // shape.pairs)
        size, kind = view.buffer_size, view.layout.kind
        return self._workspace.array(shape.buffer(name), size, sizes, kind, start=view.start)

    def ones(self, count: int) -> BufferView:
        """A row of ones, (1, count)."""
        ones = self._workspace.array("ones", self.tokens, (1, count), self.kind)
        ones.data[:] = one(self.kind)
        return ones

    def external(self, name: str, shape: Shape, width: int) -> BufferView:
        """float32 rows in memory that MXNet owns."""
        name = f"{name} from {shape.first_pair}"
        return self._workspace.array(name, 1, (shape.rows, width), "float32")

    def set_address(self, name: str, chunks: Sequence[Shape], width: int, address: int) -> None:
        """Set the address of external rows, of which each chunk has its own."""
        for chunk in chunks:
            self.external(name, chunk, width).move(address + 4 * chunk.start * width)

    def bind(self, name: str, chunks: Sequence[Shape], width: int, array: mx.nd.NDArray) -> None:
        """Let external rows share the memory of an MXNet array."""
        array.wait_to_read()
        self.set_address(name, chunks, width, address(array))

    def mask(self, name: str, like: BufferView, rate: float, shape: Shape) -> List[Mask]:
        """The mask of a dropout on the rows or scores of a shape; an empty list at rate 0."""
        if not rate:
            return []
        array = self._workspace.like(shape.buffer(name), like, "float32")
        values = array.data[: int(np.prod(array.layout.shape))].reshape(shape.pairs, -1)
        return [Mask(array, values, rate, shape.first_pair)]

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
        self, source: BufferView, factors: Optional[Array], out: BufferView, buffer: str = ""
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
    ) -> BufferView:
        """The gradient of a dropout's input, rounded for products.

        ``name`` is the buffer of the gradient of its output, that of the result is `rounded_name`.
        The calls that compute it are appended to ``runs``.
        """
        source = self.rows(name, shape, self.config.units, "float32")
        if self.rounded_name(name, factors) == name:
            return source
        out = self.rows(self.rounded_name(name, factors), shape, self.config.units)
        runs += self.multiply(source, factors, out, shape.buffer("dropped"))
        return out

    def rounded_name(self, name: str, factors: Optional[Array]) -> str:
        """Name of the buffer of `rounded`, the given one where nothing is to be computed."""
        return name if factors is None and self.kind == "float32" else f"rounded {name}"

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
        product : TrainedProduct
            The weight and its bias.
        add : bool
            Whether they are added to what stands there.
        share : Share
            Which rows of the weight.
        """
        start, end = share.of(product.rows)
        if start == end:
            return []
        size, sizes, strides = (
            self.tokens * product.rows,
            (shape.rows, end - start),
            (product.rows, 1),
        )
        array = functools.partial(self._workspace.array, shape.buffer(name), size)
        gradient = array(sizes, self.kind, strides, start)
        transposed = array(sizes[::-1], self.kind, strides[::-1], start)
        ones = self.ones(shape.rows)
        steps = [("sum", None)] if add else []
        weight_target, bias_target = product.targets(start, end)
        return [
            self.operations.product(transposed, source, weight_target, *steps),
            self.operations.product(ones, gradient, bias_target, *steps),
        ]

    def norm_gradients(self, name: str, width: int, share: Share) -> List[BufferView]:
        """Buffers for a thread's gradients of the gain and the offset of a normalisation."""
        start, size = share.thread * width, share.threads * width
        names = (f"{parameter} {name} of {share.threads}" for parameter in ("gain", "offset"))
        array = self._workspace.array
        return [array(name, size, (width,), "float32", start=start) for name in names]

    def sum_norm_gradients(
        self, name: str, norm: TrainedNorm, add: bool, share: Share
    ) -> List[Run]:
        """Sums of the threads' gradients of a normalisation, in order; one thread computes them."""
        if share.thread:
            return []
        width = norm.gradients[0].layout.shape[0]
        own = self.norm_gradients(name, width, share)
        return [
            functools.partial(_sum_to, target, part.data.reshape(share.threads, width), add)
            for target, part in zip(norm.gradients, own)
        ]


def _sum_to(target: Array, parts: np.ndarray, add: bool) -> None:
    values = view(target.address, parts.shape[1])
    if add:
        values += parts.sum(axis=0)
    else:
        np.sum(parts, axis=0, out=values)
