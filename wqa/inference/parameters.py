"""Parameters of an exit network, as the packed encoder takes them."""

from __future__ import annotations

import functools
from typing import Dict, NamedTuple, Optional, Sequence

import numpy as np
from mxnet.gluon import HybridBlock, nn

from wqa.inference.packed import Batch, Quantized, Vector, Weight
from wqa.models.backbone import EncoderLayer
from wqa.models.heads import ExitNetwork, FirstPositionHead
from wqa.text import EncodedPair

#: Products of a layer, by the step that they belong to.
PRODUCTS = {
    "query": "project",
    "key": "project",
    "value": "project",
    "output": "merge",
    "inner": "widen",
    "outer": "narrow",
}


def product_parameter(layer: EncoderLayer, name: str, kind: str, scale: float) -> np.ndarray:
    """Weight or bias of one of a layer's products, the queries' scaled for the attention.

    Parameters
    ----------
    layer : EncoderLayer
    name : str
        One of `PRODUCTS`.
    kind : {"weight", "bias"}
    scale : float
        1 / sqrt of a head's width.

    Returns
    -------
    numpy.ndarray
        (out, in) or (out,), float32.
    """
    dense = {"output": layer.proj, "inner": layer.ffn_1, "outer": layer.ffn_2}.get(name)
    if dense is not None:
        return getattr(dense, kind).data().asnumpy()
    place, joined = ("query", "key", "value").index(name), getattr(layer.qkv, kind).data()
    units = len(joined) // 3
    part = joined[place * units : (place + 1) * units].asnumpy()
    return part * np.float32(scale) if name == "query" else part


class Norm(NamedTuple):
    """Gain and offset of a normalisation."""

    gamma: Vector
    beta: Vector

    @classmethod
    def of(cls, block: HybridBlock) -> Norm:
        """Those of a block."""
        return cls(
            *(Vector(parameter.data().asnumpy(), axes=1) for parameter in (block.gamma, block.beta))
        )


class LayerParameters:
    """Parameters of one layer."""

    def __init__(
        self, layer: EncoderLayer, scale: float, quantized: Optional[Dict[str, Quantized]]
    ) -> None:
        self.products: Dict[str, Weight] = {}
        for name in PRODUCTS:
            self.products[name] = Weight(
                functools.partial(product_parameter, layer, name, "weight", scale),
                product_parameter(layer, name, "bias", scale),
                quantized[name] if quantized else None,
            )
        self.attention_norm, self.ffn_norm = Norm.of(layer.attention_norm), Norm.of(layer.ffn_norm)


class EmbeddingParameters:
    """Word, position and type embeddings, summed and normalised in float32."""

    def __init__(self, model: ExitNetwork, typed: bool) -> None:
        block, config = model.backbone.embeddings, model.config
        self._first, self._padding, self._typed = (
            config.first_position,
            config.first_position - 1,
            typed,
        )
        self._words = block.word.weight.data().asnumpy()
        places, types = (
            block.position_weight.data().asnumpy(),
            block.token_type.weight.data().asnumpy(),
        )
        self._places = (types[:, None] + places[None]).reshape(
            -1, places.shape[1]
        )  # a row for each type and position
        self._positions = len(places)
        self.norm, self.width = Norm.of(block.layer_norm), places.shape[1]
        self.projection = None
        if block.projection is not None:
            self.projection = _dense(block.projection)

    def sum(
        self, pairs: Sequence[EncodedPair], batch: Batch, out: np.ndarray, other: np.ndarray
    ) -> None:
        """Write the sums of a micro-batch to the first rows of ``out``; ``other`` is memory of the
        same size."""
        tokens, starts = batch.tokens, batch.starts[:-1]
        ids = np.concatenate([pair.token_ids for pair in pairs])
        within = np.arange(tokens) - np.repeat(starts, batch.lengths)
        rows = within + self._first
        if self._first and (ids == self._padding).any():
            # A padding token takes no position, even inside a text; see Embeddings in the backbone.
            real = (ids != self._padding).astype(np.int64)
            steps = np.cumsum(real)
            rows = (
                steps - np.repeat(steps[starts] - real[starts], batch.lengths)
            ) * real + self._padding
        if self._typed:
            boundaries = np.repeat([pair.boundary for pair in pairs], batch.lengths)
            rows = rows + self._positions * (within >= boundaries)
        # The ids were checked when they were encoded; "clip" lets NumPy write without a copy.
        np.take(self._words, ids, axis=0, out=out[:tokens], mode="clip")
        np.take(self._places, rows, axis=0, out=other[:tokens], mode="clip")
        np.add(out[:tokens], other[:tokens], out=out[:tokens])


class HeadParameters:
    """A head's dense layers, in float32, on pooled encodings."""

    def __init__(self, head: HybridBlock) -> None:
        self.takes_first = isinstance(head, FirstPositionHead)
        if self.takes_first:
            blocks, activation = [head.dense], "gelu" if head._gelu else "tanh"
        else:
            blocks, activation = (
                [block for block in head.dense if isinstance(block, nn.Dense)],
                "tanh",
            )
        self.layers = [
            (_dense(block), name)
            for block, name in [*((block, activation) for block in blocks), (head.out, "")]
        ]


def _dense(block: nn.Dense) -> Weight:
    return Weight(lambda: block.weight.data().asnumpy(), block.bias.data().asnumpy())
