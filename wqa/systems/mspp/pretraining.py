"""Pre-training of the joint model (Di Liello et al. 2022, section 3.4 and appendix B.1).

An example is a question with k labelled candidates: a premise, and spans of which some share its
paragraph. `data_scripts/mspp_examples.py` draws them. The loss is the sum of two, and either can be
left out: binary cross-entropy of whether a candidate shares the premise's paragraph, the mean over
the k candidates, and cross-entropy of the masked tokens, the mean over the tokens of a mini-batch.

Masks are drawn anew in each epoch (Devlin et al. 2019, section 3.1; Liu et al. 2019, section 4.1).
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

from wqa.systems.mspp.task import MSPPTask
from wqa.text import Tokenizer, bucketed
from wqa.training.task import Arrays

#: Shares of the chosen tokens that the network reads as the mask, and as a random token.
MASKED, RANDOM = 0.8, 0.1


class Key(NamedTuple):
    """Key of a batch: its groups of candidates, and the seed of its masks."""

    groups: np.ndarray
    seed: int


class PretrainingTask(MSPPTask):
    """Groups of k labelled candidates, some of whose tokens are masked and predicted."""

    metric = "p@1"

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> List[Any]:
        batches = super().plan(tokens, rng)
        first = 0 if rng is None else int(rng.integers(2**31))
        return [Key(groups, first + number) for number, groups in enumerate(batches)]

    def batch(self, key: Any) -> Dict[str, np.ndarray]:
        batch, rate = super().batch(key.groups), self.network.own_config.mask_rate
        rng = np.random.default_rng(key.seed)
        return {**batch, **mask_tokens(batch["token_ids"], rate, self.inputs.tokenizer, rng)}

    def hybridize(self, active: bool) -> None:
        self.network.hybridize(active)
        self.network.predictor.hybridize(True)  # no engine computes it

    def losses(self, batch: Arrays, update: int) -> Arrays:
        own = self.network.own_config
        losses = {}
        if own.mask_rate:
            inputs = self.network_inputs(batch)
            scores, likelihoods = self.network.scores_and_likelihoods(
                inputs, batch["masked"], batch["masked_ids"]
            )
            losses["mlm"] = -(likelihoods * batch["mask_weights"]).sum(axis=1)
        else:
            scores = self.scores(batch, update)
        of_scores = self.score_losses(scores, batch["labels"])["loss"]
        return {"mspp": own.mspp_weight * of_scores, **losses}


def mask_tokens(
    token_ids: np.ndarray, rate: float, tokenizer: Tokenizer, rng: np.random.Generator
) -> Dict[str, np.ndarray]:
    """Choose tokens to predict, and replace most of them.

    Each token that is not special is chosen with the same probability, independently of the others,
    so that a short text may have none. Of the chosen ones the network reads the mask, a random
    token, or the token itself.

    Parameters
    ----------
    token_ids : numpy.ndarray
        (B, L) token ids of a batch.
    rate : float
        Probability that a token is chosen.
    tokenizer : Tokenizer
        Tokenizer of the ids.
    rng : numpy.random.Generator
        Generator of all draws.

    Returns
    -------
    dict of str to numpy.ndarray
        ``token_ids`` to read; ``masked`` and ``masked_ids``, (B, M) positions and ids of the chosen
        tokens; ``mask_weights``, (B, M), 0 behind them, whose sum is the number of rows.
    """
    mask_id = tokenizer.mask_id
    drawn = rng.random(token_ids.shape)
    drawn[np.isin(token_ids, tokenizer.special_ids())] = 1
    # One number decides both: below the rate a token is chosen, and how far below says what the
    # network reads. No draw is 1.
    chosen = drawn < rate
    is_mask = drawn < rate * MASKED
    is_random = chosen & ~is_mask & (drawn < rate * (MASKED + RANDOM))
    read = np.where(is_mask, mask_id, token_ids)
    read[is_random] = rng.choice(tokenizer.text_ids(), int(is_random.sum()))
    counts = chosen.sum(axis=1)
    width = bucketed(max(int(counts.max()), 1), token_ids.shape[1])
    masked = np.argsort(~chosen, axis=1, kind="stable")[:, :width]  # the chosen ones first
    is_chosen = np.arange(masked.shape[1]) < counts[:, None]
    return {
        "token_ids": read.astype(np.int32),
        "masked": masked.astype(np.float32),
        "masked_ids": np.take_along_axis(token_ids, masked, axis=1).astype(np.float32),
        "mask_weights": (is_chosen * len(counts) / max(counts.sum(), 1)).astype(np.float32),
    }
