"""Interactions of two texts that were encoded apart: blocks on both encodings.

Shapes: B pairs, N positions of a question, M of a document, L = N + M, C units.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

from wqa.models.runtime import Tensor

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from wqa.models.backbone import MASKED, real_positions
from wqa.models.embeddings import break_cycles
from wqa.models.heads import Head, Recurrence, Stage, scores_of_stages

#: Dropout rates of the variants: before their layers, and before the linear variant's output.
INPUT_DROPOUT, OUTPUT_DROPOUT = 0.3, 0.1
#: LSTM layers, and width of the bilinear layer after them.
LSTM_LAYERS, BILINEAR = 2, 128


class PairHead(Head):
    """Classifier on the first rows of both texts, p = sigmoid(MLP([o_CLS; o'_CLS])) (equation 1).

    Beyond the paper, the classifier may read o * o' and |o - o'| as well, by which it can compare
    the texts from the first update on.

    Parameters
    ----------
    units : int
        C, the encoder's width.
    compares : bool
        Whether it reads the product and the difference.
    """

    positions = 2

    def __init__(self, units: int, compares: bool = False, **kwargs) -> None:
        super().__init__(**kwargs)
        self._compares = compares
        with self.name_scope():
            width = (4 if compares else 2) * units
            self.dense = nn.Dense(units, activation="tanh", in_units=width)
            self.out = nn.Dense(1, in_units=units)

    def chain(self) -> List[Tuple[nn.Dense, str]]:
        return [] if self._compares else [(self.dense, "tanh"), (self.out, "")]

    def hybrid_forward(self, F, first: Tensor) -> Tensor:
        if self._compares:
            question, document = F.split(first, num_outputs=2, axis=1)  # (B, C)
            compared = (question * document, F.abs(question - document))
            first = F.concat(question, document, *compared, dim=1)
        scores = self.out(self.dense(first))
        return F.reshape(scores, (-1,))


class LinearHead(Head):
    """Linear variant: dense layers on [q; d; q - d], the pooled encodings of both texts.

    Parameters
    ----------
    units : int
        C, the encoder's width.
    has_pooler : bool
        Whether the family's encoders have a pooler. Without one, q and d are the first encodings.
    """

    positions = 2

    def __init__(self, units: int, has_pooler: bool, **kwargs) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.question_pooler = _pooler(units, has_pooler)
            self.document_pooler = _pooler(units, has_pooler)
            self.dropout = nn.Dropout(INPUT_DROPOUT)
            self.dense = nn.Dense(units, activation="tanh", in_units=3 * units)
            self.out_dropout = nn.Dropout(OUTPUT_DROPOUT)
            self.out = nn.Dense(1, in_units=units)

    def hybrid_forward(self, F, first: Tensor) -> Tensor:
        question, document = F.split(first, num_outputs=2, axis=1)  # (B, C)
        if self.question_pooler is not None and self.document_pooler is not None:
            question = self.question_pooler(question)
            document = self.document_pooler(document)
        question = self.dropout(question)
        document = self.dropout(document)
        joint = F.concat(question, document, question - document, dim=1)  # (B, 3 C)
        scores = self.out(self.out_dropout(self.dense(joint)))
        return F.reshape(scores, (-1,))


def _pooler(units: int, has_pooler: bool) -> Optional[nn.Dense]:
    return nn.Dense(units, activation="tanh", in_units=units) if has_pooler else None


class LSTMInteraction(HybridBlock):
    """LSTM variant: the document is read by an LSTM, beside what it attends to in the question.

    Each document position gets a weighted sum of the question's encodings, the aligned question
    embedding of Chen et al. 2017, section 3.2. Two bidirectional LSTM layers read both. A bilinear
    layer joins each of their outputs with the pooled question, and the maximum over the positions
    goes to the output layer.

    Inputs are ``question``, (B, N, C), and ``document``, (B, M, C), each followed by its valid
    lengths, (B,); the output is (B, 1) log-odds.

    Parameters
    ----------
    units : int
        C, the encoder's width.
    has_pooler : bool
        Whether the family's encoders have a pooler. Without one, the pooled question is its first
        encoding.
    """

    def __init__(self, units: int, has_pooler: bool, **kwargs) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.question_pooler = _pooler(units, has_pooler)
            self.dropout = nn.Dropout(INPUT_DROPOUT)
            self.alignment = nn.Dense(units, activation="relu", flatten=False, in_units=units)
            self.lstm = nn.HybridSequential()
            for _ in range(LSTM_LAYERS):
                # A standard deviation of 0.02 would leave all gates half open.
                self.lstm.add(Recurrence("bilstm", 2 * units, 2 * units, mx.init.Xavier()))
            self.question_dense = nn.Dense(BILINEAR, in_units=units)
            self.document_dense = nn.Dense(
                BILINEAR, flatten=False, in_units=2 * LSTM_LAYERS * units
            )
            # W_1, ..., W_128 of the outputs d^T W_k q + b_k.
            self.bilinear = nn.Dense(BILINEAR * BILINEAR, use_bias=False, in_units=BILINEAR)
            self.bilinear_bias = self.params.get("bilinear_bias", shape=(BILINEAR,), init="zeros")
            self.out = nn.Dense(1, in_units=BILINEAR)

    def hybrid_forward(self, F, *encoded: Tensor, bilinear_bias: Tensor) -> Tensor:
        question, question_valid, document, document_valid = encoded
        first = F.reshape(_first(F, question), (-3, 0))  # (B, C)
        if self.question_pooler is not None:
            first = self.question_pooler(first)
        question = self.dropout(question)
        document = self.dropout(document)
        aligned = self._align(F, question, question_valid, document)  # (B, M, C)
        hidden = F.concat(document, aligned, dim=2)
        hidden = F.swapaxes(hidden, 0, 1)  # (M, B, 2 C)
        outputs = []
        for layer in self.lstm._children.values():
            hidden = self.dropout(hidden)
            hidden = layer(hidden, document_valid)
            outputs.append(hidden)
        hidden = F.concat(*outputs, dim=2)
        hidden = F.swapaxes(hidden, 0, 1)  # (B, M, 4 C)
        hidden = self.document_dense(self.dropout(hidden))
        hidden = self.dropout(hidden)  # (B, M, 128)
        first = self.dropout(self.question_dense(first))  # (B, 128)
        weights = self.bilinear(first)
        weights = F.reshape(weights, (0, BILINEAR, BILINEAR))
        joint = F.batch_dot(hidden, weights, transpose_b=True)  # (B, M, 128)
        padding = padding_of(F, document, document_valid)
        joint = F.broadcast_add(joint, padding)
        greatest = F.max(joint, axis=1)  # (B, 128)
        bias = F.expand_dims(bilinear_bias, axis=0)
        greatest = F.broadcast_add(greatest, bias)
        return self.out(greatest)

    def _align(self, F, question: Tensor, question_valid: Tensor, document: Tensor) -> Tensor:
        keys = self.alignment(question)
        queries = self.alignment(document)
        scores = F.batch_dot(queries, keys, transpose_b=True)  # (B, M, N)
        padding = padding_of(F, question, question_valid)
        padding = F.swapaxes(padding, 1, 2)  # (B, 1, N)
        scores = F.broadcast_add(scores, padding)
        weights = F.softmax(scores)
        return F.batch_dot(weights, question)


def padding_of(F: Any, hidden: Tensor, valid_length: Tensor) -> Tensor:
    """Mask of padded rows, to be added before a maximum or a softmax.

    Shapes: `hidden` (B, length, C), `valid_length` (B,), the result (B, length, 1).
    """
    real = real_positions(F, hidden, valid_length)  # (B, length)
    masked = (1 - real) * MASKED
    return F.expand_dims(masked, axis=2)


class FirstRows(HybridBlock):
    """The first encodings of both texts, which is all that the linear variant reads.

    Inputs and outputs are those of `PairRows`; here the output has two positions.
    """

    def hybrid_forward(self, F, *encoded: Tensor) -> Tuple[Tensor, Tensor]:
        question, question_valid, document, _ = encoded
        first = F.concat(_first(F, question), _first(F, document), dim=1)
        return first, 2 * F.ones_like(question_valid)


def _first(F: Any, hidden: Tensor) -> Tensor:
    """First row of each text, (B, 1, C)."""
    return F.slice_axis(hidden, axis=1, begin=0, end=1)


class PairRows(HybridBlock):
    """The joint sequence of a question and a document.

    Rows of the position table and of the type table are added to both encodings, without dropout
    and without a normalisation, as in public implementations. Those let
    the document's positions start after the padded question. Here they start at the greatest length
    of a question, so that no score depends on the other pairs of a batch, and the positions of a
    document are known ahead of time.

    With positions and types in the rows their order has no effect. The order here is: both first
    rows, the question, the document, padding. A classifier then reads rows 0 and 1 of every pair.

    Inputs are ``question``, (B, N, C), and ``document``, (B, M, C), each followed by its valid
    lengths, (B,). The outputs are the rows, (B, L, C), and their valid lengths, (B,).

    Parameters
    ----------
    owner : mxnet.gluon.Block
        Block that owns the tables, ``position_weight``, (positions, C), and ``type_weight``,
        (2, C), which this block shares.
    start : int
        Position of a document's first token.
    """

    def __init__(self, owner: Any, start: int) -> None:
        super().__init__(prefix=owner.prefix, params=owner.params)
        self._start = start
        self.position_weight = self.params.get("position_weight")
        self.type_weight = self.params.get("type_weight")
        self._sizes = self.position_weight.shape

    def hybrid_forward(self, F, *encoded: Tensor, **tables: Tensor) -> Tuple[Tensor, Tensor]:
        question, question_valid, document, document_valid = encoded
        question = self._add_rows(F, question, 0, **tables)
        document = self._add_rows(F, document, 1, **tables)
        hidden = F.concat(question, document, dim=1)  # (B, L, C), padding of questions inside
        order = _order(F, hidden, question, question_valid)
        # A lookup in all rows of the batch, which is ten times faster than `batch_dot` with a
        # permutation, and whose gradient is four times faster than that of `gather_nd`.
        rows = F.reshape(hidden, (-3, 0))  # (B * L, C)
        rows = F.take(rows, order)
        rows = F.reshape_like(rows, hidden)
        return rows, question_valid + document_valid

    def _add_rows(
        self, F, hidden: Tensor, text: int, position_weight: Tensor, type_weight: Tensor
    ) -> Tensor:
        """Add rows of the tables to the encodings of text 0, questions, or 1, documents."""
        positions, units = self._sizes
        steps = F.contrib.arange_like(hidden, axis=1) + text * self._start
        added = F.Embedding(steps, position_weight, input_dim=positions, output_dim=units)
        kind = F.slice_axis(type_weight, axis=0, begin=text, end=text + 1)  # (1, C)
        added = F.broadcast_add(added, kind)  # (length, C)
        added = F.expand_dims(added, axis=0)
        return F.broadcast_add(hidden, added)


def _order(F, joined: Tensor, question: Tensor, question_valid: Tensor) -> Tensor:
    """Numbers of the rows of `PairRows`, in its order, among all rows of the batch, (B * L,)."""
    column = F.slice_axis(joined, axis=2, begin=0, end=1)
    numbers = F.contrib.arange_like(column)  # (B, L, 1)
    starts = _first(F, numbers)
    starts = F.reshape(starts, (-1, 1))  # (B, 1)
    steps = F.contrib.arange_like(joined, axis=1)
    steps = F.expand_dims(steps, axis=0)  # (1, L)
    question_steps = F.contrib.arange_like(question, axis=1)
    width = F.sum(F.ones_like(question_steps))
    width = F.reshape(width, (1, 1))  # N
    length = F.reshape(question_valid, (-1, 1))  # (B, 1)
    in_question = F.broadcast_lesser_equal(steps, length)  # (B, L)
    of_question = F.broadcast_mul(in_question, F.relu(steps - 1))
    of_document = F.broadcast_add(steps, width)
    of_document = F.broadcast_sub(of_document, length)
    # The positions of the padding take the last row of the pair.
    last = F.max(steps, axis=1, keepdims=True)
    of_document = F.broadcast_minimum(of_document, last)
    in_document = 1 - in_question
    order = of_question + in_document * of_document
    second = F.broadcast_mul(steps == 1, width)  # (1, L), the document's first row
    order = F.broadcast_add(order, second)
    order = F.broadcast_add(order, starts)
    order = F.reshape(order, (-1,))
    return F.BlockGrad(order)


class StagedInteraction(HybridBlock):
    """Stages of layers and a head, one after another, on the joint sequence.

    Inputs are those of `PairRows`; the output is (B, n), the log-odds of each of the n stages.

    Parameters
    ----------
    join : HybridBlock
        Block that makes the joint sequence.
    stages : sequence of Stage
        The first takes the joint sequence, later ones the encodings of the stage before.
    """

    def __init__(self, join: HybridBlock, stages: Sequence[Stage]) -> None:
        super().__init__()
        self.join = join
        self._stages = tuple(stages)
        for number, stage in enumerate(stages, 1):
            self.register_child(stage, f"stage_{number}")
        break_cycles(self)

    def hybrid_forward(self, F, *encoded: Tensor) -> Tensor:
        joined = self.join(*encoded)
        scores = scores_of_stages(self._stages, *joined)
        return F.stack(*scores, axis=1)
