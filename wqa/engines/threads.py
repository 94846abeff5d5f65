"""Threads that compute parts of a task; NumPy, SciPy and oneDNN release Python's lock meanwhile."""

from __future__ import annotations

import concurrent.futures
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, List, Sequence, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Part], Result], parts: Sequence[Part], threads: int
) -> List[Result]:
    """Call a function for each part, in several threads.

    If a part fails, or this thread is interrupted, the parts that have begun are waited for, as
    they read and write what the caller owns.
    """
    if threads == 1 or len(parts) == 1:
        return [function(part) for part in parts]
    try:
        futures = [_pool(threads).submit(function, part) for part in parts]
    except RuntimeError:  # the interpreter ends, and no executor takes work
        return [function(part) for part in parts]
    try:
        return [future.result() for future in futures]
    finally:
        concurrent.futures.wait([future for future in futures if not future.cancel()])


@functools.lru_cache(maxsize=None)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="wqa engine")
