"""Threads that compute parts of a task; NumPy, SciPy and oneDNN release Python's lock meanwhile."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Callable, Dict, List, Sequence, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Part], Result], parts: Sequence[Part], threads: int
) -> List[Result]:
    """Call a function for each part, in this thread and in others.

    Other threads begin with the first parts, this one with the last, so that it computes by itself
    where other calls have all of them. If a part fails, or this thread is interrupted, the parts
    that have begun are waited for, as they read and write what the caller owns.
    """
    if threads == 1 or len(parts) == 1:
        return [function(part) for part in parts]
    futures: List[Future] = []
    results: Dict[int, Result] = {}
    try:
        with contextlib.suppress(RuntimeError):  # the interpreter ends: this thread computes alone
            for part in parts:
                futures.append(_pool(threads).submit(function, part))
        for number in reversed(range(len(parts))):
            if number < len(futures) and not futures[number].cancel():
                break
            results[number] = function(parts[number])
        for number, future in enumerate(futures):
            if not future.cancelled():
                results[number] = future.result()
    finally:
        concurrent.futures.wait([future for future in futures if not future.cancel()])
    return [results[number] for number in range(len(parts))]


@functools.lru_cache(maxsize=None)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="wqa engine")
