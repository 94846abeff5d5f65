"""Packed rows, the tokens of a micro-batch in one matrix without padding, and what runs on them.

Parameters of embeddings and layers, the attention over the rows, their buffers, and the part of a
layer that works on each row by itself.

A product with a second operand that is broadcast over pairs runs by oneDNN's reference loop, a
thousand times slower, and so does an addition of a part of a larger array. So biases of attention
scores by relative position are added as a contiguous array of their length.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from wqa.config import BackboneConfig
from wqa.engines.onednn.library import (
    Call,
    Layout,
    Memory,
    Scratch,
    cached,
    zeros,
)
from wqa.engines.onednn.operations import (
    PRODUCTS,
    Dense,
    Norm,
    Operations,
    Quantized,
    split_queries,
)
from wqa.models.backbone import EncoderLayer
from wqa.models.embeddings import Embeddings, relative_bucket

#: Rows are rounded up to a multiple of this: two of AMX's tiles.
ROWS = 32
#: Sizes of a group of pairs of one length, and the most attention scores a head of a group, so that
#: the scores fit in the cache.
GROUPS, GROUP_SCORES = (16, 8, 4, 2, 1), 1 << 15


class Group(NamedTuple):
    """Neighbouring pairs of one length, whose attention runs as one batch."""

    pair: int  # index of the first pair
    row: int  # first row of that pair
    pairs: int
    length: int


def round_up(rows: int) -> int:
    """Round a number of rows up to a compiled shape."""
    return -(-rows // ROWS) * ROWS


class PackedBatch:
    """Start row and length of each pair of a micro-batch.

    Parameters
    ----------
    lengths : numpy.ndarray
        (pairs,) tokens of each pair; pairs of equal length must be neighbours.
    read : numpy.ndarray, optional
        (pairs, n) positions of the rows that heads read, from 0, -1 for one that is absent; the
        first position by default.
    """

    def __init__(self, lengths: np.ndarray, read: Optional[np.ndarray] = None) -> None:
        self.lengths = lengths
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        self.tokens = int(self.starts[-1])
        self.rows = round_up(self.tokens)
        if read is None:
            read = np.zeros((len(lengths), 1), dtype=int)
        #: (pairs, n) whether each row that heads read is there.
        self.is_read = read >= 0
        #: (pairs, n) their positions in the pair; the first in place of one that is absent.
        self.positions = np.maximum(read, 0)
        #: (pairs, n) the rows.
        self.read_rows = self.starts[:-1, None] + self.positions

    @functools.cached_property
    def groups(self) -> List[Group]:
        """Groups for attention with queries at all positions."""
        return self._grouped(lambda length: GROUP_SCORES // length**2)

    def groups_of(self, rows: int, pairs: int) -> List[Group]:
        """Groups of a limited number of rows.

        Parameters
        ----------
        rows : int
            Most rows of a group; a pair is never divided.
        pairs : int
            Most pairs of a group.

        Returns
        -------
        list of Group
        """
        return self._grouped(lambda length: min(rows // length, pairs))

    def _grouped(self, most: Callable[[int], int]) -> List[Group]:
        """Groups of neighbouring pairs; ``most`` takes a length and returns the most pairs."""
        groups: List[Group] = []
        edges = np.flatnonzero(np.diff(self.lengths, prepend=-1, append=-1))
        for pair, end in zip(edges.tolist(), edges[1:].tolist()):
            length = int(self.lengths[pair])
            limit = max(1, most(length))
            while pair < end:
                count = next(size for size in GROUPS if size <= min(limit, end - pair))
                groups.append(Group(pair, int(self.starts[pair]), count, length))
                pair += count
        return groups


def product_parameter(
    layer: EncoderLayer, name: str, kind: str, config: BackboneConfig
) -> np.ndarray:
    """Weight or bias of a product; those of the queries include the attention scale.

    Shapes: the result (out, in).
    """
    dense = {"output": layer.proj, "inner": layer.ffn_1, "outer": layer.ffn_2}.get(name)
    if dense is not None:
        return getattr(dense, kind).data().asnumpy()
    index = ("query", "key", "value").index(name)
    part = split_queries(getattr(layer.qkv, kind).data().asnumpy())[index]
    return part * np.float32(config.attention_scale) if name == "query" else part


class HeadWeights(NamedTuple):
    """Weights of a layer's keys and values, one matrix for each head of the attention."""

    key: Memory  # (H, C / H, C)
    value: Memory  # (H, C, C / H)
    bias: np.ndarray  # (C,) of the values


class PackedLayer:
    """Parameters of one layer, prepacked."""

    def __init__(
        self,
        layer: EncoderLayer,
        config: BackboneConfig,
        kind: str,
        quantized: Optional[Dict[str, Quantized]],
    ) -> None:
        self._layer, self._config, self._kind = layer, config, kind
        self.products: Dict[str, Dense] = {}
        for name in PRODUCTS:
            product = quantized[name] if quantized else None
            read = functools.partial(product_parameter, layer, name, "weight", config)
            bias = product_parameter(layer, name, "bias", config)
            self.products[name] = Dense(read, bias, product)
        self.attention_norm, self.ffn_norm = Norm.of(layer.attention_norm), Norm.of(layer.ffn_norm)

    @functools.cached_property
    def by_head(self) -> HeadWeights:
        """Copies of the weights that `last_layer` reads."""
        shape = (self._config.num_heads, -1, self._config.units)
        parts = []
        for name in ("key", "value"):
            weight = product_parameter(self._layer, name, "weight", self._config).reshape(shape)
            parts.append(weight if name == "key" else weight.swapaxes(1, 2))
        copies = [Memory.of(zeros(part.shape, self._kind)) for part in parts]
        for part, copy in zip(parts, copies):
            Operations().convert(Memory.of(part), copy)()
        bias = product_parameter(self._layer, "value", "bias", self._config)
        return HeadWeights(copies[0], copies[1], bias)


class PackedEmbeddings:
    """Word, position and type embeddings, summed in float32."""

    def __init__(self, block: Embeddings, config: BackboneConfig, typed: bool) -> None:
        self._first, self._padding = config.first_position, config.first_position - 1
        self._typed = typed and config.token_types > 1
        self._words = block.word.weight.data().asnumpy()
        positions = block.position_weight.data().asnumpy()
        types = block.token_type.weight.data().asnumpy()
        self._positions, self.width = positions.shape
        # A row for each type and position.
        self._table = (types[:, None] + positions[None]).reshape(-1, self.width)
        self.norm = Norm.of(block.layer_norm)
        self.projection = None
        if block.projection is not None:
            self.projection = Dense.of(block.projection)

    def sum(
        self,
        pairs: Sequence[Any],
        batch: PackedBatch,
        out: np.ndarray,
        buffer: np.ndarray,
        types: Optional[np.ndarray] = None,
        positions: Optional[np.ndarray] = None,
    ) -> None:
        """Write the sums of a micro-batch to the first rows of ``out``.

        ``buffer`` holds intermediate values; it has the size of ``out``. ``types`` and
        ``positions`` are as `PackedLayers.embed` takes them.
        """
        tokens, starts = batch.tokens, batch.starts[:-1]
        ids = np.concatenate([pair.token_ids for pair in pairs])
        within = np.arange(tokens) - np.repeat(starts, batch.lengths)
        rows = (within if positions is None else positions) + self._first
        if positions is None and self._first and (ids == self._padding).any():
            # A padding token has no position, even inside a text; see `Embeddings`.
            real = (ids != self._padding).astype(np.int64)
            steps = np.cumsum(real)
            before = np.repeat(steps[starts] - real[starts], batch.lengths)
            rows = (steps - before) * real + self._padding
        if types is None and self._typed:
            boundaries = np.repeat([pair.boundary for pair in pairs], batch.lengths)
            types = within >= boundaries
        if types is not None:
            rows = rows + self._positions * types
        # The ranker has checked token ids and lengths; mode "clip" lets NumPy write without a copy.
        np.take(self._words, ids, axis=0, out=out[:tokens], mode="clip")
        np.take(self._table, rows, axis=0, out=buffer[:tokens], mode="clip")
        np.add(out[:tokens], buffer[:tokens], out=out[:tokens])


#: Lengths whose arrays are kept: those of a base encoder for 128 tokens have 786 kB.
KEPT = 64


class RelativeBias:
    """Biases of an encoder's attention scores, shared by its layers and by threads.

    Parameters
    ----------
    table : numpy.ndarray
        (buckets, H) biases.
    longest : int
        Greatest length of a pair.
    """

    def __init__(self, table: np.ndarray, longest: int) -> None:
        distances = mx.nd.arange(1 - longest, longest)
        buckets = relative_bucket(mx.nd, distances, len(table)).asnumpy().astype(int)
        # (H, 2 longest - 1) biases by distance, from that of the farthest key before the query.
        by_distance = np.ascontiguousarray(table[buckets].T, np.float32)
        #: Biases of all queries and keys of a pair by its length, (H, length, length).
        self.matrix = functools.lru_cache(KEPT)(functools.partial(_matrix, by_distance))
        #: Biases of queries at positions, (...), of pairs of a length: (..., H, length).
        self.rows = functools.partial(_rows, by_distance)

    @classmethod
    def of(cls, layers: Sequence[EncoderLayer], config: BackboneConfig) -> Optional[RelativeBias]:
        """Copy the table of an encoder's layers; None for encoders without one."""
        if not layers or layers[0].relative is None:
            return None
        return cls(layers[0].relative.weight.data().asnumpy(), config.max_positions)


def _rows(by_distance: np.ndarray, length: int, positions: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(by_distance, length, axis=1)
    # The window of a query begins with the distance to the first key.
    return windows.swapaxes(0, 1)[by_distance.shape[1] // 2 - positions]


def _matrix(by_distance: np.ndarray, length: int) -> np.ndarray:
    return np.ascontiguousarray(_rows(by_distance, length, np.arange(length)).swapaxes(0, 1))


#: Shape and strides of a part of a buffer.
Part = Tuple[Sequence[int], Sequence[int]]


def attentions(kind: str, scratch: Scratch) -> Callable[..., Callable[..., None]]:
    """`_compile_attention` for an element type, with a cache."""
    compile_one = functools.partial(_compile_attention, kind, scratch, Scratch(), Scratch())
    return functools.lru_cache(ATTENTIONS)(compile_one)


#: Size of the cache of compiled attentions.
ATTENTIONS = 1024


def _compile_attention(
    kind: str,
    scratch: Scratch,
    of_scores: Scratch,
    of_weights: Scratch,
    query: Part,
    key: Part,
    value: Part,
    bias: Optional[Sequence[int]],
) -> Callable[..., None]:
    """Compile ``softmax(query @ key + bias) @ value``; ``bias`` is the shape of one, or None.

    The result takes the addresses of queries, keys, values, context, and of the bias. The context
    has the layout of the queries.
    """
    layouts = [Layout(shape, kind, strides) for shape, strides in (query, key, value, query)]
    if bias is not None:
        layouts.append(Layout(bias, "float32"))
    nowhere = np.zeros(1)
    operands = [Memory(layout, nowhere) for layout in layouts]
    # A cache of kernels of its own, which is freed with the calls.
    operations = Operations(scratch=scratch)
    shape = (*query[0][:-1], key[0][-1])
    items = int(np.prod(shape))
    scores = Memory(Layout(shape, "float32"), of_scores.take(4 * items))
    weights = Memory(Layout(shape, kind), of_weights.take(4 * items))
    calls = [operations.product(operands[0], operands[1], scores)]
    if bias is not None:
        calls.append(operations.binary("add", scores, operands[4], scores))
    calls.append(operations.softmax(scores, weights))
    calls.append(operations.product(weights, operands[2], operands[3]))

    def attend(*addresses: int) -> None:
        for operand, address in zip(operands, addresses):
            operand.move(address)
        for call in calls:
            call()

    return attend


class RowBuffers:
    """Named buffers of rows, which the layers share."""

    def __init__(
        self, config: BackboneConfig, kind: str, capacity: int, operations: Operations
    ) -> None:
        self.config, self.kind, self.capacity = config, kind, capacity
        self.operations = operations
        self._cache: Dict[tuple, Any] = {}

    @cached
    def memory(self, name: str, width: int, kind: str = "") -> np.ndarray:
        """A whole buffer, of the element type of encodings by default.

        Shapes: the result (capacity, width).
        """
        return zeros((self.capacity, width), kind or self.kind)

    @cached
    def array(self, name: str, rows: int, width: int, *kind: str) -> Memory:
        """The first rows of a buffer, as an operand.

        Shapes: the result (rows, width).
        """
        return Memory.of(self.memory(name, width, *kind)[:rows])

    def rounded(self, calls: List[Call], source: Memory, weight: Dense, name: str) -> Memory:
        """The input of a product: the source, or for int8 a buffer to which it is rounded."""
        if weight.factor is None:
            return source
        out = self.array(name, *source.layout.shape, "int8")
        calls.append(self.operations.binary("multiply", source, weight.factor, out))
        return out

    def after_attention(self, layer: PackedLayer, rows: int) -> Dict[str, List[Call]]:
        """Bind the steps of a layer after its attention.

        They read the buffers ``x`` and ``context``, and write ``x``.
        """
        config, operations, products = self.config, self.operations, layer.products
        x = self.array("x", rows, config.units)
        context = self.array("context", rows, config.units)
        total = self.array("total", rows, config.units, "float32")
        steps: Dict[str, List[Call]] = {"merge": [], "widen": [], "narrow": []}

        source = self.rounded(steps["merge"], context, products["output"], "context8")
        steps["merge"].append(operations.dense(source, products["output"], total, ("add", x)))
        steps["merge"].append(operations.norm(total, layer.attention_norm, x))

        source = self.rounded(steps["widen"], x, products["inner"], "x8")
        factor = products["outer"].factor
        kind = [] if factor is None else ["int8"]
        inner = self.array("inner", rows, config.hidden_size, *kind)
        then = (config.activation, None), ("multiply", factor)
        steps["widen"].append(operations.dense(source, products["inner"], inner, *then))

        steps["narrow"].append(operations.dense(inner, products["outer"], total, ("add", x)))
        steps["narrow"].append(operations.norm(total, layer.ffn_norm, x))
        return steps
