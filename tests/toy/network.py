"""The toy: a pair is scored from the mean word embeddings of its two texts, without an encoder.

Shapes: B pairs, L positions, C units.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from wqa.models.runtime import Tensor

import mxnet as mx
from mxnet.gluon import nn

from wqa.config import BackboneConfig
from wqa.errors import OptionError
from wqa.models import Network, NetworkConfig


def _option(default: Any, text: str) -> Any:
    """A field with the text of its option on the command line."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class ToyConfig(NetworkConfig):
    """Configuration of the toy.

    Parameters
    ----------
    units : int
        C, width of the word embeddings.
    vocab_size : int
        Greatest number of words, special tokens included. A run holds how many there are.
    margin : float
        How much higher an answer is to score than a wrong candidate of its question.
    stream : bool
        Whether the batches of an epoch are drawn one by one, and a triple may come twice.

    Raises
    ------
    OptionError
        If a size is below 1.
    """

    units: int = _option(16, "width of the word embeddings")
    vocab_size: int = _option(2000, "greatest number of words")
    margin: float = _option(1.0, "margin of the hinge loss")
    stream: bool = _option(False, "draw the batches of an epoch one by one")

    def __post_init__(self) -> None:
        for name in ("units", "vocab_size"):
            if getattr(self, name) < 1:
                raise OptionError(name, getattr(self, name), "a whole number above 0")


class ToyNetwork(Network):
    """Log-odds from the mean word embeddings of the question and of the candidate.

    Parameters
    ----------
    backbone : None
        The toy has no encoder.
    config : ToyConfig, optional
        Sizes of the network.
    """

    Config = ToyConfig

    def __init__(
        self, backbone: Optional[BackboneConfig], config: Optional[ToyConfig] = None, **kwargs
    ) -> None:
        super().__init__(backbone, config, **kwargs)
        units, words = self.own_config.units, self.own_config.vocab_size
        with self.name_scope():
            self.word = nn.Embedding(words, units, weight_initializer=mx.init.Normal(0.3))
            self.dense = nn.Dense(units, activation="relu", in_units=2 * units)
            self.out = nn.Dense(1, in_units=units)

    def hybrid_forward(
        self, F, token_ids: Tensor, token_types: Tensor, valid_length: Tensor
    ) -> Tensor:
        words = self.word(token_ids)  # (B, L, C)
        in_candidate = F.cast(token_types, "float32")  # (B, L); 0 at padding
        real = F.SequenceMask(
            F.ones_like(in_candidate), valid_length, use_sequence_length=True, axis=1
        )
        question = _mean(F, words, real - in_candidate)  # (B, C)
        candidate = _mean(F, words, in_candidate)  # (B, C)
        features = F.concat(question * candidate, F.abs(question - candidate), dim=1)  # (B, 2 C)
        return F.reshape(self.out(self.dense(features)), (-1,))  # (B,)


def _mean(F, words: Tensor, chosen: Tensor) -> Tensor:
    """Mean of the words at the positions where ``chosen``, (B, L), is 1: (B, C)."""
    sums = F.batch_dot(F.expand_dims(chosen, axis=1), words)  # (B, 1, C)
    return F.broadcast_div(F.reshape(sums, (-3, 0)), F.sum(chosen, axis=1, keepdims=True))
