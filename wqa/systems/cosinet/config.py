"""Configuration of networks on lists of candidates."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict

from wqa.config.systems import option, without_option
from wqa.errors import OptionError, check_choice
from wqa.models.network import NetworkConfig
from wqa.text.words import BUCKETS

#: Losses: binary cross-entropy of pairs, or the divergence of a list from its labels.
LOSSES = ("pointwise", "listwise")
#: Recurrent layers over the candidates of a question.
RECURRENT = ("none", "rnn", "birnn", "lstm", "bilstm")
#: Peaks of the learning rate by the loss (Bonadiman and Moschitti 2020, section 5.2).
LEARNING_RATES = {"pointwise": 2e-3, "listwise": 2e-4}


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
        for name in ("rows", "width"):
            if getattr(self, name) < 0:
                raise OptionError(name, getattr(self, name), "a whole number from 0")
        if self.loss == "pointwise" and self.recurrent != "none":
            raise OptionError(
                "loss and recurrent",
                f"pointwise and {self.recurrent}",
                "listwise, as a recurrent layer learns from whole lists",
                'set loss="listwise", or recurrent="none"',
            )

    def training_defaults(self) -> Dict[str, Any]:
        return {
            "epochs": 3,
            "schedule": "slanted",
            "learning_rate": LEARNING_RATES[self.loss],
        }
