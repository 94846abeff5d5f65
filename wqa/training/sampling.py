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
    """Draw the exit that an update trains (Soldaini and Moschitti 2020, section 4.3.1).

    Parameters
    ----------
    seed : int
        Seed of the training.
    update : int
        Number of the update.
    exits : int
        N, the number of exits.
    weights : sequence of float, optional
        Weight of each exit, above 0, to which its probability is proportional. By default the draw
        is uniform, as in the paper.

    Returns
    -------
    int
        Index of the exit, from 0 to N - 1.
    """
    rng = np.random.default_rng([seed, _EXIT, update])
    if weights is None:
        return int(rng.integers(exits))
    return int(rng.choice(exits, p=np.asarray(weights) / sum(weights)))


def order_of_epoch(seed: int, epoch: int) -> np.random.Generator:
    """Create the generator that shuffles an epoch.

    Parameters
    ----------
    seed : int
        Seed of the training.
    epoch : int
        Number of the epoch.

    Returns
    -------
    numpy.random.Generator
    """
    return np.random.default_rng([seed, _ORDER, epoch])


def dropout_seed(seed: int, update: int, rank: int = 0) -> int:
    """Seed of MXNet's generators for one update; each device adds its index to it.

    Parameters
    ----------
    seed, update : int
        Seed of the training and number of the update.
    rank : int
        Number of the worker. Worker 0 draws as a single process does.

    Returns
    -------
    int
        A seed below 2 ** 31 - 1024.
    """
    entropy = [seed, _DROPOUT, update]
    if rank:
        entropy.append(rank)
    return int(np.random.default_rng(entropy).integers(2**31 - 1024))
