"""Grids of drop ratios (Soldaini and Moschitti 2020, section 5.5)."""

from __future__ import annotations

import itertools
from typing import List, Sequence, Tuple

from wqa.errors import OptionError, shorten

#: The grid of section 5.5.
GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


def check_grid(grid: Sequence[float]) -> Tuple[float, ...]:
    """Check the ratios of a grid.

    Parameters
    ----------
    grid : sequence of float
        Drop ratios, in [0, 1).

    Returns
    -------
    tuple of float
        Each ratio once, ascending.

    Raises
    ------
    OptionError
        If there is none, or one lies outside [0, 1).
    """
    for ratio in grid:
        if not 0 <= ratio < 1:
            raise OptionError("grid", shorten(ratio), "drop ratios from 0 up to, not including, 1")
    if not grid:
        raise OptionError("grid", "nothing", "at least one drop ratio")
    ratios = {float(ratio) for ratio in grid}
    return tuple(sorted(ratios))


def full_grid(grid: Sequence[float], exits: int) -> List[Tuple[float, ...]]:
    """All configurations of a grid: a ratio for each exit but the last.

    Parameters
    ----------
    grid : sequence of float
        Drop ratios that an exit may have, in [0, 1).
    exits : int
        N, the number of exits.

    Returns
    -------
    list of tuple of float
        ``len(grid) ** (exits - 1)`` tuples of N - 1 ratios.

    Raises
    ------
    OptionError
        If the grid is empty, or a ratio lies outside [0, 1).
    """
    ratios = check_grid(grid)
    return list(itertools.product(ratios, repeat=exits - 1))


def placements(grid: Sequence[float], exits: int, place_exits: int) -> List[Tuple[float, ...]]:
    """Configurations that use some of the exits, with one ratio for those before the last.

    The last exit is always among them. An exit that is not used drops nothing, so a ratio of 0
    stands for it.

    Parameters
    ----------
    grid : sequence of float
        Drop ratios that a configuration may have, in [0, 1).
    exits : int
        N, the number of exits that the run was trained with.
    place_exits : int
        How many exits to use, from 1 to N.

    Returns
    -------
    list of tuple of float
        Tuples of N - 1 ratios.

    Raises
    ------
    OptionError
        If the grid or the number of exits does not fit.
    """
    if not 1 <= place_exits <= exits:
        raise OptionError(
            "place_exits", place_exits, f"a whole number from 1 to {exits}, the exits of the run"
        )
    ratios = [ratio for ratio in check_grid(grid) if ratio > 0]
    others = exits - 1
    configurations = []
    for ratio in ratios or [0.0]:
        for used in itertools.combinations(range(others), place_exits - 1):
            configuration = [0.0] * others
            for index in used:
                configuration[index] = ratio
            configurations.append(tuple(configuration))
    return configurations
