"""Rankers with random weights, for timing shapes without a trained run."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import mxnet as mx
import numpy as np

from wqa.config import BackboneConfig, EngineConfig
from wqa.inference.cascade import CascadeRanker
from wqa.models import build_network, parse_devices
from wqa.text import Encoded


class _Encoder:
    """Replaces a pair encoder where all pairs are encoded."""

    class tokenizer:  # noqa: N801 - replaces an instance
        padding_id = 0
        pair_form = "roberta"


def random_ranker(
    config: BackboneConfig, exits: Sequence[int] = (), seed: int = 0, **options: Any
) -> CascadeRanker:
    """Build a cascade with random weights, which ranks encoded pairs only.

    Parameters
    ----------
    config : BackboneConfig
        Sizes of the encoder.
    exits : sequence of int
        Layers of the exits; the default of the cascade if empty.
    seed : int
        Seed of the weights.
    **options
        Parameters of `CascadeRanker`.

    Returns
    -------
    CascadeRanker
        Ranker for `wqa.inference.CascadeRanker.rank_pairs`.
    """
    mx.random.seed(seed)
    engine = options.get("engine") or EngineConfig(engine="mxnet")
    network = build_network("cascade", config, exits=tuple(exits))
    network.initialize(mx.init.Normal(0.02), ctx=parse_devices(engine.ctx))
    return CascadeRanker(network, _Encoder(), **options)  # type: ignore[arg-type]


def random_pairs(
    rng: np.random.Generator, count: int, shortest: int, longest: int, vocab_size: int
) -> List[Encoded]:
    """Draw pairs with uniform lengths and token ids.

    Parameters
    ----------
    rng : numpy.random.Generator
        Generator of lengths and token ids.
    count : int
        Number of pairs.
    shortest, longest : int
        Smallest and greatest number of tokens of a pair.
    vocab_size : int
        Size of the vocabulary.

    Returns
    -------
    list of Encoded
        Pairs without truncated or empty candidates.
    """
    lengths = rng.integers(shortest, longest + 1, count)
    pairs = []
    for length in lengths:
        token_ids = rng.integers(vocab_size, size=length, dtype=np.int32)
        pairs.append(Encoded(token_ids, int(length) // 3, False, False))
    return pairs


def random_questions(
    count: int, candidates: int, lengths: Tuple[int, int], vocab_size: int, seed: int = 0
) -> List[List[Encoded]]:
    """Draw the pairs of several questions.

    Parameters
    ----------
    count : int
        Number of questions.
    candidates : int
        Number of candidates of a question.
    lengths : (int, int)
        Smallest and greatest number of tokens of a pair.
    vocab_size : int
        Size of the vocabulary.
    seed : int
        Seed of the draw.

    Returns
    -------
    list of list of Encoded
        Pairs of each question.
    """
    rng = np.random.default_rng(seed)
    return [random_pairs(rng, candidates, *lengths, vocab_size) for _ in range(count)]
