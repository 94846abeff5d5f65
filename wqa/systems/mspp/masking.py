"""Dynamic masking for masked language modelling (Devlin et al. 2019, section 3.1; Liu et al. 2019,
section 4.1).

Masks are drawn when a batch is assembled, so that a text has other ones each time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wqa.errors import OptionError
from wqa.text.tokenizers import Tokenizer


class Masked(NamedTuple):
    """Token ids to train on."""

    token_ids: np.ndarray
    chosen: np.ndarray


class Masking:
    """Chooses tokens to predict, and replaces most of them.

    Each token that is not special is chosen with the same probability, independently of the others,
    so that a short text may have none. Of the chosen ones the network reads the mask, a random
    token, or the token itself.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        rate: float = 0.15,
        masked: float = 0.8,
        random: float = 0.1,
    ) -> None:
        if not 0 < rate <= 1:
            raise OptionError("rate", rate, "a number above 0 and at most 1")
        for name, share in (("masked", masked), ("random", random)):
            if not 0 <= share <= 1:
                raise OptionError(name, share, "a number from 0 to 1")
        if masked + random > 1 + 1e-9:
            raise OptionError("masked and random", masked + random, "a sum of 1 or less")
        self.mask_id = tokenizer.mask_id
        self._text_ids = tokenizer.text_ids()
        self._special_ids = tokenizer.special_ids()
        self._rate, self._masked, self._random = rate, masked, random

    def __call__(self, token_ids: np.ndarray, rng: np.random.Generator) -> Masked:
        """Mask the token ids of a batch."""
        drawn = rng.random(token_ids.shape)
        drawn[np.isin(token_ids, self._special_ids)] = 1
        # One number decides both: below the rate a token is chosen, and how far below says what the
        # network reads. No draw is 1.
        chosen = drawn < self._rate
        masked = drawn < self._rate * self._masked
        replaced = chosen & ~masked & (drawn < self._rate * (self._masked + self._random))
        result = token_ids.copy()
        result[masked] = self.mask_id
        result[replaced] = rng.choice(self._text_ids, int(replaced.sum()))
        return Masked(result, chosen)
