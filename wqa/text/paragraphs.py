"""Batches of pre-training on paragraphs: joint inputs with masked tokens."""

from __future__ import annotations

from typing import Dict, List, Sequence

import numpy as np

from wqa.data.paragraph_examples import ParagraphExample
from wqa.text.batching import bucketed
from wqa.text.joint import JointEncoder, JointInput
from wqa.text.masking import Masking

#: Kind of a candidate that a batch does not have.
NO_KIND = -1


class ParagraphEncoder:
    """Encodes examples of paragraphs.

    Texts are cut to the length of a segment, premises too. A text without a token becomes a segment
    of its special tokens alone.

    Parameters
    ----------
    joint : JointEncoder
        Encodes premises and candidates.
    masking : Masking
        Masks their tokens.
    """

    def __init__(self, joint: JointEncoder, masking: Masking) -> None:
        self.joint, self._masking = joint, masking
        #: Names of the arrays that a network takes, in its order.
        self.names = (*joint.names, "masked")

    def batch(
        self, examples: Sequence[ParagraphExample], rng: np.random.Generator
    ) -> Dict[str, np.ndarray]:
        """Assemble a batch.

        Parameters
        ----------
        examples : sequence of ParagraphExample
            Examples of k candidates, at least one.
        rng : numpy.random.Generator
            Generator of the masks.

        Returns
        -------
        dict of str to numpy.ndarray
            The arrays of `JointEncoder.pad`, whose ``token_ids`` are masked; ``masked``, (B, M)
            float32 positions to predict, 0 where a row has fewer; ``masked_ids``, (B, M) float32
            original ids there; ``mask_weights``, (B, M) float32, 0 where a row has fewer, and
            otherwise B over the number of masked tokens of the batch, so that the mean over rows is
            the mean over tokens; and ``kinds``, (B, k) float32 indices in
            `wqa.data.paragraph_examples.KINDS`.
        """
        arrays = dict(zip(self.joint.names, self.joint.pad(self._inputs(examples))))
        original = arrays["token_ids"]
        arrays["token_ids"], chosen = self._masking(original, rng)
        counts = chosen.sum(axis=1)
        width = bucketed(max(int(counts.max()), 1))
        masked = np.zeros((len(examples), width), dtype=np.float32)
        ids, weights = np.zeros_like(masked), np.zeros_like(masked)
        for row, count in enumerate(counts.tolist()):
            positions = np.flatnonzero(chosen[row])
            masked[row, :count] = positions
            ids[row, :count] = original[row, positions]
            weights[row, :count] = len(examples) / counts.sum()
        kinds = np.array([example.kinds for example in examples], dtype=np.float32)
        return {
            **arrays,
            "masked": masked,
            "masked_ids": ids,
            "mask_weights": weights,
            "kinds": kinds,
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
