"""Embeddings of an encoder, and the engine that may compute its blocks in MXNet's place.

Shapes: B pairs, L positions, C units, H attention heads, E the width of the embeddings' tables.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, Optional

from wqa.models.runtime import Tensor

import mxnet as mx
from mxnet.gluon import Block, HybridBlock, nn

from wqa.config import BackboneConfig
from wqa.errors import OptionError


def break_cycles(block: Block) -> None:
    """Break Gluon's cycles of references to a block, for ``block.apply``.

    With them a dropped network keeps its parameters until Python collects cycles. The name scope of
    a block refers to it. The check for blocks in lists and dicts, at each ``collect_params``, keeps
    all children in a recursive closure.
    """
    block._scope._block = weakref.proxy(block)
    block._check_container_with_block = lambda: None


class EngineHolder:
    """Holds the engine of a backbone's embeddings and layers; without one MXNet computes them.

    All blocks of a backbone, and slices of its layers, share one object.
    """

    def __init__(self) -> None:
        self.engine: Any = None

    def accepts(self, array: Tensor) -> bool:
        """Whether the engine computes a block on this input; MXNet computes symbols."""
        return self.engine is not None and isinstance(array, mx.nd.NDArray)


class Embeddings(HybridBlock):
    """Sum of word, position and token-type embeddings, with normalisation and projection.

    Inputs are ``token_ids`` and ``token_types``, (B, L), int32; the output is (B, L, C). A third
    input, (B, L), int32, may give the position of each token, from 0; without it the tokens of a
    row are numbered as the encoder's family does. Dropout comes after the normalisation, as in the
    encoders' original code, and before the projection. The projection exists only for embedding
    tables that are narrower than C.

    Parameters
    ----------
    config : BackboneConfig
        Sizes of the encoder.
    holder : EngineHolder, optional
        Engine of the encoder; MXNet by default.
    """

    def __init__(
        self, config: BackboneConfig, holder: Optional[EngineHolder] = None, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        self._holder = holder or EngineHolder()
        self._config = config
        width = config.embedding_size or config.units  # E
        self._first = config.first_position
        self._has_types = config.family.has_token_types or config.token_types > 1
        self._sizes = (config.first_position + config.max_positions, width)
        with self.name_scope():
            self.word = nn.Embedding(config.vocab_size, width)
            self.token_type = nn.Embedding(config.token_types, width)
            self.position_weight = self.params.get("position_weight", shape=self._sizes)
            self.layer_norm = nn.LayerNorm(in_channels=width, epsilon=config.layer_norm_eps)
            self.dropout = nn.Dropout(config.dropout)
            self.projection: Optional[nn.Dense] = None
            if config.embedding_size:
                self.projection = nn.Dense(config.units, flatten=False, in_units=width)

    def check_ids(self, token_ids: Tensor, numbered: bool = True) -> None:
        """Refuse ids outside of the vocabulary, and more tokens than positions; MXNet clips."""
        if not isinstance(token_ids, mx.nd.NDArray) or not token_ids.size:
            return
        config, (_, length) = self._config, token_ids.shape
        if numbered and length > config.max_positions:
            expected = f"at most {config.max_positions}, the positions of the encoder"
            hint = "cut or split the texts"
            raise OptionError("token_ids", f"{length} tokens a row", expected, hint)
        ids = token_ids.asnumpy()
        for number in (ids.min(), ids.max()):
            if not 0 <= number < config.vocab_size:
                problem, expected = f"the id {number:g}", f"ids from 0 to {config.vocab_size - 1}"
                hint = "tokenize with the tokenizer of this encoder"
                raise OptionError("token_ids", problem, expected, hint)

    # A hybridized block takes the same inputs at each call, so a network gives positions always or
    # never: hence a variable number of inputs, not an input that may be None.
    def forward(self, token_ids: Tensor, token_types: Tensor, *positions: Tensor) -> Tensor:
        """Embed token ids by the attached engine, or by MXNet."""
        self.check_ids(token_ids, not positions)
        if not self._holder.accepts(token_ids):
            return super().forward(token_ids, token_types, *positions)
        weight = self.position_weight.data(token_ids.context)
        sums = self.sums(mx.nd, token_ids, token_types, weight, *positions)  # (B, L, E)
        return self._holder.engine.embed(self, sums)

    def hybrid_forward(
        self, F, token_ids: Tensor, token_types: Tensor, *positions: Tensor, position_weight: Tensor
    ) -> Tensor:
        sums = self.sums(F, token_ids, token_types, position_weight, *positions)
        hidden = self.dropout(self.layer_norm(sums))
        return hidden if self.projection is None else self.projection(hidden)  # (B, L, C)

    def sums(
        self,
        F,
        token_ids: Tensor,
        token_types: Tensor,
        position_weight: Tensor,
        positions: Optional[Tensor] = None,
    ) -> Tensor:
        """Sum of the three embeddings, (B, L, E), before the normalisation."""
        rows, width = self._sizes
        if not self._has_types:
            token_types = F.zeros_like(token_types)
        hidden = self.word(token_ids) + self.token_type(token_types)
        if positions is not None:
            steps = positions + self._first  # (B, L)
        elif self._first:
            # As in RoBERTa, a padding token uses the row before the first position's, even inside
            # a text, and does not advance the position.
            real = token_ids != self._first - 1
            steps = F.cumsum(real, axis=1) * real + (self._first - 1)  # (B, L)
        else:
            steps = F.expand_dims(F.contrib.arange_like(token_ids, axis=1), axis=0)  # (1, L)
        located = F.Embedding(steps, position_weight, input_dim=rows, output_dim=width)
        return F.broadcast_add(hidden, located)


#: Distance from which on all positions share the last bucket of their side.
FARTHEST = 128


def relative_bucket(F, distance: Tensor, buckets: int) -> Tensor:
    """Bucket of the distance from a query to a key (Raffel et al. 2020, T5; section 2.1).

    Half of the buckets are for keys after the query. In each half, the first half of the buckets
    are single distances from 0 on; the others grow by a constant factor up to `FARTHEST`.
    """
    side, exact = buckets // 2, buckets // 4
    size = F.abs(distance)
    factor = (side - exact) / math.log(FARTHEST / exact)
    # Distances of 16, 32 and 64 begin a bucket: the offset keeps a logarithm that is rounded down
    # from putting them into the bucket before. All others are far from a border.
    far = F.floor(F.log(F.maximum(size, 1) / exact) * factor + (exact + 1e-4))
    bucket = F.where(size < exact, size, F.minimum(far, side - 1))
    return bucket + (distance > 0) * side


class RelativePositions(HybridBlock):
    """Bias of attention scores by relative position, from one table for all layers of an encoder.

    The input is ``hidden``, (B, L, C), for its length; the output is (H, L, L). It depends on the
    distance from query to key alone.

    Parameters
    ----------
    buckets : int
        Rows of the table, one a bucket of distances.
    heads : int
        H, the number of attention heads.
    """

    def __init__(self, buckets: int, heads: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self._buckets, self._heads = buckets, heads
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(buckets, heads))

    def hybrid_forward(self, F, hidden: Tensor, weight: Tensor) -> Tensor:
        steps = F.cast(F.contrib.arange_like(hidden, axis=1), "float32")  # (L,)
        keys, queries = F.reshape(steps, (1, -1)), F.reshape(steps, (-1, 1))
        bucket = relative_bucket(F, F.broadcast_sub(keys, queries), self._buckets)  # (L, L)
        bias = F.Embedding(bucket, weight, input_dim=self._buckets, output_dim=self._heads)
        return F.transpose(bias, (2, 0, 1))  # (H, L, L)
