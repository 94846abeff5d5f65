"""Draws that depend on the seed and the update alone.

A resumed training makes the same draws as one that never stopped, and every device and worker
makes the same ones, without any generator's state being saved.
"""

from __future__ import annotations

import numpy as np

_EXIT, _ORDER, _DROPOUT = range(3)


def exit_of_update(seed: int, update: int, exits: int) -> int:
    """Draw the exit that an update trains, uniformly (Soldaini and Moschitti 2020, section 4.3.1).

    Parameters
    ----------
    seed, update : int
    exits : int
        N.

    Returns
    -------
    int
        From 0 to ``exits - 1``.
    """
    return int(np.random.default_rng([seed, _EXIT, update]).integers(exits))


def order_of_epoch(seed: int, epoch: int) -> np.random.Generator:
    """Generator that shuffles an epoch.

    Parameters
    ----------
    seed, epoch : int

    Returns
    -------
    numpy.random.Generator
    """
    return np.random.default_rng([seed, _ORDER, epoch])


def dropout_seed(seed: int, update: int) -> int:
    """Seed of MXNet's generators for one update; each device adds its own number to it.

    Parameters
    ----------
    seed, update : int

    Returns
    -------
    int
        Below 2 ** 31 - 1024.
    """
    return int(np.random.default_rng([seed, _DROPOUT, update]).integers(2**31 - 1024))
