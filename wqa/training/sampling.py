"""Random draws that depend on the seed and the update alone.

A resumed training therefore makes the same draws as one that was never interrupted, and all devices
make the same draws. No state of a generator is saved.
"""

from __future__ import annotations

from typing import Optional, Sequence

import numpy as np

_EXIT, _ORDER, _DROPOUT = range(3)


def exit_of_update(
    seed: int, update: int, exits: int, weights: Optional[Sequence[float]] = None
) -> int:
    """Draw the exit that an update trains (Soldaini and Moschitti 2020, section 4.3.1)."""
    rng = np.random.default_rng([seed, _EXIT, update])
    if weights is None:
        return int(rng.integers(exits))
    return int(rng.choice(exits, p=np.asarray(weights) / sum(weights)))


def order_of_epoch(seed: int, epoch: int) -> np.random.Generator:
    """Create the generator that shuffles an epoch."""
    return np.random.default_rng([seed, _ORDER, epoch])


def dropout_seed(seed: int, update: int, rank: int = 0) -> int:
    """Seed of MXNet's generators for one update; each device adds its index to it."""
    entropy = [seed, _DROPOUT, update]
    if rank:
        entropy.append(rank)
    return int(np.random.default_rng(entropy).integers(2**31 - 1024))
