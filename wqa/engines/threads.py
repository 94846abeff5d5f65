"""Threads that compute parts of a task; NumPy, SciPy and oneDNN release Python's lock meanwhile."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, List, Sequence, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Part], Result], parts: Sequence[Part], threads: int
) -> List[Result]:
    """Call a function for each part, in this thread and in others.

    Each thread takes the next part that is left. Other calls may have all other threads; this one
    then computes by itself. Where a part fails, or this thread is interrupted, the others end after
    the part that they are at, and are waited for: what they read and write is the caller's.
    """
    if threads == 1 or len(parts) == 1:
        return [function(part) for part in parts]
    remaining = collections.deque(enumerate(parts))
    results: List[Any] = [None] * len(parts)

    def compute() -> None:
        try:
            while True:
                try:
                    number, part = remaining.popleft()
                except IndexError:
                    return
                results[number] = function(part)
        finally:
            remaining.clear()

    helpers: List[Future] = []
    with contextlib.suppress(RuntimeError):  # no executor takes work once the main thread has ended
        for _ in range(min(threads, len(parts)) - 1):
            helpers.append(_pool(threads).submit(compute))
    try:
        compute()
        _await(helpers)
    except BaseException:
        remaining.clear()
        _await(helpers)
        raise
    for helper in helpers:
        if not helper.cancelled():
            helper.result()
    return results


def _await(helpers: Sequence[Future]) -> None:
    """Wait for those that have begun."""
    concurrent.futures.wait([helper for helper in helpers if not helper.cancel()])


@functools.lru_cache(maxsize=None)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="wqa engine")
