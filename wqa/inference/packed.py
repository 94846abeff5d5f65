"""A transformer encoder on packed rows, computed by oneDNN.

The tokens of a micro-batch stand one below another in one matrix, (T, C), without any padding, and
products, normalisations and activations see nothing but that matrix. Attention runs over groups of
pairs of one length, so it needs no mask. T is rounded up to a multiple of `ROWS`, so that few
shapes are compiled; the rows above T hold whatever the batch before left there.

Encodings are bfloat16 from product to product, or float32 throughout; sums with the residual, and
what normalisations read, are float32. In int8, the products' operands are 8-bit integers: each
channel of an input is multiplied by its own factor before it is rounded, which the weights undo
(Xiao et al. 2023, SmoothQuant, section 4).
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.models import onednn
from wqa.models.onednn import (
    BETA,
    BIAS,
    DST,
    GAMMA,
    SRC,
    SRC_1,
    WEIGHTS,
    Array,
    Call,
    Kernel,
    Layout,
    Memory,
    PackedWeights,
)

#: Rows are rounded up to a multiple of this: two of AMX's tiles.
ROWS = 32
#: Pairs of one length that attend together, and scores per head that they may have, to stay in the
#: cache.
GROUPS, GROUP_SCORES = (16, 8, 4, 2, 1), 1 << 15
#: Compiled attentions that are kept, the latest used.
ATTENTIONS = 512

#: Called with layer, step (`STEPS`) and the rows that enter it.
Watch = Callable[[int, str, np.ndarray], None]

#: A layer's steps by what enters its products: encodings, context, encodings again, inner units.
STEPS = ("project", "merge", "widen", "narrow")


class Quantized(NamedTuple):
    """One product in 8-bit integers."""

    weight: np.ndarray  # (in, out), int8
    scale: np.ndarray  # (out,), float32: what an integer of the output's column is worth
    factor: np.ndarray  # (in,), float32: an input's channel times this is rounded


class _Group(NamedTuple):
    """Pairs of one length that stand one below another."""

    pair: int  # the first of them
    row: int  # its first row
    pairs: int
    length: int


def round_up(rows: int) -> int:
    """Rows of a compiled shape that holds this many."""
    return -(-rows // ROWS) * ROWS


class Batch:
    """Where the pairs of a micro-batch stand.

    Parameters
    ----------
    lengths : numpy.ndarray
        Tokens of each pair; equal ones stand together.
    """

    def __init__(self, lengths: np.ndarray) -> None:
        self.lengths = lengths
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        self.tokens = int(self.starts[-1])
        self.rows = round_up(self.tokens)
        self.groups: List[_Group] = []
        edges = np.flatnonzero(np.diff(lengths, prepend=-1, append=-1))
        for pair, end in zip(edges.tolist(), edges[1:].tolist()):
            length = int(lengths[pair])
            most = max(1, GROUP_SCORES // length**2)
            while pair < end:
                count = next(size for size in GROUPS if size <= min(most, end - pair))
                self.groups.append(_Group(pair, int(self.starts[pair]), count, length))
                pair += count


class Workspace:
    """Memory that all layers share, seen as matrices of any number of rows up to its capacity."""

    def __init__(self, rows: int) -> None:
        self._capacity = rows
        self._data: Dict[Tuple[str, int, str], np.ndarray] = {}
        self._views: Dict[Tuple[str, int, int, str], Array] = {}

    def data(self, name: str, width: int, kind: str) -> np.ndarray:
        """The whole memory of that name, (capacity, width)."""
        key = (name, width, kind)
        if key not in self._data:
            self._data[key] = onednn.zeros((self._capacity, width), kind)
        return self._data[key]

    def array(self, name: str, rows: int, width: int, kind: str) -> Array:
        """Its first rows."""
        key = (name, rows, width, kind)
        if key not in self._views:
            self._views[key] = Array(Layout((rows, width), kind), self.data(name, width, kind))
        return self._views[key]


class Vector(Array):
    """float32 numbers of a layer, as a row."""

    def __init__(self, values: np.ndarray, axes: int = 2) -> None:
        shape = (1, values.size) if axes == 2 else (values.size,)
        super().__init__(Layout(shape, "float32"), np.ascontiguousarray(values, dtype=np.float32))


class Weight:
    """One product's weight and bias, laid out for the kernels that ask for it.

    Parameters
    ----------
    weight : callable
        Returns the weight, (out, in), float32; it is called for each layout.
    bias : numpy.ndarray
        (out,).
    quantized : Quantized, optional
        Takes the weight's place.
    """

    def __init__(
        self,
        weight: Callable[[], np.ndarray],
        bias: np.ndarray,
        quantized: Optional[Quantized] = None,
    ) -> None:
        self._weight, self._quantized = weight, quantized
        self.bias = Vector(bias)
        self.scale = Vector(quantized.scale, axes=1) if quantized else None
        self.factor = Vector(quantized.factor) if quantized else None
        self._packed: List[PackedWeights] = []

    def packed(self, kernel: Kernel) -> PackedWeights:
        """The weight as a kernel wants it."""
        for packed in self._packed:
            if packed.fits(kernel):
                return packed
        plain = np.ascontiguousarray(
            self._quantized.weight if self._quantized else self._weight().T
        )
        packed = PackedWeights(kernel)
        packed.filler(Array(Layout(plain.shape, "int8" if self._quantized else "float32"), plain))()
        self._packed.append(packed)
        return packed


class Compiler:
    """Compiles each operation once for its shapes, and binds it."""

    def __init__(self) -> None:
        self._kernels: Dict[tuple, Kernel] = {}
        self.scratch = onednn.Scratch()

    def kernel(self, key: tuple, build: Callable[[], Kernel]) -> Kernel:
        """The kernel of a key."""
        if key not in self._kernels:
            self._kernels[key] = build()
        return self._kernels[key]

    def product(
        self,
        source: Array,
        weight: Weight,
        out: Array,
        activation: str = "",
        residual: Optional[Array] = None,
        factor: Optional[Array] = None,
    ) -> Call:
        """Bind ``out = factor * (activation(source @ weight + bias) + residual)``."""
        steps: List[Tuple[str, Optional[Array]]] = [(activation, None)] if activation else []
        steps += [
            (name, array)
            for name, array in (("add", residual), ("multiply", factor))
            if array is not None
        ]
        left, right = source.layout, out.layout
        shape = (left.shape[1], right.shape[1])
        key = (
            left.shape,
            left.kind,
            right.shape,
            right.kind,
            tuple((step, array.layout.kind if array else None) for step, array in steps),
        )
        scales = {WEIGHTS: 2} if weight.scale is not None else None  # one a column
        kernel = self.kernel(
            key,
            lambda: onednn.product(
                left,
                Layout(shape, left.kind, any_layout=True),
                right,
                weight.bias.layout,
                scales,
                [(step, array.layout if array else None) for step, array in steps],
            ),
        )
        arrays: Dict[int, Memory] = {
            SRC: source,
            WEIGHTS: weight.packed(kernel),
            BIAS: weight.bias,
            DST: out,
        }
        if weight.scale is not None:
            arrays[onednn.scale_place(WEIGHTS)] = weight.scale
        return kernel.bind(arrays, [array for _, array in steps if array is not None], self.scratch)

    def layer_norm(
        self, source: Array, gamma: Vector, beta: Vector, out: Array, epsilon: float
    ) -> Call:
        """Bind a layer normalisation."""
        key = ("norm", source.layout.shape, source.layout.kind, out.layout.kind, epsilon)
        kernel = self.kernel(key, lambda: onednn.layer_norm(source.layout, out.layout, epsilon))
        return kernel.bind({SRC: source, GAMMA: gamma, BETA: beta, DST: out}, scratch=self.scratch)

    def scaled(self, source: Array, factor: Vector, out: Array) -> Call:
        """Bind a product with a factor a column."""
        key = ("scaled", source.layout.shape, source.layout.kind, out.layout.kind)
        kernel = self.kernel(key, lambda: onednn.scaled(source.layout, factor.layout, out.layout))
        return kernel.bind({SRC: source, SRC_1: factor, DST: out}, scratch=self.scratch)

    def converted(self, source: Array, out: Array) -> Call:
        """Bind a copy into another type."""
        key = ("converted", source.layout.shape, source.layout.kind, out.layout.kind)
        return self.kernel(key, lambda: onednn.converted(source.layout, out.layout)).bind(
            {SRC: source, DST: out}
        )


class Attention:
    """Attention of so many pairs of one length, with queries of all rows or of each pair's first.

    Parameters
    ----------
    count, length, queries : int
        Pairs, their tokens, and the rows of each that ask: all of them or 1.
    heads, width : int
    kind : str
    work : sequence of onednn.Scratch
        Memory for the scores, for the attention weights, and for the operations themselves.
    """

    def __init__(
        self,
        count: int,
        length: int,
        queries: int,
        heads: int,
        width: int,
        kind: str,
        work: Sequence[onednn.Scratch],
    ) -> None:
        size = width // heads
        asked = Layout((count, heads, queries, size), kind, (queries * width, size, width, 1))
        keys = Layout((count, heads, size, length), kind, (length * width, size, 1, width))
        values = Layout((count, heads, length, size), kind, (length * width, size, width, 1))
        scores = Layout((count, heads, queries, length), "float32")
        weights = Layout((count, heads, queries, length), kind)
        items = count * heads * queries * length
        of_scores, of_weights, scratch = work
        score, weight = (
            Array(scores, of_scores.take(4 * items)),
            Array(weights, of_weights.take(4 * items)),
        )
        self._ends = [
            Array(layout, np.zeros(1, np.float32)) for layout in (asked, keys, values, asked)
        ]
        query, key, value, context = self._ends
        self._calls = [
            onednn.product(asked, keys, scores).bind(
                {SRC: query, WEIGHTS: key, DST: score}, scratch=scratch
            ),
            onednn.softmax(scores, weights).bind({SRC: score, DST: weight}, scratch=scratch),
            onednn.product(weights, values, asked).bind(
                {SRC: weight, WEIGHTS: value, DST: context}, scratch=scratch
            ),
        ]

    def __call__(self, *addresses: int) -> None:
        """Attend; takes where the group's queries, keys, values and output start in memory."""
        for array, address in zip(self._ends, addresses):
            array.move(address)
        for call in self._calls:
            call()
