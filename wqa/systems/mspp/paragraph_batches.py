"""Batches of pre-training on paragraphs: joint inputs with masked tokens.

Dynamic masking for masked language modelling (Devlin et al. 2019, section 3.1; Liu et al. 2019,
section 4.1).

Masks are drawn when a batch is assembled, so that a text has other ones each time.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence

import numpy as np

from wqa.errors import OptionError
from wqa.systems.mspp.examples import ParagraphExample
from wqa.systems.mspp.inputs import JointEncoder, JointInput
from wqa.text.batching import bucketed
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
        for name, share in (("rate", rate), ("masked", masked), ("random", random)):
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


#: Second number of the seeds of masks, another than those of `wqa.systems.mspp.stream`.
_MASKS = 103


class ParagraphEncoder:
    """Encodes examples of paragraphs.

    Texts are cut to the length of a segment, premises too. A text without a token becomes a segment
    of its special tokens alone.
    """

    def __init__(self, joint: JointEncoder, masking: Masking) -> None:
        self.joint, self._masking = joint, masking
        #: Names of the arrays that a network takes, in its order.
        self.names = (*joint.names, "masked")

    def batch(
        self, examples: Sequence[ParagraphExample], seed: int, first: int = 0
    ) -> Dict[str, np.ndarray]:
        """Assemble a batch."""
        inputs = self._inputs(examples)
        positions: List[np.ndarray] = []
        ids: List[np.ndarray] = []
        for row, joint in enumerate(inputs):
            rng = np.random.default_rng([seed, _MASKS, first + row])
            token_ids, chosen = self._masking(joint.token_ids, rng)
            inputs[row] = joint._replace(token_ids=token_ids)
            positions.append(np.flatnonzero(chosen))
            ids.append(joint.token_ids[chosen])
        counts = [len(of_row) for of_row in positions]
        shape = (len(inputs), bucketed(max(*counts, 1)))
        masked, masked_ids, weights = (np.zeros(shape, dtype=np.float32) for _ in range(3))
        for row, count in enumerate(counts):
            masked[row, :count] = positions[row]
            masked_ids[row, :count] = ids[row]
            weights[row, :count] = len(inputs) / max(sum(counts), 1)
        return {
            **dict(zip(self.joint.names, self.joint.pad(inputs))),
            "masked": masked,
            "masked_ids": masked_ids,
            "mask_weights": weights,
            "kinds": np.array([example.kinds for example in examples], dtype=np.float32),
        }

    def _inputs(self, examples: Sequence[ParagraphExample]) -> List[JointInput]:
        texts: List[str] = []
        for example in examples:
            texts += [example.premise, *example.candidates]
        room = self.joint.document.room
        token_ids = [ids[:room] for ids in self.joint.tokenizer.encode(texts, self.joint.needed)]
        inputs = []
        start = 0
        for example in examples:
            end = start + 1 + len(example.candidates)
            premise, *candidates = token_ids[start:end]
            inputs.append(
                self.joint.join([self.joint.assemble(premise, ids) for ids in candidates])
            )
            start = end
        return inputs
