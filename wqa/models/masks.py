"""What is added to attention scores, masks of padded texts and lists, and marked positions.

Shapes: B pairs, L positions, H attention heads, n marks.
"""

from __future__ import annotations

import math
from typing import Optional

from wqa.models.runtime import Tensor

from mxnet.gluon import HybridBlock

#: In place of the values of padding; far below any value, and finite in float32.
MASKED = -1e9
#: Added to the attention scores of padding; far below any score, and finite in float16 too.
MASKED_SCORE = -6e4


def attention_mask(
    F, hidden: Tensor, valid_length: Tensor, heads: int, bias: Optional[Tensor] = None
) -> Tensor:
    """Additive attention mask of padding, in full size for all layers.

    A layer then adds it element by element, which needs no gradient of the mask; a broadcast sum
    would compute one in every layer.

    Parameters
    ----------
    F : module
        ``mxnet.nd`` or ``mxnet.sym``.
    hidden : Tensor
        (B, L, C) encodings, for their shape.
    valid_length : Tensor
        (B,) number of positions that are not padding, of any type.
    heads : int
        H, the number of attention heads.
    bias : Tensor, optional
        (H, L, L) that is added to the mask; gradients reach it.

    Returns
    -------
    Tensor
        (B * H, L, L) of the type of ``hidden``: 0 at real positions, `MASKED_SCORE` at padding.
    """
    rows = F.zeros_like(F.slice_axis(hidden, axis=2, begin=0, end=1))  # (B, L, 1)
    # Unlike a comparison, it takes lengths of another type than the encodings'.
    padding = F.SequenceMask(
        rows, valid_length, use_sequence_length=True, value=MASKED_SCORE, axis=1
    )  # (B, L, 1)
    mask = F.broadcast_add(rows, F.reshape(padding, (0, 1, -1)))  # (B, L, L)
    mask = F.expand_dims(mask, axis=1)  # (B, 1, L, L)
    if bias is None:
        mask = F.broadcast_axis(mask, axis=1, size=heads)  # (B, H, L, L)
        return F.BlockGrad(F.reshape(mask, (-3, 0, 0)))
    mask = F.broadcast_add(F.BlockGrad(mask), F.expand_dims(bias, axis=0))  # (B, H, L, L)
    return F.reshape(mask, (-3, 0, 0))


#: Distance from which on all positions share the last bucket of their side.
FARTHEST = 128


def relative_bucket(F, distance: Tensor, buckets: int) -> Tensor:
    """Bucket of the distance from a query to a key (Raffel et al. 2020, T5; section 2.1).

    Half of the buckets are for keys after the query. In each half, the first half of the buckets
    are single distances from 0 on; the others grow by a constant factor up to `FARTHEST`.

    Parameters
    ----------
    F : module
        ``mxnet.nd`` or ``mxnet.sym``.
    distance : Tensor
        float32 position of the key less that of the query, of any shape.
    buckets : int
        Number of buckets.

    Returns
    -------
    Tensor
        float32 buckets from 0, of the shape of ``distance``.
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


def real_positions(F, positions: Tensor, valid: Tensor) -> Tensor:
    """Tell real positions from padding.

    Parameters
    ----------
    F : module
        ``mxnet.nd`` or ``mxnet.sym``.
    positions : Tensor
        (rows, L, ...) array, for its shape.
    valid : Tensor
        (rows,) number of real positions, from the first on.

    Returns
    -------
    Tensor
        (rows, L) float32: 1 at real positions, 0 at padding.
    """
    steps = F.reshape(F.contrib.arange_like(positions, axis=1), (1, -1))
    return F.broadcast_lesser(F.cast(steps, "float32"), F.reshape(valid, (-1, 1)))


def greatest(F, outputs: Tensor, real: Tensor) -> Tensor:
    """Maximum of filters over the real positions of a text.

    Parameters
    ----------
    F : module
        ``mxnet.nd`` or ``mxnet.sym``.
    outputs : Tensor
        (B, filters, L) outputs of a convolution.
    real : Tensor
        (B, L): 1 at real positions, 0 at padding.

    Returns
    -------
    Tensor
        (B, filters); `MASKED` or less for a text without a real position.
    """
    mask = F.expand_dims((1 - real) * MASKED, axis=1)  # (B, 1, L)
    return F.max(F.broadcast_add(outputs, mask), axis=2)


def at_marks(F, hidden: Tensor, marks: Tensor) -> Tensor:
    """Encodings at marked positions.

    Parameters
    ----------
    F : module
        ``mxnet.nd`` or ``mxnet.sym``.
    hidden : Tensor
        (B, L, C) encodings.
    marks : Tensor
        (B, n) float32 positions, -1 where a mark is absent.

    Returns
    -------
    Tensor
        (B, n, C), 0 where a mark is absent.
    """
    steps = F.reshape(F.contrib.arange_like(hidden, axis=1), (1, 1, -1))  # (1, 1, L)
    is_marked = F.broadcast_equal(F.expand_dims(marks, axis=2), steps)  # (B, n, L)
    # A product with zeros and ones; that of an absent mark, which no position equals, is 0.
    return F.batch_dot(F.BlockGrad(is_marked), hidden)
