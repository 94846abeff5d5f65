"""The layers of a transformer on packed rows, for ranking.

The tokens of a micro-batch are the rows of one matrix, (T, C), without padding. Products,
normalisations and activations work on that matrix. Attention runs over groups of pairs of one
length, so it needs no mask. T is rounded up to a multiple of `packed_rows.ROWS`, so that few
shapes are compiled; the content of the rows past T does not matter.

Encodings are float32 or bfloat16. Sums with the residual, and the inputs of normalisations, are
float32. In int8 the operands of products are 8-bit integers: each channel of an input is multiplied
by its own factor before it is rounded, which the weights undo (Xiao et al. 2023, SmoothQuant,
section 4).
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from wqa.config import BackboneConfig
from wqa.engines.inputs import as_float32
from wqa.engines.onednn.last_layer import LastLayer
from wqa.engines.onednn.library import Call, Memory, cached, one
from wqa.engines.onednn.operations import Operations, Quantized
from wqa.engines.onednn.packed_rows import (
    PackedBatch,
    PackedEmbeddings,
    PackedLayer,
    RelativeBias,
    RowBuffers,
    attentions,
    round_up,
)
from wqa.models.backbone import EncoderLayer
from wqa.models.embeddings import Embeddings

#: Steps of a layer, named by their products. Their inputs are the encodings (first and third step),
#: the context of the attention (second) and the inner units (fourth).
STEPS = ("project", "merge", "widen", "narrow")

#: Takes the index of a layer, a step, and the input of the step.
Watch = Callable[[int, str, np.ndarray], None]


class PackedLayers:
    """Embeddings and layers of an encoder on packed rows, computed by oneDNN.

    Parameters
    ----------
    config : BackboneConfig
        Sizes of the encoder.
    embeddings : Embeddings or None
        Embeddings of the encoder, on the CPU; None where `embed` is not called. Parameters are read
        once; later changes are ignored.
    layers : sequence of EncoderLayer
        Layers of the encoder, the first of them, or others of its sizes.
    typed : bool
        Whether pairs have token types.
    kind : {"float32", "bfloat16"}
        Element type of the encodings.
    rows : int
        Tokens that a micro-batch may have.
    quantized : sequence of dict, optional
        `Quantized` products of each layer, for int8.
    """

    def __init__(
        self,
        config: BackboneConfig,
        embeddings: Optional[Embeddings],
        layers: Sequence[EncoderLayer],
        typed: bool,
        kind: str,
        rows: int,
        quantized: Optional[Sequence[Dict[str, Quantized]]] = None,
    ) -> None:
        self.config, self.kind = config, kind
        self._capacity = round_up(rows)
        self._relative = RelativeBias.of(layers, config)
        self._embeddings: Any = None
        if embeddings is not None:
            self._embeddings = PackedEmbeddings(embeddings, config, typed)
        self._layers: List[PackedLayer] = []
        packed: Dict[Tuple[int, int], PackedLayer] = {}
        for index, layer in enumerate(layers):
            # A shared layer has its own 8-bit weights at each depth.
            key = (id(layer), index if quantized else 0)
            if key not in packed:
                own = quantized[index] if quantized else None
                packed[key] = PackedLayer(layer, config, kind, own)
            self._layers.append(packed[key])
        self._make_buffers()

    def _make_buffers(self) -> None:
        """Make buffers, and forget the calls that are bound to others."""
        self._operations = Operations(self.config.layer_norm_eps)
        self._rows = RowBuffers(self.config, self.kind, self._capacity, self._operations)
        self._attention = attentions(self.kind, self._operations.scratch)
        #: The layers for the rows that heads read.
        parts = (self._layers, self._relative, self._operations, self._attention)
        self.last = LastLayer(self.config, self.kind, *parts)
        self._cache: Dict[tuple, Any] = {}

    def sibling(self) -> PackedLayers:
        """The same layers, by the same parameters, with buffers of their own for another thread."""
        sibling = copy.copy(self)
        sibling._make_buffers()
        return sibling

    @property
    def encodings(self) -> np.ndarray:
        """Buffer of the current encodings, (capacity, C); uint16 for bfloat16."""
        return self._rows.memory("x", self.config.units)

    @property
    def sums(self) -> np.ndarray:
        """Buffer of float32 encodings, (capacity, C), for `round_sums`."""
        return self._rows.memory("sums", self.config.units, "float32")

    # Running

    def embed(
        self,
        pairs: Sequence[Any],
        batch: PackedBatch,
        types: Optional[np.ndarray] = None,
        positions: Optional[np.ndarray] = None,
    ) -> None:
        """Compute the embeddings of a micro-batch; they become the current encodings.

        Parameters
        ----------
        pairs : sequence of TextInput
            Pairs of the micro-batch, or others with ``token_ids`` if their types are given.
        batch : PackedBatch
            Rows of the pairs.
        types : numpy.ndarray, optional
            (tokens,) token type of each row; by default those of the pairs.
        positions : numpy.ndarray, optional
            (tokens,) position of each row, from 0; by default as the encoder's family numbers the
            tokens of a pair.
        """
        width = self._embeddings.width
        sums, normed = (self._rows.memory(name, width, "float32") for name in ("sums", "normed"))
        self._embeddings.sum(pairs, batch, sums, normed, types, positions)
        for call in self._embedding_calls(batch.rows):
            call()

    def round_sums(self, batch: PackedBatch) -> None:
        """Set the current encodings to `sums`, rounded to their type."""
        sums = self._rows.array("sums", batch.rows, self.config.units, "float32")
        self._operations.convert(sums, self._rows.array("x", batch.rows, self.config.units))()

    def load(self, rows: Sequence[np.ndarray]) -> None:
        """Set the current encodings.

        Parameters
        ----------
        rows : sequence of numpy.ndarray
            Encodings of each pair, (length, C).
        """
        np.concatenate(rows, out=self.encodings[: sum(map(len, rows))])

    def layer(self, index: int, batch: PackedBatch, watch: Optional[Watch] = None) -> None:
        """Run a layer on the current encodings.

        Parameters
        ----------
        index : int
            Index of the layer.
        batch : PackedBatch
            Rows of the pairs.
        watch : callable, optional
            Called with the index of the layer, the step, and the input of the step.
        """
        calls = self._layer_calls(index, batch.rows)
        for step in STEPS:
            if step == "merge":
                self._attend(batch)
            if watch is not None:
                watch(index, step, self._input(step)[: batch.tokens])
            for call in calls[step]:
                call()

    def read_rows(self, batch: PackedBatch) -> np.ndarray:
        """Current encodings of the rows that heads read.

        Parameters
        ----------
        batch : PackedBatch
            Rows of the pairs.

        Returns
        -------
        numpy.ndarray
            (pairs, n C) float32.
        """
        rows = as_float32(self.encodings[batch.read_rows])
        return rows.reshape(len(rows), -1)

    def means(self, batch: PackedBatch) -> np.ndarray:
        """Mean of each pair's current encodings, without the first position.

        Parameters
        ----------
        batch : PackedBatch
            Rows of the pairs, over which the means run.

        Returns
        -------
        numpy.ndarray
            (pairs, C) in float32.
        """
        count, units = len(batch.lengths), self.config.units
        # One product with a matrix of zeros and ones sums the rows of each pair.
        ones, call = self._mean_call(round_up(count), batch.rows)
        ones[:count] = 0
        for row, (start, end) in enumerate(zip(batch.starts.tolist(), batch.starts[1:].tolist())):
            ones[row, start + 1 : end] = one(self.kind)
        # What earlier batches left past the tokens is multiplied by 0, which makes NaN of infinity.
        self.encodings[batch.tokens : batch.rows] = 0
        call()
        rows = self._rows.memory("first sums", units, "float32")[:count]
        return rows / (batch.lengths - 1)[:, None].astype(np.float32)

    @cached
    def _mean_call(self, pairs: int, rows: int) -> Tuple[np.ndarray, Call]:
        """The matrix of zeros and ones, (pairs, rows), and the product with it."""
        memory = self._rows.memory("ones", self._capacity).reshape(-1)
        ones = memory[: pairs * rows].reshape(pairs, rows)
        values = self._rows.array("x", rows, self.config.units)
        sums = self._rows.array("first sums", pairs, self.config.units, "float32")
        return ones, self._operations.product(Memory.of(ones), values, sums)

    def _input(self, step: str) -> np.ndarray:
        """Buffer of the input of a step."""
        units = self.config.units
        if step == "narrow":
            return self._rows.memory("inner", self.config.hidden_size)
        return self._rows.memory("context" if step == "merge" else "x", units)

    def _attend(self, batch: PackedBatch) -> None:
        width, heads = self.config.units, self.config.num_heads
        size, row_bytes = width // heads, width * self.encodings.itemsize
        addresses = []
        for name in ("query", "key", "value", "context"):
            addresses.append(self._rows.memory(name, width).ctypes.data)
        for group in batch.groups:
            pairs, length = group.pairs, group.length
            rows = (pairs, heads, length, size), (length * width, size, width, 1)
            transposed = (pairs, heads, size, length), (length * width, size, 1, width)
            operands = [address + group.row * row_bytes for address in addresses]
            bias = None
            if self._relative is not None:
                matrix = self._relative.matrix(length)  # this name keeps it in memory
                operands.append(matrix.ctypes.data)
                bias = (1, heads, length, length)
            self._attention(rows, transposed, rows, bias)(*operands)

    # Compiling

    @cached
    def _embedding_calls(self, rows: int) -> List[Call]:
        table, units, operations = self._embeddings, self.config.units, self._operations
        sums = self._rows.array("sums", rows, table.width, "float32")
        out = self._rows.array("x", rows, units)
        if table.projection is None:
            return [operations.norm(sums, table.norm, out)]
        normed = self._rows.array("normed", rows, table.width, "float32")
        total = self._rows.array("total", rows, units, "float32")
        return [
            operations.norm(sums, table.norm, normed),
            operations.dense(normed, table.projection, total),
            operations.convert(total, out),
        ]

    @cached
    def _layer_calls(self, index: int, rows: int) -> Dict[str, List[Call]]:
        """Calls of a layer by step."""
        layer, buffers, units = self._layers[index], self._rows, self.config.units
        project: List[Call] = []
        source = buffers.rounded(
            project, buffers.array("x", rows, units), layer.products["key"], "x8"
        )
        for name in ("query", "key", "value"):
            out = buffers.array(name, rows, units)
            project.append(self._operations.dense(source, layer.products[name], out))
        return {"project": project, **buffers.after_attention(layer, rows)}
