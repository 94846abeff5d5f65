"""Threads that compute parts of a work; NumPy, SciPy and oneDNN release Python's lock meanwhile."""

from __future__ import annotations

import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Callable, List, Sequence, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Part], Result], parts: Sequence[Part], threads: int
) -> List[Result]:
    """Call a function for each part, in this thread and in others.

    Where a part fails, or this thread is interrupted, the others end after the part that they are
    at, and are waited for: what they read and write is the caller's.
    """
    if threads == 1 or len(parts) == 1:
        return [function(part) for part in parts]
    stopped = threading.Event()

    def run(own: Sequence[Part]) -> List[Result]:
        own_results = []
        for part in own:
            if stopped.is_set():
                break
            own_results.append(function(part))
        return own_results

    # Every thread takes parts in turn, so that none waits for another's last one.
    futures = []
    try:
        for first in range(1, threads):
            futures.append(_pool(threads).submit(run, parts[first::threads]))
        results: List[List[Result]] = [run(parts[::threads])]
        results += [future.result() for future in futures]
    except BaseException:
        stopped.set()
        raise
    finally:
        wait(futures)
    return [results[index % threads][index // threads] for index in range(len(parts))]


@functools.lru_cache(maxsize=None)
def _pool(threads: int) -> ThreadPoolExecutor:
    _forget_at_forks()
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="wqa engine")


@functools.lru_cache(maxsize=None)
def _forget_at_forks() -> None:
    """A forked child has no threads beside its own, and starts new ones."""
    os.register_at_fork(after_in_child=_pool.cache_clear)
