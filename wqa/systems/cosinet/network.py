"""Cosinet (Bonadiman and Moschitti 2020, section 4.1): cosines of words in place of attention.

Each word gets the greatest cosine of its embedding with those of the other text, the relatedness.
One convolution for each text reads both. A pair is the product and the difference of the two texts.

Shapes: B pairs, N words of a question, M of a candidate, D the width of the word embeddings.
"""

from __future__ import annotations

from wqa.models.runtime import Tensor

from mxnet.gluon import nn

from wqa.models.masks import greatest, real_positions
from wqa.systems.cosinet.lists import ListNetwork, uniform_by_fan_in

#: Filters of a text, and words that a filter reads (section 5.2).
FILTERS, WINDOW = 300, 5
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
        cosines = F.batch_dot(_normalized(F, question), _normalized(F, candidate), transpose_b=True)
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
    norms = F.sqrt(F.sum(F.square(words), axis=2, keepdims=True))
    return F.broadcast_div(words, F.maximum(norms, 1e-12))


def _relatedness(F, cosines: Tensor, own: Tensor, other: Tensor, axis: int) -> Tensor:
    """Greatest cosine with a word of the other text; 0 at padding, as the embeddings are."""
    padding = F.expand_dims((1 - other) * _NO_COSINE, axis=3 - axis)
    related = F.max(F.broadcast_add(cosines, padding), axis=axis)
    return F.BlockGrad(related * own)


def _text(F, filters: nn.Conv1D, words: Tensor, related: Tensor, real: Tensor) -> Tensor:
    """A text as the greatest output of each filter, (B, 300)."""
    channels = F.concat(words, F.expand_dims(related, axis=2), dim=2)  # [w; r], (B, L, D + 1)
    outputs = filters(F.swapaxes(channels, 1, 2))  # (B, 300, L)
    # The paper names no activation; Severyn and Moschitti 2016 use ReLU. It is monotonic, so that
    # it may follow the maximum.
    return F.relu(greatest(F, outputs, real))
