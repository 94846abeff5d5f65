"""Compare-Aggregate (Wang and Jiang 2017), as Bonadiman and Moschitti 2020 compare with it.

Words are projected, each text attends to the other, each word is multiplied with what it attends
to, and convolutions of several windows aggregate the products.

Shapes: B pairs, N words of a question, M of a candidate, L of either, D the width of the word
embeddings, C = 300 units.
"""

from __future__ import annotations

from wqa.models.runtime import Tensor

from mxnet.gluon import nn

from wqa.models.masks import MASKED, greatest, real_positions
from wqa.systems.cosinet.lists import ListNetwork, uniform_by_fan_in

#: C, width of a projected word, and filters of a window.
UNITS, FILTERS = 300, 300
#: Words that the filters of each convolution read.
WINDOWS = (1, 2, 3, 4, 5)


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
        self.question_filters = _filters()
        self.candidate_filters = _filters()

    def word_work(self) -> int:
        return 2 * self.own_config.width * UNITS + sum(WINDOWS) * UNITS * FILTERS

    def encode_words(self, F, words: Tensor, real: Tensor) -> Tensor:
        # Equation 1: sigmoid(W_i x + b_i) * tanh(W_u x + b_u).
        return F.broadcast_mul(self.gate(words) * self.update(words), real)

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


def _filters() -> nn.HybridSequential:
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
    return F.batch_dot(F.softmax(F.broadcast_add(scores, padding), axis=2), words)


def _aggregate(F, filters: nn.HybridSequential, compared: Tensor, valid: Tensor) -> Tensor:
    """A text as the greatest output of each filter of all windows, (B, 1500) (equation 8)."""
    channels = F.swapaxes(compared, 1, 2)  # (B, C, L)
    texts = []
    for window, convolution in zip(WINDOWS, filters._children.values()):
        outputs = F.slice_axis(convolution(channels), axis=2, begin=window - 1, end=None)
        # A window lies inside the text; a text that is shorter than the window has one.
        counts = F.maximum(valid - (window - 1), 1)
        real = real_positions(F, compared, counts)
        # ReLU, as in the authors' code; it is monotonic, so that it may follow the maximum.
        texts.append(F.relu(greatest(F, outputs, real)))
    return F.concat(*texts, dim=1)
