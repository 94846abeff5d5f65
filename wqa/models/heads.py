"""Heads, which compute log-odds from encodings, and what comes before them: layers, recurrences.

Shapes: B pairs, L positions, C units.
"""

from __future__ import annotations

import functools
from typing import Any, List, Optional, Sequence, Tuple

from wqa.models.runtime import Tensor

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock, nn, rnn

from wqa.config import FAMILIES
from wqa.config.encoders import Family
from wqa.models.backbone import EncoderLayer, LayerStack, activate, at_marks
from wqa.models.embeddings import Embeddings, break_cycles

#: Recurrent layers by cell and directions.
KINDS = ("rnn", "birnn", "lstm", "bilstm")


class Head(HybridBlock):
    """Base class of heads. A head declares its input by the class attribute ``reads``.

    The input is the encodings of the first n positions one after another, (B, n C), for
    ``"first"``, where n is ``positions``; the mean of the encodings of positions 1..m, (B, C), for
    ``"mean"``; or all encodings, (B, L, C), and the valid lengths, (B,), for ``"all"``. The output
    is (B,) log-odds.

    A head that reads ``"tokens"`` takes encodings, (..., C), each by itself, and gives the
    k numbers of its own for each, (..., k).

    A head that reads ``"marks"`` takes the encodings of n marked positions, (B, n, C), which are 0
    where a mark is absent, and which marks are there, (B, n), 1 or 0. Its output is (B, k).
    """

    #: Input of the head: ``"first"``, ``"mean"``, ``"all"``, ``"tokens"`` or ``"marks"``.
    reads = "first"
    #: Number of first positions that a head with ``reads = "first"`` reads.
    positions = 1
    #: Number of marks that a head with ``reads = "marks"`` reads.
    marks = 0
    #: Whether the layers are those of Hugging Face's sequence classifiers, ``dense`` and ``out``.
    is_sequence_classifier = False

    def chain(self) -> List[Tuple[nn.Dense, str]]:
        """The head as dense layers one after another, as it is outside training.

        Returns
        -------
        list of (mxnet.gluon.nn.Dense, str)
            Each layer with its activation, ``"tanh"``, ``"gelu"``, ``"relu"`` or empty. The last
            one has one output, the score, or two, whose difference is the score: the second less
            the first. All outputs of a head that reads ``"tokens"`` are kept. Empty for a head that
            is made of other things.
        """
        return []

    def branches(self) -> List[Branch]:
        """Parts of a head that begins with transformer layers of its own.

        Returns
        -------
        list of Branch
            Layers and a head each, all on the encodings that the head reads. Empty for a head
            without layers.
        """
        return []

    def combine(self, scores: np.ndarray) -> np.ndarray:
        """Compute the score of a head from those of its branches, as ``hybrid_forward`` does.

        Parameters
        ----------
        scores : numpy.ndarray
            (B, k) log-odds of the k branches.

        Returns
        -------
        numpy.ndarray
            (B,) log-odds.
        """
        raise NotImplementedError


def score(
    F, head: Head, hidden: Tensor, valid_length: Tensor, marks: Optional[Tensor] = None
) -> Tensor:
    """Run a head on the encodings that it reads.

    Parameters
    ----------
    F : module
        ``mxnet.nd`` or ``mxnet.sym``.
    head : Head
        Head to run.
    hidden : Tensor
        (B, L, C) encodings, or (B, n, C) for a head that reads the first n positions.
    valid_length : Tensor
        (B,) number of positions that are not padding, of any type.
    marks : Tensor, optional
        (B, n) float32 marked positions, -1 where a mark is absent, for a head that reads them.

    Returns
    -------
    Tensor
        (B,) log-odds; (B, L, k) for a head that reads tokens, (B, k) for one that reads marks.
    """
    if head.reads == "marks":
        assert marks is not None
        return head(at_marks(F, hidden, marks), marks >= 0)
    if head.reads == "all":
        return head(hidden, valid_length)
    if head.reads == "tokens":
        return head(hidden)
    if head.reads == "first":
        first = F.slice_axis(hidden, axis=1, begin=0, end=head.positions)  # (B, n, C)
        return head(F.reshape(first, (0, -3)))  # (B, n C)
    # The sum runs over l = 1..m, without the start token at position 0 (Soldaini and Moschitti
    # 2020, section 4.3).
    after_start = F.contrib.arange_like(hidden, axis=1) > 0  # (L,)
    rows = F.zeros_like(F.slice_axis(hidden, axis=2, begin=0, end=1))  # (B, L, 1)
    rows = F.broadcast_add(rows, F.reshape(after_start, (1, -1, 1)))
    real = F.SequenceMask(rows, valid_length, use_sequence_length=True, axis=1)
    weights = F.broadcast_div(real, F.sum(real, axis=1, keepdims=True))
    weights = F.reshape(F.BlockGrad(weights), (0, 1, -1))  # (B, 1, L)
    mean = F.batch_dot(weights, hidden)  # (B, 1, C)
    return head(F.reshape(mean, (-3, 0)))


def layers_before(head: Head, layers: LayerStack) -> LayerStack:
    """Layers whose output a head alone reads, computed for the positions that it reads."""
    if head.reads == "first":
        return layers.of_first_positions(head.positions)
    return layers


class Branch(HybridBlock):
    """Layers of a head's own, and the head after them.

    Inputs are ``hidden``, (B, L, C), and ``valid_length``, (B,); the output is (B,) log-odds.

    Parameters
    ----------
    layers : LayerStack
        Layers that `wqa.models.Backbone.new_layers` returned.
    head : Head
        Head after the last layer.
    """

    def __init__(self, layers: LayerStack, head: Head, **kwargs) -> None:
        super().__init__(**kwargs)
        self.layers = layers_before(head, layers)
        self.head = head

    def hybrid_forward(self, F, hidden: Tensor, valid_length: Tensor) -> Tensor:
        return score(F, self.head, self.layers(hidden, valid_length), valid_length)


class Stage(HybridBlock):
    """Consecutive layers and the head after them, if any.

    With ``embeddings`` the inputs are those of the embeddings, such as ``token_ids`` and
    ``token_types``, (B, L), int32, and ``valid_length``, (B,); without, ``hidden``, (B, L, C), and
    ``valid_length``. A head that reads marks takes them, (B, n), before ``valid_length``. The
    outputs are the encodings after the last layer, (B, L, C), and the scores of the head.

    Parameters
    ----------
    embeddings : Embeddings or None
        Embeddings before the layers, if any.
    layers : LayerStack
        Consecutive layers of an encoder.
    head : Head or None
        Head after the last layer; None for an encoder of single texts.
    last : bool
        Whether the head alone reads the output of the last layer.
    """

    def __init__(
        self,
        embeddings: Optional[Embeddings],
        layers: LayerStack,
        head: Optional[Head],
        last: bool = False,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        if last and head is not None:
            layers = layers_before(head, layers)
        self.embeddings, self.layers, self.last = embeddings, layers, last
        self.head: Any = head
        break_cycles(self)

    def all_layers(self) -> List[EncoderLayer]:
        """Layers of the stage, then those of each branch of its head.

        Returns
        -------
        list of EncoderLayer
            Layers in the order in which 8-bit weights are stored.
        """
        layers = list(self.layers)
        for branch in [] if self.head is None else self.head.branches():
            layers += list(branch.layers)
        return layers

    def hybrid_forward(self, F, *inputs: Tensor) -> Tuple[Tensor, ...]:
        *start, valid_length = inputs
        reads_marks = self.head is not None and self.head.reads == "marks"
        marks = start.pop() if reads_marks else None
        hidden = self.embeddings(*start) if self.embeddings is not None else start[0]
        hidden = self.layers(hidden, valid_length)
        if self.head is None:
            return (hidden,)
        return hidden, score(F, self.head, hidden, valid_length, marks)


def scores_of_stages(stages: Sequence[HybridBlock], *inputs: Tensor) -> List[Tensor]:
    """Scores of consecutive stages, from one pass through their layers.

    Shapes: the result (B,).
    """
    results = []
    for stage in stages:
        hidden, scores = stage(*inputs)
        results.append(scores)
        inputs = (hidden, inputs[-1])
    return results


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
        options: Any = {"hidden_size": units // 2 if is_double else units, "input_size": width}
        options.update(i2h_weight_initializer=initializer, h2h_weight_initializer=initializer)
        # The activation of a simple recurrent network is tanh (Elman 1990).
        simple = functools.partial(rnn.RNN, activation="tanh")
        layer: Any = rnn.LSTM if kind.endswith("lstm") else simple
        with self.name_scope():
            self.ahead = layer(**options)
            self.back = layer(**options) if is_double else None

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


class MeanHead(Head):
    """Classifier C on the mean of the encodings of positions 1..m.

    Three dense layers of the encoder's width, each with tanh and dropout, then one output
    (Soldaini and Moschitti 2020, sections 4.3 and 5.2). The paper leaves open whether its third
    layer is the output. Here the output is a fourth layer, so that all three have the encoder's
    width.

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
            # BERT's standard deviation of 0.02 would shrink the activations threefold a layer.
            for _ in range(3):
                dense = nn.Dense(
                    units, activation="tanh", in_units=units, weight_initializer=mx.init.Xavier()
                )
                self.dense.add(dense, nn.Dropout(dropout))
            self.out = nn.Dense(1, in_units=units, weight_initializer=mx.init.Xavier())

    def chain(self) -> List[Tuple[nn.Dense, str]]:
        layers = [(self.dense[index], "tanh") for index in (0, 2, 4)]
        return [*layers, (self.out, "")]

    def hybrid_forward(self, F, mean: Tensor) -> Tensor:
        return F.reshape(self.out(self.dense(mean)), (-1,))


class FirstPositionHead(Head):
    """Classifier D on the first position's encoding: dense, activation, dropout, output.

    If the family has a pooler (BERT, ALBERT), the dense layer is initialised from it (section 4.1).
    Otherwise (RoBERTa, ELECTRA, MPNet) the dense layer is new, and dropout comes before it as well,
    as in the reference classifiers of these families.

    Parameters
    ----------
    units : int
        Width of the encoder.
    dropout : float
        Dropout rate before the output layer.
    family : Family
        Family of the encoder.
    outputs : {1, 2}
        One output, the score, or two, as the reference classifiers have them. The score is then the
        second less the first, the log-odds of their softmax.
    """

    is_sequence_classifier = True

    def __init__(
        self,
        units: int,
        dropout: float = 0.1,
        family: Family = FAMILIES["bert"],
        outputs: int = 1,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self._outputs = outputs
        self._activation, self._has_pooler = family.head_activation, family.has_pooler
        with self.name_scope():
            self.dense = nn.Dense(units, in_units=units)
            self.dropout = nn.Dropout(dropout)
            self.out = nn.Dense(outputs, in_units=units)

    @property
    def pooler(self) -> Optional[nn.Dense]:
        """The dense layer that is initialised from a pooler; None if the family has none."""
        return self.dense if self._has_pooler else None

    def chain(self) -> List[Tuple[nn.Dense, str]]:
        return [(self.dense, self._activation), (self.out, "")]

    def hybrid_forward(self, F, first: Tensor) -> Tensor:
        first = self.dense(first if self._has_pooler else self.dropout(first))
        hidden = activate(F, first, self._activation)
        outputs = self.out(self.dropout(hidden))  # (B, outputs)
        if self._outputs == 2:
            wrong = F.slice_axis(outputs, axis=1, begin=0, end=1)
            outputs = F.slice_axis(outputs, axis=1, begin=1, end=2) - wrong  # (B, 1)
        return F.reshape(outputs, (-1,))
