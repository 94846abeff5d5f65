"""Configuration of DC-BERT (Zhang et al. 2020, section 2)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Dict, Tuple

from wqa.config import BackboneConfig
from wqa.config.encoders import MOST_LAYERS, check_exits
from wqa.config.systems import option
from wqa.errors import OptionError, check_choice, shorten
from wqa.models.network import NetworkConfig

#: Least length of a question: its special tokens, and one token of the text.
LEAST_QUESTION = 3


@dataclasses.dataclass(frozen=True)
class DCBERTConfig(NetworkConfig):
    """Configuration of DC-BERT.

    Parameters
    ----------
    layers : int
        K, the number of interaction layers, at most those of the encoder.
    exits : tuple of int
        Interaction layers with a classifier, counted from 1. The last one always has one.
    question_length : int
        Greatest length of a question in tokens, special tokens included. Documents take the global
        positions from this one on.
    interaction : {"transformer", "linear", "lstm"}
        What runs on the encodings: transformer layers, or a variant of Table 3.
    classifier : {"concatenation", "comparison"}
        What the classifier reads: [o; o'] (equation 1), or o * o' and |o - o'| as well, beyond the
        paper.
    document_pairs : int
        Pairs of one document that a training batch keeps together. A batch encodes each of its
        texts once. With 1 pairs are shuffled apart. The paper does not say how it makes batches.

    Raises
    ------
    OptionError
        If a number is out of range, an exit is no interaction layer, a name is unknown, or a
        variant without transformer layers has several layers.
    """

    layers: int = option(1, "interaction layers")
    exits: Tuple[int, ...] = option(
        (), "interaction layers with a classifier, separated by commas (default: the last)"
    )
    question_length: int = option(64, "greatest length of a question in tokens")
    interaction: str = option("transformer", "what runs on the encodings of both texts")
    classifier: str = option(
        "concatenation", "what the classifier reads; comparison adds product and difference"
    )
    document_pairs: int = option(
        1, "pairs of one document that a training batch keeps together, to encode it once"
    )

    #: Values that some fields are limited to.
    CHOICES = {
        "interaction": ("transformer", "linear", "lstm"),
        "classifier": ("concatenation", "comparison"),
    }

    RETIRED: ClassVar[Dict[str, Any]] = {"joining": "sum", "row_scale": None, "trained_exits": None}

    def __post_init__(self) -> None:
        for name, known in self.CHOICES.items():
            check_choice(name, getattr(self, name), known)
        least = {"layers": 1, "question_length": LEAST_QUESTION, "document_pairs": 1}
        for name, smallest in least.items():
            value = getattr(self, name)
            if not smallest <= value <= MOST_LAYERS:
                expected = f"a whole number from {smallest} to {MOST_LAYERS}"
                raise OptionError(name, shorten(value), expected)
        for name in ("layers", "classifier"):
            value = getattr(self, name)
            if self.interaction != "transformer" and value != getattr(DCBERTConfig, name):
                with_it = f"{value} with interaction {self.interaction}"
                raise OptionError(name, with_it, 'interaction="transformer"')
        if self.exits:
            self._check_exits()

    def _check_exits(self) -> None:
        try:
            check_exits(self.exits, self.layers)
        except OptionError as error:
            expected = f"increasing interaction layers, from 1 to {self.layers}"
            raise OptionError("exits", error.found, expected) from None

    def layers_of(self, backbone: BackboneConfig) -> int:
        interaction = self.layers if self.interaction == "transformer" else 0
        return 2 * backbone.num_layers + interaction
