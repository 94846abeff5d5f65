"""OpenMP's threads in a forked process, where those of the parent do not exist.

OpenMP keeps the threads that compute beside a thread until that thread ends. In a forked child the
thread that called ``fork`` is alone, and waits forever for those beside it. Any other thread of the
child starts its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator, TypeVar

from wqa.errors import ProcessError

Result = TypeVar("Result")

#: ``has_computed``: whether the thread has computed by oneDNN. ``is_forked``: whether it is a
#: forked child's copy of a thread of its parent. ``is_stuck``: whether it is a copy of one that
#: has computed.
_thread = threading.local()


@functools.lru_cache(maxsize=None)
def note_forks() -> None:
    """Note from now on which threads are copies that a fork has made."""
    os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    _thread.is_forked = True
    _thread.is_stuck = getattr(_thread, "has_computed", False)
    _other_thread.cache_clear()


def check_thread() -> None:
    """Check that the calling thread can compute by oneDNN."""
    if getattr(_thread, "is_stuck", False):
        raise ProcessError(
            "oneDNN",
            "the process was forked from one that had computed by it",
            "a process of its own",
            'start it by multiprocessing.get_context("spawn"), or fork before anything is computed',
        )
    _thread.has_computed = True


def in_usable_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function that computes by oneDNN, in a thread that can."""
    if not getattr(_thread, "is_forked", False):
        return function(*arguments)
    return _other_thread().submit(function, *arguments).result()


@functools.lru_cache(maxsize=None)
def _other_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


def count_threads() -> int:
    """Number of OpenMP's threads that compute for the calling thread."""
    return _openmp().omp_get_max_threads()


@contextlib.contextmanager
def openmp_threads(threads: int) -> Iterator[None]:
    """Set the number of threads that compute for the calling thread, and restore it afterwards."""
    before = _openmp().omp_get_max_threads()
    _openmp().omp_set_num_threads(threads)
    try:
        yield
    finally:
        _openmp().omp_set_num_threads(before)


@functools.lru_cache(maxsize=None)
def _openmp() -> ctypes.CDLL:
    return ctypes.CDLL("libgomp.so.1")
