"""Networks that score all candidates of a question at once, from word embeddings that stay fixed.

Bonadiman and Moschitti 2020, section 4: an encoder of pairs, a recurrent layer over the candidates
of a question in their original order, and a dense layer that scores them. Each paper's encoder of
pairs has its own file.

Shapes: Q questions, n candidates a question, B = Q n pairs, N words of a question, M words of a
candidate, L words of either, D the width of the word embeddings, C that of a pair.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Dict, List, Optional

from wqa.models.runtime import Tensor

import mxnet as mx
import numpy as np
from mxnet.gluon import Parameter, nn

from wqa.config import BackboneConfig
from wqa.config.systems import option, without_option
from wqa.errors import OptionError, check_choice
from wqa.models.backbone import real_positions
from wqa.models.heads import KINDS, Recurrence
from wqa.models.network import Network, NetworkConfig
from wqa.systems.cosinet.inputs import ListInputs
from wqa.text import Tokenizer, bucketed, plan_batches
from wqa.text.words import BUCKETS

#: Losses: binary cross-entropy of pairs, or the divergence of a list from its labels.
LOSSES = ("pointwise", "listwise")
#: Recurrent layers over the candidates of a question.
RECURRENT = ("none", *KINDS)
#: Peaks of the learning rate by the loss (Bonadiman and Moschitti 2020, section 5.2).
LEARNING_RATES = {"pointwise": 2e-3, "listwise": 2e-4}
#: Padded words of the pairs that are encoded at once.
WORDS = 8192


@dataclasses.dataclass(frozen=True)
class ListConfig(NetworkConfig):
    """Configuration of networks on lists of candidates.

    Parameters
    ----------
    words : str
        Folder of word vectors, as `wqa.data.word_vectors.write_word_vectors` writes it. A run holds
        a copy of them.
    loss : {"pointwise", "listwise"}
        Binary cross-entropy of each pair, or the Kullback-Leibler divergence of the softmax over
        a question's candidates from their normalised labels (section 4.2).
    recurrent : {"none", "rnn", "birnn", "lstm", "bilstm"}
        Recurrent layer over the candidates; it needs the loss ``"listwise"``.
    buckets : int
        Number of vectors that unknown words share, by a hash; with 0 all of them have one, zero.
    rows : int
        Number of rows of the word embeddings, that of the padding included.
    width : int
        D, the width of the word embeddings.
    words_sha256 : str
        SHA-256 of the word vectors.

    Raises
    ------
    OptionError
        If a value is unknown or out of range, or pairs of their own would train a recurrent layer.
    """

    words: str = option("", "word vectors, a folder that `wqa embed-words` wrote")
    loss: str = option("listwise", "binary cross-entropy of pairs, or divergence of whole lists")
    recurrent: str = option("none", "recurrent layer over the candidates of a question")
    buckets: int = option(BUCKETS, "random vectors that unknown words share, 0 for one of zeros")
    rows: int = without_option(0)
    width: int = without_option(0)
    words_sha256: str = without_option("")

    #: Values that some fields are limited to.
    CHOICES = {"loss": LOSSES, "recurrent": RECURRENT}

    def __post_init__(self) -> None:
        for name, known in self.CHOICES.items():
            check_choice(name, getattr(self, name), known)
        if self.loss == "pointwise" and self.recurrent != "none":
            expected = "listwise, as a recurrent layer learns from whole lists"
            raise OptionError("loss and recurrent", f"pointwise and {self.recurrent}", expected)

    def training_defaults(self) -> Dict[str, Any]:
        return {"epochs": 3, "schedule": "slanted", "learning_rate": LEARNING_RATES[self.loss]}


def uniform_by_fan_in() -> mx.init.Initializer:
    """Weights from U(-1/sqrt(n), 1/sqrt(n)), where an output reads n inputs; biases stay 0.

    The paper names no initialization. This one is the default of Torch, in which the published code
    of Compare-Aggregate is written (Wang and Jiang 2017). With that of Glorot and Bengio (2010) the
    filters start 1.7 times as large, and the networks overfit (`recipes/cosinet/logs/README.md`).

    Returns
    -------
    mxnet.init.Initializer
    """
    return mx.init.Xavier(factor_type="in", magnitude=1)


class ListNetwork(Network):
    """Base class of networks on lists; a paper's network encodes a question with a candidate.

    Inputs are ``question_ids``, (Q, N), and ``candidate_ids``, (Q, n, M), int32, in which 0 is
    padding; ``question_valid``, (Q,), and ``candidate_valid``, (Q, n), the numbers of their words,
    and ``list_valid``, (Q,), the number of candidates, float32. The output is (Q, n) scores. They
    are log-odds after pointwise training, and logits of a softmax over the list after listwise
    training. Padding of words, candidates or questions never changes the score of a candidate; the
    score of padding is 0.

    A subclass sets `pair_units` and `recurrent_units`, makes its blocks in `make_encoder`, and
    implements `encode_pairs`.

    Parameters
    ----------
    backbone : None
        There is no encoder.
    config : ListConfig, optional
        Configuration of the system.

    Raises
    ------
    OptionError
        If there is an encoder, or the sizes of the word embeddings are missing.
    """

    Config: Any = ListConfig
    #: C, width of an encoded pair.
    pair_units = 0
    #: Width of the output of the recurrent layer.
    recurrent_units = 0

    def __init__(
        self, backbone: Optional[BackboneConfig], config: Optional[ListConfig] = None, **kwargs
    ) -> None:
        super().__init__(backbone, config, **kwargs)
        if backbone is not None:
            raise OptionError("backbone", "an encoder", "none: the network reads word vectors")
        own = self.own_config
        if own.rows < 2 or own.width < 1:
            sizes = f"{own.rows} rows of width {own.width}"
            raise OptionError("word vectors", sizes, "the row of padding, and one for a word")
        units = self.pair_units
        with self.name_scope():
            # Static (section 4.1.1): no gradient, and saved with the run.
            self.vectors = self.params.get(
                "vectors", shape=(own.rows, own.width), init="zeros", grad_req="null"
            )
            self.make_encoder(own.width)
            self.recurrent = None
            if own.recurrent != "none":
                each = self.recurrent_units // (2 if own.recurrent.startswith("bi") else 1)
                initializer = mx.init.Uniform(1 / math.sqrt(each))
                self.recurrent = Recurrence(own.recurrent, self.recurrent_units, units, initializer)
                units = self.recurrent_units
            self.out = nn.Dense(
                1, flatten=False, in_units=units, weight_initializer=uniform_by_fan_in()
            )

    def constants(self) -> List[Parameter]:
        return [self.vectors]

    def make_encoder(self, width: int) -> None:
        """Make the blocks of `encode_words` and `encode_pairs`.

        Parameters
        ----------
        width : int
            D, the width of the word embeddings.
        """
        raise NotImplementedError

    def encode_words(self, F, words: Tensor, real: Tensor) -> Tensor:
        """Encode the words of a text before it meets the other one; by default they stay.

        Parameters
        ----------
        F : module
            ``mxnet.nd`` or ``mxnet.sym``.
        words : Tensor
            (texts, L, D) embeddings, 0 at padding.
        real : Tensor
            (texts, L, 1): 1 at words, 0 at padding.

        Returns
        -------
        Tensor
            (texts, L, units), 0 at padding.
        """
        return words

    def encode_pairs(
        self, F, question: Tensor, question_valid: Tensor, candidate: Tensor, valid: Tensor
    ) -> Tensor:
        """Encode pairs.

        Parameters
        ----------
        F : module
            ``mxnet.nd`` or ``mxnet.sym``.
        question, candidate : Tensor
            (B, N, units) and (B, M, units), as `encode_words` returns them.
        question_valid, valid : Tensor
            (B,) numbers of words of the question and of the candidate. A candidate that is padding
            has none; what is returned for it is finite, and not read.

        Returns
        -------
        Tensor
            (B, C)
        """
        raise NotImplementedError

    def word_work(self) -> int:
        """Multiply-adds of a pair for each of its words, in products with weights.

        Returns
        -------
        int
        """
        raise NotImplementedError

    def list_work(self) -> int:
        """Multiply-adds of a candidate beside those of its words, in products with weights.

        Returns
        -------
        int
        """
        work = 0
        for block in filter(None, (self.out, self.recurrent)):
            for name, parameter in block.collect_params().items():
                if name.endswith("weight"):
                    work += math.prod(parameter.shape)
        return work

    def by_pairs(self, *inputs: mx.nd.NDArray) -> mx.nd.NDArray:
        """Score lists whose pairs are encoded a few at a time, as MXNet ranks by the network.

        So the pairs of a long list are padded to others of their length, and memory does not grow
        with the longest. It takes the inputs of the network.
        """
        ctx = inputs[0].context
        vectors = self.vectors.data(ctx)
        questions, question_valid, candidates, valid = (array.asnumpy() for array in inputs[:-1])
        rows, columns = np.nonzero(valid)
        lengths = np.stack([question_valid[rows], valid[rows, columns]], axis=1).astype(int)
        encoded = np.zeros((*valid.shape, self.pair_units), np.float32)
        for batch in plan_batches(lengths, WORDS):
            row, column = rows[batch], columns[batch]
            # The arrays are padded to multiples of a bucket too.
            question_words, words = (bucketed(int(most)) for most in lengths[batch].max(axis=0))
            given = [questions[row, :question_words], question_valid[row]]
            given += [candidates[row, column, None, :words], valid[row, column, None]]
            arrays = [mx.nd.array(array, ctx, array.dtype) for array in given]
            pairs = self.encode(mx.nd, *arrays, vectors=vectors)  # (pairs, 1, C)
            encoded[row, column] = pairs.asnumpy()[:, 0]
        return self.score(mx.nd, mx.nd.array(encoded, ctx), inputs[-1])

    def stage_work(self) -> List[float]:
        return [float(self.word_work())]

    def text_inputs(
        self, tokenizer: Tokenizer, max_length: int, long_questions: str = "error"
    ) -> ListInputs:
        if tokenizer.vocab_size != self.own_config.rows:
            ids = f"{tokenizer.vocab_size:,} ids"
            raise OptionError("tokenizer", ids, f"{self.own_config.rows:,}, the word embeddings")
        return ListInputs(tokenizer, max_length, long_questions)

    def hybrid_forward(self, F, *inputs: Tensor, vectors: Tensor) -> Tensor:
        return self.score(F, self.encode(F, *inputs[:-1], vectors=vectors), inputs[-1])

    def encode(self, F, *texts: Tensor, vectors: Tensor) -> Tensor:
        """Encode the pairs of lists, (Q, n, C), from the first four inputs of the network."""
        question_ids, question_valid, candidate_ids, candidate_valid = texts
        question = self._embed(F, question_ids, question_valid, vectors)  # (Q, N, units)
        question = _for_each(F, question, candidate_ids)  # (B, N, units)
        question_counts = _for_each(F, question_valid, candidate_ids)  # (B,)
        ids = F.reshape(candidate_ids, (-3, 0))  # (B, M)
        counts = F.reshape(candidate_valid, (-1,))  # (B,)
        candidate = self._embed(F, ids, counts, vectors)  # (B, M, units)
        pairs = self.encode_pairs(F, question, question_counts, candidate, counts)  # (B, C)
        return F.reshape_like(pairs, candidate_ids, lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=2)

    def score(self, F, pairs: Tensor, list_valid: Tensor) -> Tensor:
        """Score the candidates of lists, (Q, n), from their pairs; padding has 0."""
        real = real_positions(F, pairs, list_valid)  # (Q, n)
        if self.recurrent is not None:
            pairs = F.swapaxes(pairs, 0, 1)  # (n, Q, C)
            pairs = F.swapaxes(self.recurrent(pairs, list_valid), 0, 1)
        return F.reshape(self.out(pairs), (0, -1)) * real

    def _embed(self, F, ids: Tensor, valid: Tensor, vectors: Tensor) -> Tensor:
        """Encoded words of texts, 0 at padding: (texts, L, units)."""
        own = self.own_config
        words = F.Embedding(ids, vectors, input_dim=own.rows, output_dim=own.width)
        real = F.expand_dims(real_positions(F, ids, valid), axis=2)  # (texts, L, 1)
        words = F.BlockGrad(F.broadcast_mul(words, real))
        return self.encode_words(F, words, real)


def _for_each(F, rows: Tensor, candidates: Tensor) -> Tensor:
    """Rows of questions, (Q, ...), repeated for each of the candidates, (Q, n, M): (B, ...)."""
    rows = F.expand_dims(rows, axis=1)  # (Q, 1, ...)
    rows = F.broadcast_like(rows, candidates, lhs_axes=(1,), rhs_axes=(1,))  # (Q, n, ...)
    return F.reshape(rows, (-3, -2))
