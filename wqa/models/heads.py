"""Heads, which turn encodings into the log-odds of the positive class.

Shapes: B pairs, L positions, C units.
"""

from __future__ import annotations

from typing import Optional

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from wqa.config import FAMILIES, Family
from wqa.models.runtime import Tensor


class Head(HybridBlock):
    """Base of the heads. A head declares which encodings it reads.

    ``reads`` is ``"first"``: the first position's encoding, (B, C); ``"mean"``: the mean of the
    encodings of positions 1..m, (B, C); or ``"all"``: every encoding, (B, L, C), and the valid
    lengths, (B,). The input is what the head reads; the output is (B,).
    """

    reads = "first"
    #: Whether Hugging Face's sequence classifiers have the same layers, ``dense`` and ``out``.
    is_sequence_classifier = False


def score(F, head: Head, hidden: Tensor, valid_length: Tensor) -> Tensor:
    """Scores of a head on encodings.

    Parameters
    ----------
    F : module
        ``mxnet.nd`` or ``mxnet.sym``.
    head : Head
        It is given what it reads.
    hidden : Tensor
        (B, L, C) encodings; (B, 1, C) suffices for a head that reads first positions.
    valid_length : Tensor
        (B,) positions that are not padding, float32.

    Returns
    -------
    Tensor
        (B,) log-odds.
    """
    if head.reads == "all":
        return head(hidden, valid_length)
    if head.reads == "first":
        return head(F.reshape(F.slice_axis(hidden, axis=1, begin=0, end=1), (-3, 0)))
    steps = F.reshape(F.contrib.arange_like(hidden, axis=1), (1, -1))  # (1, L)
    length = F.reshape(valid_length, (-1, 1))  # (B, 1)
    # Position 0 is the start token, which the sum over l = 1..m leaves out (section 4.3 of
    # Soldaini and Moschitti 2020).
    real = F.broadcast_mul(F.broadcast_lesser(steps, length), steps > 0)
    weights = F.broadcast_div(real, length - 1)  # (B, L)
    mean = F.batch_dot(F.expand_dims(F.BlockGrad(weights), axis=1), hidden)  # (B, 1, C)
    return head(F.reshape(mean, (-3, 0)))


class MeanHead(Head):
    """Classifier C on the mean of the encodings of positions 1..m.

    Three dense layers of the encoder's width, each with tanh and dropout, then one output
    (Soldaini and Moschitti 2020, sections 4.3 and 5.2). The paper leaves open whether its third
    layer is already the output; here the output is a layer of its own, so that all three have the
    encoder's width.

    The input is (B, C), the output (B,).

    Parameters
    ----------
    units : int
        C, the encoder's width.
    dropout : float
        Dropout rate after each dense layer.
    """

    reads = "mean"

    def __init__(self, units: int, dropout: float = 0.1, **kwargs) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense = nn.HybridSequential()
            # BERT's 0.02 would shrink the signal threefold in each of the three new layers.
            for _ in range(3):
                dense = nn.Dense(
                    units,
                    activation="tanh",
                    in_units=units,
                    weight_initializer=mx.init.Xavier(),
                )
                self.dense.add(dense, nn.Dropout(dropout))
            self.out = nn.Dense(1, in_units=units, weight_initializer=mx.init.Xavier())

    def hybrid_forward(self, F, mean: Tensor) -> Tensor:
        return F.reshape(self.out(self.dense(mean)), (-1,))


class FirstPositionHead(Head):
    """Classifier D on the first position's encoding: dense, activation, dropout, one output.

    Where the family has a pooler (BERT, ALBERT), the dense layer starts from its weights (section
    4.1). Otherwise (RoBERTa, ELECTRA) the dense layer is new, and dropout comes before it as well,
    as in these families' reference classifiers.

    The input is (B, C), the output (B,).

    Parameters
    ----------
    units : int
        C, the encoder's width.
    dropout : float
        Dropout rate.
    family : Family
        The encoder's family.
    """

    is_sequence_classifier = True

    def __init__(
        self, units: int, dropout: float = 0.1, family: Family = FAMILIES["bert"], **kwargs
    ) -> None:
        super().__init__(**kwargs)
        self._gelu, self._has_pooler = family.head_activation == "gelu", family.has_pooler
        with self.name_scope():
            self.dense = nn.Dense(units, in_units=units)
            self.dropout = nn.Dropout(dropout)
            self.out = nn.Dense(1, in_units=units)

    @property
    def pooler(self) -> Optional[nn.Dense]:
        """The dense layer that takes the pretrained pooler, None where the family has none."""
        return self.dense if self._has_pooler else None

    def hybrid_forward(self, F, first: Tensor) -> Tensor:
        first = self.dense(first if self._has_pooler else self.dropout(first))
        if self._gelu:
            first = F.LeakyReLU(first, act_type="gelu")
        else:
            first = F.Activation(first, act_type="tanh")
        return F.reshape(self.out(self.dropout(first)), (-1,))
