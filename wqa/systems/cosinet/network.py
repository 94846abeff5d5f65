"""Cosinet (Bonadiman and Moschitti 2020, section 4.1): cosines of words in place of attention.

Each word gets the greatest cosine of its embedding with those of the other text, the relatedness.
One convolution for each text reads both. A pair is the product and the difference of the two texts.

Compare-Aggregate (Wang and Jiang 2017), with which the paper compares: words are projected, each
text attends to the other, each word is multiplied with what it attends to, and convolutions of
several windows aggregate the products.

Shapes: B pairs, N words of a question, M of a candidate, L of either, D the width of the word
embeddings, C the width of a projected word.
"""

from __future__ import annotations

from wqa.models.runtime import Tensor

from mxnet.gluon import nn

from wqa.models.backbone import MASKED, greatest, real_positions
from wqa.systems.cosinet.lists import ListNetwork, uniform_by_fan_in

#: Filters of a text, and words that a filter reads (section 5.2).
FILTERS, WINDOW = 300, 5
#: Of Compare-Aggregate: C, the width of a projected word, and the words that the filters of each
#: convolution read.
UNITS, WINDOWS = 300, (1, 2, 3, 4, 5)
#: Below every cosine, for words that are padding.
_NO_COSINE = -2.0


class Cosinet(ListNetwork):
    """Cosinet, with a recurrent layer over the candidates or without one (section 4.2).

    It takes the parameters, inputs and output of `ListNetwork`. By the counts of
    parameters in Table 4 the two texts have filters of their own, and a recurrent layer has 300
    units, 150 in each of two directions.
    """

    pair_units = 2 * FILTERS
    recurrent_units = 300

    def make_encoder(self, width: int) -> None:
        self.question_filters = _filters(width + 1)
        self.candidate_filters = _filters(width + 1)
        # `wqa.engines.sparse` computes networks that name their convolutions here.
        self.text_filters = (self.question_filters, self.candidate_filters)

    def word_work(self) -> int:
        return WINDOW * (self.own_config.width + 1) * FILTERS

    def encode_pairs(
        self, F, question: Tensor, question_valid: Tensor, candidate: Tensor, valid: Tensor
    ) -> Tensor:
        in_question = real_positions(F, question, question_valid)  # (B, N)
        in_candidate = real_positions(F, candidate, valid)  # (B, M)
        # r_ij, section 4.1.1.
        directions = _normalized(F, question)
        others = _normalized(F, candidate)
        cosines = F.batch_dot(directions, others, transpose_b=True)  # (B, N, M)
        of_question = _relatedness(F, cosines, in_question, in_candidate, axis=2)  # r_i, (B, N)
        of_candidate = _relatedness(F, cosines, in_candidate, in_question, axis=1)  # r_j, (B, M)
        first = _text(F, self.question_filters, question, of_question, in_question)  # q_e
        second = _text(F, self.candidate_filters, candidate, of_candidate, in_candidate)  # c_e
        return F.concat(first * second, first - second, dim=1)  # qc_e, section 4.1.2


def _filters(channels: int) -> nn.Conv1D:
    """A convolution whose last channel is the relatedness; the first D are those of the words."""
    options = {"in_channels": channels, "weight_initializer": uniform_by_fan_in()}
    return nn.Conv1D(FILTERS, WINDOW, padding=WINDOW // 2, **options)


def _normalized(F, words: Tensor) -> Tensor:
    """Words of length 1; a word whose embedding is 0 stays 0, so that its cosines are 0."""
    squares = F.sum(F.square(words), axis=2, keepdims=True)
    norms = F.maximum(F.sqrt(squares), 1e-12)
    return F.broadcast_div(words, norms)


def _relatedness(F, cosines: Tensor, own: Tensor, other: Tensor, axis: int) -> Tensor:
    """Greatest cosine with a word of the other text; 0 at padding, as the embeddings are."""
    padding = F.expand_dims((1 - other) * _NO_COSINE, axis=3 - axis)
    cosines = F.broadcast_add(cosines, padding)
    related = F.max(cosines, axis=axis)
    return F.BlockGrad(related * own)


def _text(F, filters: nn.Conv1D, words: Tensor, related: Tensor, real: Tensor) -> Tensor:
    """A text as the greatest output of each filter, (B, 300)."""
    related = F.expand_dims(related, axis=2)  # (B, L, 1)
    channels = F.concat(words, related, dim=2)  # [w; r], (B, L, D + 1)
    channels = F.swapaxes(channels, 1, 2)
    outputs = filters(channels)  # (B, 300, L)
    # The paper names no activation; Severyn and Moschitti 2016 use ReLU. It is monotonic, so that
    # it may follow the maximum.
    return F.relu(greatest(F, outputs, real))


class CompareAggregate(ListNetwork):
    """Compare-Aggregate, with a recurrent layer over the candidates or without one.

    It takes the parameters, inputs and output of `ListNetwork`. The counts of
    parameters in Table 4 of Bonadiman and Moschitti 2020 tell its structure: one projection for
    both texts, attention without weights, both texts aggregated, each by convolutions of its own,
    and a recurrent layer of 600 units, 300 in each of two directions.

    Without weights the attention of words of length 1 is nearly uniform at first; ``wqa embed-words
    --length 10`` makes longer ones.
    """

    pair_units = 2 * len(WINDOWS) * FILTERS
    recurrent_units = 600

    def make_encoder(self, width: int) -> None:
        options = {"in_units": width, "weight_initializer": uniform_by_fan_in()}
        self.gate = nn.Dense(UNITS, activation="sigmoid", flatten=False, **options)
        self.update = nn.Dense(UNITS, activation="tanh", flatten=False, **options)
        self.question_filters = _window_filters()
        self.candidate_filters = _window_filters()

    def word_work(self) -> int:
        projection = 2 * self.own_config.width * UNITS
        return projection + sum(WINDOWS) * UNITS * FILTERS

    def encode_words(self, F, words: Tensor, real: Tensor) -> Tensor:
        # Equation 1: sigmoid(W_i x + b_i) * tanh(W_u x + b_u).
        projected = self.gate(words) * self.update(words)
        return F.broadcast_mul(projected, real)

    def encode_pairs(
        self, F, question: Tensor, question_valid: Tensor, candidate: Tensor, valid: Tensor
    ) -> Tensor:
        in_question = real_positions(F, question, question_valid)  # (B, N)
        in_candidate = real_positions(F, candidate, valid)  # (B, M)
        # Equation 2, without W_g.
        scores = F.batch_dot(question, candidate, transpose_b=True)  # (B, N, M)
        of_candidate = _attend(F, scores, in_candidate, candidate)  # (B, N, C)
        of_question = _attend(F, F.swapaxes(scores, 1, 2), in_question, question)  # (B, M, C)
        # Equation 7: the comparison multiplies.
        first = _aggregate(F, self.question_filters, question * of_candidate, question_valid)
        second = _aggregate(F, self.candidate_filters, candidate * of_question, valid)
        return F.concat(first, second, dim=1)


def _window_filters() -> nn.HybridSequential:
    """Convolutions of one text."""
    filters = nn.HybridSequential()
    options = {"in_channels": UNITS, "weight_initializer": uniform_by_fan_in()}
    for window in WINDOWS:
        # `_aggregate` drops the outputs of windows that begin before the text.
        filters.add(nn.Conv1D(FILTERS, window, padding=window - 1, **options))
    return filters


def _attend(F, scores: Tensor, real: Tensor, words: Tensor) -> Tensor:
    """Weighted sums of the words of a text, for each word of the other one."""
    padding = F.expand_dims((1 - real) * MASKED, axis=1)
    weights = F.softmax(F.broadcast_add(scores, padding), axis=2)
    return F.batch_dot(weights, words)


def _aggregate(F, filters: nn.HybridSequential, compared: Tensor, valid: Tensor) -> Tensor:
    """A text as the greatest output of each filter of all windows, (B, 1500) (equation 8)."""
    channels = F.swapaxes(compared, 1, 2)  # (B, C, L)
    texts = []
    for window, convolution in zip(WINDOWS, filters._children.values()):
        outputs = convolution(channels)
        outputs = F.slice_axis(outputs, axis=2, begin=window - 1, end=None)
        # A window lies inside the text; a text that is shorter than the window has one.
        counts = F.maximum(valid - (window - 1), 1)
        real = real_positions(F, compared, counts)
        # ReLU, as in the authors' code; it is monotonic, so that it may follow the maximum.
        texts.append(F.relu(greatest(F, outputs, real)))
    return F.concat(*texts, dim=1)
