"""The layers of a transformer on packed rows, for ranking.

The tokens of a micro-batch are the rows of one matrix, (T, C), without padding. Products,
normalisations and activations work on that matrix. Attention runs over groups of pairs of one
length, so it needs no mask. T is rounded up to a multiple of `wqa.onednn.packing.ROWS`, so that few
shapes are compiled; the content of the rows past T does not matter.

Encodings are float32 or bfloat16. Sums with the residual, and the inputs of normalisations, are
float32. In int8 the operands of products are 8-bit integers: each channel of an input is multiplied
by its own factor before it is rounded, which the weights undo (Xiao et al. 2023, SmoothQuant,
section 4).
"""

from __future__ import annotations

import collections
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from wqa.config import BackboneConfig
from wqa.models.backbone import Embeddings, EncoderLayer
from wqa.onednn.kernels import Call
from wqa.onednn.library import Array, Scratch, as_float32, one
from wqa.onednn.operations import Operations, Workspace
from wqa.onednn.packed_parts import PackedAttention, PackedEmbeddings, PackedLayer
from wqa.onednn.packing import PackedBatch, round_up
from wqa.onednn.parameters import Dense, Quantized
from wqa.onednn.process import check_thread
from wqa.text import Encoded

#: Size of the cache of compiled attentions; the least recently used is freed first.
ATTENTIONS = 512

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
    embeddings : Embeddings
        Embeddings of the encoder, on the CPU. Parameters are read once; later changes are ignored.
    layers : sequence of EncoderLayer
        All layers of the encoder, or the first of them.
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
        embeddings: Embeddings,
        layers: Sequence[EncoderLayer],
        typed: bool,
        kind: str,
        rows: int,
        quantized: Optional[Sequence[Dict[str, Quantized]]] = None,
    ) -> None:
        self.config, self.kind = config, kind
        self._capacity = round_up(rows)
        self._operations, self._workspace = Operations(config.layer_norm_eps), Workspace()
        self._buffers = (Scratch(), Scratch())
        self._embeddings = PackedEmbeddings(embeddings, config, typed)
        self._layers: List[PackedLayer] = []
        packed: Dict[Tuple[int, int], PackedLayer] = {}
        for index, layer in enumerate(layers):
            # A shared layer has its own 8-bit weights at each depth.
            key = (id(layer), index if quantized else 0)
            if key not in packed:
                packed[key] = PackedLayer(layer, config, quantized[index] if quantized else None)
            self._layers.append(packed[key])
        self._calls: Dict[tuple, Dict[str, List[Call]]] = {}
        self._attentions: collections.OrderedDict[tuple, PackedAttention] = (
            collections.OrderedDict()
        )

    # Buffers

    def _array(self, name: str, rows: int, width: int, kind: str) -> Array:
        """The first rows of a buffer."""
        name = f"{name} {width} {kind}"
        return self._workspace.array(name, self._capacity * width, (rows, width), kind)

    def _memory(self, name: str, width: int, kind: str) -> np.ndarray:
        """A whole buffer, (capacity, width)."""
        buffer = self._workspace.buffer(f"{name} {width} {kind}", self._capacity * width, kind)
        return buffer.reshape(self._capacity, width)

    @property
    def encodings(self) -> np.ndarray:
        """Buffer of the current encodings, (capacity, C); uint16 for bfloat16."""
        return self._memory("x", self.config.units, self.kind)

    # Running

    def embed(self, pairs: Sequence[Encoded], batch: PackedBatch) -> None:
        """Compute the embeddings of a micro-batch; they become the current encodings.

        Parameters
        ----------
        pairs : sequence of Encoded
            Pairs of the micro-batch.
        batch : PackedBatch
            Rows of the pairs.
        """
        check_thread()
        width = self._embeddings.width
        sums, normed = (self._memory(name, width, "float32") for name in ("sums", "normed"))
        self._embeddings.sum(pairs, batch, sums, normed)
        for call in self._embedding_calls(batch.rows):
            call()

    def load(self, rows: Sequence[np.ndarray]) -> None:
        """Set the current encodings.

        Parameters
        ----------
        rows : sequence of numpy.ndarray
            Encodings of each pair, (length, C).
        """
        check_thread()
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
        calls = self._layer_calls(index, batch.rows, 0)
        for step in STEPS:
            if step == "merge":
                self._attend(batch, first=False)
            if watch is not None:
                watch(index, step, self._input(step)[: batch.tokens])
            for call in calls[step]:
                call()

    def layer_of_first_rows(self, index: int, batch: PackedBatch) -> np.ndarray:
        """Run a layer for the first row of each pair alone; keys and values are those of all rows.

        Parameters
        ----------
        index, batch
            Layer and rows, as `layer` takes them.

        Returns
        -------
        numpy.ndarray
            (pairs, C) float32. The current encodings do not change.
        """
        pairs = len(batch.lengths)
        first = self._memory("first x", self.config.units, self.kind)
        np.take(self.encodings, batch.first_rows, axis=0, out=first[:pairs], mode="clip")
        calls = self._layer_calls(index, batch.rows, round_up(pairs))
        for step in STEPS:
            if step == "merge":
                self._attend(batch, first=True)
            for call in calls[step]:
                call()
        return as_float32(first[:pairs])

    def first_rows(self, batch: PackedBatch) -> np.ndarray:
        """Current encodings of the first positions.

        Parameters
        ----------
        batch : PackedBatch
            Rows of the pairs, whose first are copied.

        Returns
        -------
        numpy.ndarray
            (pairs, C) float32.
        """
        return as_float32(self.encodings[batch.first_rows])

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
        pairs, key = round_up(count), ("means", round_up(count), batch.rows)
        # One product with a matrix of zeros and ones sums the rows of each pair.
        ones = self._memory("ones", batch.rows, self.kind)
        ones[:count] = 0
        for row, (start, end) in enumerate(zip(batch.starts.tolist(), batch.starts[1:].tolist())):
            ones[row, start + 1 : end] = one(self.kind)
        # What earlier batches left past the tokens is multiplied by 0, which makes NaN of infinity.
        self.encodings[batch.tokens : batch.rows] = 0
        sums = self._array("first sums", pairs, units, "float32")
        if key not in self._calls:
            source = self._array("ones", pairs, batch.rows, self.kind)
            values = self._array("x", batch.rows, units, self.kind)
            self._calls[key] = {"means": [self._operations.product(source, values, sums)]}
        self._calls[key]["means"][0]()
        rows = self._memory("first sums", units, "float32")[:count]
        return rows / (batch.lengths - 1)[:, None].astype(np.float32)

    def _input(self, step: str) -> np.ndarray:
        """Buffer of the input of a step."""
        units = self.config.units
        if step == "narrow":
            return self._memory("inner", self.config.hidden_size, self.kind)
        return self._memory("context" if step == "merge" else "x", units, self.kind)

    def _attend(self, batch: PackedBatch, first: bool) -> None:
        units, size = self.config.units, self.encodings.itemsize
        prefix = "first " if first else ""
        names = (f"{prefix}query", "key", "value", f"{prefix}context")
        query, key, value, context = (
            self._memory(name, units, self.kind).ctypes.data for name in names
        )
        for group in batch.groups:
            offset = group.row * units * size
            query_offset = group.pair * units * size if first else offset
            attention = self._attention(group.pairs, group.length, 1 if first else group.length)
            attention(query + query_offset, key + offset, value + offset, context + query_offset)

    def _attention(self, pairs: int, length: int, queries: int) -> PackedAttention:
        key = (pairs, length, queries)
        attention = self._attentions.get(key)
        if attention is None:
            scratch = self._operations.scratch
            attention = PackedAttention(scratch, *key, self.config, self.kind, self._buffers)
            self._attentions[key] = attention
            while len(self._attentions) > ATTENTIONS:
                self._attentions.popitem(last=False)
        self._attentions.move_to_end(key)
        return attention

    # Compiling

    def _embedding_calls(self, rows: int) -> List[Call]:
        key = ("embed", rows)
        if key not in self._calls:
            table, units, operations = self._embeddings, self.config.units, self._operations
            sums = self._array("sums", rows, table.width, "float32")
            out = self._array("x", rows, units, self.kind)
            if table.projection is None:
                calls = [operations.norm(sums, table.norm, out)]
            else:
                normed = self._array("normed", rows, table.width, "float32")
                total = self._array("total", rows, units, "float32")
                calls = [
                    operations.norm(sums, table.norm, normed),
                    operations.dense(normed, table.projection, total),
                    operations.convert(total, out),
                ]
            self._calls[key] = {"embed": calls}
        return self._calls[key]["embed"]

    def _layer_calls(self, index: int, rows: int, first_rows: int) -> Dict[str, List[Call]]:
        """Calls of a layer by step; with ``first_rows``, those of `layer_of_first_rows`."""
        key = (index, rows, first_rows)
        if key not in self._calls:
            layer = self._layers[index]
            if first_rows:
                project = self._project(layer, "", rows, ("key", "value"))
                project += self._project(layer, "first ", first_rows, ("query",))
                rest = self._rest(layer, "first ", first_rows)
            else:
                project = self._project(layer, "", rows, ("query", "key", "value"))
                rest = self._rest(layer, "", rows)
            self._calls[key] = {"project": project, **rest}
        return self._calls[key]

    def _project(
        self, layer: PackedLayer, prefix: str, rows: int, names: Tuple[str, ...]
    ) -> List[Call]:
        units = self.config.units
        calls: List[Call] = []
        source = self._array(f"{prefix}x", rows, units, self.kind)
        source = self._rounded(calls, source, layer.products["key"], f"{prefix}x8")
        for name in names:
            out = self._array(f"{prefix}{name}", rows, units, self.kind)
            calls.append(self._operations.dense(source, layer.products[name], out))
        return calls

    def _rest(self, layer: PackedLayer, prefix: str, rows: int) -> Dict[str, List[Call]]:
        config, operations, products = self.config, self._operations, layer.products
        x = self._array(f"{prefix}x", rows, config.units, self.kind)
        context = self._array(f"{prefix}context", rows, config.units, self.kind)
        total = self._array(f"{prefix}total", rows, config.units, "float32")

        merge: List[Call] = []
        source = self._rounded(merge, context, products["output"], f"{prefix}context8")
        merge.append(operations.dense(source, products["output"], total, ("add", x)))
        merge.append(operations.norm(total, layer.attention_norm, x))

        widen: List[Call] = []
        source = self._rounded(widen, x, products["inner"], f"{prefix}x8")
        factor = products["outer"].factor
        kind = self.kind if factor is None else "int8"
        inner = self._array(f"{prefix}inner", rows, config.hidden_size, kind)
        steps = ((config.activation, None), ("multiply", factor))
        widen.append(operations.dense(source, products["inner"], inner, *steps))

        narrow = [
            operations.dense(inner, products["outer"], total, ("add", x)),
            operations.norm(total, layer.ffn_norm, x),
        ]
        return {"merge": merge, "widen": widen, "narrow": narrow}

    def _rounded(self, calls: List[Call], source: Array, weight: Dense, name: str) -> Array:
        """The input of a product: the source, or for int8 a buffer to which it is rounded.

        The call that rounds it is appended to ``calls``.
        """
        if weight.factor is None:
            return source
        rows, width = source.layout.shape
        out = self._array(name, rows, width, "int8")
        calls.append(self._operations.multiply(source, weight.factor, out))
        return out
