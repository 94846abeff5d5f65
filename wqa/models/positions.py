"""Real positions of padded texts and lists.

Shapes: B pairs, L positions.
"""

from __future__ import annotations

from wqa.models.backbone import MASKED
from wqa.models.runtime import Tensor


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
