"""Heads on the embeddings of segments, E_0, ..., E_k (Di Liello et al. 2022, section 3.3).

The paper calls its heads linear layers. In the authors' code they are that of RoBERTa's classifier:
dropout, a dense layer with tanh, dropout, an output layer. So are these.

Shapes: B inputs, n = k + 1 marks, C units.
"""

from __future__ import annotations

from typing import Any

from mxnet.gluon import nn

from wqa.models.heads import Head
from wqa.models.runtime import Tensor


class SegmentHead(Head):
    """Base class of the heads on the embeddings of segments.

    Inputs are E_0, ..., E_k, (B, n, C), and which segments are there, (B, n).
    """

    reads = "marks"

    def __init__(self, config: Any, width: int, outputs: int, dropout: float, **kwargs) -> None:
        super().__init__(**kwargs)
        self.marks = config.k + 1
        with self.name_scope():
            # New for all families: no encoder is trained to sum up a segment among several here.
            self.dense = nn.Dense(width, activation="tanh", flatten=False, in_units=width)
            self.dropout = nn.Dropout(dropout)
            self.out = nn.Dense(outputs, flatten=False, in_units=width)

    def classify(self, rows: Tensor) -> Tensor:
        """Logits of rows, (..., width): (..., outputs)."""
        return self.out(self.dropout(self.dense(self.dropout(rows))))


class CandidateHead(SegmentHead):
    """IE_k or AE_k: the log-odds of each candidate, (B, k), 0 where it is missing.

    The outputs are two classes. A score is the second less the first.
    """

    def __init__(self, config: Any, units: int, dropout: float, **kwargs) -> None:
        self._joins_question = config.head == "AE_k"
        width = 2 * units if self._joins_question else units
        super().__init__(config, width, 2, dropout, **kwargs)

    def hybrid_forward(self, F, segments: Tensor, present: Tensor) -> Tensor:
        rows = F.slice_axis(segments, axis=1, begin=1, end=None)  # (B, k, C)
        if self._joins_question:
            question = F.slice_axis(segments, axis=1, begin=0, end=1)  # (B, 1, C)
            question = F.broadcast_axis(question, axis=1, size=self.marks - 1)
            rows = F.concat(question, rows, dim=2)  # (B, k, 2 C)
        wrong, right = F.split(self.classify(rows), num_outputs=2, axis=2, squeeze_axis=True)
        return (right - wrong) * F.slice_axis(present, axis=1, begin=1, end=None)  # (B, k)


class InputHead(SegmentHead):
    """IE_1 or AE_1: the logits of the labels of the whole input, (B, labels).

    AE_1 averages the segments that are there, as a missing one has no embedding.
    """

    def __init__(self, config: Any, units: int, dropout: float, **kwargs) -> None:
        super().__init__(config, units, config.labels, dropout, **kwargs)
        self._aggregates = config.head == "AE_1"
        self._averages = config.aggregation == "mean"

    def hybrid_forward(self, F, segments: Tensor, present: Tensor) -> Tensor:
        # It changes nothing, but a hybridized block warns of an input that it does not use.
        segments = F.broadcast_mul(segments, F.expand_dims(present, axis=2))  # (B, n, C)
        if not self._aggregates:
            row = F.slice_axis(segments, axis=1, begin=0, end=1)  # (B, 1, C)
            return self.classify(F.reshape(row, (-3, 0)))
        row = F.sum(segments, axis=1)  # (B, C)
        if self._averages:
            row = F.broadcast_div(row, F.sum(present, axis=1, keepdims=True))
        return self.classify(row)
