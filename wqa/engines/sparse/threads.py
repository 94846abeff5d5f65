"""Threads that compute parts of a batch; numpy and scipy release Python's lock meanwhile."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, List, Sequence, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


def count_threads() -> int:
    """Number of threads that compute by default: ``OMP_NUM_THREADS``, as MXNet takes it.

    Returns
    -------
    int
    """
    return int(os.environ["OMP_NUM_THREADS"])  # `wqa.models` sets and checks it


def in_threads(
    function: Callable[[Part], Result], parts: Sequence[Part], threads: int
) -> List[Result]:
    """Call a function for each part, in this thread and in others."""
    if threads == 1 or len(parts) == 1:
        return [function(part) for part in parts]
    # Every thread takes parts in turn, so that none waits for another's last one.
    futures = []
    for first in range(1, threads):
        futures.append(_pool(threads).submit(_run, function, parts[first::threads]))
    results: List[List[Result]] = [_run(function, parts[::threads])]
    results += [future.result() for future in futures]
    return [results[index % threads][index // threads] for index in range(len(parts))]


def _run(function: Callable[[Part], Result], parts: Sequence[Part]) -> List[Result]:
    return [function(part) for part in parts]


@functools.lru_cache(maxsize=None)
def _pool(threads: int) -> ThreadPoolExecutor:
    _forget_at_forks()
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="wqa sparse")


@functools.lru_cache(maxsize=None)
def _forget_at_forks() -> None:
    """A forked child has no threads beside its own, and starts new ones."""
    os.register_at_fork(after_in_child=_pool.cache_clear)
