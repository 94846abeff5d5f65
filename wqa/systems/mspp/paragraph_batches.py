"""Batches of pre-training on paragraphs: joint inputs with masked tokens."""

from __future__ import annotations

from typing import Dict, List, Sequence

import numpy as np

from wqa.systems.mspp.examples import ParagraphExample
from wqa.systems.mspp.inputs import JointEncoder, JointInput
from wqa.systems.mspp.masking import Masking
from wqa.text.batching import bucketed

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
