"""Threads that compute: parts of a task each, or one at a time by MXNet, in one process.

NumPy, SciPy, oneDNN and MXNet release Python's lock meanwhile.
"""

from __future__ import annotations

import concurrent.futures
import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, List, Sequence, TypeVar

from wqa.errors import ProcessError

Part = TypeVar("Part")
Result = TypeVar("Result")

#: Lock of all that MXNet computes for rankers: networks share blocks, whose tracing is not safe in
#: several threads. A thread may take it while it holds that of an engine, never the reverse.
MXNET_LOCK = threading.RLock()

#: Set in a child that was forked from a process with an engine.
_is_forked = threading.Event()


@functools.lru_cache(maxsize=None)
def _note_forks() -> None:
    os.register_at_fork(after_in_child=_is_forked.set)


def check_process() -> None:
    """Check that engines can compute in this process.

    The threads of MXNet, OpenMP and ONNX Runtime, and what they hold, are not in a forked child.
    """
    if _is_forked.is_set():
        problem = "the process was forked from one that had loaded an engine"
        hint = 'start it by multiprocessing.get_context("spawn"), or fork before anything is loaded'
        raise ProcessError("engine", problem, "a process of its own", hint)
    _note_forks()


def in_mxnet_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function that computes by MXNet: in the main thread, or in one other thread.

    MXNet keeps some megabytes for each thread that computes, also after the thread has ended. So
    all threads but the main one share a single thread.
    """
    check_process()  # a forked child does not have that thread
    if threading.current_thread() is threading.main_thread():
        return function(*arguments)
    return _pool(1).submit(function, *arguments).result()


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
    """Threads of a number of parts at once; the pool of one is MXNet's."""
    return ThreadPoolExecutor(threads, thread_name_prefix="wqa engine")
