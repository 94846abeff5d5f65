"""Masks of padding, in attention and of padded texts and lists, and encodings at marked positions.

Shapes: B pairs, L positions, H attention heads, n marks.
"""

from __future__ import annotations

from wqa.models.runtime import Tensor

#: In place of the values of padding; far below any value, and finite in float32.
MASKED = -1e9
#: Added to the attention scores of padding; far below any score, and finite in float16 too.
MASKED_SCORE = -6e4


def attention_mask(F, hidden: Tensor, valid_length: Tensor, heads: int) -> Tensor:
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
    mask = F.broadcast_axis(F.expand_dims(mask, axis=1), axis=1, size=heads)  # (B, H, L, L)
    return F.BlockGrad(F.reshape(mask, (-3, 0, 0)))


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
