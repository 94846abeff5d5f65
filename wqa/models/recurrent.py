"""Recurrent layers over the rows of a padded batch."""

from __future__ import annotations

from typing import Any, List

from wqa.models.runtime import Tensor

import mxnet as mx
from mxnet.gluon import HybridBlock, rnn

#: Recurrent layers by cell and directions.
KINDS = ("rnn", "birnn", "lstm", "bilstm")


class Recurrence(HybridBlock):
    """A recurrent layer whose backward direction starts at the last real row.

    Inputs are ``rows``, (L, B, width), and ``valid_length``, (B,), the number of real rows; the
    output is (L, B, units). The output of real rows does not depend on the padding.

    Parameters
    ----------
    kind : {"rnn", "birnn", "lstm", "bilstm"}
        Cell and directions.
    units : int
        Width of the output, half of it in each direction.
    width : int
        Width of the input.
    initializer : mxnet.init.Initializer
        Initializer of the weights; biases start from 0.
    """

    def __init__(
        self, kind: str, units: int, width: int, initializer: mx.init.Initializer, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        is_double = kind.startswith("bi")
        each = units // 2 if is_double else units
        options: Any = {"input_size": width}
        for name in ("i2h", "h2h"):
            options[f"{name}_weight_initializer"] = initializer
        layer: Any = rnn.LSTM
        if not kind.endswith("lstm"):
            # The activation of a simple recurrent network is tanh (Elman 1990).
            layer, options["activation"] = rnn.RNN, "tanh"
        with self.name_scope():
            self.ahead = layer(each, **options)
            self.back = layer(each, **options) if is_double else None

    @property
    def directions(self) -> List[HybridBlock]:
        """Gluon's layers: that from the first row on, and that from the last."""
        return [self.ahead] if self.back is None else [self.ahead, self.back]

    def hybrid_forward(self, F, rows: Tensor, valid_length: Tensor) -> Tensor:
        hidden = self.ahead(rows)
        if self.back is None:
            return hidden
        reversed_rows = F.SequenceReverse(rows, valid_length, use_sequence_length=True)
        back = self.back(reversed_rows)
        back = F.SequenceReverse(back, valid_length, use_sequence_length=True)
        return F.concat(hidden, back, dim=2)
